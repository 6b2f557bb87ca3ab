"""Connections that have not proven yet who is at their other end, in both directions; few, and not for long.

An accepted connection gets a thread and a deadline. No host may have more than a few of them, and when there
is no room for a new one the oldest gives way, so that strangers who connect and say nothing keep nobody out.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import threading
from collections.abc import Callable, Collection
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.peers.errors import ChannelError, PeerError, StrangerError
from hybrisfs.peers.frames import FrameDecoder, Hello, encode_frame
from hybrisfs.peers.listener import host_of
from hybrisfs.peers.settings import Address, PeerSettings, format_address
from hybrisfs.peers.tls import TlsIdentity
from sync import Members

__all__ = ["Handshakes", "Meeting", "SecureChannel", "meet"]

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
        environment: Environment,
    ) -> None:
        self._tls = tls
        self._monotonic = environment.monotonic
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
        """Break all off, and wait for their threads until *deadline* (monotonic)."""
        with self._lock:
            self._closed = True
            threads = [thread for _, thread in self._accepted.values()]
            for connection in (*self._accepted, *self._dialing):
                _shutdown(connection)
        for thread in threads:
            thread.join(max(0.0, deadline - self._monotonic()))

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
        deadline = self._monotonic() + self._settings.handshake_timeout
        members, hello = self._local.members, self._local.hello()
        return meet(
            connection, address, outgoing, self._tls, members, hello, lambda: deadline - self._monotonic()
        )


def _shutdown(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


# -- from a TCP connection to a member of the volume: TLS, pinning, hellos ------------------------------


class Meeting(Struct, frozen=True):
    """A connection to a member. *decoder* may hold frames that came right behind the hello."""

    channel: SecureChannel
    decoder: FrameDecoder
    device_id: bytes
    address: Address
    outgoing: bool
    hello: Hello


class LocalPeer(Protocol):
    """This device, as its handshakes, its connector, its discovery and its links see it."""

    def members(self) -> Members:
        """Those that may have a link now."""

    def hello(self) -> Hello:
        """What it says first over a new connection."""

    def linked(self) -> Collection[bytes]:
        """The devices that need no connection."""

    def met(self, meeting: Meeting) -> None:
        """A member is at the other end of a new connection. Called by the thread of the handshake."""

    def seen(self, device: bytes, addresses: tuple[Address, ...]) -> None:
        """A member says that it is at these addresses."""

    def slept(self) -> None:
        """The machine has been asleep: no connection of before is worth anything now."""


def meet(
    connection: socket.socket,
    address: Address,
    outgoing: bool,
    tls: TlsIdentity,
    members: Callable[[], Members],
    hello: Hello,
    left: Callable[[], float],
) -> Meeting:
    """Prove each other's identity in the seconds that are *left*.

    Raises `PeerError`; the connection is to be closed by the caller then, and belongs to the result
    otherwise.
    """
    try:
        if outgoing:
            channel = SecureChannel(connection, tls.client, tls.new_server_name())
        else:
            channel = SecureChannel(connection, tls.server)
    except OSError as error:
        raise ChannelError(f"the connection broke: {error.strerror or error}") from error
    channel.handshake(left)
    device = tls.peer(channel.tls, members())
    channel.send(encode_frame(hello), left())
    decoder = FrameDecoder()
    theirs = _await_hello(channel, decoder, left)
    if theirs.instance == hello.instance:
        raise StrangerError("the other side is this device itself")
    return Meeting(channel, decoder, device, address, outgoing, theirs)


def _await_hello(channel: SecureChannel, decoder: FrameDecoder, left: Callable[[], float]) -> Hello:
    while True:
        data = channel.receive(left())
        if data is None:
            raise ChannelError("the other side did not say hello in time")
        if not data:
            raise ChannelError("the other side refused this device")
        for frame in decoder.feed(data):
            assert isinstance(frame, Hello)  # the decoder lets nothing else come first
            return frame


# -- TLS over a TCP socket, for one thread that receives and one that sends -----------------------------
# An `ssl.SSLSocket` must not be used by two threads at once: OpenSSL's state is shared by both directions.
# Here OpenSSL works in memory only, under a lock that nobody holds while waiting for the network.


_RECEIVE: Final = 256 << 10
_RECORD: Final = 16 << 10
_SEND: Final = 128 << 10
_HANDSHAKE_BYTES: Final = 64 << 10
_UNSENT: Final = 256 << 10


class SecureChannel:
    """Owns the socket, which is to be connected already. `handshake` comes first, by one thread alone.

    Every method but `abandon` and `close` raises `ChannelError`.
    """

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, server_name: str | None = None
    ) -> None:
        """With a *server_name* this side is the one that connected."""
        self._connection = connection
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            # Keeps the queue where a ping or an update can still overtake chunks: here, not in the kernel.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._tls_lock = threading.Lock()
        self._close_lock = threading.Lock()
        self._closed = False

    def handshake(self, left: Callable[[], float]) -> None:
        """Returns when this side is content; as the connecting side, the other may still refuse.

        *left* tells how many seconds it may still take.
        """
        received = 0
        while True:
            finished = False
            try:
                self.tls.do_handshake()
                finished = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                with contextlib.suppress(ChannelError):  # the alert that tells the other side why
                    self._send_raw(self._outgoing.read(), 0.0)
                raise ChannelError(f"the TLS handshake failed: {_reason(error)}") from error
            self._send_raw(self._outgoing.read(), left())
            if finished:
                return
            data = self._receive_raw(left())
            if data is None:
                raise ChannelError("the other side did not finish the handshake in time")
            received += len(data)
            if not data or received > _HANDSHAKE_BYTES:
                raise ChannelError("the other side broke the handshake off" if not data else "no handshake")
            self._incoming.write(data)

    def receive(self, wait: float) -> bytes | None:
        """Some bytes, b"" when the other side closed, None when nothing came for *wait* seconds."""
        while True:
            plain = self._decrypt()
            if plain is not None:
                return plain
            data = self._receive_raw(wait)
            if not data:
                return data
            with self._tls_lock:
                self._incoming.write(data)

    def _decrypt(self) -> bytes | None:
        """All that is there to be decrypted; b"" at the end, None when more has to come first."""
        records: list[bytes] = []
        with self._tls_lock:
            try:
                while record := self.tls.read(_RECORD):
                    records.append(record)
            except ssl.SSLWantReadError:
                return b"".join(records) or None
            except ssl.SSLZeroReturnError:
                pass
            except ssl.SSLError as error:
                if not records:  # otherwise it is found again by the next call
                    raise ChannelError(f"TLS failed: {_reason(error)}") from error
        return b"".join(records)

    def send(self, data: bytes, stall: float) -> None:
        """Send all of it. Fails when the other side takes nothing for *stall* seconds."""
        view = memoryview(data)
        for start in range(0, len(data), _SEND):
            with self._tls_lock:
                try:
                    self.tls.write(view[start : start + _SEND])
                except ssl.SSLError as error:
                    raise ChannelError(f"TLS failed: {_reason(error)}") from error
                sealed = self._outgoing.read()
            self._send_raw(sealed, stall)

    def finish_sending(self) -> None:
        """Tell the other side that nothing more comes; what was sent still arrives."""
        with self._close_lock, contextlib.suppress(OSError):
            if not self._closed:
                self._connection.shutdown(socket.SHUT_WR)

    def abandon(self) -> None:
        """Break the connection off: both threads return at once. From any thread, any number of times."""
        with self._close_lock, contextlib.suppress(OSError):
            if not self._closed:
                self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back. No other thread may be receiving or sending any more."""
        with self._close_lock:
            self._closed = True
            self._connection.close()

    def _receive_raw(self, wait: float) -> bytes | None:
        try:
            with contextlib.suppress(BlockingIOError):
                return self._connection.recv(_RECEIVE)
            if not self._poll(select.POLLIN, wait):
                return None
            return self._connection.recv(_RECEIVE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ChannelError(f"the connection broke: {error.strerror or error}") from error

    def _send_raw(self, data: bytes, stall: float) -> None:
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[self._connection.send(view) :]
                except BlockingIOError:
                    if not self._poll(select.POLLOUT, stall):
                        raise ChannelError("the other side takes nothing any more") from None
        except OSError as error:
            raise ChannelError(f"the connection broke: {error.strerror or error}") from error

    def _poll(self, event: int, wait: float) -> bool:
        poll = select.poll()
        poll.register(self._connection, event)
        return bool(poll.poll(max(0.0, wait) * 1000))


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
