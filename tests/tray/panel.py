"""A panel of a desktop: a fake that asks what panels ask."""

from __future__ import annotations

from typing import Any

from jeepney import DBusAddress, HeaderFields, Message, MessageType, new_method_call, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

NAME = "localhost.hybrisfs.Tray"
ITEM = DBusAddress("/StatusNotifierItem", bus_name=NAME, interface="org.kde.StatusNotifierItem")
MENU = DBusAddress("/MenuBar", bus_name=NAME, interface="com.canonical.dbusmenu")


class Panel:
    """What shows icons: the watcher with which they register, and a host that asks them."""

    def __init__(self, address: str) -> None:
        self.bus: DBusConnection = open_dbus_connection(address)
        self.signals: list[str] = []

    def start(self) -> None:
        """Become the watcher, as a panel does that starts, and hear of all signals."""
        self.bus.send_and_get_reply(message_bus.AddMatch("type='signal'"))
        self.bus.send_and_get_reply(message_bus.RequestName("org.kde.StatusNotifierWatcher"))

    def registered(self) -> str:
        """Wait for the next item that registers: its name."""
        while True:
            message = self._next()
            if message.header.message_type is MessageType.method_call:
                assert message.header.fields[HeaderFields.member] == "RegisterStatusNotifierItem"
                self.bus.send(new_method_return(message))
                return str(message.body[0])

    def heard(self, last: str) -> list[str]:
        """The signals of the item up to this one."""
        while last not in self.signals:
            self._next()
        found, self.signals = self.signals, []
        return found

    def ask(self, address: DBusAddress, method: str, signature: str = "", *body: object) -> Any:
        answer = self.bus.send_and_get_reply(new_method_call(address, method, signature, body), timeout=30)
        return answer.header.message_type, answer.body

    def get(self, address: DBusAddress, name: str) -> Any:
        properties = DBusAddress(address.object_path, address.bus_name, "org.freedesktop.DBus.Properties")
        kind, body = self.ask(properties, "Get", "ss", address.interface, name)
        assert kind is MessageType.method_return
        return body[0][1]

    def entries(self) -> dict[int, dict[str, Any]]:
        _, (_, (_, _, children)) = self.ask(MENU, "GetLayout", "iias", 0, -1, [])
        return {number: {name: one[1] for name, one in entry.items()} for _, (number, entry, _) in children}

    def _next(self) -> Message:
        message = self.bus.receive(timeout=30)
        if message.header.message_type is MessageType.signal:
            self.signals.append(message.header.fields[HeaderFields.member])
        return message
