"""What the kernel remembers of a mount for as long as nobody tells it otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.unseen import Change
from tests.merge.fleet import Device
from tests.tree.unlocked import unlocked

__all__ = ["Kernel"]


class _Attr(NamedTuple):
    mode: int
    size: int
    nlink: int
    mtime: int
    content: tuple[int, int]


class Kernel:
    """Caches of names, also of those that do not exist, and of attributes: all that may be asked is asked."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._names: dict[tuple[int, bytes], int | None] = {}
        self._attrs: dict[int, _Attr] = {}

    def look(self, absent: Iterable[bytes]) -> None:
        """Remember everything there is, and of each folder that these names are not in it."""
        self._names.clear()
        self._attrs.clear()
        absent = list(absent)
        folders = [ROOT_INO]
        while folders:
            folder = folders.pop()
            self._attrs[folder] = _attr(self._device.rig.fs.get(self._device.rig.tx, folder))
            self._names.update({(folder, name): None for name in absent})
            for _, name, inode in self._device.rig.fs.names.list(self._device.rig.tx, folder, 0, 10_000):
                self._names[folder, name] = inode.ino
                self._attrs[inode.ino] = _attr(inode)
                if inode.is_directory:
                    folders.append(inode.ino)

    def forget(self) -> None:
        """The program has changed something through the kernel, which therefore knows."""
        self._names.clear()
        self._attrs.clear()

    def forget_attr(self, ino: int) -> None:
        self._attrs.pop(ino, None)

    def hear(self, changes: Iterable[Change]) -> None:
        """Be told what has changed."""
        for change in changes:
            if change.name is None:
                self._attrs.pop(change.ino, None)
            else:
                self._names.pop((change.ino, change.name), None)

    def check(self) -> None:
        """Nothing that is remembered is stale. Nobody asks about folders that cannot be reached any more."""
        fs = self._device.rig.fs
        reachable = {ROOT_INO, *(inode.ino for inode in self._device.walk().values())}
        for (folder, name), ino in self._names.items():
            if folder in reachable:
                found = fs.names.find(unlocked(fs), folder, name)
                assert (found.ino if found else None) == ino, f"the kernel is wrong about {name!r}"
        for ino, attr in self._attrs.items():
            if ino in reachable:
                assert _attr(fs.get(unlocked(fs), ino)) == attr, f"the kernel is wrong about inode {ino}"


def _attr(inode: Inode) -> _Attr:
    # What the content is cannot be read everywhere at any time; what it was last shown for can.
    return _Attr(inode.mode, inode.size, inode.nlink, inode.mtime, (0, inode.truncations))
