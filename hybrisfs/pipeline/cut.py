"""The consistent cut: everything the next signed update will say, taken at one moment.

A cut holds the values of all changed registers, and of each changed file a snapshot of where its bytes
are. Programs go on writing meanwhile: what they write is appended elsewhere in the journal and belongs to
the next cut. So an update never shows a rename without the content that came with it.

A file that a program has open for writing is *held back*, with all its registers, until it is closed,
named anew, or has waited `HOLD_SECONDS`: its bytes are still in the making, and a file that is always
open is nevertheless published now and then.

Programs wait while a cut is taken, so one holds about `MOST_REGISTERS`, the oldest changes first, and about
`MOST_BYTES`, for an update has a largest size. Only programs that make more changes than that between two
rounds see them split into several updates; a file's name never goes without its attributes and bytes.

A file whose bytes cannot be had now is left for a later cut, and so is one that has been deleted since. When
it has a new name, removals wait with it, for one of them may have made room for that name: others must not
see the old file go and nothing come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from hybrisfs.filesystem.content import BaseRow
from hybrisfs.filesystem.extents import ZEROS, Extent
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import Inode
from hybrisfs.merge.unsigned import unsigned_place

__all__ = [
    "HOLD_SECONDS",
    "MOST_BYTES",
    "MOST_REGISTERS",
    "Cut",
    "FileSnapshot",
    "release",
    "take_cut",
]

HOLD_SECONDS: Final = 15.0
MOST_REGISTERS: Final = 10_000  # so many another device takes in at once, while its programs wait
MOST_BYTES: Final = 16 << 20
_PLACE, _ATTR, _CONTENT = b"pac"
_LARGEST_LIST: Final = 4096  # bytes, more than a content register that names its chunks itself


@dataclass(slots=True)
class FileSnapshot:
    """Where the bytes of a file are at the moment of the cut; inode and segments stay until `release`."""

    key: bytes
    inode: Inode
    size: int
    extents: list[Extent]
    epoch: int
    truncations: int
    rows: list[BaseRow]

    def segments(self) -> set[int]:
        return {extent.segment for extent in self.extents if extent.segment != ZEROS}


@dataclass(slots=True)
class Cut:
    """Register values to be signed together, and the files whose content value is still to be made."""

    seqs: dict[bytes, int] = field(default_factory=dict)
    inos: dict[bytes, int] = field(default_factory=dict)
    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    files: list[FileSnapshot] = field(default_factory=list)

    size: int = 0  # of the values, estimated
    _by_node: dict[int, list[bytes]] = field(default_factory=dict)  # made when it is needed

    def without(self, inode: Inode) -> None:
        """Leave all of a node for a later cut."""
        self._make_removals_wait(inode)
        self._leave(self._keys_of(inode))

    def without_removals(self) -> None:
        """Leave the removal of names for a later cut."""
        self._leave([key for key, value in self.writes.items() if key[0] == _PLACE and value is None])

    def gone(self, inode: Inode) -> None:
        """The node was deleted since the cut: tell that instead, to those who know it."""
        self._make_removals_wait(inode)
        for key in self._keys_of(inode):
            if key[0] == _PLACE and inode.attr_stamp:
                self.writes[key] = None
            else:
                self._leave([key])

    def _make_removals_wait(self, inode: Inode) -> None:
        if any(key[0] == _PLACE and self.writes[key] is not None for key in self._keys_of(inode)):
            self.without_removals()

    def _keys_of(self, inode: Inode) -> list[bytes]:
        if not self._by_node:
            for key, ino in self.inos.items():
                self._by_node.setdefault(ino, []).append(key)
        return [key for key in self._by_node.get(inode.ino, ()) if key in self.inos]

    def _leave(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            del self.seqs[key], self.inos[key], self.writes[key]


def take_cut(fs: FileSystem, now: float, *, everything: bool, skip: Callable[[int], bool]) -> Cut | None:
    """The cut at this moment (with the lock held), or None when there is nothing to sign.

    *everything*: hold nothing back. *skip* tells nodes that cannot be published now.
    """
    cut = Cut()
    gone: list[bytes] = []
    removals_wait = False
    chosen: set[int] | None = None  # once the cut is full: the nodes that are in it
    for key, (ino, seq) in fs.changes.unsigned.items():
        if chosen is not None and (ino not in chosen or key[0] == _PLACE):
            continue
        inode = fs.inodes.cached(ino)
        if inode is not None and not everything and _held(inode, now) and not _is_tombstone(fs, key, ino):
            continue
        if skip(ino):
            removals_wait |= key[0] == _PLACE and not _is_tombstone(fs, key, ino)
            continue
        if not _capture(fs, cut, key, ino):
            gone.append(key)
            continue
        cut.seqs[key] = seq
        cut.inos[key] = ino
        if chosen is None and (len(cut.seqs) >= MOST_REGISTERS or cut.size >= MOST_BYTES):
            chosen = set(cut.inos.values())
    for key in gone:
        fs.changes.drop(key)
    if removals_wait:
        cut.without_removals()
    if not cut.seqs:
        return None
    _begin(fs, cut, now)
    return cut


def _begin(fs: FileSystem, cut: Cut, now: float) -> None:
    """See to it that what the cut holds stays as it is until `release`."""
    fs.changes.begin_cut(set(cut.seqs))
    fs.settling = [extent for snapshot in cut.files for extent in snapshot.extents]
    for ino in set(cut.inos.values()):
        inode = fs.inodes.cached(ino)
        if inode is not None:
            inode.forced = False
    for snapshot in cut.files:
        snapshot.inode.snapshots += 1
        snapshot.inode.dirty_since = now if snapshot.inode.writers else 0.0
        for segment in snapshot.segments():
            fs.journal.pins[segment] += 1


def release(fs: FileSystem, cut: Cut) -> None:
    """The snapshots of *cut* are not needed any more (with the lock held)."""
    for snapshot in cut.files:
        snapshot.inode.snapshots -= 1
        for segment in snapshot.segments():
            fs.journal.pins[segment] -= 1
    fs.settling = []
    fs.chunks.settling.clear()
    fs.changes.end_cut()


def _held(inode: Inode, now: float) -> bool:
    return (
        inode.writers > 0
        and not inode.forced
        and inode.dirty_since > 0
        and now - inode.dirty_since < HOLD_SECONDS
    )


def _is_tombstone(fs: FileSystem, key: bytes, ino: int) -> bool:
    return key[0] == _PLACE and unsigned_place(fs, key, ino) is None


def _capture(fs: FileSystem, cut: Cut, key: bytes, ino: int) -> bool:
    """Take the value of one register; False when its node is gone and nobody need hear of it."""
    kind = key[0]
    if kind == _PLACE:
        place = unsigned_place(fs, key, ino)
        _write(cut, key, None if place is None else place.encode())
        return True
    try:
        inode = fs.inodes.get(ino)
    except KeyError:
        return False
    if inode.orphan:
        return False
    if kind == _ATTR:
        if not inode.writers:
            inode.dirty_since = 0.0
        _write(cut, key, fs.attributes.record(inode).encode())
        return True
    listed = fs.received.unlisted(inode)
    if listed is not None:
        _write(cut, key, listed)
        return True
    cut.writes[key] = None  # the publisher fills it in; the key keeps its place in the order
    cut.files.append(_snapshot(fs, key, inode))
    cut.size += min(inode.size >> 14, _LARGEST_LIST) + (inode.size >> 24)
    return True


def _write(cut: Cut, key: bytes, value: bytes | None) -> None:
    cut.writes[key] = value
    cut.size += len(key) + len(value or b"")


def _snapshot(fs: FileSystem, key: bytes, inode: Inode) -> FileSnapshot:
    extents = fs.inodes.extents_of(inode)
    epoch = extents.epoch
    return FileSnapshot(
        key=key,
        inode=inode,
        size=inode.size,
        extents=extents.snapshot(),
        epoch=epoch,
        truncations=inode.truncations,
        rows=fs.content.base_rows(inode, 0, inode.size) if inode.stored else [],
    )
