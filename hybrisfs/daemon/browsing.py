"""The daemon's commands that look at the files of a volume without a mount."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from hybrisfs.api.content import FilePart, FileReadRequest, FolderListRequest, FolderPage
from hybrisfs.api.request import Handler
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError

__all__ = ["BrowsingCommands"]

_MAX_ENTRIES: Final = 500  # of one answer
_MAX_PART: Final = 1 << 20  # bytes of a file in one answer


class BrowsingCommands:
    """Passes on what is asked; answers are bounded."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [FolderListRequest.answered_by(self._list), FileReadRequest.answered_by(self._read)]
        )

    def _list(self, asked: FolderListRequest) -> FolderPage:
        volume, limit = self._slots.get(asked.name).open(), asked.limit or _MAX_ENTRIES
        if not 0 < limit <= _MAX_ENTRIES:
            raise UsageError(f"limit is a number from 1 to {_MAX_ENTRIES}")
        path = _inside(asked.path)
        entries, more = volume.browsing.folder(path, asked.after or "", limit)
        return FolderPage(volume.name, str(path), entries, more)

    def _read(self, asked: FileReadRequest) -> FilePart:
        volume = self._slots.get(asked.name).open()
        offset, length = asked.offset or 0, asked.length or 0
        if offset < 0 or not 0 < length <= _MAX_PART:
            raise UsageError(f"length is a number of bytes from 1 to {_MAX_PART}, offset is not negative")
        size, data = volume.browsing.read(_inside(asked.path), offset, length)
        return FilePart(volume.name, size, offset, data)


def _inside(path: str) -> PurePath:
    """A path relative to the root of a volume; "" and "/" are the root. Raises UsageError for others."""
    relative = PurePath(path.strip("/"))
    if ".." in relative.parts:
        raise UsageError("path must not contain ..")
    return relative
