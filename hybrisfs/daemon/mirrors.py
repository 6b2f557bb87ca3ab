"""The daemon's commands on mirrors, and the import of folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Final
from urllib.parse import unquote, urlsplit

from hybrisfs.api.mirrors import (
    Copied,
    Imported,
    ImportRequest,
    ListedMirror,
    MirrorAddRequest,
    MirrorDecideRequest,
    MirrorListRequest,
    MirrorRemoveRequest,
    Mirrors,
    VolumeMirror,
)
from hybrisfs.api.request import Handler, extended
from hybrisfs.daemon.slots import Slot, Slots
from hybrisfs.errors import UsageError
from hybrisfs.home import Home, overlaps

__all__ = ["MirrorCommands"]

_MIRROR: Final = "another mirror"


class MirrorCommands:
    """Finds the volume of a mirror by its folder, and sees that nothing is mirrored into itself."""

    def __init__(self, home: Home, slots: Slots) -> None:
        self._home = home
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                MirrorAddRequest.answered_by(self._add),
                MirrorListRequest.answered_by(self._list),
                MirrorRemoveRequest.answered_by(self._remove),
                MirrorDecideRequest.answered_by(self._decide),
                ImportRequest.answered_by(self._import),
            ]
        )

    def _add(self, asked: MirrorAddRequest) -> VolumeMirror:
        slot = self._slots.get(asked.name)
        directory = Path(asked.directory).resolve()
        if not directory.is_dir():
            raise UsageError(f"{directory} is not a folder")
        for taken, what in self._taken():
            if (taken, what) == (directory, _MIRROR):
                advice = "hybrisfs mirror list shows what it is kept equal to."
                raise UsageError(f"{directory} is mirrored already", "", advice)
            if overlaps(taken, directory):
                raise UsageError(f"{directory} cannot be mirrored", f"it overlaps with {what}, {taken}")
        at = _inside(asked.at or directory.name)
        made = slot.open().mirrors.add(directory, at, asked.ignore)
        return extended(VolumeMirror, made, name=slot.name)

    def _taken(self) -> Iterator[tuple[Path, str]]:
        """Folders that must not overlap with a mirror."""
        yield from self._home.own_folders()
        for slot in self._slots.all():
            if (mountpoint := slot.mountpoint()) is not None:
                yield mountpoint, f"the mount of the volume {slot.name}"
            for directory in slot.open().mirrors.directories:
                yield directory, _MIRROR
        for config in self._slots.configs():
            for cloud in config.clouds:
                parts = urlsplit(cloud.url)
                if parts.scheme == "file":
                    yield Path(unquote(parts.path)).resolve(), f"the cloud {cloud.name}"

    def _list(self, asked: MirrorListRequest) -> Mirrors:
        slots = self._slots.all() if asked.name is None else [self._slots.get(asked.name)]
        return Mirrors(
            [
                extended(ListedMirror, one, volume=slot.name)
                for slot in slots
                for one in slot.open().mirrors.all()
            ]
        )

    def _remove(self, asked: MirrorRemoveRequest) -> VolumeMirror:
        directory = Path(asked.directory).resolve()
        slot = self._mirroring(directory)
        return extended(VolumeMirror, slot.open().mirrors.remove(directory), name=slot.name)

    def _decide(self, asked: MirrorDecideRequest) -> VolumeMirror:
        directory = Path(asked.directory).resolve()
        slot = self._mirroring(directory)
        decided = slot.open().mirrors.decide(directory, accept=asked.accept)
        return extended(VolumeMirror, decided, name=slot.name)

    def _mirroring(self, directory: Path) -> Slot:
        for slot in self._slots.all():
            if directory in slot.open().mirrors.directories:
                return slot
        raise UsageError(f"{directory} is not mirrored", "", "hybrisfs mirror list shows what is.")

    def _import(self, asked: ImportRequest, tell: Callable[[Copied], None]) -> Imported:
        slot = self._slots.get(asked.name)
        directory = Path(asked.directory).resolve()
        if not directory.is_dir():
            raise UsageError(f"{directory} is not a folder")
        mountpoint = slot.mountpoint()
        if mountpoint is not None and (mountpoint == directory or mountpoint in directory.parents):
            raise UsageError(f"{directory} is in the volume already")
        return slot.open().mirrors.bring_in(
            directory,
            _inside(asked.into or directory.name),
            lambda what, done, total: tell(Copied(done, total, what)),
            dry_run=asked.dry_run,
            replace=asked.replace,
        )


def _inside(text: str) -> PurePath:
    """A path within a volume. Raises UsageError."""
    path = PurePath(text.strip("/"))
    if ".." in path.parts or not path.parts:
        raise UsageError(f"{text!r} is not a folder within a volume")
    return path
