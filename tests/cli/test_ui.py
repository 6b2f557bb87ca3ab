"""hybrisfs ui: where its link leads. What the page shows is tested in tests/system/test_dashboard.py."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolumes
from tests.system.deadline import until

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def mnt(served: Daemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def serve(show: Callable[[str], None]) -> None:
        show("http://127.0.0.1:1/#code=x")

    monkeypatch.setattr("dashboard.server.serve", serve)
    run("mount", "photos", str(tmp_path / "mnt"))
    return tmp_path / "mnt"


def wanted(run: Run, *words: str) -> dict[str, str]:
    done = run("ui", "--json", *words)
    assert done.exit_code == 0
    fragment = urlsplit(json.loads(done.stdout)["url"]).fragment
    values = parse_qs(fragment, keep_blank_values=True, errors="surrogateescape")
    assert values.pop("code") == ["x"]
    return {name: value for name, [value] in values.items()}


def test_without_a_path_it_begins_at_the_beginning(mnt: Path, run: Run) -> None:
    assert wanted(run) == {}
    assert wanted(run, "--section", "events") == {"section": "events"}


def test_it_leads_to_a_volume_mounted_or_not(mnt: Path, run: Run, volumes: FakeVolumes) -> None:
    volumes.opened["photos"].unmount()
    assert wanted(run, "--volume", "photos") == {"volume": "photos"}
    assert wanted(run, "--volume", "photos", "--section", "clouds") == {
        "volume": "photos",
        "section": "clouds",
    }
    assert run("ui", "--volume", "nonsense").exit_code == 4
    assert run("ui", "--volume", "photos", str(mnt)).exit_code == 2


def test_it_leads_to_a_folder_or_a_file(mnt: Path, run: Run) -> None:
    (mnt / "a & b").mkdir()
    assert wanted(run, str(mnt)) == {"section": "files", "volume": "photos", "folder": ""}
    assert wanted(run, str(mnt / "a & b"))["folder"] == "a & b"
    assert wanted(run, str(mnt / "a & b" / "ä#.txt"))["file"] == "a & b/ä#.txt", "it may have been removed"
    assert wanted(run, str(mnt / "\udcff"))["file"] == "\udcff"
    assert wanted(run, "--section", "conflicts", str(mnt / "x"))["section"] == "conflicts"


def test_a_path_elsewhere_is_refused(mnt: Path, run: Run, tmp_path: Path) -> None:
    done = run("ui", str(tmp_path / "elsewhere"))
    assert done.exit_code == 2
    assert "is in no mounted volume" in done.stderr


@pytest.mark.parametrize("terminal", [False, True])
def test_a_browser_that_may_need_the_terminal_is_not_waited_for(
    terminal: bool, served: Daemon, home: Home, tmp_path: Path
) -> None:
    browser, opened = tmp_path / "bin" / "w3m", tmp_path / "opened"
    browser.parent.mkdir()
    browser.write_text(f'#!/bin/sh\necho "$1" >{opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    path = f"{browser.parent}:{os.environ['PATH']}"
    screen = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    variables = {name: value for name, value in home.environment().items() if name not in screen}
    keyboard = pty.openpty() if terminal else os.pipe()
    try:
        page = subprocess.Popen(
            [sys.executable, "-u", "-m", "cli.main", "ui"],
            cwd=REPOSITORY,
            env={**variables, "PATH": path, "BROWSER": "w3m"},
            stdin=keyboard[1] if terminal else keyboard[0],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert page.stdout is not None
        assert page.stderr is not None
        link = page.stdout.readline()
        if terminal:
            assert "open the link yourself" in page.stderr.readline()
        else:
            until(opened.exists, "the browser to be opened")
            assert opened.read_text() == link
        page.send_signal(signal.SIGINT)
        _, errors = page.communicate(timeout=60)
    finally:
        os.close(keyboard[0])
        os.close(keyboard[1])
    assert (page.returncode, errors.strip()) == (0, "")
    assert opened.exists() != terminal


def test_the_page_of_a_daemon_that_blocks_signals_can_be_ended(mnt: Path, run: Run) -> None:
    blocked = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        assert run("ui", "--json").exit_code == 0
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & blocked
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
