"""Connections that have not proven yet who is at their other end, in both directions; few, and not for long.

An accepted connection gets a thread and a deadline. No host may have more than a few of them, and when there
is no room for a new one the oldest gives way, so that strangers who connect and say nothing keep nobody out.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from typing import Final, TypeAlias

from hybrisfs.peers.errors import ChannelError, PeerError
from hybrisfs.peers.listener import host_of
from hybrisfs.peers.meeting import LocalPeer, Meeting, meet
from hybrisfs.peers.settings import Address, PeerSettings, format_address
from hybrisfs.peers.tls import TlsIdentity

__all__ = ["Handshakes"]

log = logging.getLogger(__name__)

_MAX_CHOICES: Final = 4
_SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


class Handshakes:
    """Has *local* meet every member that comes in."""

    def __init__(
        self,
        tls: TlsIdentity,
        local: LocalPeer,
        settings: PeerSettings,
    ) -> None:
        self._tls = tls
        self._local = local
        self._settings = settings
        self._lock = threading.Lock()
        self._accepted: dict[socket.socket, tuple[str, threading.Thread]] = {}
        self._dialing: set[socket.socket] = set()
        self._closed = False

    def accept(self, connection: socket.socket, address: Address) -> None:
        """Take over a connection that came in."""
        host = host_of(address)
        thread = threading.Thread(
            target=self._welcome, args=(connection, address), name="peer-handshake", daemon=True
        )
        with self._lock:
            same = sum(other == host for other, _ in self._accepted.values())
            room = same < self._settings.max_handshakes_per_host and not self._closed
            if room:
                if len(self._accepted) >= self._settings.max_handshakes:
                    oldest = next(iter(self._accepted))
                    del self._accepted[oldest]
                    _shutdown(oldest)
                self._accepted[connection] = host, thread
                thread.start()
        if not room:
            connection.close()

    def dial(self, address: Address) -> Meeting:
        """Connect to a device. Raises `PeerError`."""
        try:
            choices = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[:_MAX_CHOICES]
        except (OSError, UnicodeError) as error:
            raise ChannelError(f"{address[0]} cannot be looked up: {error}") from error
        reasons = []
        for family, kind, protocol, _, where in choices:
            connection = socket.socket(family, kind, protocol)
            try:
                return self._dial(connection, where, address)
            except PeerError as error:
                reasons.append(str(error))
        raise ChannelError("; ".join(reasons))

    def _dial(self, connection: socket.socket, where: _SocketAddress, address: Address) -> Meeting:
        with self._lock:
            if not self._closed:
                self._dialing.add(connection)
        meeting = None
        try:
            if connection not in self._dialing:
                raise ChannelError("the volume is being closed")
            connection.settimeout(self._settings.connect_timeout)
            connection.connect(where)
            meeting = self._meet(connection, address, outgoing=True)
        except OSError as error:
            raise ChannelError(f"cannot connect: {error.strerror or error}") from error
        finally:
            with self._lock:
                self._dialing.discard(connection)
            if meeting is None:
                connection.close()
        return meeting

    def close(self, deadline: float) -> None:
        """Break all off, and wait for their threads until *deadline* (`time.monotonic`)."""
        with self._lock:
            self._closed = True
            threads = [thread for _, thread in self._accepted.values()]
            for connection in (*self._accepted, *self._dialing):
                _shutdown(connection)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _welcome(self, connection: socket.socket, address: Address) -> None:
        meeting = None
        try:
            meeting = self._meet(connection, address, outgoing=False)
        except PeerError as error:
            log.debug("refused a connection from %s: %s", format_address(address), error)
        finally:
            with self._lock:
                ours = self._accepted.pop(connection, None) is not None and not self._closed
            if meeting is None or not ours:
                connection.close()
        if meeting is not None and ours:
            self._local.met(meeting)

    def _meet(self, connection: socket.socket, address: Address, outgoing: bool) -> Meeting:
        deadline = time.monotonic() + self._settings.handshake_timeout
        return meet(
            connection, address, outgoing, self._tls, self._local.members, self._local.hello(), deadline
        )


def _shutdown(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
