"""What a volume was before, by the page in a real browser: a folder at a moment from a list, the whole volume
restored after a look at what that changes, and what is pinned."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path

from playwright.sync_api import expect

from tests.browser import chromium
from tests.system.dashboard_page import PATIENCE, dashboard, looked_at, show, watched
from tests.system.deadline import until
from tests.system.device import Device


def test_the_volume_is_restored_to_a_moment_that_was_looked_at(tmp_path: Path) -> None:
    with Device(tmp_path) as device:
        device.create(3).mount()
        folder = device.mountpoint / "Letters"
        folder.mkdir()
        for name in ("gone.txt", "stays.txt"):
            (folder / name).write_text(name)
        (device.mountpoint / "notes.txt").write_text("as it was")
        device.sync()
        then = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(seconds=1)
        until(lambda: time.time() > then.timestamp() + 0.1, "that moment to be over")
        (folder / "gone.txt").unlink()
        (device.mountpoint / "notes.txt").write_text("overwritten by mistake")
        (device.mountpoint / "new.txt").write_text("came later")
        device.sync()
        kept = f"{then:%Y-%m-%dT%H:%M:%SZ}"
        # The list has minutes and hours; a moment between two changes of one minute is asked for as such.
        with chromium() as browser, dashboard(device) as link, watched(browser, link) as (page, complaints):
            page.route(
                "**/api/volumes/vol/moments",
                lambda route: route.fulfill(
                    json={**route.fetch().json(), "moments": [*route.fetch().json()["moments"], kept]}
                ),
            )
            show(page, "files")
            page.get_by_role("button", name="As it was", exact=True).click()
            shown = page.get_by_role("region", name="vol as it was")
            expect(shown.get_by_text("new.txt", exact=True)).to_be_visible(timeout=PATIENCE)
            shown.get_by_label("At this moment").select_option(kept)
            expect(shown.get_by_text("new.txt", exact=True)).to_have_count(0, timeout=PATIENCE)
            looked_at(page, "as-it-was")
            shown.get_by_role("button", name="Letters/").click()
            inside = page.get_by_role("region", name="Letters as it was")
            expect(inside.get_by_text("gone.txt", exact=True)).to_be_visible(timeout=PATIENCE)
            inside.get_by_role("button", name="To the folder above").click()

            shown.get_by_role("button", name="Restore the whole volume").click()
            dialog = page.get_by_role("dialog", name="Restore vol as it was")
            expect(
                dialog.get_by_text("Restoring would make 1 file, change 1, and leave 1 as they are.")
            ).to_be_visible(timeout=PATIENCE)
            expect(dialog.get_by_text("Letters/gone.txt, 8 bytes")).to_be_visible()
            looked_at(page, "restore")
            typed = dialog.get_by_label("Type the name of the volume")
            typed.fill("music")
            dialog.get_by_role("button", name="Restore").click()
            expect(dialog.get_by_role("alert")).to_contain_text("nothing was changed", timeout=PATIENCE)
            assert not (folder / "gone.txt").exists()
            typed.fill("vol")
            dialog.get_by_role("button", name="Restore").click()
            expect(dialog.get_by_text("Restored 2 files.")).to_be_visible(timeout=PATIENCE)
            dialog.get_by_role("button", name="Close").click()
            assert (folder / "gone.txt").read_text() == "gone.txt"
            assert (device.mountpoint / "notes.txt").read_text() == "as it was"
            assert (device.mountpoint / "new.txt").read_text() == "came later"
            page.get_by_role("button", name="Close: as it was").click()

            page.get_by_role("button", name="Pin Letters").click()
            expect(page.get_by_role("button", name="Unpin Letters")).to_be_visible(timeout=PATIENCE)
            page.get_by_role("button", name="Pinned", exact=True).click()
            pinned = page.get_by_role("region", name="Pinned")
            expect(pinned.get_by_text("Letters: 2 files, 17 bytes")).to_be_visible(timeout=PATIENCE)
            looked_at(page, "pinned")
            pinned.get_by_role("button", name="Unpin Letters").click()
            expect(pinned.get_by_text("Nothing is pinned.")).to_be_visible(timeout=PATIENCE)
            assert json.loads(device.run("pin", "--json"))["pins"] == []
            page.unroute_all(behavior="wait")
            assert [one for one in complaints if "status of 400" not in one] == []
            assert len(complaints) == 1
