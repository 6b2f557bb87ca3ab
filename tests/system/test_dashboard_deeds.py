"""What a person does with a volume by the page in a real browser: clouds are added, logged in to, tested and
drained, machines let in and removed, recovery kits made.

HYBRISFS_SCREENSHOTS names a folder that the pictures are kept in.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import segno
from playwright.sync_api import Page, expect

from tests.backends import servers
from tests.browser import chromium
from tests.system.dashboard_page import (
    DESK,
    PATIENCE,
    Opened,
    dashboard,
    looked_at,
    picture,
    show,
    watched,
)
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.pairing import Inviting, names


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """A mounted machine with three clouds."""
    root = tmp_path_factory.mktemp("here")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        here = stack.enter_context(Device(root)).create(3).mount()
        (here.mountpoint / "notes.txt").write_text("milk\n")
        here.sync()
        yield here


@pytest.fixture(scope="module")
def _first_page(device: Device) -> Iterator[Opened]:
    with chromium() as browser, dashboard(device) as link, watched(browser, link) as opened:
        yield opened


@pytest.fixture
def opened(_first_page: Opened) -> Iterator[Opened]:
    page = _first_page.page
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    yield _first_page
    page.unroute_all(behavior="wait")
    _first_page.complaints.clear()


def _refused(opened: Opened, times: int) -> None:
    """The browser has told of so many requests that were refused, and of nothing else."""
    assert [one for one in opened.complaints if "the server responded with a status of 4" not in one] == []
    assert len(opened.complaints) == times


def _close(page: Page) -> None:
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_folder_is_added_only_where_its_disk_is_there(opened: Opened, device: Device) -> None:
    page = opened.page
    folder = device.root / "missing" / "denim"
    show(page, "clouds")
    page.get_by_role("button", name="Add a cloud").click()
    dialog = page.get_by_role("dialog", name="Add a cloud")
    expect(dialog.get_by_text("a disk, or a network drive")).to_be_visible(timeout=PATIENCE)
    looked_at(page, "cloud-add")
    dialog.get_by_label("URL", exact=True).fill(folder.as_uri())
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text(
        f"there is no folder {folder.parent}", timeout=PATIENCE
    )
    assert not folder.exists()
    dialog.get_by_label("Make the folder also when its parent is not there").check()
    looked_at(page, "cloud-add-refused")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_text("vol uses the cloud denim now.")).to_be_visible(timeout=PATIENCE)
    expect(dialog.get_by_text(re.compile(r"^Note: .*denim.* disk"))).to_be_visible()
    looked_at(page, "cloud-added")
    _close(page)
    expect(page.get_by_role("heading", name="denim")).to_be_visible(timeout=PATIENCE)
    assert folder.is_dir()
    _refused(opened, 1)


def test_a_secret_is_typed_and_left_nowhere_but_in_the_credentials(
    opened: Opened, device: Device, tmp_path_factory: pytest.TempPathFactory
) -> None:
    page = opened.page
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    with servers.wsgidav(tmp_path_factory.mktemp("webdav")) as server:
        url = server.url("backup")
        [password], [wrong] = server.secrets.values(), ["a password that is wrong"]
        show(page, "clouds")
        page.get_by_role("button", name="Add a cloud").click()
        dialog = page.get_by_role("dialog", name="Add a cloud")
        dialog.get_by_label("URL", exact=True).fill(url)
        dialog.get_by_label("Name").fill("nas")
        dialog.get_by_role("button", name="Add", exact=True).click()
        field = dialog.get_by_label("Password", exact=True)
        expect(field).to_have_attribute("type", "password", timeout=PATIENCE)
        expect(field).to_have_attribute("autocomplete", "off")
        looked_at(page, "cloud-secrets")
        field.fill(wrong)
        dialog.get_by_role("button", name="Add", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text("cannot be used", timeout=PATIENCE)
        field.fill(password)
        dialog.get_by_role("button", name="Add", exact=True).click()
        expect(dialog.get_by_text("vol uses the cloud nas now.")).to_be_visible(timeout=PATIENCE)
        _left_nowhere(opened, device, sent, password, wrong)
        _close(page)

        page.get_by_role("button", name="Log in to nas").click(timeout=PATIENCE)
        dialog = page.get_by_role("dialog", name="Log in to")
        dialog.get_by_role("button", name="Log in", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text("nothing was given")
        dialog.get_by_text("Take it from a file").click()
        key = {"name": "key", "mimeType": "text/plain", "buffer": password.encode()}
        dialog.get_by_label("File with: Password").set_input_files(key)  # type: ignore[arg-type]
        dialog.get_by_role("button", name="Log in", exact=True).click()
        expect(dialog.get_by_text(f"{url} works:")).to_be_visible(timeout=PATIENCE)
        _close(page)
        _left_nowhere(opened, device, sent, password, wrong)

        page.get_by_role("button", name="Test nas").click()
        dialog = page.get_by_role("dialog", name="Test nas")
        expect(dialog.get_by_text("nas works:")).to_be_visible(timeout=PATIENCE)
        looked_at(page, "cloud-test")
        _close(page)

        page.get_by_role("button", name="Drain nas").click()
        page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        expect(page.get_by_text("nas is being emptied in the background.")).to_be_visible(timeout=PATIENCE)
        until(lambda: "nas" not in device.run("cloud", "list", device.volume), "the cloud to go")
        expect(page.get_by_role("heading", name="nas")).to_have_count(0, timeout=PATIENCE)
    _refused(opened, 1)


def _left_nowhere(opened: Opened, device: Device, sent: list[str], *secrets: str) -> None:
    """That the first secret is kept where only this user reads it, and none anywhere else."""
    _not_told(opened, device, sent, *secrets)
    credentials = json.loads((device.home / "config" / "credentials.json").read_text())
    assert secrets[0] in json.dumps(credentials)


def _not_told(opened: Opened, device: Device, sent: list[str], *secrets: str) -> None:
    """That no secret is on the page, in what a browser keeps of it, in an address, a log or an event."""
    page = opened.page
    kept = page.evaluate(
        "() => [document.documentElement.outerHTML, JSON.stringify(sessionStorage),"
        " JSON.stringify(localStorage), document.cookie, location.href].join(' ')"
    )
    typed = page.evaluate("() => [...document.querySelectorAll('input')].map(one => one.value).join(' ')")
    logs = (device.home / "state" / "daemon.log").read_text(errors="replace")
    told = device.run("events", device.volume, "--json") + device.run("cloud", "list", "--json")
    for secret in secrets:
        assert secret not in kept + typed + logs + told + " ".join(sent) + " ".join(opened.complaints)


def test_a_machine_is_let_in_and_removed(opened: Opened, device: Device, tmp_path: Path) -> None:
    page = opened.page
    with Device(tmp_path) as there:
        show(page, "devices")
        page.get_by_role("button", name="Invite another machine").click()
        dialog = page.get_by_role("dialog", name="Let another machine in")
        dialog.get_by_label("What it may do").select_option("contributor")
        expect(dialog.get_by_label("Folders that it may change")).to_be_visible()
        looked_at(page, "invite")
        dialog.get_by_label("What it may do").select_option("reader")
        dialog.get_by_role("button", name="Invite", exact=True).click()
        shown = dialog.locator("pre")
        expect(shown).to_contain_text("hybrisfs device join hfs1-", timeout=PATIENCE)
        code = shown.inner_text().split()[-1]
        drawing = dialog.get_by_role("img", name="The code of the invitation")
        assert _dark(drawing.locator("path").get_attribute("d")) == _modules(code)
        looked_at(page, "invite-code")
        joining = there.start("device", "join", code, "--name", "laptop", "--as", there.volume, "--yes")
        question = dialog.get_by_text("Does laptop show the same string?")
        expect(question).to_be_visible(timeout=PATIENCE)
        compared = dialog.locator(".compared").inner_text()
        expect(dialog.get_by_text(code)).to_have_count(0)
        looked_at(page, "invite-question")
        dialog.get_by_role("button", name="Yes, the same").click()
        expect(dialog.get_by_text("laptop belongs to the volume now, and only reads.")).to_be_visible(
            timeout=PATIENCE
        )
        said, errors = joining.communicate(timeout=60)
        assert joining.returncode == 0, errors
        assert compared in said
        _close(page)

        page.get_by_role("button", name="Remove laptop").click(timeout=PATIENCE)
        dialog = page.get_by_role("dialog", name="Remove laptop for good?")
        looked_at(page, "device-remove")
        dialog.get_by_role("button", name="Remove").click()
        expect(dialog.get_by_text("laptop no longer belongs to the volume.")).to_be_visible(timeout=PATIENCE)
        expect(dialog.get_by_text("change the secrets")).to_be_visible()
        looked_at(page, "device-removed")
        _close(page)
        assert "laptop" not in names(device)
    assert opened.complaints == []


def _dark(path: str | None) -> set[tuple[int, int]]:
    """The dark modules of a drawn QR code: column and row."""
    return {(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)h1v1h-1z", path or "")}


def _modules(code: str) -> set[tuple[int, int]]:
    """Those of the QR code of a text, in a border of two."""
    rows = segno.make_qr(code.upper(), error="l").matrix
    return {(x + 2, y + 2) for y, row in enumerate(rows) for x, module in enumerate(row) if module}


def test_an_invitation_ends_when_its_dialog_is_closed(opened: Opened) -> None:
    page = opened.page
    show(page, "devices")
    page.get_by_role("button", name="Invite another machine").click()
    dialog = page.get_by_role("dialog", name="Let another machine in")
    dialog.get_by_role("button", name="Invite", exact=True).click()
    expect(dialog.locator("pre")).to_contain_text("hfs1-", timeout=PATIENCE)
    with page.expect_response("**/api/jobs/*/stop"):
        page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert "hfs1-" not in page.content()
    assert opened.complaints == []


def test_this_machine_joins_a_volume_and_mounts_it(opened: Opened, device: Device, tmp_path: Path) -> None:
    page = opened.page
    with Device(tmp_path, volume="second") as there:
        there.create(3).mount()
        (there.mountpoint / "hello.txt").write_text("hello")
        there.sync()
        show(page, "devices")
        with Inviting(there, there.volume) as inviting:
            page.get_by_role("button", name="Join a volume").click()
            dialog = page.get_by_role("dialog", name="Join a volume")
            dialog.get_by_label("The code that the other machine shows").fill("hfs1-nonsense")
            dialog.get_by_role("button", name="Join", exact=True).click()
            expect(dialog.get_by_role("alert")).to_contain_text("code", timeout=PATIENCE)
            looked_at(page, "join-refused")
            code = dialog.get_by_label("The code that the other machine shows")
            code.fill(f"hybrisfs device join {inviting.code}")
            dialog.get_by_label("Name of this machine").fill("desk")
            dialog.get_by_role("button", name="Join", exact=True).click()
            expect(dialog.get_by_text("Comparison string:")).to_be_visible(timeout=PATIENCE)
            compared = dialog.locator(".compared").inner_text()
            dialog.get_by_role("button", name="Yes, the same").click(timeout=PATIENCE)
            expect(dialog.get_by_text("This machine belongs to the volume second now.")).to_be_visible(
                timeout=PATIENCE
            )
            assert inviting.result()[0] == compared
        _close_first(page)
        dialog = page.get_by_role("dialog", name="Mount second")
        dialog.get_by_label("Where shall it be?").fill(str(device.root / "second"))
        looked_at(page, "mount")
        dialog.get_by_role("button", name="Mount", exact=True).click()
        expect(dialog.get_by_text(f"second is at {device.root / 'second'}")).to_be_visible(timeout=PATIENCE)
        _close(page)
        assert (device.root / "second" / "hello.txt").read_text() == "hello"
        device.run("volume", "leave", "second", "--yes", "--timeout", "60")
        expect(page.get_by_label("Volume")).to_have_count(0, timeout=PATIENCE)
    assert opened.complaints == []


def _close_first(page: Page) -> None:
    """Close a dialog that another one follows."""
    page.get_by_role("dialog").get_by_role("button", name="Close").click()


def test_a_recovery_kit_is_shown_once_and_printed_without_its_passphrase(
    opened: Opened, device: Device
) -> None:
    page = opened.page
    page.evaluate("() => { window.printed = 0; window.print = () => { window.printed += 1 } }")
    show(page, "overview")
    page.get_by_role("button", name="Make a recovery kit").click(timeout=PATIENCE)
    dialog = page.get_by_role("dialog", name="Make a recovery kit")
    looked_at(page, "kit")
    dialog.get_by_role("button", name="Make", exact=True).click()
    shown = dialog.locator(".passphrase")
    expect(shown).to_be_visible(timeout=PATIENCE)
    passphrase = shown.inner_text()
    assert len(passphrase) > 30
    expect(dialog.get_by_text("All clouds have the kit.")).to_be_visible()
    looked_at(page, "kit-made")
    page.keyboard.press("Escape")
    expect(shown).to_be_visible()
    dialog.get_by_role("button", name="Print").click()
    assert page.evaluate("window.printed") == 1
    page.emulate_media(media="print")
    expect(dialog.locator(".printed")).to_be_visible()
    expect(shown).to_be_hidden()
    expect(page.locator("header")).to_be_hidden()
    assert passphrase not in dialog.locator(".printed").inner_text()
    assert device.clouds[0].as_uri() in dialog.locator(".printed").inner_text()
    picture(page, "kit-printed")
    page.emulate_media(media="screen")
    dialog.get_by_role("button", name="I have written it down").click()
    expect(dialog).to_have_count(0)
    _not_told(opened, device, [], passphrase)
    show(page, "devices")
    expect(page.get_by_text("on all clouds")).to_be_visible(timeout=PATIENCE)
    looked_at(page, "kits")
    [kit] = json.loads(device.run("recovery", "show", device.volume, "--json"))["kits"]
    (device.root / "passphrase").write_text(passphrase)
    with Device(device.root / "new") as lost:
        _recovered(lost, device, device.root / "passphrase")
    page.get_by_role("button", name=f"Remove the recovery kit {kit['kit'][:8]}").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("no kit", exact=True)).to_be_visible(timeout=PATIENCE)
    assert opened.complaints == []


def _recovered(lost: Device, device: Device, passphrase: Path) -> None:
    """That the passphrase that was shown opens the kit that the clouds have."""
    lost.root.mkdir()
    lost.run("recover", "--cloud", device.clouds[0].as_uri(), "--passphrase-file", str(passphrase))
    assert "vol" in lost.run("volume", "list")
