"""The control protocol between the daemon and its clients, over one unix socket.

Each message is one line: a JSON object in ASCII, ended by a newline, of at most `MAX_LINE` bytes.
Paths that are no UTF-8 travel as lone surrogates (Python's surrogateescape).

daemon  {"hello": {"protocol": 1, "version": "0.2.0"}}                  first thing on a connection
client  {"command": "sync", "arguments": {...}}                         then any number of requests,
daemon  {"progress": {...}}                                             each answered by any number of these:
                                                                        news, or parts of the answer;
        {"result": {...}}                                               and one of these two
        {"error": {"kind": "usage", "message": "...", "exit_code": 2}}

A client that wants a command to stop closes the connection. Either side closes it on a malformed line.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

__all__ = [
    "MAX_LINE",
    "PROTOCOL",
    "Channel",
    "ChannelError",
    "Message",
    "bind_socket",
    "connect_socket",
]

PROTOCOL: Final = 1
MAX_LINE: Final = 4 << 20  # bytes
_MAX_SOCKET_PATH: Final = 107  # bytes; sun_path less its final zero
_READ_SIZE: Final = 1 << 16

Message: TypeAlias = dict[str, Any]


class ChannelError(Exception):
    """The other side is gone or does not speak the protocol."""


class Channel:
    """Whole messages over a connected socket. One thread reads, one writes; it may be the same."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()

    def send(self, message: Message, within: float | None = None) -> None:
        """Raises `ChannelError` when the other side is gone, or has not taken the message within so many
        seconds, `ValueError` for too long a message."""
        line = json.dumps(message).encode("ascii") + b"\n"
        if len(line) > MAX_LINE:
            raise ValueError(f"message of {len(line)} bytes")
        try:
            if within is not None:
                self._socket.settimeout(within)
            self._socket.sendall(line)
            if within is not None:
                self._socket.settimeout(None)
        except OSError as error:
            raise ChannelError(f"connection lost: {error.strerror or error}") from error

    def receive(self) -> Message | None:
        """Return the next message, or None at the end of the conversation.

        Raises `ChannelError` for a broken connection or a line that is not a message.
        """
        scanned = 0
        while (end := self._buffer.find(b"\n", scanned)) < 0:
            scanned = len(self._buffer)
            if scanned > MAX_LINE:
                raise ChannelError("line too long")
            try:
                part = self._socket.recv(_READ_SIZE)
            except OSError as error:
                raise ChannelError(f"connection lost: {error.strerror or error}") from error
            if not part:
                if self._buffer:
                    raise ChannelError("connection lost in the middle of a message")
                return None
            self._buffer += part
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return _decode(line)

    def close(self) -> None:
        """Close the connection; a `receive` that waits in another thread returns. Idempotent."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was quicker
        finally:
            self._socket.close()


def bind_socket(path: Path) -> socket.socket:
    """Return a listening unix socket at `path`, which must be free, for this user only. Raises `OSError`."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # Linux makes the file with the mode that the socket has
        _at(path, listener.bind)
        listener.listen(64)
    except BaseException:
        listener.close()
        raise
    return listener


def connect_socket(path: Path, within: float | None = None) -> socket.socket:
    """Return a socket connected to the one at `path`; it waits for the other side for so many seconds at a
    time. Raises `OSError`, also when *within* is given and too many others wait to be let in."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(within)
        _at(path, connection.connect)
    except BaseException:
        connection.close()
        raise
    return connection


def _at(path: Path, use: Callable[[bytes], None]) -> None:
    """Call `use` with an address for `path`, however long the path is."""
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        use(os.fsencode(path))
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        use(os.fsencode(f"/proc/self/fd/{folder}/{path.name}"))
    finally:
        os.close(folder)


def _decode(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ChannelError("not a message") from error
    if not isinstance(message, dict):
        raise ChannelError("not a message")
    return message
