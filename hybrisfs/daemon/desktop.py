"""Notifications on the desktop (org.freedesktop.Notifications 1.2), over the session's D-Bus.

Without a session bus, or without anybody who shows notifications, nothing is shown.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from jeepney import DBusAddress, Message, MessageType, new_method_call
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from hybrisfs.events.notices import Action, Show
from hybrisfs.home import session_bus

__all__ = ["Desktop"]

log = logging.getLogger(__name__)

_NOTIFICATIONS: Final = DBusAddress(
    "/org/freedesktop/Notifications",
    bus_name="org.freedesktop.Notifications",
    interface="org.freedesktop.Notifications",
)
_PATIENCE: Final = 2.0  # seconds
_NO_TIMEOUT: Final = 0
_MARKUP: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Desktop:
    """Shows and withdraws what one thread tells it to."""

    def __init__(self) -> None:
        self._bus: DBusConnection | None = None
        self._ids: dict[tuple[str, str], int] = {}

    def carry_out(self, volume: str, action: Action) -> None:
        """Show or withdraw a notification about a volume. Never raises: it is a courtesy."""
        try:
            if isinstance(action, Show):
                self._show(volume, action)
            else:
                self._withdraw(volume, action.topic)
        except Exception as error:  # noqa: BLE001 - whatever a bus says wrongly, it is no reason to stop
            log.debug("nothing can be shown on the desktop: %s", error)
            self.close()

    def close(self) -> None:
        """Leave the bus. What is shown stays."""
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def _show(self, volume: str, action: Show) -> None:
        key = (volume, action.topic)
        hints = {"desktop-entry": ("s", "hybrisfs"), "urgency": ("y", 1)}
        text = action.text.translate(_MARKUP)
        what: tuple[object, ...] = (
            "HybrisFS",
            self._ids.get(key, 0),
            "hybrisfs",
            f"HybrisFS: {volume}",
            text,
            [],
            hints,
        )
        answer = self._ask(new_method_call(_NOTIFICATIONS, "Notify", "susssasa{sv}i", (*what, _NO_TIMEOUT)))
        if answer is not None:
            self._ids[key] = answer[0]

    def _withdraw(self, volume: str, topic: str) -> None:
        number = self._ids.pop((volume, topic), None)
        if number is not None:
            self._ask(new_method_call(_NOTIFICATIONS, "CloseNotification", "u", (number,)))

    def _ask(self, message: Message) -> tuple[Any, ...] | None:
        if self._bus is None:
            self._bus = open_dbus_connection(session_bus())
        answer = self._bus.send_and_get_reply(message, timeout=_PATIENCE)
        if answer.header.message_type is not MessageType.method_return:
            log.debug("the desktop refuses: %s", answer.body)
            return None
        body: tuple[Any, ...] = answer.body
        return body
