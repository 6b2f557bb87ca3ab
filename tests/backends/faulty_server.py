"""Servers that misbehave on purpose: a proxy before a real server, and one that gives prepared answers.

Both run in threads of this process, on a free port of the loopback interface, until they are closed.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO, Final

__all__ = ["Answer", "AnsweringServer", "FaultyProxy", "Request"]

_BLOCK: Final = 1 << 16
_MAX_REQUEST: Final = 256 << 20


class _Listener(ABC):
    """Accepts connections on a free port and serves each in a thread of its own."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name=f"{type(self).__name__}-{self.port}")
        self._thread.start()

    def __enter__(self) -> _Listener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Break all connections and take no more."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                _break(connection)
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._adopt(connection)
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _adopt(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)
            if self._closed.is_set():
                _break(connection)

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):
                self._serve(connection)
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    @abstractmethod
    def _serve(self, connection: socket.socket) -> None:
        """Talk to one client."""


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class FaultyProxy(_Listener):
    """Passes bytes on between clients and a real server until it is told to break the connection or to stall.

    `answer_at_most` and `request_at_most` are the bytes that still pass in each direction, of all connections
    together, before `fault` strikes: "cut" closes the connection, "stall" passes nothing more.
    `answer_rate` is in bytes per second.
    """

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self.fault: str = "cut"
        self.answer_at_most: int | None = None
        self.request_at_most: int | None = None
        self.answer_rate: int | None = None
        super().__init__()

    def __enter__(self) -> FaultyProxy:
        return self

    def heal(self) -> None:
        """Pass everything on again, on new connections."""
        self.answer_at_most = self.request_at_most = None
        with self._lock:
            for connection in self._open:
                _break(connection)

    def _serve(self, connection: socket.socket) -> None:
        with socket.create_connection(self._upstream) as server:
            self._adopt(server)
            back = threading.Thread(
                target=self._pump, args=(server, connection, "answer_at_most"), daemon=True
            )
            back.start()
            self._pump(connection, server, "request_at_most")
            back.join()
            with self._lock:
                self._open.discard(server)

    def _pump(self, source: socket.socket, sink: socket.socket, budget: str) -> None:
        try:
            while data := source.recv(_BLOCK):
                with self._lock:
                    left = getattr(self, budget)
                    allowed = data if left is None else data[:left]
                    if left is not None:
                        setattr(self, budget, left - len(allowed))
                sink.sendall(allowed)
                if self.answer_rate is not None and budget == "answer_at_most":
                    self._closed.wait(len(allowed) / self.answer_rate)
                if len(allowed) < len(data):
                    if self.fault == "stall":
                        self._wait_for_the_end(source)
                    break
        except OSError:
            pass
        finally:
            _break(source)
            _break(sink)

    def _wait_for_the_end(self, source: socket.socket) -> None:
        while source.recv(_BLOCK):
            pass


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What a client gets: `declared` is the Content-Length, by default the true one, None for none at all."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    declared: int | None = -1
    endless: bool = False  # go on sending the body for as long as anybody listens
    stall: bool = False  # after the body, send nothing more and keep the connection


class AnsweringServer(_Listener):
    """An HTTP server whose every answer comes from `answer`; `requests` is what it was asked."""

    def __init__(self, answer: Answer | Callable[[Request], Answer]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.greeting = b""  # what is sent before any request
        self.bytes_per_second: int | None = None  # that a request is taken at, by default as they come
        super().__init__()

    def __enter__(self) -> AnsweringServer:
        return self

    def _serve(self, connection: socket.socket) -> None:
        connection.sendall(self.greeting)
        with connection.makefile("rb") as stream:
            while (first := stream.readline(_BLOCK)).strip():
                method, _, rest = first.decode("latin-1").partition(" ")
                target = rest.partition(" ")[0]
                headers = {}
                while (line := stream.readline(_BLOCK)).strip():
                    key, _, value = line.decode("latin-1").partition(":")
                    headers[key.strip().lower()] = value.strip()
                if headers.get("expect", "").lower() == "100-continue":
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                length = headers.get("content-length", "0")
                body = self._take(stream, min(int(length) if length.isdigit() else 0, _MAX_REQUEST))
                request = Request(method, target, headers, body)
                with self._lock:
                    self.requests.append(request)
                answer = self.answer(request) if callable(self.answer) else self.answer
                if not self._send(connection, request, answer):
                    return

    def _take(self, stream: BinaryIO, length: int) -> bytes:
        if self.bytes_per_second is None:
            return stream.read(length)
        parts = []
        while length and (part := stream.read(min(length, _BLOCK))):
            parts.append(part)
            length -= len(part)
            self._closed.wait(len(part) / self.bytes_per_second)
        return b"".join(parts)

    def _send(self, connection: socket.socket, request: Request, answer: Answer) -> bool:
        """Send an answer; returns whether the connection can be used again."""
        length = len(answer.body) if answer.declared == -1 else answer.declared
        lines = [f"HTTP/1.1 {answer.status} Prepared"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        if answer.status in (204, 304):
            length = 0
        elif length is not None:
            lines.append(f"Content-Length: {length}")
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if request.method != "HEAD":
            connection.sendall(answer.body)
        while answer.endless:
            connection.sendall(answer.body)
        if answer.stall:
            while connection.recv(_BLOCK):
                pass
        return length == len(answer.body) and not answer.stall
