"""Is the network metered? NetworkManager knows, and tells on the system bus of D-Bus.

Without NetworkManager, or without a system bus, nothing counts as metered.
"""

from __future__ import annotations

import logging
from typing import Final

from jeepney import DBusAddress, MessageType, Properties
from jeepney.io.blocking import open_dbus_connection

__all__ = ["is_metered"]

log = logging.getLogger(__name__)

_NETWORK_MANAGER: Final = DBusAddress(
    "/org/freedesktop/NetworkManager",
    bus_name="org.freedesktop.NetworkManager",
    interface="org.freedesktop.NetworkManager",
)
_YES: Final = (1, 3)  # NMMetered: yes, and guessed so, as for a telephone that shares its connection
_PATIENCE: Final = 2.0  # seconds


def is_metered() -> bool:
    """Whether the connection that is used now costs by the byte, as far as is known."""
    try:
        with open_dbus_connection("SYSTEM") as bus:
            answer = bus.send_and_get_reply(Properties(_NETWORK_MANAGER).get("Metered"), timeout=_PATIENCE)
            if answer.header.message_type is not MessageType.method_return:
                return False
            _, value = answer.body[0]
    except Exception as error:  # noqa: BLE001 - whatever a bus says wrongly, it is no reason to stop
        log.debug("NetworkManager cannot be asked: %s", error)
        return False
    return value in _YES
