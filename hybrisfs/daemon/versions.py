"""The daemon's commands on what files and folders were before.

A path is absolute, below where a volume is mounted, or relative to the root of the volume `name` (the only
one when it is left out). A version's bytes do not travel over the control socket: the client names a file
that they are written to.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hybrisfs.api import versions as api
from hybrisfs.api.request import Handler, Moved
from hybrisfs.daemon.interfaces import OpenVolume
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError

__all__ = ["VersionCommands"]

_PIECE: Final = 4 << 20
_MOST_CHANGES: Final = 1000


class VersionCommands:
    """Finds the volume of each path, and passes on what is asked."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                api.VersionsListRequest.answered_by(self._list),
                api.LogRequest.answered_by(self._log),
                api.VersionsRemovedRequest.answered_by(self._removed),
                api.VersionsMomentsRequest.answered_by(self._moments),
                api.VersionsReadRequest.answered_by(self._read),
                api.VersionsRestoreRequest.answered_by(self._restore),
            ]
        )

    def _located(self, name: str | None, path: str) -> tuple[OpenVolume, str]:
        """The volume, and the path in it."""
        if path.startswith("/"):
            slot, inside = self._slots.containing(Path(os.path.normpath(path)))
            return slot.open(), str(inside)
        return self._slots.get(name).open(), path

    def _list(self, asked: api.VersionsListRequest) -> api.Versions:
        volume, path = self._located(asked.name, asked.path)
        return volume.versions.all(path)

    def _log(self, asked: api.LogRequest) -> api.Changes:
        volume, path = self._located(asked.name, asked.path)
        limit = _MOST_CHANGES if asked.limit is None else max(1, min(asked.limit, _MOST_CHANGES))
        return volume.versions.log(path, limit)

    def _removed(self, asked: api.VersionsRemovedRequest) -> api.RemovedFiles:
        volume, path = self._located(asked.name, asked.path)
        return volume.versions.removed(path)

    def _moments(self, asked: api.VersionsMomentsRequest) -> api.Moments:
        return self._slots.get(asked.name).open().versions.moments()

    def _read(self, asked: api.VersionsReadRequest, tell: Callable[[Moved], None]) -> api.VersionRead:
        volume, path = self._located(asked.name, asked.path)
        reader = volume.versions.reader(path, asked.at, asked.version)
        descriptor = os.open(asked.to, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "wb") as file:
            done = 0
            while data := reader.read(done, _PIECE):
                file.write(data)
                done += len(data)
                tell(Moved(done, reader.size))
        return api.VersionRead(volume.name, reader.size)

    def _restore(self, asked: api.VersionsRestoreRequest) -> api.Restored:
        volume, path = self._located(asked.name, asked.path)
        target: str | None = None
        if asked.target is not None:
            other, target = self._located(asked.name, asked.target)
            if other is not volume:
                raise UsageError("a version is restored in its own volume only", "", "Copy it there instead.")
        return volume.versions.restore(path, asked.at, asked.version, target)
