"""The daemon's commands that look at the files of a volume without a mount."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.interfaces import OpenVolume
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError
from hybrisfs.wire import Message

__all__ = ["BrowsingCommands"]

_MAX_ENTRIES: Final = 500  # of one answer
_MAX_PART: Final = 1 << 20  # bytes of a file in one answer


class BrowsingCommands:
    """Passes on what is asked; answers are bounded."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "folder list": self._list,
            "file read": self._read,
        }

    def _volume(self, arguments: Message) -> OpenVolume:
        return self._slots.get(read.optional_text(arguments, "name")).open()

    def _list(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        limit = read.number(arguments, "limit") or _MAX_ENTRIES
        if not 0 < limit <= _MAX_ENTRIES:
            raise UsageError(f"limit is a number from 1 to {_MAX_ENTRIES}")
        after = read.optional_text(arguments, "after") or ""
        path = _inside(read.text(arguments, "path"))
        return {"name": volume.name, "path": str(path), **volume.browsing.folder(path, after, limit)}

    def _read(self, arguments: Message, _: Progress) -> Message:
        volume = self._volume(arguments)
        offset, length = read.number(arguments, "offset") or 0, read.number(arguments, "length") or 0
        if offset < 0 or not 0 < length <= _MAX_PART:
            raise UsageError(f"length is a number of bytes from 1 to {_MAX_PART}, offset is not negative")
        part = volume.browsing.read(_inside(read.text(arguments, "path")), offset, length)
        data = base64.b64encode(part.pop("data")).decode("ascii")
        return {"name": volume.name, **part, "base64": data}


def _inside(path: str) -> PurePath:
    """A path relative to the root of a volume; "" and "/" are the root. Raises UsageError for others."""
    relative = PurePath(path.strip("/"))
    if ".." in relative.parts:
        raise UsageError("path must not contain ..")
    return relative
