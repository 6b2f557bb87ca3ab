"""The icon on the session's D-Bus, for panels that show such icons: org.kde.StatusNotifierItem with a menu by
com.canonical.dbusmenu (KDE, XFCE, Cinnamon, MATE, LXQt; GNOME with its extension AppIndicator).

A panel asks for properties and the menu, and calls methods when a person clicks; it hears by signals of what
has changed. A panel that starts later, or again, finds the item because it registers with each new watcher.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from jeepney import (
    DBusAddress,
    HeaderFields,
    MatchRule,
    Message,
    MessageType,
    new_error,
    new_method_call,
    new_method_return,
    new_signal,
)
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection

from tray.menu import Entry, Look

__all__ = ["Click", "TrayItem"]

_ITEM: Final = DBusAddress("/StatusNotifierItem", interface="org.kde.StatusNotifierItem")
_MENU: Final = DBusAddress("/MenuBar", interface="com.canonical.dbusmenu")
_PROPERTIES: Final = "org.freedesktop.DBus.Properties"
_WATCHER: Final = DBusAddress(
    "/StatusNotifierWatcher",
    bus_name="org.kde.StatusNotifierWatcher",
    interface="org.kde.StatusNotifierWatcher",
)
_APPEARS: Final = MatchRule(
    type="signal",
    sender="org.freedesktop.DBus",
    interface="org.freedesktop.DBus",
    member="NameOwnerChanged",
)
_NAME: Final = "localhost.hybrisfs.Tray"
_OWNED: Final = 1  # DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER
_DO_NOT_QUEUE: Final = 4
_PATIENCE: Final = 5.0  # seconds

Variant: TypeAlias = tuple[str, Any]
_Answer: TypeAlias = tuple[str, tuple[Any, ...]]


class Click(NamedTuple):
    """A person has chosen something. *token* lets a window come to the front (XDG activation)."""

    command: tuple[str, ...]
    token: str | None


class TrayItem:
    """One icon. For one thread."""

    def __init__(self, bus: DBusConnection, icons: str, look: Look) -> None:
        """*icons*: the folder that has the icons. Raises OSError and `jeepney.wrappers.DBusErrorResponse`."""
        self._bus = bus
        self._icons = icons
        self._look = look
        self._revision = 1
        self._last = 0
        self._entries: dict[int, Entry] = {}
        self._number_entries()
        self._token: str | None = None
        self._clicks: list[Click] = []
        self._methods: Mapping[tuple[str, str], Callable[[Message], _Answer]] = {
            (_PROPERTIES, "Get"): self._get,
            (_PROPERTIES, "GetAll"): self._get_all,
            (_ITEM.interface, "Activate"): self._activate,
            (_ITEM.interface, "SecondaryActivate"): self._activate,
            (_ITEM.interface, "ContextMenu"): _nothing,
            (_ITEM.interface, "Scroll"): _nothing,
            (_ITEM.interface, "ProvideXdgActivationToken"): self._provide_token,
            (_MENU.interface, "GetLayout"): self._layout,
            (_MENU.interface, "GetGroupProperties"): self._group_properties,
            (_MENU.interface, "GetProperty"): self._entry_property,
            (_MENU.interface, "Event"): self._event,
            (_MENU.interface, "EventGroup"): self._event_group,
            (_MENU.interface, "AboutToShow"): lambda _: ("b", (False,)),
            (_MENU.interface, "AboutToShowGroup"): lambda _: ("aiai", ([], [])),
        }

    def take_place(self) -> bool:
        """Become the icon of this session; False when there is one already. To be called first."""
        asked = message_bus.RequestName(_NAME, _DO_NOT_QUEUE)
        if self._bus.send_and_get_reply(asked, timeout=_PATIENCE).body[0] != _OWNED:
            return False
        self._bus.send_and_get_reply(message_bus.AddMatch(_APPEARS), timeout=_PATIENCE)
        self._register()
        return True

    def show(self, look: Look) -> None:
        """Show something else from now on."""
        before, self._look = self._look, look
        if look.icon != before.icon:
            self._signal(_ITEM, "NewIcon")
            self._signal(_ITEM, "NewAttentionIcon")
        if look.text != before.text:
            self._signal(_ITEM, "NewToolTip")
        if look.status != before.status:
            self._signal(_ITEM, "NewStatus", "s", look.status)
        if look.entries != before.entries:
            self._revision += 1
            self._number_entries()
            self._signal(_MENU, "LayoutUpdated", "ui", self._revision, 0)

    def wait(self, seconds: float) -> list[Click]:
        """Answer panels for so long, or until a person chooses something; return it.

        Raises OSError when the bus has ended.
        """
        deadline = time.monotonic() + seconds
        while not self._clicks and (left := deadline - time.monotonic()) > 0:
            try:
                message = self._bus.receive(timeout=left)
            except TimeoutError:
                break
            self._take(message)
        clicks, self._clicks = self._clicks, []
        return clicks

    def _register(self) -> None:
        """Tell the panels' watcher of this item. Whether there is one makes no difference: it is heard of."""
        self._bus.send(new_method_call(_WATCHER, "RegisterStatusNotifierItem", "s", (_NAME,)))

    def _signal(self, source: DBusAddress, name: str, signature: str = "", *body: object) -> None:
        self._bus.send(new_signal(source, name, signature, body))

    def _take(self, message: Message) -> None:
        fields = message.header.fields
        member = fields.get(HeaderFields.member)
        if message.header.message_type is MessageType.signal:
            if member == "NameOwnerChanged" and message.body[0] == _WATCHER.bus_name and message.body[2]:
                self._register()
            return
        if message.header.message_type is not MessageType.method_call:
            return
        method = self._methods.get((fields.get(HeaderFields.interface, ""), member or ""))
        try:
            if method is None:
                answer = new_error(message, "org.freedesktop.DBus.Error.UnknownMethod")
            else:
                answer = new_method_return(message, *method(message))
        except (LookupError, TypeError, ValueError) as error:  # what it is given has another shape
            answer = new_error(message, "org.freedesktop.DBus.Error.InvalidArgs", "s", (str(error),))
        self._bus.send(answer)

    # -- properties ------------------------------------------------------------------------------

    def _item_properties(self) -> dict[str, Variant]:
        look = self._look
        icon = f"hybrisfs-tray-{look.icon}"
        return {
            "Category": ("s", "SystemServices"),
            "Id": ("s", "hybrisfs"),
            "Title": ("s", "HybrisFS"),
            "Status": ("s", look.status),
            "WindowId": ("i", 0),
            "IconThemePath": ("s", self._icons),
            "IconName": ("s", icon),
            "IconPixmap": ("a(iiay)", []),
            "OverlayIconName": ("s", ""),
            "OverlayIconPixmap": ("a(iiay)", []),
            "AttentionIconName": ("s", icon),
            "AttentionIconPixmap": ("a(iiay)", []),
            "AttentionMovieName": ("s", ""),
            "ToolTip": ("(sa(iiay)ss)", (icon, [], "HybrisFS", look.text)),
            "ItemIsMenu": ("b", False),
            "Menu": ("o", _MENU.object_path),
        }

    def _menu_properties(self) -> dict[str, Variant]:
        return {
            "Version": ("u", 3),
            "TextDirection": ("s", "ltr"),
            "Status": ("s", "normal"),
            "IconThemePath": ("as", [self._icons]),
        }

    def _all(self, interface: str) -> dict[str, Variant]:
        if interface == _ITEM.interface:
            return self._item_properties()
        return self._menu_properties() if interface == _MENU.interface else {}

    def _get(self, message: Message) -> _Answer:
        interface, name = message.body
        return "v", (self._all(interface)[name],)

    def _get_all(self, message: Message) -> _Answer:
        return "a{sv}", (self._all(message.body[0]),)

    # -- a click on the icon ---------------------------------------------------------------------

    def _activate(self, _: Message) -> _Answer:
        self._click(self._look.command)
        return "", ()

    def _provide_token(self, message: Message) -> _Answer:
        self._token = str(message.body[0])
        return "", ()

    def _click(self, command: tuple[str, ...]) -> None:
        if command:
            self._clicks.append(Click(command, self._token))
        self._token = None

    # -- the menu --------------------------------------------------------------------------------
    # Number 0 is the menu itself. An entry keeps its number as long as it is there, and no other one gets it
    # later: a click on what a panel shows for a moment too long does what its label says, or nothing.

    def _number_entries(self) -> None:
        before: dict[Entry, list[int]] = {}
        for number, entry in self._entries.items():
            before.setdefault(entry, []).append(number)
        self._entries = {
            before[entry].pop(0) if before.get(entry) else self._new_number(): entry
            for entry in self._look.entries
        }

    def _new_number(self) -> int:
        self._last += 1
        return self._last

    def _entry(self, number: int) -> dict[str, Variant]:
        if number == 0:
            return {"children-display": ("s", "submenu")}
        entry = self._entries[number]
        if not entry.label:
            return {"type": ("s", "separator")}
        # An underscore before a letter would make it the entry's key.
        label: dict[str, Variant] = {"label": ("s", entry.label.replace("_", "__"))}
        return label if entry.command else {**label, "enabled": ("b", False)}

    def _layout(self, message: Message) -> _Answer:
        parent, depth, _ = message.body
        inside = self._entries if parent == 0 and depth != 0 else ()
        children: list[Variant] = [("(ia{sv}av)", (number, self._entry(number), [])) for number in inside]
        return "u(ia{sv}av)", (self._revision, (parent, self._entry(parent), children))

    def _group_properties(self, message: Message) -> _Answer:
        asked = message.body[0] or (0, *self._entries)
        known = [number for number in asked if number == 0 or number in self._entries]
        return "a(ia{sv})", ([(number, self._entry(number)) for number in known],)

    def _entry_property(self, message: Message) -> _Answer:
        number, name = message.body
        return "v", (self._entry(number)[name],)

    def _event(self, message: Message) -> _Answer:
        number, name, *_ = message.body
        self._hear(number, name)
        return "", ()

    def _event_group(self, message: Message) -> _Answer:
        for number, name, *_ in message.body[0]:
            self._hear(number, name)
        return "ai", ([number for number, *_ in message.body[0] if number not in self._entries],)

    def _hear(self, number: int, name: str) -> None:
        if name == "clicked" and number in self._entries:
            self._click(self._entries[number].command)


def _nothing(_: Message) -> _Answer:
    return "", ()
