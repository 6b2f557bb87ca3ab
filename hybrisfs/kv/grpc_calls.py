"""One connection to a server of gRPC, on which one call goes on at a time. Does no IO: `grpc_channel` does.

A call is a stream of HTTP/2 (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md): headers with
the name of the call, then messages in both directions. Before each message are a byte that says whether it
is compressed, which none is here, and its length (u32). Trailers with the status end the call.

HTTP/2 could carry several calls at the same time. Then threads would wait for each other to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from h2.settings import SettingCodes, Settings

__all__ = ["BrokenCallError", "Calls", "RefusedCallError"]

_MOST_MESSAGE: Final = 64 << 20  # bytes
_MOST_CALLS: Final = 1 << 20  # of a connection, whose streams have numbers of 31 bits
_WINDOW: Final = 4 << 20  # bytes that the server may send ahead
_PREFIX: Final = 5  # bytes before a message
_HEADERS: Final = ((b"te", b"trailers"), (b"content-type", b"application/grpc"))
_STATUS: Final = re.compile(rb"[0-9]{1,3}")


class RefusedCallError(Exception):
    """The server has ended a call with an error. `code` is one of gRPC's, see
    https://grpc.io/docs/guides/status-codes/."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class BrokenCallError(Exception):
    """A call has ended without an answer that can be understood."""


class Calls:
    """The client's end of a connection."""

    def __init__(self, host: str, *, is_secure: bool) -> None:
        """*host* has the port. *is_secure*: the connection is one of TLS."""
        settings = {SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW, SettingCodes.ENABLE_PUSH: 0}
        self._http = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None)
        )
        self._http.local_settings = Settings(client=True, initial_values=settings)
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_WINDOW)
        self._target = [
            (b":method", b"POST"),
            (b":scheme", b"https" if is_secure else b"http"),
            (b":authority", host.encode()),
        ]
        self._stream = 0
        self._count = 0
        self._unsent = memoryview(b"")
        self._ends = True
        self._received = bytearray()
        self._status: tuple[int, str] | None = None
        self._is_closing = False
        self.is_over = True
        """Whether the server has ended the call."""

    @property
    def is_usable(self) -> bool:
        """Whether another call can begin."""
        is_done = self.is_over and not self._unsent and self._ends
        return is_done and not self._is_closing and self._count < _MOST_CALLS

    def begin(
        self, path: str, message: bytes, metadata: Iterable[tuple[str, str]] = (), *, ends: bool = True
    ) -> None:
        """Call *path*, `/SERVICE/METHOD`, with a message. *ends*: it is the only one of ours."""
        self._count += 1
        self._received.clear()
        self._status, self.is_over, self._ends = None, False, ends
        self._unsent = memoryview(b"\0%b%b" % (len(message).to_bytes(4, "big"), message))
        headers = [*self._target, (b":path", path.encode()), *_HEADERS]
        headers += [(name.encode(), value.encode()) for name, value in metadata]
        try:
            self._stream = self._http.get_next_available_stream_id()
            self._http.send_headers(self._stream, headers)
        except h2.exceptions.H2Error as error:
            self._is_closing = True
            raise BrokenCallError(f"{type(error).__name__}: {error}") from error

    def to_send(self) -> bytes:
        """What the server is to get now."""
        try:
            while self._unsent and not self.is_over:
                most = min(
                    self._http.local_flow_control_window(self._stream), self._http.max_outbound_frame_size
                )
                if most <= 0:
                    break  # until the server says that it takes more
                some, self._unsent = self._unsent[:most], self._unsent[most:]
                self._http.send_data(self._stream, some, end_stream=self._ends and not self._unsent)
        except h2.exceptions.H2Error as error:
            self._is_closing = True
            raise BrokenCallError(f"{type(error).__name__}: {error}") from error
        return self._http.data_to_send()

    def receive(self, data: bytes) -> None:
        """The server has sent this; nothing: it has closed the connection. Raises BrokenCallError."""
        if not data:
            self._is_closing = True
            raise BrokenCallError("the connection was closed")
        try:
            events = self._http.receive_data(data)
            for event in events:
                self._take(event)
        except h2.exceptions.H2Error as error:
            self._is_closing = True
            raise BrokenCallError(f"{type(error).__name__}: {error}") from error

    def messages(self) -> list[bytes]:
        """What has arrived since the last call of this. Raises BrokenCallError."""
        found, data = [], self._received
        while len(data) >= _PREFIX:
            size = int.from_bytes(data[1:_PREFIX], "big")
            if data[0] or size > _MOST_MESSAGE:
                raise BrokenCallError("a message is compressed, or too long")
            if len(data) < _PREFIX + size:
                break
            found.append(bytes(data[_PREFIX : _PREFIX + size]))
            del data[: _PREFIX + size]
        return found

    def check(self) -> None:
        """The call is over. Raises RefusedCallError when it has failed, BrokenCallError when nobody knows."""
        if self._status is None:
            raise BrokenCallError("the call was broken off")
        code, message = self._status
        if code:
            raise RefusedCallError(code, message)

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self._is_closing = True
        elif getattr(event, "stream_id", None) != self._stream:
            return
        elif isinstance(event, h2.events.DataReceived):
            self._received += event.data
            self._http.acknowledge_received_data(event.flow_controlled_length, self._stream)
        elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            self._take_headers(dict(event.headers))
        elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
            self.is_over = True

    def _take_headers(self, headers: dict[bytes, bytes]) -> None:
        http, status = headers.get(b":status", b"200"), headers.get(b"grpc-status")
        if http != b"200":
            raise BrokenCallError(f"HTTP status {http.decode(errors='replace')}")
        if status is not None:
            if not _STATUS.fullmatch(status):
                raise BrokenCallError("the status is none of gRPC's")
            self._status = int(status), unquote(headers.get(b"grpc-message", b"").decode(errors="replace"))
