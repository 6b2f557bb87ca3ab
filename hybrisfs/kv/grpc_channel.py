"""Calls of gRPC to servers, over connections that are used again."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hybrisfs.environment import Environment
from hybrisfs.kv.grpc_calls import BrokenCallError, Calls

__all__ = ["Channel", "NotReachedError", "Stream"]

_CONNECT_SECONDS: Final = 3.0
_MOST_IDLE: Final = 64  # connections to a server
_PORTION: Final = 1 << 17  # bytes

Metadata = Sequence[tuple[str, str]]


class NotReachedError(Exception):
    """There is no connection to the server, so it has not got the call."""


class Channel:
    """Thread-safe. A call has a connection for itself until it is answered."""

    def __init__(self, tls: Callable[[], ssl.SSLContext] | None, environment: Environment) -> None:
        """*tls* makes what connections of TLS need, if they are to be that; it may raise OSError."""
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._environment = environment
        self._monotonic = environment.monotonic
        self._lock = threading.Lock()
        self._idle: dict[str, list[_Connection]] = {}
        self._is_closed = False

    def call(self, host: str, path: str, message: bytes, metadata: Metadata, seconds: float) -> bytes:
        """The answer of *host*, which has a port, to a call with one message. Raises NotReachedError,
        RefusedCallError, and BrokenCallError and OSError when there is none within so many *seconds*."""
        deadline = self._monotonic() + seconds
        connection = self._ready(host, deadline)
        try:
            return connection.answer(path, message, metadata, deadline)
        finally:
            self._keep(host, connection)

    def stream(self, host: str, path: str, message: bytes, metadata: Metadata, silence: float) -> Stream:
        """Begin a call that is answered by many messages, with at most *silence* seconds between them. Raises
        NotReachedError, BrokenCallError and OSError."""
        connection = self._connected(host, self._monotonic() + _CONNECT_SECONDS)
        try:
            connection.begin(path, message, metadata)
        except BaseException:
            connection.close()
            raise
        return Stream(connection, silence)

    def close(self) -> None:
        """Close the connections that nobody uses, and the others when they have done."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
        for connection in (one for some in idle.values() for one in some):
            connection.close()

    def _ready(self, host: str, deadline: float) -> _Connection:
        while True:
            with self._lock:
                idle = self._idle.get(host)
                connection = idle.pop() if idle else None
            if connection is None:
                return self._connected(host, deadline)
            if connection.is_alive():
                return connection
            connection.close()

    def _keep(self, host: str, connection: _Connection) -> None:
        with self._lock:
            idle = self._idle.setdefault(host, [])
            if connection.is_usable and len(idle) < _MOST_IDLE and not self._is_closed:
                idle.append(connection)
                return
        connection.close()

    def _connected(self, host: str, deadline: float) -> _Connection:
        name, _, port = host.rpartition(":")
        name = name.strip("[]")
        left = min(_CONNECT_SECONDS, deadline - self._monotonic())
        if left <= 0:
            raise NotReachedError("no time was left")
        try:
            raw = socket.create_connection((name, int(port)), left)
            try:
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connected = self._secured(raw, name)
            except BaseException:
                raw.close()
                raise
        except (OSError, UnicodeError) as error:  # the latter of names that cannot be looked up
            raise NotReachedError(str(error) or type(error).__name__) from error
        return _Connection(connected, Calls(host, is_secure=self._tls is not None), self._environment)

    def _secured(self, raw: socket.socket, name: str) -> socket.socket:
        if self._tls is None:
            return raw
        with self._lock:
            if self._context is None:
                self._context = self._tls()
                self._context.set_alpn_protocols(["h2"])
        return self._context.wrap_socket(raw, server_hostname=name)


class Stream:
    """The messages that answer one call."""

    def __init__(self, connection: _Connection, silence: float) -> None:
        self._connection = connection
        self._silence = silence

    def messages(self) -> Iterator[bytes]:
        """Each as soon as it is there. Raises RefusedCallError, BrokenCallError and OSError."""
        yield from self._connection.messages(self._silence)

    def interrupt(self) -> None:
        """Have `messages` end with an error, whichever thread is in it. Waits for nobody."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class _Connection:
    """A socket, and the calls on it.

    The socket does not block: then each thing that is asked of it is one system call. A socket with a time
    limit takes two, and each of them gives Python's lock to another thread.
    """

    def __init__(self, connected: socket.socket, calls: Calls, environment: Environment) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._calls = calls
        self._monotonic = environment.monotonic
        self._poll = select.poll()

    @property
    def is_usable(self) -> bool:
        """Whether another call can begin."""
        return self._calls.is_usable

    def is_alive(self) -> bool:
        """Whether the server has not closed it, as far as that has come here."""
        try:
            while True:
                self._calls.receive(self._socket.recv(_PORTION))
        except (BlockingIOError, ssl.SSLWantReadError):
            return self._calls.is_usable
        except (BrokenCallError, OSError):
            return False

    def answer(self, path: str, message: bytes, metadata: Metadata, deadline: float) -> bytes:
        """The one message that answers a call. Raises RefusedCallError, BrokenCallError and OSError."""
        self._calls.begin(path, message, metadata)
        while not self._calls.is_over:
            self._turn(deadline)
        if rest := self._calls.to_send():
            self._send(rest, deadline)  # the server needs it before the next call
        self._calls.check()
        found = self._calls.messages()
        if len(found) != 1:
            raise BrokenCallError(f"{len(found)} messages instead of one")
        return found[0]

    def begin(self, path: str, message: bytes, metadata: Metadata) -> None:
        """Begin a call, of which more messages may be sent. Raises BrokenCallError and OSError."""
        self._calls.begin(path, message, metadata, ends=False)
        self._send(self._calls.to_send(), self._monotonic() + _CONNECT_SECONDS)

    def messages(self, silence: float) -> Iterator[bytes]:
        """The messages that answer it. Raises RefusedCallError, BrokenCallError and OSError."""
        while not self._calls.is_over:
            self._turn(self._monotonic() + silence)
            yield from self._calls.messages()
        self._calls.check()

    def interrupt(self) -> None:
        """End it from another thread."""
        with contextlib.suppress(OSError):
            # Not the method of TLS, which says good-bye and forgets its state under the thread that reads.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()

    def _turn(self, deadline: float) -> None:
        """Send what there is, and take in what comes."""
        if data := self._calls.to_send():
            self._send(data, deadline)
        self._calls.receive(self._receive(deadline))

    def _send(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLOUT, deadline)
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, deadline)

    def _receive(self, deadline: float) -> bytes:
        awaited = select.POLLIN
        while True:
            # TLS may have taken in more than it has given out.
            if not isinstance(self._socket, ssl.SSLSocket) or not self._socket.pending():
                self._wait(awaited, deadline)
            try:
                return self._socket.recv(_PORTION)
            except (BlockingIOError, ssl.SSLWantReadError):
                awaited = select.POLLIN
            except ssl.SSLWantWriteError:
                awaited = select.POLLOUT

    def _wait(self, events: int, deadline: float) -> None:
        """Until the socket can be written, or read. Raises TimeoutError."""
        self._poll.register(self._socket, events)
        left = deadline - self._monotonic()
        if left <= 0 or not self._poll.poll(1000 * left):
            raise TimeoutError("timed out")
