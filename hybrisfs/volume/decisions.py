"""What waits for a person: conflicts, and files whose newest bytes another device does not bring."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from hybrisfs.api import decisions as api
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.parts import Ground
from hybrisfs.shown import quoted, shown
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.shown_nodes import (
    ConflictName,
    conflicts,
    conflicts_beside,
    count_conflicts,
    path_of,
    shown_path,
)
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced import files_lacking
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode, Intent
from hybrisfs.tree.unseen import Change
from hybrisfs.volume.mounting import Mounting
from hybrisfs.volume.versions import Versions

__all__ = ["Conflict", "Conflicts", "Unreadable"]

log = logging.getLogger(__name__)

_ASIDE: Final = b".hybrisfs-aside-"


class Conflict(Struct, frozen=True):
    """Something that is shown under a conflict name: its place, and the name that it wants."""

    parent: int
    name: bytes
    wanted: bytes
    inode: Inode


class Conflicts:
    """Lists and settles the conflicts of one volume. Takes the volume's lock itself."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._random_bytes = fs.environment.random_bytes

    def count(self, tx: Transaction) -> int:
        """How many there are."""
        return count_conflicts(tx)

    def all(self) -> list[api.Conflict]:
        """What `hybrisfs conflicts` shows, by path. Paths are relative to the volume's root."""
        with self._fs.state.transaction() as tx:
            self._fs.flush(tx)
            found = [self._described(tx, self._conflict(tx, one)) for one in conflicts(tx)]
        return sorted(found, key=lambda one: one.path)

    def _conflict(self, tx: Transaction, shown: ConflictName) -> Conflict:
        return Conflict(shown.parent, shown.name, shown.wanted, self._fs.inodes.get(tx, shown.ino))

    def _described(self, tx: Transaction, conflict: Conflict) -> api.Conflict:
        folder = self._path(tx, conflict.parent)
        inode = conflict.inode
        return api.Conflict(
            path=os.fsdecode(folder + conflict.name),
            of=os.fsdecode(folder + conflict.wanted),
            kind="version" if inode.is_conflict_copy else "name",
            size=inode.size,
            modified=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(inode.mtime / 1e9)),
        )

    def _path(self, tx: Transaction, ino: int) -> bytes:
        """The path of a directory below the root, with a slash behind it unless it is the root."""
        path = path_of(tx, ino)
        return path + b"/" if path else b""

    # -- settling --------------------------------------------------------------------------------

    def keep(self, path: str) -> None:
        """Let the version at *path*, the one under the name or a conflict's, be the only one.

        Raises UsageError when there is no conflict there or a folder would have to be deleted, OSError.
        """
        with self._fs.state.transaction() as tx:
            group, chosen = self._group(tx, path)
            parent, wanted = group[0].parent, group[0].wanted
            holder = self._fs.lookup(tx, parent, wanted) if chosen is not None else None
            self._require_files(
                [*(one.inode for one in group if one is not chosen), *([holder] if holder else [])], path
            )
            changes = [Change(one.parent, one.name, (one.inode.ino, one.inode.mode)) for one in group]
            for one in group:
                if one is not chosen:
                    self._fs.unlink(tx, one.parent, one.name)
            if chosen is not None:
                self._fs.rename(tx, parent, chosen.name, parent, wanted, 0)
                changes.append(Change(parent, wanted))
            self._fs.shown([*changes, Change(group[0].parent)])

    def keep_all(self, path: str) -> None:
        """Let every version be a file of its own, under the name that it has now. Raises UsageError."""
        with self._fs.state.transaction() as tx:
            group, _ = self._group(tx, path)
            for one in group:
                if one.inode.is_conflict_copy:
                    self._fs.inodes.intend(tx, one.inode, Intent.CHANGE)
                else:
                    # There and back: the renames make what is shown what is meant.
                    aside = _ASIDE + self._random_bytes(16).hex().encode()
                    self._fs.rename(tx, one.parent, one.name, one.parent, aside, 0)
                    self._fs.rename(tx, one.parent, aside, one.parent, one.name, 0)
            self._fs.shown([Change(one.parent, one.name) for one in group])

    def beside(self, tx: Transaction, path: str) -> list[Conflict]:
        """All that stands beside one name: the one at *path*, or the one that what is there wants. Raises
        UsageError when there is no conflict."""
        return self._group(tx, path)[0]

    def path(self, tx: Transaction, parent: int, name: bytes) -> str:
        """The path of a name in a directory, below the root."""
        return os.fsdecode(self._path(tx, parent) + name)

    def _group(self, tx: Transaction, path: str) -> tuple[list[Conflict], Conflict | None]:
        """All that stands beside one name, and the one of them at *path*; None when *path* is the name
        itself."""
        folder, _, name = os.fsencode(path.strip("/")).rpartition(b"/")
        parent = self._directory(tx, folder)
        self._fs.flush(tx)
        beside = conflicts_beside(tx, parent, name)
        if not beside:
            raise UsageError(
                f"there is no conflict at {shown(path)}", "", "hybrisfs conflicts list shows them."
            )
        group = [self._conflict(tx, one) for one in beside]
        return group, next((one for one in group if one.name == name), None)

    @staticmethod
    def _require_files(inodes: Iterable[Inode], path: str) -> None:
        """Raise UsageError when there is a folder among what is to be deleted."""
        if any(inode.is_directory for inode in inodes):
            raise UsageError(
                f"{shown(path)} cannot be the only one kept",
                "the other one is a folder, which is not deleted unasked",
                "Delete or rename the folder yourself, or keep both with hybrisfs conflicts keep-all.",
            )

    def _directory(self, tx: Transaction, path: bytes) -> int:
        inode = self._fs.locate(tx, path.split(b"/") if path else ())
        if inode is None or not inode.is_directory:
            raise UsageError(f"there is no folder {os.fsdecode(path)!r} in the volume")
        return inode.ino


