"""A machine without a volume, by the page in a real browser: it is led through what `hybrisfs setup` asks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import chromium
from tests.page_checks import is_confined, is_sound
from tests.system.dashboard_page import PATIENCE, empty_page, looked_at
from tests.system.device import Device
from tests.system.pairing import Inviting


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


def test_a_volume_is_set_up_step_by_step(browser: Browser, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "disks" / name).mkdir(parents=True)
    with Device(tmp_path, volume="work") as device, empty_page(browser, device) as page:
        expect(page.get_by_role("heading", name="Set up a volume")).to_be_visible(timeout=PATIENCE)
        expect(page.get_by_role("navigation", name="Sections")).to_have_count(0)
        answer = page.reload()
        expect(page.get_by_role("button", name="Try it out")).to_be_visible(timeout=PATIENCE)
        is_sound(page)
        is_confined(page, answer)
        looked_at(page, "empty")
        page.get_by_label("What shall it be called?").fill("work")
        page.get_by_label("What shall it be called?").press("Tab")
        folder = page.get_by_label("Where shall it be?")
        expect(folder).to_have_value(re.compile(r"/HybrisFS$"), timeout=PATIENCE)
        folder.fill(str(tmp_path / "disks"))
        for name in ("one", "two"):
            page.get_by_role("button", name="Add a cloud").click()
            dialog = page.get_by_role("dialog", name="Add a cloud")
            dialog.get_by_label("URL", exact=True).fill((tmp_path / "disks" / name / "x").as_uri())
            dialog.get_by_label("Name").fill(name)
            dialog.get_by_role("button", name="Add", exact=True).click()
            expect(page.get_by_text(f"{name}: file://")).to_be_visible(timeout=PATIENCE)
        looked_at(page, "empty-clouds")
        page.get_by_role("button", name="Create").click()
        page.get_by_role("dialog", name="With 2 clouds none may fail. Is that all?").get_by_role(
            "button", name="Create"
        ).click()
        # The folder is not empty: another one is asked for.
        dialog = page.get_by_role("dialog", name="Mount work")
        dialog.get_by_label("Where shall it be?").fill(str(device.mountpoint))
        dialog.get_by_role("button", name="Mount", exact=True).click()
        expect(dialog.get_by_text(f"work is at {device.mountpoint}")).to_be_visible(timeout=PATIENCE)
        dialog.get_by_role("button", name="Close").click()
        dialog = page.get_by_role("dialog", name="work is set up")
        expect(dialog.get_by_text("Everything there is kept on 2 of 2 clouds; none may fail.")).to_be_visible(
            timeout=PATIENCE
        )
        looked_at(page, "set-up")
        dialog.get_by_role("button", name="Close").click()
        dialog = page.get_by_role("dialog", name="Make a recovery kit")
        dialog.get_by_role("button", name="Make", exact=True).click()
        expect(dialog.locator(".passphrase")).to_be_visible(timeout=PATIENCE)
        dialog.get_by_role("button", name="I have written it down").click()
        dialog = page.get_by_role("dialog", name="Let another machine in now?")
        dialog.get_by_role("button", name="Cancel").click()
        expect(page.locator(".sentence")).to_contain_text("All safe", timeout=PATIENCE)
        expect(page.get_by_role("navigation", name="Sections")).to_be_visible()
        (device.mountpoint / "hello.txt").write_text("hello")
        device.sync()
        assert len(json.loads(device.run("recovery", "show", "work", "--json"))["kits"]) == 1


def test_three_folders_play_the_clouds_to_try_it(browser: Browser, tmp_path: Path) -> None:
    with Device(tmp_path, volume="home") as device, empty_page(browser, device) as page:
        page.get_by_role("button", name="Try it out").click(timeout=PATIENCE)
        expect(page.locator("fieldset .rows li")).to_have_count(3)
        page.get_by_label("Where shall it be?").fill(str(device.mountpoint))
        page.get_by_role("button", name="Create").click()
        dialog = page.get_by_role("dialog", name="home is set up")
        expect(
            dialog.get_by_text("Everything there is kept on 2 of 3 clouds; any 1 may fail.")
        ).to_be_visible(timeout=PATIENCE)
        expect(dialog.get_by_text("Note: ")).to_be_visible()
        for name in ("Close", "Cancel", "Cancel"):
            page.get_by_role("dialog").get_by_role("button", name=name).click()
        expect(page.locator(".sentence")).to_contain_text("All safe", timeout=PATIENCE)
        assert (device.mountpoint).is_mount()


def test_an_empty_machine_joins_a_volume(browser: Browser, tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with Device(tmp_path / "there") as there, Device(tmp_path / "here") as here:
        there.create(3).mount()
        (there.mountpoint / "hello.txt").write_text("hello")
        there.sync()
        with Inviting(there, there.volume) as inviting, empty_page(browser, here) as page:
            page.get_by_role("button", name="Join a volume").click(timeout=PATIENCE)
            dialog = page.get_by_role("dialog", name="Join a volume")
            dialog.get_by_label("The code that the other machine shows").fill(inviting.code)
            dialog.get_by_role("button", name="Join", exact=True).click()
            dialog.get_by_role("button", name="Yes, the same").click()
            inviting.result()
            dialog.get_by_role("button", name="Close").click()
            dialog = page.get_by_role("dialog", name="Mount vol")
            dialog.get_by_role("button", name="Later").click()
            page.get_by_role("button", name="Mount", exact=True).click(timeout=PATIENCE)
            dialog.get_by_label("Where shall it be?").fill(str(here.mountpoint))
            dialog.get_by_role("button", name="Mount", exact=True).click()
            dialog.get_by_role("button", name="Close").click()
            assert (here.mountpoint / "hello.txt").read_text() == "hello"
