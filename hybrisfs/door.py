"""The door: a listening socket that lets nobody take up all connections."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
import weakref
from typing import Any, Final, NamedTuple

from msgspec import Struct

__all__ = ["Door", "DoorLimits", "neighbour"]

_IPV6_NETWORK: Final = (
    64  # bits: a household, or one machine, has as many addresses as it likes in one of these
)


class DoorLimits(Struct, frozen=True):
    """How many, and for how long."""

    connections: int = 256
    of_one: int = 32
    """Connections of one address."""
    login_seconds: float = 20.0
    """Without a login for so long, a connection has to go when somebody else comes."""


class _Guest(NamedTuple):
    socket: weakref.ref[socket.socket]
    address: str
    since: float


_LIMITS: Final = DoorLimits()


class Door(socket.socket):
    """Accepts as long as there is room: what is still in its TLS handshake counts, too.

    Nothing waits for time to pass: a new connection makes those go that have not logged in.
    """

    def __init__(self, listener: socket.socket, limits: DoorLimits = _LIMITS) -> None:
        """Takes over a listening socket."""
        super().__init__(fileno=listener.detach())
        self._limits = limits
        self._lock = threading.Lock()
        self._guests: dict[tuple[str, int], _Guest] = {}
        self._entered: set[tuple[str, int]] = set()

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises ConnectionAbortedError for one that there is no room for; it is closed."""
        found, where = super().accept()
        client = (where[0], where[1])
        address = neighbour(where[0])
        with self._lock:
            self._forget()
            if self._is_full(address):
                self._show_out()
                self._forget()
            if self._is_full(address):
                found.close()
                raise ConnectionAbortedError
            self._guests[client] = _Guest(weakref.ref(found), address, time.monotonic())
            self._entered.discard(client)
        return found, where

    def entered(self, client: tuple[str, int]) -> None:
        """Somebody has logged in by this connection."""
        with self._lock:
            if client in self._guests:
                self._entered.add(client)

    def _is_full(self, address: str) -> bool:
        of_one = sum(guest.address == address for guest in self._guests.values())
        return len(self._guests) >= self._limits.connections or of_one >= self._limits.of_one

    def _forget(self) -> None:
        for client, guest in list(self._guests.items()):
            found = guest.socket()
            if found is None or found.fileno() < 0:
                del self._guests[client]
                self._entered.discard(client)

    def _show_out(self) -> None:
        before = time.monotonic() - self._limits.login_seconds
        for client, guest in list(self._guests.items()):
            found = guest.socket()
            if client not in self._entered and guest.since < before and found is not None:
                with contextlib.suppress(OSError):
                    found.shutdown(socket.SHUT_RDWR)
                del self._guests[client]


def neighbour(host: str) -> str:
    """By what an address counts as the same: an address of IPv4, a network of IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _IPV6_NETWORK), strict=False))
    return str(address)
