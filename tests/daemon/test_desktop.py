"""Notifications over a D-Bus of their own. Who shows them is a fake, as there is no desktop here."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from jeepney import DBusAddress, HeaderFields, MessageType, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from hybrisfs.daemon.desktop import Desktop
from hybrisfs.events.event import Show, Withdraw
from tests.session_bus import address, bus

__all__ = ["address", "bus"]

_SIGNALS = DBusAddress("/org/freedesktop/Notifications", interface="org.freedesktop.Notifications")


class FakeShell:
    """Answers as org.freedesktop.Notifications would, and remembers what it is asked."""

    def __init__(self, address: str, *capabilities: str) -> None:
        self.bus: DBusConnection = open_dbus_connection(address)
        self.bus.send_and_get_reply(message_bus.RequestName("org.freedesktop.Notifications"))
        self.capabilities = capabilities
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def answer(self) -> None:
        """Answer requests up to the next one that shows or withdraws something; numbers begin at 41."""
        name = "GetCapabilities"
        while name == "GetCapabilities":
            message = self.bus.receive(timeout=30)
            if message.header.message_type is not MessageType.method_call:
                continue
            name = message.header.fields[HeaderFields.member]
            if name == "GetCapabilities":
                self.bus.send(new_method_return(message, "as", (list(self.capabilities),)))
        self.asked.append((name, message.body))
        result = ("u", (40 + len(self.asked),)) if name == "Notify" else ("", ())
        self.bus.send(new_method_return(message, *result))

    def say(self, name: str, signature: str, *body: object) -> None:
        """Send a signal."""
        self.bus.send(new_signal(_SIGNALS, name, signature, body))


class Pages:
    """What a desktop has opened. The desktop waits until there is something."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, str, str | None]] = []
        self.desktop = Desktop(self.open)

    def open(self, volume: str, section: str, token: str | None) -> None:
        self.opened.append((volume, section, token))
        self.desktop.wake()


@pytest.fixture
def pages() -> Iterator[Pages]:
    pages = Pages()
    yield pages
    pages.desktop.close()


def ask(desktop: Desktop, action: Show | Withdraw, shell: FakeShell) -> None:
    asking = threading.Thread(target=desktop.carry_out, args=("photos", action))
    asking.start()
    shell.answer()
    asking.join(30)


def test_a_notification_is_shown_replaced_and_withdrawn(address: str, pages: Pages) -> None:
    shell, desktop = FakeShell(address), pages.desktop
    ask(desktop, Show("conflicts", "1 conflict in <b>a & b</b>", "conflicts"), shell)
    ask(desktop, Show("conflicts", "2 more conflicts", "conflicts"), shell)
    ask(desktop, Withdraw("conflicts"), shell)
    desktop.carry_out("photos", Withdraw("conflicts"))  # nothing is shown: nobody is asked
    (first, second, third) = shell.asked
    assert (first[0], first[1][1], first[1][3]) == ("Notify", 0, "HybrisFS: photos")
    assert first[1][4] == "1 conflict in &lt;b&gt;a &amp; b&lt;/b&gt;"
    assert (second[0], second[1][1]) == ("Notify", 41)
    assert third == ("CloseNotification", (42,))


def test_a_click_opens_what_the_notification_speaks_of(address: str, pages: Pages) -> None:
    shell = FakeShell(address, "body", "actions")
    ask(pages.desktop, Show("conflicts", "1 conflict", "conflicts"), shell)
    ask(pages.desktop, Show("cloud/a", "a cannot be reached", "clouds"), shell)
    assert [asked[5] for _, asked in shell.asked] == [["default", "Open"]] * 2
    shell.say("ActivationToken", "us", 42, "token-7")
    shell.say("ActionInvoked", "us", 42, "default")
    pages.desktop.wait(30)
    shell.say("ActionInvoked", "us", 41, "default")
    pages.desktop.wait(30)
    assert pages.opened == [("photos", "clouds", "token-7"), ("photos", "conflicts", None)]


def test_clicks_on_what_is_not_ours_or_is_withdrawn_open_nothing(address: str, pages: Pages) -> None:
    shell, stranger = FakeShell(address, "actions"), open_dbus_connection(address)
    for topic, section in (("conflicts", "conflicts"), ("cloud/a", "clouds")):
        ask(pages.desktop, Show(topic, "text", section), shell)
    ask(pages.desktop, Withdraw("conflicts"), shell)
    stranger.send(new_signal(_SIGNALS, "ActionInvoked", "us", (42, "default")))
    stranger.send_and_get_reply(message_bus.GetId())  # by now the bus has passed it on
    shell.say("ActionInvoked", "us", 41, "default")
    shell.say("ActionInvoked", "us", 7, "default")
    shell.say("ActionInvoked", "s", "default")
    shell.say("NotificationClosed", "uu", 42, 2)
    shell.say("ActivationToken", "us", 42, "the last")
    shell.say("ActionInvoked", "us", 42, "default")
    pages.desktop.wait(30)
    assert pages.opened == [("photos", "clouds", "the last")]


def test_who_knows_no_clicks_is_not_asked_for_them(address: str, pages: Pages) -> None:
    shell = FakeShell(address, "body")
    ask(pages.desktop, Show("conflicts", "1 conflict", "conflicts"), shell)
    assert shell.asked[0][1][5] == []


def test_a_session_that_ends_is_not_waited_for(
    address: str, pages: Pages, bus: subprocess.Popen[str]
) -> None:
    shell = FakeShell(address, "actions")
    ask(pages.desktop, Show("conflicts", "1 conflict", "conflicts"), shell)
    bus.kill()
    bus.wait(30)
    threading.Timer(0.2, pages.desktop.wake).start()
    pages.desktop.wait(600)
    pages.desktop.carry_out("photos", Withdraw("conflicts"))


def test_without_a_desktop_nothing_happens(
    address: str, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = Show("conflicts", "1 conflict", "conflicts")
    pages.desktop.carry_out("photos", show)  # nobody has the name
    for variable, value in (
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent"),
        ("XDG_RUNTIME_DIR", "/nonexistent"),
    ):
        desktop = Pages().desktop
        monkeypatch.setenv(variable, value)
        desktop.carry_out("photos", show)
        desktop.close()
        monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)


def test_a_desktop_that_is_closed_waits_for_nothing(pages: Pages) -> None:
    pages.desktop.close()
    pages.desktop.wake()
    pages.desktop.wait(600)
