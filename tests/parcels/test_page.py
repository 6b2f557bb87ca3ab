"""The page that opens a parcel, in a browser, from a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest
from playwright.sync_api import Browser, Page, expect

from backends.s3 import S3Store
from tests.backends import servers
from tests.backends.servers import FixedCredentials, Server
from tests.browser import chromium
from tests.page_checks import is_confined, is_sound, no_violations, overheard
from tests.volume.bucket_device import First

_PATIENCE = 30_000.0  # milliseconds
_CONTENT = bytes(range(256)) * 40_000  # two pieces


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.versitygw(tmp_path_factory.mktemp("s3-server")) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(_PATIENCE)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[tuple[First, str, str]]:
    """A device, and the id and the link of a file that it shares."""
    url = server.url()
    device = First(tmp_path_factory.mktemp("device"), [url], 0, 1, server.secrets)
    device.write("<b>summer<i> é.bin", _CONTENT)
    made = device.volume.parcels.make(PurePath("<b>summer<i> é.bin"), 1, None, lambda done, total: None)
    yield device, made.id, made.link
    device.close()


def test_who_has_the_link_downloads_the_file(
    page: Page, shared: tuple[First, str, str], tmp_path: Path
) -> None:
    complaints = overheard(page, shared[2])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(shared[2])
    expect(page.get_by_role("heading")).to_have_text("<b>summer<i> é.bin")
    expect(page.locator("#size")).to_have_text("10.2 MB")
    with page.expect_download() as downloaded:
        page.get_by_role("button", name="Download").click()
    downloaded.value.save_as(tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == _CONTENT
    assert downloaded.value.suggested_filename.endswith("é.bin")
    expect(page.get_by_role("status")).to_have_text("Downloaded.")
    key = shared[2].partition("#")[2]
    assert not any(key in url.partition("#")[0] for url in asked)
    assert [one for one in complaints if "favicon" not in one] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_sound(page: Page, shared: tuple[First, str, str], width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    answer = page.goto(shared[2])
    expect(page.get_by_role("button", name="Download")).to_be_visible()
    is_sound(page)
    is_confined(page, answer)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    no_violations(page)


@pytest.mark.parametrize("fragment", ["", "#", "#short", f"#{'A' * 43}"])
def test_a_link_that_is_not_whole_says_so(page: Page, shared: tuple[First, str, str], fragment: str) -> None:
    page.goto(shared[2].partition("#")[0] + fragment)
    expect(page.get_by_role("status")).to_have_text(
        "This cannot be opened: the link was changed, or the file was changed where it is stored."
        if len(fragment) == 44
        else "The link is not whole: what stands behind its # is missing or was changed."
    )
    expect(page.get_by_role("button")).to_be_hidden()


def test_a_file_that_was_changed_on_the_cloud_is_not_given_to_anybody(
    page: Page, shared: tuple[First, str, str], server: Server
) -> None:
    device, parcel, link = shared
    store = S3Store(device.volume.config.clouds[0].url, FixedCredentials(server.secrets))
    name = f"parcels/{parcel}/piece-0001"
    right = store.get(name, limit=1 << 30)
    page.goto(link)
    for content, said in (
        (right[:-1] + b"x", "was changed where it is stored"),
        (None, "has ended, or was revoked"),
    ):
        if content is None:
            store.delete(name)
        else:
            store.put(name, content)
        page.get_by_role("button", name="Download").click()
        expect(page.get_by_role("status")).to_contain_text(said)
    store.put(name, right)
    with page.expect_download():
        page.get_by_role("button", name="Download").click()
