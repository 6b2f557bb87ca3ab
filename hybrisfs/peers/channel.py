"""What a link runs over: a TCP connection, or TLS over one, or over another TLS.

Each is a `Wire`, for one thread that receives and one that sends. An `ssl.SSLSocket` must not be used by two
threads at once: OpenSSL's state is shared by both directions. Here OpenSSL works in memory only, under a lock
that nobody holds while waiting for the network.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Final, Protocol

from hybrisfs.peers.errors import ChannelError

__all__ = ["SecureChannel", "SocketWire", "Wire"]

_RECEIVE: Final = 256 << 10
_RECORD: Final = 16 << 10
_SEND: Final = 128 << 10
_HANDSHAKE_BYTES: Final = 64 << 10
_UNSENT: Final = 256 << 10


class Wire(Protocol):
    """A stream of bytes to somebody else. `receive` and `send` raise `ChannelError`."""

    def receive(self, wait: float) -> bytes | None:
        """Some bytes, b"" when the other side closed, None when nothing came for *wait* seconds."""

    def send(self, data: bytes, stall: float) -> None:
        """Send all of it. Fails when the other side takes nothing for *stall* seconds."""

    def finish_sending(self) -> None:
        """Tell the other side that nothing more comes; what was sent still arrives."""

    def abandon(self) -> None:
        """Break the connection off: both threads return at once. From any thread, any number of times."""

    def close(self) -> None:
        """Give everything back. No other thread may be receiving or sending any more."""


class SocketWire:
    """A `Wire` over TCP: owns the socket, which is to be connected already."""

    def __init__(self, connection: socket.socket) -> None:
        """Raises `ChannelError` when it broke already."""
        self._connection = connection
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                # Keeps the queue where a ping or an update can still overtake chunks: not in the kernel.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        except OSError as error:
            raise ChannelError(f"the connection broke: {error.strerror or error}") from error
        self._close_lock = threading.Lock()
        self._closed = False

    def receive(self, wait: float) -> bytes | None:
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

    def send(self, data: bytes, stall: float) -> None:
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

    def finish_sending(self) -> None:
        with self._close_lock, contextlib.suppress(OSError):
            if not self._closed:
                self._connection.shutdown(socket.SHUT_WR)

    def abandon(self) -> None:
        with self._close_lock, contextlib.suppress(OSError):
            if not self._closed:
                self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._close_lock:
            self._closed = True
            self._connection.close()

    def _poll(self, event: int, wait: float) -> bool:
        poll = select.poll()
        poll.register(self._connection, event)
        return bool(poll.poll(max(0.0, wait) * 1000))


class SecureChannel:
    """A `Wire` of TLS over another one, which it owns. `handshake` comes first, by one thread alone.

    Every method but `abandon` and `close` raises `ChannelError`.
    """

    def __init__(self, wire: Wire, context: ssl.SSLContext, server_name: str | None = None) -> None:
        """This side is the server, unless the context is a client's; *server_name* is what a client asks
        for."""
        self._wire = wire
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        server_side = context.protocol == ssl.PROTOCOL_TLS_SERVER
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self._tls_lock = threading.Lock()

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
                    self._wire.send(self._outgoing.read(), 0.0)
                raise ChannelError(f"the TLS handshake failed: {_reason(error)}") from error
            self._wire.send(self._outgoing.read(), left())
            if finished:
                return
            data = self._wire.receive(left())
            if data is None:
                raise ChannelError("the other side did not finish the handshake in time")
            received += len(data)
            if not data or received > _HANDSHAKE_BYTES:
                raise ChannelError("the other side broke the handshake off" if not data else "no handshake")
            self._incoming.write(data)

    def receive(self, wait: float) -> bytes | None:
        while True:
            plain = self._decrypt()
            if plain is not None:
                return plain
            data = self._wire.receive(wait)
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
        view = memoryview(data)
        for start in range(0, len(data), _SEND):
            with self._tls_lock:
                try:
                    self.tls.write(view[start : start + _SEND])
                except ssl.SSLError as error:
                    raise ChannelError(f"TLS failed: {_reason(error)}") from error
                sealed = self._outgoing.read()
            self._wire.send(sealed, stall)

    def finish_sending(self) -> None:
        self._wire.finish_sending()

    def abandon(self) -> None:
        self._wire.abandon()

    def close(self) -> None:
        self._wire.close()


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
