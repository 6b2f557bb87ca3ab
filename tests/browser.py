"""A real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.system.shell import tool

__all__ = ["chromium"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium; the test is skipped where there is none and that may be."""
    path = tool("chromium")
    with sync_playwright() as playwright:
        # Root has no sandbox of its own to offer; nothing foreign is loaded.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=60_000)
        yield browser
        browser.close()
