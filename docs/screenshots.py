"""`python -m docs.screenshots`: takes the picture of the dashboard that README.md shows.

Somebody's first minutes: a volume over three folders, as `hybrisfs quickstart` makes it, with a few files.
Needs root, for a home and a host name of its own in namespaces of its own, and chromium.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright

_REPOSITORY: Final = Path(__file__).parent.parent
_PICTURE: Final = Path(__file__).with_name("dashboard.png")
_HOME: Final = Path("/home/ada")
_FOLDERS: Final = {"Documents": 24, "Photos": 60, "Music": 12}
_FILE_BYTES: Final = 400_000
_SECONDS_OF_PLOTS: Final = 25
_PATIENCE: Final = 60_000  # milliseconds
_INSIDE: Final = "inside"


def main() -> None:
    """Take the picture, within a namespace in which /home is a temporary folder."""
    if sys.argv[1:] == [_INSIDE]:
        _picture()
        return
    command = [sys.executable, "-m", "docs.screenshots", _INSIDE]
    subprocess.run(["unshare", "--mount", "--uts", "--", *command], cwd=_REPOSITORY, check=True)


def _picture() -> None:
    socket.sethostname("laptop")
    home = tempfile.mkdtemp(prefix="screenshots-")
    subprocess.run(["mount", "--bind", home, "/home"], check=True)
    _HOME.mkdir()
    environment = {"HOME": str(_HOME), "PATH": os.environ["PATH"], "PYTHONPATH": str(_REPOSITORY)}

    def run(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "cli.main", *words]
        return subprocess.Popen(command, env=environment, cwd=_HOME, text=True, stdout=subprocess.PIPE)

    try:
        run("quickstart").communicate()
        for folder, count in _FOLDERS.items():
            (_HOME / "HybrisFS" / folder).mkdir()
            for number in range(count):
                (_HOME / "HybrisFS" / folder / f"{number}").write_bytes(os.urandom(_FILE_BYTES))
        run("recovery", "make").communicate()
        run("sync", "--wait").communicate()
        server = run("ui", "--json")
        assert server.stdout is not None
        _take(json.loads(server.stdout.readline())["url"])
        server.send_signal(signal.SIGINT)
        server.communicate()
    finally:
        run("daemon", "--stop").communicate()
        subprocess.run(["umount", "--lazy", "/home"], check=True)
        shutil.rmtree(home, ignore_errors=True)


def _take(link: str) -> None:
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page: Page = browser.new_page(viewport={"width": 1120, "height": 800}, locale="en-GB")
        page.goto(link)
        page.locator(".hero.good").wait_for(timeout=_PATIENCE)
        page.locator(".plot").first.wait_for(timeout=_PATIENCE)
        page.wait_for_timeout(_SECONDS_OF_PLOTS * 1000)
        page.screenshot(path=str(_PICTURE), full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
