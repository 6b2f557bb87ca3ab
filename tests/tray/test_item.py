"""The icon on a real D-Bus. The panel is a fake: it asks what panels ask."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from jeepney import MessageType
from jeepney.io.blocking import open_dbus_connection

from tests.session_bus import address, bus
from tests.tray.panel import ITEM, MENU, NAME, Panel
from tray.item import Click, TrayItem
from tray.menu import SEPARATOR, Entry, Look

__all__ = ["address", "bus"]

SAFE = Look(
    "ok",
    "Active",
    "photos: all is safe",
    ("hybrisfs", "ui"),
    (
        Entry("photos: all is safe"),
        Entry("Open my_folder", ("xdg-open", "/f")),
        SEPARATOR,
        Entry("Hide", ("hide",)),
    ),
)


class Icon:
    """The item, served by a thread; it shows what it is given next when something wakes it."""

    def __init__(self, address: str) -> None:
        self.bus = open_dbus_connection(address)
        self.item = TrayItem(self.bus, "/icons", SAFE)
        self.clicks: list[Click] = []
        self.next: list[Look] = []
        self.ended = threading.Event()

    def serve(self) -> None:
        while not self.ended.is_set():
            self.clicks += self.item.wait(0.05)
            while self.next:
                self.item.show(self.next.pop(0))


@contextmanager
def serving(address: str) -> Iterator[Icon]:
    icon = Icon(address)
    assert icon.item.take_place()
    thread = threading.Thread(target=icon.serve)
    thread.start()
    try:
        yield icon
    finally:
        icon.ended.set()
        thread.join(30)
        icon.bus.close()


@pytest.fixture
def panel(address: str) -> Iterator[Panel]:
    panel = Panel(address)
    panel.start()
    yield panel
    panel.bus.close()


def test_a_panel_finds_and_shows_it(address: str, panel: Panel) -> None:
    with serving(address):
        assert panel.registered() == NAME
        assert panel.get(ITEM, "IconName") == "hybrisfs-tray-ok"
        assert panel.get(ITEM, "IconThemePath") == "/icons"
        assert panel.get(ITEM, "Status") == "Active"
        assert panel.get(ITEM, "Menu") == MENU.object_path
        assert panel.get(ITEM, "ToolTip")[2:] == ("HybrisFS", "photos: all is safe")
        assert panel.get(MENU, "Version") == 3


def test_a_panel_that_starts_later_finds_it(address: str) -> None:
    with serving(address):
        later = Panel(address)
        later.start()
        assert later.registered() == NAME
        later.bus.close()
        again = Panel(address)
        again.start()
        assert again.registered() == NAME
        again.bus.close()


def test_there_is_one_icon_in_a_session(address: str) -> None:
    with serving(address), open_dbus_connection(address) as other:
        assert not TrayItem(other, "/icons", SAFE).take_place()


def test_the_menu(address: str, panel: Panel) -> None:
    with serving(address):
        text, folder, line, hide = panel.entries().values()
    assert text == {"label": "photos: all is safe", "enabled": False}
    assert folder == {"label": "Open my__folder"}, "the underscore is no key"
    assert line == {"type": "separator"}
    assert hide == {"label": "Hide"}


def test_clicks(address: str, panel: Panel) -> None:
    with serving(address) as icon:
        numbers = list(panel.entries())
        panel.ask(MENU, "Event", "isvu", numbers[0], "clicked", ("s", ""), 0)  # it only tells something
        panel.ask(MENU, "Event", "isvu", numbers[1], "hovered", ("s", ""), 0)
        panel.ask(MENU, "Event", "isvu", 99, "clicked", ("s", ""), 0)
        panel.ask(MENU, "EventGroup", "a(isvu)", [(numbers[3], "clicked", ("s", ""), 0)])
        panel.ask(ITEM, "ProvideXdgActivationToken", "s", "token-7")
        panel.ask(ITEM, "Activate", "ii", 3, 4)
        panel.ask(ITEM, "Activate", "ii", 3, 4)
    assert icon.clicks == [
        Click(("hide",), None),
        Click(("hybrisfs", "ui"), "token-7"),
        Click(("hybrisfs", "ui"), None),
    ]


def test_a_change_is_told_and_old_numbers_keep_their_meaning(address: str, panel: Panel) -> None:
    with serving(address) as icon:
        panel.registered()
        before = panel.entries()
        worse = SAFE._replace(
            icon="trouble",
            status="NeedsAttention",
            text="photos: a cloud is away",
            entries=(
                Entry("photos: a cloud is away"),
                Entry("Clouds", ("hybrisfs", "ui")),
                *SAFE.entries[1:],
            ),
        )
        icon.next.append(worse)
        assert panel.heard("LayoutUpdated")[-5:] == [
            "NewIcon",
            "NewAttentionIcon",
            "NewToolTip",
            "NewStatus",
            "LayoutUpdated",
        ]
        after = panel.entries()
        assert [one.get("label") for one in after.values()] == [
            "photos: a cloud is away",
            "Clouds",
            "Open my__folder",
            None,
            "Hide",
        ]
        for number, entry in before.items():
            assert after.get(number, entry) == entry
        panel.ask(MENU, "Event", "isvu", next(iter(before)), "clicked", ("s", ""), 0)
        panel.ask(MENU, "Event", "isvu", list(before)[1], "clicked", ("s", ""), 0)
    assert icon.clicks == [Click(("xdg-open", "/f"), None)]


@pytest.mark.parametrize(
    ("method", "signature", "body"),
    [("Unknown", "", ()), ("GetLayout", "", ()), ("GetLayout", "iias", (77, -1, [])), ("Event", "s", ("x",))],
)
def test_what_is_not_understood_is_refused(
    address: str, panel: Panel, method: str, signature: str, body: tuple[object, ...]
) -> None:
    with serving(address):
        kind, _ = panel.ask(MENU, method, signature, *body)
        assert kind is MessageType.error
        assert panel.get(ITEM, "Id") == "hybrisfs", "it goes on"


def test_it_ends_with_the_session(address: str, bus: subprocess.Popen[str]) -> None:
    with open_dbus_connection(address) as connection:
        item = TrayItem(connection, "/icons", SAFE)
        assert item.take_place()
        bus.kill()
        with pytest.raises(OSError):
            item.wait(30)
