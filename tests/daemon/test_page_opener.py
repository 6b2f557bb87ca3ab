"""Who opens the dashboard when a notification is clicked: systemd, or the daemon. Both only write it down."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hybrisfs.daemon.desktop import PageOpener
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.home import Home
from tests.system.deadline import until

_PAGE = "-m cli.main ui --volume photos --section clouds"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """With which token and words a program was run so far; there is no screen, and no service."""
    for name in ("systemd-run", "python"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        noting = f'echo $$ >{tmp_path}/pid; echo "$XDG_ACTIVATION_TOKEN" "$@" >>{tmp_path}/{name}.told'
        program.write_text(f"#!/bin/sh\n{noting}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "NOTIFY_SOCKET"):
        monkeypatch.delenv(variable, raising=False)

    def lines(name: str) -> list[str]:
        path = tmp_path / f"{name}.told"
        return path.read_text().splitlines() if path.exists() else []

    return lines


def starting(program: str) -> Environment:
    """Surroundings in which that program is started instead of Python, with the same words."""
    return Environment(start=lambda words, **how: subprocess.Popen([program, *words[1:]], **how))


def test_a_daemon_without_a_screen_leaves_it_to_systemd(home: Home, told: Callable[[str], list[str]]) -> None:
    PageOpener(home, SYSTEM).open("photos", "clouds", "token-7")
    [line] = told("systemd-run")
    assert line.endswith(f"{sys.executable} {_PAGE}")
    assert f"--setenv=HYBRISFS_HOME={home.root}" in line
    assert "--setenv=XDG_ACTIVATION_TOKEN=token-7" in line
    assert told("python") == []


def test_so_does_a_service_that_knows_a_screen(
    home: Home, told: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setenv("NOTIFY_SOCKET", "/x")
    PageOpener(home, SYSTEM).open("photos", "clouds", None)
    assert len(told("systemd-run")) == 1
    assert told("python") == []


@pytest.mark.parametrize("screen", [True, False])
def test_otherwise_it_is_a_process_of_the_daemon(
    screen: bool,
    home: Home,
    told: Callable[[str], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if screen:
        monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    else:
        (tmp_path / "bin/systemd-run").write_text("#!/bin/sh\nexit 1\n")
    opener = PageOpener(home, starting(f"{tmp_path}/bin/python"))
    opener.open("photos", "clouds", "token-7")
    until(lambda: told("python") == [f"token-7 {_PAGE}"], "the page to be opened")
    assert told("systemd-run") == []

    pid = (tmp_path / "pid").read_text().strip()

    def is_gone() -> bool:
        opener.reap()
        return not Path(f"/proc/{pid}").exists()

    until(is_gone, "nothing to be left of it")


def test_a_program_that_cannot_be_started_is_logged(
    home: Home,
    told: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("DISPLAY", ":7")
    PageOpener(home, starting("/nonexistent")).open("photos", "clouds", None)
    assert "the dashboard cannot be opened" in caplog.text
