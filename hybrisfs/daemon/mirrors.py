"""The daemon's commands on mirrors, and the import of folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from urllib.parse import unquote, urlsplit

from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.slots import Slot, Slots
from hybrisfs.errors import UsageError
from hybrisfs.home import Home, overlaps
from hybrisfs.wire import Message

__all__ = ["MirrorCommands"]


class MirrorCommands:
    """Finds the volume of a mirror by its folder, and sees that nothing is mirrored into itself."""

    def __init__(self, home: Home, slots: Slots) -> None:
        self._home = home
        self._slots = slots
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "mirror add": self._add,
            "mirror list": self._list,
            "mirror remove": self._remove,
            "mirror decide": self._decide,
            "import": self._import,
        }

    def _add(self, arguments: Message, _: Progress) -> Message:
        slot = self._slots.get(read.optional_text(arguments, "name"))
        directory = read.folder(arguments, "directory").resolve()
        if not directory.is_dir():
            raise UsageError(f"{directory} is not a folder")
        for taken, what in self._taken():
            if overlaps(taken, directory):
                raise UsageError(f"{directory} cannot be mirrored", f"it overlaps with {what}, {taken}")
        at = _inside(read.optional_text(arguments, "at") or directory.name)
        facts = slot.open().mirrors.add(directory, at, read.texts(arguments, "ignore"))
        return {"name": slot.name, **facts}

    def _taken(self) -> Iterator[tuple[Path, str]]:
        """Folders that must not overlap with a mirror."""
        yield from self._home.own_folders()
        for slot in self._slots.all():
            if (mountpoint := slot.mountpoint()) is not None:
                yield mountpoint, f"the mount of the volume {slot.name}"
            for directory in slot.open().mirrors.directories:
                yield directory, "another mirror"
        for config in self._slots.configs():
            for cloud in config.clouds:
                parts = urlsplit(cloud.url)
                if parts.scheme == "file":
                    yield Path(unquote(parts.path)).resolve(), f"the cloud {cloud.name}"

    def _list(self, arguments: Message, _: Progress) -> Message:
        name = read.optional_text(arguments, "name")
        slots = self._slots.all() if name is None else [self._slots.get(name)]
        return {
            "mirrors": [{"volume": slot.name, **one} for slot in slots for one in slot.open().mirrors.all()]
        }

    def _remove(self, arguments: Message, _: Progress) -> Message:
        directory = read.folder(arguments, "directory").resolve()
        slot = self._mirroring(directory)
        return {"name": slot.name, **slot.open().mirrors.remove(directory)}

    def _decide(self, arguments: Message, _: Progress) -> Message:
        directory = read.folder(arguments, "directory").resolve()
        slot = self._mirroring(directory)
        facts = slot.open().mirrors.decide(directory, accept=read.flag(arguments, "accept"))
        return {"name": slot.name, **facts}

    def _mirroring(self, directory: Path) -> Slot:
        for slot in self._slots.all():
            if directory in slot.open().mirrors.directories:
                return slot
        raise UsageError(f"{directory} is not mirrored", "", "hybrisfs mirror list shows what is.")

    def _import(self, arguments: Message, progress: Progress) -> Message:
        slot = self._slots.get(read.optional_text(arguments, "name"))
        directory = read.folder(arguments, "directory").resolve()
        if not directory.is_dir():
            raise UsageError(f"{directory} is not a folder")
        mountpoint = slot.mountpoint()
        if mountpoint is not None and (mountpoint == directory or mountpoint in directory.parents):
            raise UsageError(f"{directory} is in the volume already")
        into = _inside(read.optional_text(arguments, "into") or directory.name)
        report = slot.open().mirrors.bring_in(
            directory,
            into,
            lambda what, done, total: progress({"what": what, "done": done, "total": total}),
            dry_run=read.flag(arguments, "dry_run"),
            replace=read.flag(arguments, "replace"),
        )
        return {
            "name": slot.name,
            "into": str(into),
            "dry_run": read.flag(arguments, "dry_run"),
            **report.as_dict(),
        }


def _inside(text: str) -> PurePath:
    """A path within a volume. Raises UsageError."""
    path = PurePath(text.strip("/"))
    if ".." in path.parts or not path.parts:
        raise UsageError(f"{text!r} is no folder within a volume")
    return path
