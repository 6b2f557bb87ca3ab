"""Notifications over a D-Bus of their own. Who shows them is a fake, as there is no desktop here."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jeepney import HeaderFields, MessageType, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from hybrisfs.daemon.desktop import Desktop
from hybrisfs.events.notices import Show, Withdraw

_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=%s</listen>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
<allow own="*"/></policy></busconfig>
"""


class FakeShell:
    """Answers as org.freedesktop.Notifications would, and remembers what it is asked."""

    def __init__(self, address: str) -> None:
        self.bus: DBusConnection = open_dbus_connection(address)
        self.bus.send_and_get_reply(message_bus.RequestName("org.freedesktop.Notifications"))
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def answer(self) -> None:
        """Receive one request, and answer it; numbers begin at 41."""
        while (message := self.bus.receive(timeout=30)).header.message_type is not MessageType.method_call:
            pass
        name = message.header.fields[HeaderFields.member]
        self.asked.append((name, message.body))
        result = ("u", (40 + len(self.asked),)) if name == "Notify" else ("", ())
        self.bus.send(new_method_return(message, *result))


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    program = shutil.which("dbus-daemon")
    assert program, "dbus-daemon is not installed"
    (tmp_path / "bus.conf").write_text(_CONFIG % (tmp_path / "bus"))
    bus = subprocess.Popen(
        [program, "--nofork", "--print-address", f"--config-file={tmp_path / 'bus.conf'}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert bus.stdout is not None
    address = bus.stdout.readline().strip()
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    yield address
    bus.kill()
    bus.communicate()


def ask(desktop: Desktop, action: Show | Withdraw, shell: FakeShell) -> None:
    asking = threading.Thread(target=desktop.carry_out, args=("photos", action))
    asking.start()
    shell.answer()
    asking.join(30)


def test_a_notification_is_shown_replaced_and_withdrawn(address: str) -> None:
    shell, desktop = FakeShell(address), Desktop()
    ask(desktop, Show("conflicts", "1 conflict in <b>a & b</b>"), shell)
    ask(desktop, Show("conflicts", "2 more conflicts"), shell)
    ask(desktop, Withdraw("conflicts"), shell)
    desktop.carry_out("photos", Withdraw("conflicts"))  # nothing is shown: nobody is asked
    (first, second, third) = shell.asked
    assert (first[0], first[1][1], first[1][3]) == ("Notify", 0, "HybrisFS: photos")
    assert first[1][4] == "1 conflict in &lt;b&gt;a &amp; b&lt;/b&gt;"
    assert (second[0], second[1][1]) == ("Notify", 41)
    assert third == ("CloseNotification", (42,))
    desktop.close()


def test_without_a_desktop_nothing_happens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Desktop().carry_out("photos", Show("conflicts", "1 conflict"))  # nobody has the name
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
    Desktop().carry_out("photos", Show("conflicts", "1 conflict"))
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    Desktop().carry_out("photos", Show("conflicts", "1 conflict"))
