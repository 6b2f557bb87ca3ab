"""What a program that watches folders hears (inotify(7)), as (event, name) in the order of arrival."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from pathlib import Path
from types import TracebackType

__all__ = ["Watch"]

_EVENT = struct.Struct("iIII")
_NAMES = {
    0x002: "modified",
    0x004: "attributes",
    0x008: "closed after writing",
    0x040: "moved from",
    0x080: "moved to",
    0x100: "created",
    0x200: "deleted",
}
_IS_DIRECTORY = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Watches one folder, like a file manager, from the beginning of the block to its end: for everything, or
    for these events."""

    def __init__(self, folder: Path, *events: str) -> None:
        self._folder = folder
        self._mask = sum(bit for bit, event in _NAMES.items() if event in events or not events)
        self._descriptor = -1
        self.heard: list[tuple[str, str]] = []

    def __enter__(self) -> Watch:
        self._descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if (
            self._descriptor < 0
            or _libc.inotify_add_watch(self._descriptor, bytes(self._folder), self._mask) < 0
        ):
            raise OSError(ctypes.get_errno(), f"cannot watch {self._folder}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def wait_for(self, event: str, name: str, seconds: float = 30.0) -> None:
        """Wait until the event has been heard of a name since the last call; the others are forgotten."""
        self.wait_until(event, name, seconds)
        self.heard.clear()

    def wait_until(self, event: str, name: str, seconds: float = 30.0) -> None:
        """Wait until the event has been heard of a name; all that was heard is kept."""
        deadline = time.monotonic() + seconds
        while (event, name) not in self.heard:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"nobody heard that {name} was {event}, but {self.heard}"
            self._read()

    def _read(self) -> None:
        data = os.read(self._descriptor, 1 << 16)
        at = 0
        while at < len(data):
            _, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0").decode()
            at += _EVENT.size + length
            kind = "folder " if mask & _IS_DIRECTORY else ""
            for bit, event in _NAMES.items():
                if mask & bit:
                    self.heard.append((kind + event, name))
