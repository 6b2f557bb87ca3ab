"""Whether this machine's network has come up or changed, as soon as the kernel knows.

The kernel tells by netlink (rtnetlink(7)); anybody may listen.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final

from hybrisfs.environment import Environment

__all__ = ["Interfaces", "NetworkWatch"]

log = logging.getLogger(__name__)

# linux/rtnetlink.h, linux/if.h: multicast groups, types of messages, flags of interfaces
_GROUPS: Final = 0x1 | 0x10 | 0x100  # links, IPv4 addresses, IPv6 addresses
_NEWLINK, _DELLINK, _NEWADDR, _DELADDR = 16, 17, 20, 21
_RUNNING: Final = 0x40
_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_LINK: Final = struct.Struct("=BxHiII")  # family, type of device, index, flags, which of them changed
_ADDRESS: Final = struct.Struct("=BBBBi")  # family, bits of the prefix, flags, scope, index
_ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_IS_ADDRESS: Final = 1
_KERNEL: Final = 0  # the port that its messages come from
_BUFFER: Final = 1 << 16
_SETTLE_SECONDS: Final = 0.2  # changes come in bursts


class Interfaces:
    """What netlink has told of links and addresses. No thread, no socket."""

    def __init__(self) -> None:
        self._running: dict[int, bool] = {}
        self._addresses: set[tuple[int, bytes]] = set()

    def take_in(self, data: bytes) -> bool:
        """Whether these messages say that a link or an address has come. The kernel repeats itself: an IPv6
        router renews addresses every few minutes, and nothing has changed."""
        news = [self._take_in(kind, body) for kind, body in _messages(data)]
        return any(news)

    def _take_in(self, kind: int, body: bytes) -> bool:
        if kind in (_NEWLINK, _DELLINK) and len(body) >= _LINK.size:
            _, _, index, flags, _ = _LINK.unpack_from(body)
            runs = kind == _NEWLINK and bool(flags & _RUNNING)
            ran, self._running[index] = self._running.get(index, False), runs
            return runs and not ran
        if kind in (_NEWADDR, _DELADDR) and len(body) >= _ADDRESS.size:
            index = _ADDRESS.unpack_from(body)[4]
            known = (index, _attribute(body[_ADDRESS.size :], _IS_ADDRESS))
            if kind == _DELADDR:
                self._addresses.discard(known)
            elif known not in self._addresses:
                self._addresses.add(known)
                return True
        return False


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, at)
        if not _HEADER.size <= length <= len(data) - at:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += _aligned(length)


def _attribute(data: bytes, wanted: int) -> bytes:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if not _ATTRIBUTE.size <= length <= len(data) - at:
            break
        if kind == wanted:
            return data[at + _ATTRIBUTE.size : at + length]
        at += _aligned(length)
    return b""


def _aligned(length: int) -> int:
    return length + 3 & ~3


class NetworkWatch:
    """Calls *came_up*, on a thread of its own from `start` to `close`, soon after the network has come up."""

    def __init__(self, came_up: Callable[[], None], environment: Environment) -> None:
        self._came_up = came_up
        self._monotonic = environment.monotonic
        self._interfaces = Interfaces()
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="peers-network", daemon=True)

    def start(self) -> None:
        """Begin. What has changed since this returned is not missed."""
        try:
            listening = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            try:
                listening.bind((0, _GROUPS))
            except OSError:
                listening.close()
                raise
        except OSError as error:  # a container may forbid it
            log.info(
                "the kernel does not tell when the network changes (%s): it is tried now and then", error
            )
            return
        self._socket = listening
        self._thread.start()

    def close(self) -> None:
        """Stop. Idempotent."""
        if self._end < 0:
            return
        os.eventfd_write(self._end, 1)
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._end)
        self._end = -1

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        due: float | None = None
        with self._socket:
            while True:
                wait = None if due is None else max(0.0, due - self._monotonic())
                ready = dict(poll.poll(None if wait is None else 1000 * wait))
                if self._end in ready:
                    return
                if ready and self._hears_news() and due is None:
                    due = self._monotonic() + _SETTLE_SECONDS
                elif due is not None and self._monotonic() >= due:
                    due = None
                    self._came_up()

    def _hears_news(self) -> bool:
        try:
            data, (port, _) = self._socket.recvfrom(_BUFFER)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return True  # so much has changed that not all could be reported
        return bool(port == _KERNEL and self._interfaces.take_in(data))
