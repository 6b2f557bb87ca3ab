"""What is seldom done with clouds, by the page in a real browser: they get other names and places, and are
removed; and a volume is brought back from them with a passphrase of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import chromium
from tests.system.dashboard_page import PATIENCE, dashboard, empty_page, looked_at, show, watched
from tests.system.deadline import until
from tests.system.device import Device

PASSPHRASE = "seven quiet foxes under the old bridge"


def _clouds(device: Device) -> dict[str, str]:
    """How each is used, by name."""
    facts = json.loads(device.run("cloud", "list", device.volume, "--json"))
    return {one["name"]: one["use"] for one in facts["clouds"]}


@pytest.mark.timeout(600)
def test_clouds_change_and_the_volume_is_brought_back(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with chromium() as browser:
        with Device(tmp_path / "here") as device:
            device.create(4).mount()
            (device.mountpoint / "hello.txt").write_text("hello")
            device.sync()
            with dashboard(device) as link, watched(browser, link) as (page, complaints):
                show(page, "clouds")
                _change(page, device, tmp_path / "new")
                show(page, "devices")
                _make_kit(page)
                [quiet] = [one for one in complaints if "the server responded with a status of 4" in one]
                assert complaints == [quiet]  # what a folder cannot do
            device.sync()
            urls = [
                one["url"]
                for one in json.loads(device.run("cloud", "list", device.volume, "--json"))["clouds"]
            ]
        with Device(tmp_path / "there") as device, empty_page(browser, device) as page:
            _recover(page, device, urls)


def _change(page: Page, device: Device, place: Path) -> None:
    first, second, third, _ = _clouds(device)

    def choose(name: str, what: str) -> None:
        card = page.get_by_role("region", name=name, exact=True)
        if card.locator("details[open]").count() == 0:
            card.locator("summary").click(timeout=PATIENCE)
        card.get_by_role("button", name=f"{what} {name}").click()

    choose(first, "Rename")
    dialog = page.get_by_role("dialog", name=f"Rename {first}")
    dialog.get_by_label("Name, on all machines").fill("attic")
    dialog.get_by_role("button", name="Rename", exact=True).click()
    until(lambda: "attic" in _clouds(device), "the cloud to have another name")

    choose(second, "Have deleted objects kept by")
    dialog = page.get_by_role("dialog", name=f"Have {second} keep what is deleted")
    dialog.get_by_label("Days (0: not any more)").fill("30")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(dialog.get_by_role("alert")).to_be_visible(timeout=PATIENCE)
    dialog.get_by_role("button", name="Cancel").click()

    choose(second, "Replace")
    dialog = page.get_by_role("dialog", name=f"Replace {second}")
    dialog.get_by_label("URL", exact=True).fill(place.as_uri())
    dialog.get_by_role("button", name="Replace", exact=True).click()
    expect(dialog.get_by_text("uses the cloud new now")).to_be_visible(timeout=PATIENCE)
    dialog.get_by_role("button", name="Close").click()
    until(lambda: second not in _clouds(device) and _clouds(device)["new"] == "in use", "it to be replaced")

    choose(third, "Remove")
    page.get_by_role("dialog", name=f"Remove {third}?").get_by_role("button", name="Remove").click()
    until(lambda: third not in _clouds(device), "the cloud to be removed")
    looked_at(page, "cloud-changed")


def _make_kit(page: Page) -> None:
    page.get_by_role("button", name="Make a recovery kit").click(timeout=PATIENCE)
    dialog = page.get_by_role("dialog", name="Make a recovery kit")
    dialog.get_by_label("Use a passphrase of my own instead").check()
    dialog.get_by_label("The passphrase").fill(PASSPHRASE)
    dialog.get_by_label("The same again").fill("another")
    dialog.get_by_role("button", name="Make", exact=True).click()
    expect(dialog.get_by_text("The two passphrases are not the same.")).to_be_visible(timeout=PATIENCE)
    looked_at(page, "kit-own")
    dialog.get_by_label("The same again").fill(PASSPHRASE)
    dialog.get_by_role("button", name="Make", exact=True).click()
    expect(dialog.get_by_text("the one that you have given")).to_be_visible(timeout=PATIENCE)
    assert PASSPHRASE not in page.content()
    dialog.get_by_role("button", name="I have written it down").click()


def _recover(page: Page, device: Device, urls: list[str]) -> None:
    card = page.get_by_role("region", name="Bring back a volume whose machines are lost")
    for url in urls:
        card.get_by_role("button", name="Name a cloud").click(timeout=PATIENCE)
        dialog = page.get_by_role("dialog", name="A cloud of the volume")
        dialog.get_by_label("URL", exact=True).fill(url)
        dialog.get_by_role("button", name="Add", exact=True).click()
        expect(card.get_by_text(url, exact=True)).to_be_visible(timeout=PATIENCE)
    card.get_by_role("button", name="Recover", exact=True).click()
    dialog = page.get_by_role("dialog", name="Recover a volume")
    looked_at(page, "recover")
    dialog.get_by_label("The passphrase of the recovery kit").fill("a wrong one, which opens nothing")
    dialog.get_by_role("button", name="Recover", exact=True).click()
    expect(dialog.get_by_role("alert")).to_be_visible(timeout=PATIENCE)
    dialog.get_by_label("The passphrase of the recovery kit").fill(PASSPHRASE)
    dialog.get_by_label("Name of the volume here").fill(device.volume)
    dialog.get_by_role("button", name="Recover", exact=True).click()
    expect(dialog.get_by_text(f"{device.volume} is on this machine again")).to_be_visible(timeout=PATIENCE)
    dialog.get_by_role("button", name="Close").click()
    dialog = page.get_by_role("dialog", name=f"Mount {device.volume}")
    dialog.get_by_label("Where shall it be?").fill(str(device.mountpoint))
    dialog.get_by_role("button", name="Mount", exact=True).click()
    dialog.get_by_role("button", name="Close").click()
    until(lambda: (device.mountpoint / "hello.txt").exists(), "the file to be back")
    assert (device.mountpoint / "hello.txt").read_text() == "hello"
