"""Connections that have not proven yet who is at their other end, in both directions; few, and not for long.

An accepted connection gets a thread and a deadline. No host may have more than a few of them, and when there
is no room for a new one the oldest gives way, so that strangers who connect and say nothing keep nobody out.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.peers.channel import SecureChannel, SocketWire, Wire
from hybrisfs.peers.errors import ChannelError, PeerError, StrangerError
from hybrisfs.peers.frames import FrameDecoder, Hello, encode_frame
from hybrisfs.peers.lines import Role
from hybrisfs.peers.listener import host_of
from hybrisfs.peers.relayed import Line, open_line
from hybrisfs.peers.settings import Address, PeerSettings, Place, Relay, Through, format_place
from hybrisfs.peers.tls import TlsIdentity
from sync import Members

__all__ = ["Handshakes", "LocalPeer", "Meeting", "meet"]

log = logging.getLogger(__name__)

_MAX_CHOICES: Final = 4
_Choice: TypeAlias = tuple[int, int, int, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]
_Reached = TypeVar("_Reached")


class Handshakes:
    """Has *local* meet every member that comes in."""

    def __init__(
        self,
        tls: TlsIdentity,
        local: LocalPeer,
        settings: PeerSettings,
        environment: Environment,
    ) -> None:
        self._tls = tls
        self._monotonic = environment.monotonic
        self._local = local
        self._settings = settings
        self._lock = threading.Lock()
        self._accepted: dict[Wire, tuple[str, threading.Thread]] = {}
        self._dialing: dict[socket.socket, Relay | None] = {}
        self._relays: frozenset[Relay] = frozenset()
        self._closed = False

    def accept(self, connection: socket.socket, address: Address) -> None:
        """Take over a connection that came in."""
        try:
            wire = SocketWire(connection)
        except PeerError as error:
            log.debug("refused a connection from %s: %s", format_place(address), error)
            connection.close()
        else:
            self._accept(wire, address, host_of(address))

    def await_call(self, relay: Relay, device: bytes, opened: Callable[[], None]) -> None:
        """Wait at a relay until a device calls this one, *device*, and have it met; *opened* is called when
        the relay lets it wait. Raises `PeerError` when the relay cannot be reached, refuses, falls silent,
        or is left."""
        tag, place = self._tls.tag(device), Through(relay)

        def wait(wire: Wire) -> Line:
            line = open_line(wire, relay, Role.WAIT, tag, self._left())
            line.await_call(opened)
            return line

        self._accept(self._reach(relay.address, wait, relay), place, format_place(place))

    def wait_at(self, relays: Collection[Relay]) -> None:
        """Wait at these relays only: `await_call` at others ends."""
        with self._lock:
            self._relays = frozenset(relays)
            for connection, waiting in self._dialing.items():
                if waiting is not None and waiting not in self._relays:
                    _shutdown(connection)

    def dial(self, place: Place) -> Meeting:
        """Connect to a device. Raises `PeerError`."""
        if isinstance(place, tuple):
            return self._reach(place, lambda wire: self._meet(wire, place, outgoing=True))
        relay, tag = place.relay, self._tls.tag(place.device)

        def call(wire: Wire) -> Meeting:
            left = self._left()
            line = open_line(wire, relay, Role.CALL, tag, left)
            line.await_answer(left)
            return self._meet(line, place, outgoing=True)

        return self._reach(relay.address, call)

    def close(self, deadline: float) -> None:
        """Break all off, and wait for their threads until *deadline* (monotonic)."""
        with self._lock:
            self._closed = True
            threads = [thread for _, thread in self._accepted.values()]
            for wire in self._accepted:
                wire.abandon()
            for connection in self._dialing:
                _shutdown(connection)
        for thread in threads:
            thread.join(max(0.0, deadline - self._monotonic()))

    def _reach(
        self, address: Address, then: Callable[[Wire], _Reached], waiting: Relay | None = None
    ) -> _Reached:
        """What *then* makes of a connection to an address, that of a relay at which it is *waiting*. Raises
        `PeerError`."""
        try:
            choices = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[:_MAX_CHOICES]
        except (OSError, UnicodeError) as error:
            raise ChannelError(f"{address[0]} cannot be looked up: {error}") from error
        reasons = []
        for family, kind, protocol, _, where in choices:
            try:
                return self._reach_one((family, kind, protocol, where), then, waiting)
            except PeerError as error:
                reasons.append(str(error))
        raise ChannelError("; ".join(reasons))

    def _reach_one(
        self, choice: _Choice, then: Callable[[Wire], _Reached], waiting: Relay | None
    ) -> _Reached:
        *kind, where = choice
        connection = socket.socket(*kind)
        with self._lock:
            if not self._closed and (waiting is None or waiting in self._relays):
                self._dialing[connection] = waiting
        reached = None
        try:
            if connection not in self._dialing:
                raise ChannelError("the volume is being closed, or the relay is used no more")
            connection.settimeout(self._settings.connect_timeout)
            connection.connect(where)
            reached = then(SocketWire(connection))
        except OSError as error:
            raise ChannelError(f"cannot connect: {error.strerror or error}") from error
        finally:
            with self._lock:
                self._dialing.pop(connection, None)
            if reached is None:
                connection.close()
        return reached

    def _accept(self, wire: Wire, place: Place, host: str) -> None:
        thread = threading.Thread(
            target=self._welcome, args=(wire, place), name="peer-handshake", daemon=True
        )
        with self._lock:
            same = sum(other == host for other, _ in self._accepted.values())
            room = same < self._settings.max_handshakes_per_host and not self._closed
            if room:
                if len(self._accepted) >= self._settings.max_handshakes:
                    oldest = next(iter(self._accepted))
                    del self._accepted[oldest]
                    oldest.abandon()
                self._accepted[wire] = host, thread
                thread.start()
        if not room:
            wire.close()

    def _welcome(self, wire: Wire, place: Place) -> None:
        meeting = None
        try:
            meeting = self._meet(wire, place, outgoing=False)
        except PeerError as error:
            log.debug("refused a connection from %s: %s", format_place(place), error)
        finally:
            with self._lock:
                ours = self._accepted.pop(wire, None) is not None and not self._closed
            if meeting is None or not ours:
                wire.close()
        if meeting is not None and ours:
            self._local.met(meeting)

    def _meet(self, wire: Wire, place: Place, outgoing: bool) -> Meeting:
        members, hello = self._local.members, self._local.hello()
        return meet(wire, place, outgoing, self._tls, members, hello, self._left())

    def _left(self) -> Callable[[], float]:
        """How many seconds of a handshake that begins now are left."""
        deadline = self._monotonic() + self._settings.handshake_timeout
        return lambda: deadline - self._monotonic()


def _shutdown(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


# -- from a wire to a member of the volume: TLS, pinning, hellos ------------------------------


class Meeting(Struct, frozen=True):
    """A connection to a member. *decoder* may hold frames that came right behind the hello."""

    channel: SecureChannel
    decoder: FrameDecoder
    device_id: bytes
    place: Place
    outgoing: bool
    hello: Hello


class LocalPeer(Protocol):
    """This device, as its handshakes, its connector, its discovery and its links see it."""

    def members(self) -> Members:
        """Those that may have a link now."""

    def hello(self) -> Hello:
        """What it says first over a new connection."""

    def linked(self) -> Mapping[bytes, bool]:
        """The devices that have a link, and whether it is a direct one."""

    def met(self, meeting: Meeting) -> None:
        """A member is at the other end of a new connection. Called by the thread of the handshake."""

    def seen(self, device: bytes, addresses: tuple[Address, ...]) -> None:
        """A member says that it is at these addresses."""

    def slept(self) -> None:
        """The machine has been asleep: no connection of before is worth anything now."""


def meet(
    wire: Wire,
    place: Place,
    outgoing: bool,
    tls: TlsIdentity,
    members: Callable[[], Members],
    hello: Hello,
    left: Callable[[], float],
) -> Meeting:
    """Prove each other's identity in the seconds that are *left*.

    Raises `PeerError`; the wire is to be closed by the caller then, and belongs to the result otherwise.
    """
    if outgoing:
        channel = SecureChannel(wire, tls.client, tls.new_server_name())
    else:
        channel = SecureChannel(wire, tls.server)
    channel.handshake(left)
    device = tls.peer(channel.tls, members())
    channel.send(encode_frame(hello), left())
    decoder = FrameDecoder()
    theirs = _await_hello(channel, decoder, left)
    if theirs.instance == hello.instance:
        raise StrangerError("the other side is this machine itself")
    return Meeting(channel, decoder, device, place, outgoing, theirs)


def _await_hello(channel: SecureChannel, decoder: FrameDecoder, left: Callable[[], float]) -> Hello:
    while True:
        data = channel.receive(left())
        if data is None:
            raise ChannelError("the other side did not say hello in time")
        if not data:
            raise ChannelError("the other side refused this machine")
        for frame in decoder.feed(data):
            assert isinstance(frame, Hello)  # the decoder lets nothing else come first
            return frame
