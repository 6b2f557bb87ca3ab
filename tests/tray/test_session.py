"""The program on a real D-Bus, as a process of its own. Panel, notifications and daemon are fakes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jeepney import HeaderFields, MessageType, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

from hybrisfs.home import Home
from tests.session_bus import address, bus
from tests.system.deadline import until
from tests.tray.panel import ITEM, MENU, Panel

__all__ = ["address", "bus"]

BUSY = """{"version": 1, "volumes": [{
    "name": "photos", "state": "busy", "text": "2 changes on the way to the clouds", "pending_files": 2,
    "pending_bytes": 9, "conflicts": 0, "mountpoint": "/nowhere", "paused": false
}]}"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HYBRISFS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    home = Home.from_environment()
    home.prepare()
    return home


@pytest.fixture
def panel(address: str) -> Iterator[Panel]:
    panel = Panel(address)
    panel.start()
    yield panel
    panel.bus.close()


@pytest.fixture
def program(panel: Panel, home: Home) -> Iterator[subprocess.Popen[str]]:
    """Shows an icon for a daemon that is busy."""
    home.panels.write_text(BUSY)
    program = tray()
    panel.registered()
    yield program
    program.kill()
    program.communicate()


def tray(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cli.main", "tray", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def click(panel: Panel, label: str) -> None:
    [number] = [number for number, entry in panel.entries().items() if entry.get("label") == label]
    panel.ask(MENU, "Event", "isvu", number, "clicked", ("s", ""), 0)


def test_it_follows_the_daemon(panel: Panel, home: Home, program: subprocess.Popen[str]) -> None:
    assert panel.get(ITEM, "IconName") == "hybrisfs-tray-busy"
    icons = Path(panel.get(ITEM, "IconThemePath"))
    assert (icons / "hybrisfs-tray-busy.svg").exists()
    home.volume_config("photos").mkdir(parents=True)
    (home.volume_config("photos") / "volume.json").touch()
    home.panels.unlink()
    until(lambda: panel.get(ITEM, "IconName") == "hybrisfs-tray-stopped", "the daemon's end to be seen")
    home.panels.write_text(BUSY.replace("busy", "trouble"))
    until(lambda: panel.get(ITEM, "Status") == "NeedsAttention", "the trouble to be seen")
    panel.get(ITEM, "IconName")
    for name in ("ok", "busy", "attention", "trouble", "stopped"):
        assert (icons / f"hybrisfs-tray-{name}.svg").read_text().startswith("<svg ")


def test_it_ends_when_it_is_hidden(panel: Panel, program: subprocess.Popen[str]) -> None:
    click(panel, "Hide this icon")
    assert program.wait(60) == 0


def test_it_ends_with_the_session(
    panel: Panel, program: subprocess.Popen[str], bus: subprocess.Popen[str]
) -> None:
    bus.kill()
    assert program.wait(60) == 0


def test_a_second_one_leaves_the_first_alone(panel: Panel, program: subprocess.Popen[str]) -> None:
    second = tray()
    assert second.communicate(timeout=60)[0] == "There is an icon already.\n"
    assert second.returncode == 0
    assert panel.get(ITEM, "IconName") == "hybrisfs-tray-busy"


def test_what_a_command_complains_of_is_shown(
    address: str, panel: Panel, program: subprocess.Popen[str], home: Home
) -> None:
    """There is no volume of that name: the daemon that the command starts says so."""
    with open_dbus_connection(address) as desktop:
        desktop.send_and_get_reply(message_bus.RequestName("org.freedesktop.Notifications"))
        click(panel, "Pause transfers")
        shown: Any = None
        while shown is None:
            message = desktop.receive(timeout=60)
            if message.header.message_type is MessageType.method_call:
                assert message.header.fields[HeaderFields.member] == "Notify"
                shown = message.body
                desktop.send(new_method_return(message, "u", (1,)))
    assert shown[0] == "HybrisFS"
    assert "photos" in shown[4]
    subprocess.run([sys.executable, "-m", "cli.main", "daemon", "--stop"], check=True, timeout=60)


def test_without_a_desktop_it_says_so(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path / 'no bus'}")
    program = tray()
    said, _ = program.communicate(timeout=60)
    assert "no desktop" in said
    assert "Traceback" not in said
    assert program.returncode == 1


@pytest.mark.parametrize(("option", "hidden"), [("--autostart", "false"), ("--no-autostart", "true")])
def test_the_desktop_is_told_whether_to_start_it(
    home: Home, tmp_path: Path, option: str, hidden: str
) -> None:
    said, _ = tray(option).communicate(timeout=60)
    entry = tmp_path / "config" / "autostart" / "hybrisfs-tray.desktop"
    assert str(entry) in said
    lines = entry.read_text().splitlines()
    assert f"Hidden={hidden}" in lines
    [command] = [one.removeprefix("Exec=") for one in lines if one.startswith("Exec=")]
    assert command == f'"{sys.executable}" "-P" "-m" "cli.main" tray'
