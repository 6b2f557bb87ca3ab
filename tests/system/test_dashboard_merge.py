"""Versions in conflict are merged by the page in a real browser, after a look at what that changes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import expect

from tests.browser import chromium
from tests.system.dashboard_page import (
    PATIENCE,
    Edited,
    conflicts_of,
    dashboard,
    looked_at,
    show,
    two_machines,
    watched,
)

_TEXTS = {
    "list.txt": Edited("one\ntwo\nthree\nfour\n", "one\nTWO\nthree\nfour\n", "one\ntwo\nthree\nFOUR <b>\n"),
    "word.txt": Edited("before\n", "here\n", "there\n"),
}


def test_what_can_be_merged_is_shown_and_merged(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("here", "there")]
    for root in roots:
        root.mkdir()
    with ExitStack() as stack:
        here, there = two_machines(stack, *roots, texts=_TEXTS)
        here.run("volume", "set", here.volume, "--merge-texts", "off")
        there.stop()
        browser = stack.enter_context(chromium())
        link = stack.enter_context(dashboard(here))
        page, complaints = stack.enter_context(watched(browser, link))
        show(page, "conflicts")

        page.get_by_role("button", name="Merge the versions of list.txt").click(timeout=PATIENCE)
        dialog = page.get_by_role("dialog", name="Merge list.txt")
        expect(dialog.locator("ins")).to_have_count(1, timeout=PATIENCE)
        looked_at(page, "merge")
        dialog.get_by_role("button", name="Cancel").click()
        assert len(conflicts_of(here)) == 2, "a look changes nothing"

        page.get_by_role("button", name="Merge the versions of list.txt").click()
        dialog.get_by_role("button", name="Merge", exact=True).click(timeout=PATIENCE)
        expect(page.get_by_text("Merged 2 versions of list.txt.")).to_be_visible(timeout=PATIENCE)
        expect(page.get_by_role("heading", name="list.txt")).to_have_count(0, timeout=PATIENCE)
        assert (here.mountpoint / "list.txt").read_text() == "one\nTWO\nthree\nFOUR <b>\n"

        page.get_by_role("button", name="Merge the versions of word.txt").click()
        dialog = page.get_by_role("dialog", name="Merge word.txt")
        expect(dialog.get_by_text("word.txt is not merged without you:")).to_be_visible(timeout=PATIENCE)
        looked_at(page, "merge-not")
        dialog.get_by_role("button", name="Close").click()
        [left] = conflicts_of(here)
        assert left["of"] == "word.txt"
        assert complaints == []
