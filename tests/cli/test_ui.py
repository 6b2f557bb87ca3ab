"""hybrisfs ui: where its link leads. What the page shows is tested in tests/system/test_dashboard.py."""

from __future__ import annotations

import json
import signal
import webbrowser
from collections.abc import Callable
from pathlib import Path
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import pytest

from hybrisfs.daemon.service import Daemon
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolumes


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
    assert wanted(run, "--section", "log") == {"section": "log"}


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
    terminal: bool, mnt: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("w3m"))
    monkeypatch.setattr("cli.ui.sys", mock.Mock(stdin=mock.Mock(isatty=lambda: terminal)))
    with mock.patch.object(webbrowser.BackgroundBrowser, "open", return_value=True) as opened:
        done = run("ui")
    assert opened.called != terminal
    assert ("open the link yourself" in done.stderr) == terminal


def test_the_page_of_a_daemon_that_blocks_signals_can_be_ended(mnt: Path, run: Run) -> None:
    blocked = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        assert run("ui", "--json").exit_code == 0
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & blocked
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
