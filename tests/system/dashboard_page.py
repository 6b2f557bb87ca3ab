"""Two machines for the tests of the dashboard, and what a person does with its page."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from playwright.sync_api import Browser, Page, Response, ViewportSize, expect

from tests.page_checks import is_confined, is_sound, no_violations, overheard
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.pairing import pair

PATIENCE = 60_000  # milliseconds
ODD = os.fsdecode(b"\xff<img src=x onerror=alert(1)>")

_SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
DESK: ViewportSize = {"width": 1280, "height": 900}


class Pair(NamedTuple):
    here: Device
    there: Device


class Edited(NamedTuple):
    """A text that two machines change without knowing of each other."""

    before: str
    here: str
    there: str


NOTES = {
    "notes.txt": Edited("milk\nbread\napples\n", "milk\nbread\npears\n", "milk\nbread\nplums <script>\n")
}


def two_machines(
    stack: ExitStack, here_root: Path, there_root: Path, *, texts: Mapping[str, Edited] = NOTES
) -> Pair:
    """Two mounted machines, and a conflict on each of the *texts*, by name; they end with the stack."""
    here, there = (stack.enter_context(Device(root)) for root in (here_root, there_root))
    here.create(3).mount()
    (here.mountpoint / "Photos").mkdir()
    (here.mountpoint / "Photos" / "one.jpg").write_bytes(os.urandom(2_000_000))
    (here.mountpoint / ODD).write_text("harmless")
    for name, text in texts.items():
        (here.mountpoint / name).write_text(text.before)
    here.sync()
    pair(here, there, "laptop")
    there.mount()
    until(lambda: all((there.mountpoint / name).exists() for name in texts), "the files to arrive")
    there.stop()
    for name, text in texts.items():
        (here.mountpoint / name).write_text(text.here)
    here.sync()
    _edit_unheard(here, there, texts)
    until(lambda: len(conflicts_of(here)) == len(texts), "the conflicts to be known here")
    return Pair(here, there)


def _edit_unheard(here: Device, there: Device, texts: Mapping[str, Edited]) -> None:
    """Let `there` change the files without having heard of what `here` made of them."""
    here.stop()
    away = [cloud.rename(cloud.with_name(f"{cloud.name}.away")) for cloud in here.clouds]
    there.mount()
    for name, text in texts.items():
        (there.mountpoint / name).write_text(text.there)
    until(lambda: there.status()["pending_files"], "the change to be pending")
    for cloud, old in zip(here.clouds, away, strict=True):
        old.rename(cloud)
    there.sync()
    here.mount()


def conflicts_of(device: Device) -> list[dict[str, Any]]:
    facts = json.loads(device.run("conflicts", "list", "--json"))
    found = facts["conflicts"]
    assert isinstance(found, list)
    return found


@contextmanager
def dashboard(device: Device, *words: str) -> Iterator[str]:
    process = device.start("ui", "--json", *words)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "Traceback" not in err
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def show(page: Page, section: str) -> None:
    page.evaluate("section => { location.hash = section }", section)
    expect(page.locator("nav a[aria-current=page]")).to_have_attribute("href", f"#{section}")
    expect(page.locator("main .card, main .hero").first).to_be_visible(timeout=PATIENCE)
    expect(page.locator("main .empty", has_text="Looking")).to_have_count(0, timeout=PATIENCE)


def picture(page: Page, name: str) -> None:
    folder = os.environ.get("HYBRISFS_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def looked_at(page: Page, name: str) -> None:
    """What is shown is accessible, light and dark, and fits a desk and a phone; keeps a picture of each."""
    for scheme in _SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for width, where in ((1280, "desk"), (360, "phone")):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            no_violations(page)
            picture(page, f"{name}-{scheme}-{where}")
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.set_viewport_size(DESK)


class Opened(NamedTuple):
    page: Page
    complaints: list[str]
    """Of the browser."""


def reloaded(opened: Opened, section: str) -> Response | None:
    """Load the page anew, with this section."""
    opened.page.evaluate("section => { location.hash = section }", section)
    answer = opened.page.reload()
    # What was being asked has nobody to hear the answer.
    opened.complaints[:] = [one for one in opened.complaints if "net::ERR_ABORTED" not in one]
    show(opened.page, section)
    return answer


def sound_when_loaded(opened: Opened, section: str) -> None:
    """Nothing moves while the page is loaded with this section, and all else is as on every page."""
    answer = reloaded(opened, section)
    is_sound(opened.page)
    is_confined(opened.page, answer)


@contextmanager
def watched(browser: Browser, link: str) -> Iterator[Opened]:
    """The page behind a link of `hybrisfs ui`."""
    context = browser.new_context(viewport=DESK)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    complaints = overheard(page, link)
    page.goto(link)
    expect(page.locator(".sentence")).not_to_be_empty(timeout=PATIENCE)
    yield Opened(page, complaints)
    context.close()


@contextmanager
def empty_page(browser: Browser, device: Device) -> Iterator[Page]:
    """The page of a machine that has no volume; the browser must not complain of it."""
    with dashboard(device) as link:
        context = browser.new_context(viewport=DESK, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        complaints = overheard(page, link)
        page.goto(link)
        yield page
        context.close()
    usual = ("the server responded with a status of 4", "net::ERR_ABORTED")
    assert [one for one in complaints if not any(words in one for words in usual)] == []
