"""What is to be on several machines, and what holds on all of them, by the page in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser import chromium
from tests.system.dashboard_page import PATIENCE, dashboard, looked_at, show, watched
from tests.system.deadline import until
from tests.system.device import Device


def test_copies_are_asked_for_and_settings_changed(tmp_path: Path) -> None:
    with Device(tmp_path) as device:
        device.create(3).mount()
        (device.mountpoint / "Photos").mkdir()
        (device.mountpoint / "Photos" / "one.jpg").write_bytes(b"a photo" * 10_000)
        device.sync()
        with chromium() as browser, dashboard(device) as link, watched(browser, link) as (page, complaints):
            _copies(page, device)
            show(page, "settings")
            _settings(page, device)
            assert complaints == []


def _copies(page: Page, device: Device) -> None:
    def asked() -> dict[str, int]:
        facts = json.loads(device.run("copies", "list", "--json"))
        return {one["inside"]: one["copies"] for one in facts["folders"]}

    show(page, "files")
    page.get_by_role("button", name="Copies", exact=True).click()
    shown = page.get_by_role("region", name="Copies on several machines")
    expect(shown.get_by_text("Nothing is to be on several machines yet")).to_be_visible(timeout=PATIENCE)
    shown.get_by_role("combobox").select_option("Photos")
    shown.get_by_role("button", name="Keep", exact=True).click()
    expect(page.get_by_text("Photos is to be on at least 2 machines.")).to_be_visible(timeout=PATIENCE)
    until(lambda: asked() == {"Photos": 2}, "copies to be asked for")
    expect(shown.get_by_text("1 of 2")).to_be_visible(timeout=PATIENCE)
    expect(shown.get_by_role("combobox")).to_have_value("Photos")
    looked_at(page, "copies")
    show(page, "overview")
    card = page.get_by_role("region", name="Files", exact=True)
    expect(card.get_by_text("Copies of Photos")).to_be_visible(timeout=PATIENCE)
    show(page, "files")
    shown.get_by_role("button", name="Ask for no copies of Photos").click()
    until(lambda: asked() == {}, "no copies to be asked for")
    expect(shown.get_by_text("Nothing is to be on several machines yet")).to_be_visible(timeout=PATIENCE)


def _settings(page: Page, device: Device) -> None:
    def now() -> dict[str, Any]:
        facts = json.loads(device.run("volume", "set", device.volume, "--json"))
        assert isinstance(facts, dict)
        return facts

    page.get_by_label("Keep on this machine, beside what is used on it").select_option("all")
    page.get_by_role("region", name="Room on this machine").get_by_role("button", name="Save").click()
    until(lambda: now()["hoard"] == "all", "the setting to be kept")
    page.get_by_label("Seconds between their announcements").fill("60")
    page.get_by_role("region", name="Other machines", exact=True).get_by_role("button", name="Save").click()
    until(lambda: now()["announce_seconds"] == 60, "the setting to be kept")
    looked_at(page, "settings-of-all")
