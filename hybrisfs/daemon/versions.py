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

from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.interfaces import OpenVolume
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError
from hybrisfs.wire import Message

__all__ = ["VersionCommands"]

_PIECE: Final = 4 << 20


class VersionCommands:
    """Finds the volume of each path, and passes on what is asked.

    ==================  ==================================  ==================================================
    command             arguments besides `name`            answer besides `name`
    ==================  ==================================  ==================================================
    versions list       path                                see `Versions.all`
    versions removed    path of a folder                    see `Versions.removed`
    versions moments                                        moments: texts that name whole trees, the latest
                                                            first; keep: the rule, as in `volume set`
    versions read       path; at or version; to             size
    versions restore    path; at or version; target         path, files: see `Versions.restore`
    ==================  ==================================  ==================================================
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "versions list": self._list,
            "versions removed": self._removed,
            "versions moments": self._moments,
            "versions read": self._read,
            "versions restore": self._restore,
        }

    def _located(self, arguments: Message, key: str = "path") -> tuple[OpenVolume, str]:
        """The volume, and the path in it."""
        path = read.text(arguments, key)
        if path.startswith("/"):
            slot, inside = self._slots.containing(Path(os.path.normpath(path)))
            return slot.open(), str(inside)
        return self._slots.get(read.optional_text(arguments, "name")).open(), path

    def _list(self, arguments: Message, _: Progress) -> Message:
        volume, path = self._located(arguments)
        return {"name": volume.name, **volume.versions.all(path)}

    def _removed(self, arguments: Message, _: Progress) -> Message:
        volume, path = self._located(arguments)
        return {"name": volume.name, **volume.versions.removed(path)}

    def _moments(self, arguments: Message, _: Progress) -> Message:
        volume = self._slots.get(read.optional_text(arguments, "name")).open()
        return {"name": volume.name, **volume.versions.moments()}

    def _read(self, arguments: Message, progress: Progress) -> Message:
        volume, path = self._located(arguments)
        reader = volume.versions.reader(
            path, read.optional_text(arguments, "at"), read.number(arguments, "version")
        )
        target = read.folder(arguments, "to")
        descriptor = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "wb") as file:
            done = 0
            while data := reader.read(done, _PIECE):
                file.write(data)
                done += len(data)
                progress({"done": done, "total": reader.size})
        return {"name": volume.name, "size": reader.size}

    def _restore(self, arguments: Message, _: Progress) -> Message:
        volume, path = self._located(arguments)
        target: str | None = None
        if read.optional_text(arguments, "target") is not None:
            other, target = self._located(arguments, "target")
            if other is not volume:
                raise UsageError("a version is restored in its own volume only", "", "Copy it there instead.")
        return {
            "name": volume.name,
            **volume.versions.restore(
                path, read.optional_text(arguments, "at"), read.number(arguments, "version"), target
            ),
        }
