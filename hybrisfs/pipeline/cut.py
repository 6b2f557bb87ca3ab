"""The consistent cut: everything the next signed update will say, taken at one moment.

A cut holds the values of all changed registers, and of each changed file a snapshot of where its bytes
are. Programs go on writing meanwhile: what they write is appended elsewhere in the journal and belongs to
the next cut. So an update never shows a rename without the content that came with it.

A file that a program has open for writing is *held back*, with all its registers, until it is closed,
named anew, or has waited `HOLD_SECONDS`: its bytes are still in the making, and a file that is always
open is nevertheless published now and then.

Programs wait while a cut is taken, so one holds at most `MOST_REGISTERS`, the oldest changes first. Only a
program that makes more changes than that between two rounds sees them split into several updates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hybrisfs.filesystem.content import BaseRow
from hybrisfs.filesystem.extents import ZEROS, Extent
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import Inode
from hybrisfs.filesystem.registers import Place

__all__ = ["HOLD_SECONDS", "MOST_REGISTERS", "Cut", "FileSnapshot", "release", "slot_of", "take_cut"]

HOLD_SECONDS: Final = 15.0
MOST_REGISTERS: Final = 30_000
_PLACE, _ATTR, _CONTENT = b"pac"


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

    def without(self, inode: Inode) -> None:
        """Leave the bytes and attributes of a node for a later cut; and its names, if nobody knows it yet."""
        for key in [key for key, ino in self.inos.items() if ino == inode.ino]:
            if key[0] != _PLACE or (inode.attr_stamp == 0 and self.writes[key] is not None):
                del self.seqs[key], self.inos[key], self.writes[key]


def take_cut(fs: FileSystem, now: float, *, everything: bool, skip: Callable[[int], bool]) -> Cut | None:
    """The cut at this moment (with the lock held), or None when there is nothing to sign.

    *everything*: hold nothing back. *skip* tells nodes that cannot be published now.
    """
    cut = Cut()
    gone: list[bytes] = []
    for key, (ino, seq) in fs.changes.unsigned.items():
        inode = fs.inodes.cached(ino)
        if inode is not None and not everything and _held(inode, now) and not _is_tombstone(fs, key, ino):
            continue
        if skip(ino):
            continue
        if not _capture(fs, cut, key, ino):
            gone.append(key)
            continue
        cut.seqs[key] = seq
        cut.inos[key] = ino
        if len(cut.seqs) >= MOST_REGISTERS:
            break
    for key in gone:
        fs.changes.drop(key)
    if not cut.seqs:
        return None
    fs.changes.begin_cut(set(cut.seqs))
    for snapshot in cut.files:
        snapshot.inode.forced = False
        snapshot.inode.snapshots += 1
        snapshot.inode.dirty_since = now if snapshot.inode.writers else 0.0
        for segment in snapshot.segments():
            fs.journal.pins[segment] += 1
    return cut


def release(fs: FileSystem, cut: Cut) -> None:
    """The snapshots of *cut* are not needed any more (with the lock held)."""
    for snapshot in cut.files:
        snapshot.inode.snapshots -= 1
        for segment in snapshot.segments():
            fs.journal.pins[segment] -= 1
    fs.changes.end_cut()


def _held(inode: Inode, now: float) -> bool:
    return (
        inode.writers > 0
        and not inode.forced
        and inode.dirty_since > 0
        and now - inode.dirty_since < HOLD_SECONDS
    )


def _is_tombstone(fs: FileSystem, key: bytes, ino: int) -> bool:
    return key[0] == _PLACE and _place_of(fs, key, ino) is None


def slot_of(key: bytes) -> int:
    slot = shift = 0
    for byte in key[17:]:
        slot |= (byte & 0x7F) << shift
        shift += 7
    return slot


def _place_of(fs: FileSystem, key: bytes, ino: int) -> tuple[int, bytes] | None:
    row: tuple[int, bytes] | None = fs.db.execute(
        "SELECT parent, name FROM place WHERE ino = ? AND slot = ?", (ino, slot_of(key))
    ).fetchone()
    return row


def _capture(fs: FileSystem, cut: Cut, key: bytes, ino: int) -> bool:
    """Take the value of one register; False when its node is gone and nobody need hear of it."""
    kind = key[0]
    if kind == _PLACE:
        row = _place_of(fs, key, ino)
        cut.writes[key] = None if row is None else Place(fs.inodes.get(row[0]).id, row[1]).encode()
        return True
    try:
        inode = fs.inodes.get(ino)
    except KeyError:
        return False
    if inode.orphan:
        return False
    if kind == _ATTR:
        cut.writes[key] = fs.attributes.record(inode).encode()
        return True
    cut.writes[key] = None  # the publisher fills it in; the key keeps its place in the order
    cut.files.append(_snapshot(fs, key, inode))
    return True


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