# -- files that could not be read because their newest bytes are with another device --------------------
# Names come before bytes: a file may be shown here while only the device that wrote it has its bytes. When
# that device is gone, the version before can still be read, and a person who meets the error should learn of
# it.


_MOST: Final = 200  # chunks that are remembered
_TOLD: Final = 3  # files that `status` tells of


class Unreadable:
    """Chunks that could not be read since the volume was opened. Thread-safe; called without the volume's
    lock."""

    def __init__(self, ground: Ground, versions: Versions, mounting: Mounting) -> None:
        self._ground = ground
        self._sharing = ground.sharing
        self._versions = versions
        self._mounting = mounting
        self._lock = threading.Lock()
        self._chunks: dict[int, None] = {}

    def note(self, ref: ChunkRef) -> None:
        """A chunk could not be had. Nothing is noted of one that the clouds are known to have."""
        if ref.is_on_clouds:
            return
        with self._lock:
            if ref.number in self._chunks or len(self._chunks) >= _MOST:
                return
            self._chunks[ref.number] = None
        for path in self._paths([ref.number]):
            log.warning("%s", self._explain(path))

    def warnings(self) -> list[str]:
        """Warnings about files that still cannot be read, in sentences."""
        with self._lock:
            chunks = list(self._chunks)
        paths = self._paths(chunks)
        found = [self._explain(path) for path in paths[:_TOLD]]
        if len(paths) > _TOLD:
            found.append("more files cannot be read now, as only other machines have their newest bytes")
        return found

    def _paths(self, chunks: list[int]) -> list[str]:
        fs = self._ground.fs
        found: dict[str, None] = {}
        with fs.state.transaction() as tx:
            for chunk in chunks:
                files = files_lacking(tx, chunk)
                if not files:
                    with self._lock:
                        self._chunks.pop(chunk, None)
                for ino in files:
                    path = shown_path(tx, ino)
                    if path:
                        found[path] = None
        return sorted(found)

    def _explain(self, path: str) -> str:
        named = shown(path)
        try:
            device, number = self._versions.newest(path)
        except HybrisError:
            return f"{named} cannot be read now: no cloud and no linked machine has its bytes"
        if device == self._sharing.membership.own_name:
            why = "no cloud has its newest bytes any more, and no linked machine has them"
        else:
            why = f"{shown(device)} wrote its newest bytes, which no cloud and no linked machine has"
        if number is None:
            return f"{named} cannot be read now: {why}. No version before it can be read either"
        where = self._mounting.directory
        command = f"hybrisfs versions restore --version {number}"
        if where is not None:
            command = f"{command} {quoted(str(where / path))}"
        else:
            command = f"{command} --volume {quoted(self._ground.name)} {quoted(path)}"
        return f"{named} cannot be read now: {why}. A version before it can be: {command}"
