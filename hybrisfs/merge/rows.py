"""The rows of `place` as updates of other devices change them, with the counters that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from hybrisfs.merge.names import is_conflict_name, is_kept
from hybrisfs.merge.registers import Registers
from hybrisfs.merge.rules import MOST_CONTENDERS, MOST_COPIES
from hybrisfs.registers.tree import place_key
from hybrisfs.state.database import Database
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Displaced, Inode

__all__ = ["Aspect", "Change", "Row", "Rows", "is_crowded", "is_taken"]


def is_taken(database: Database, parent: int, name: bytes) -> bool:
    """Whether something is shown under the name there."""
    row = database.execute("SELECT 1 FROM place WHERE parent = ? AND name = ?", (parent, name))
    return row.fetchone() is not None


def is_crowded(database: Database, parent: int, name: bytes) -> bool:
    """Whether more is shown for the sake of the name there than is looked at together."""
    row = database.execute(
        "SELECT 1 FROM place WHERE parent = ? AND wanted = ? LIMIT 1 OFFSET ?",
        (parent, name, MOST_CONTENDERS + MOST_COPIES - 1),
    )
    return row.fetchone() is not None


class Aspect(Enum):
    """What of an inode is another than it was."""

    CONTENT = auto()
    ATTRIBUTES = auto()
    TIMES = auto()
    """As they become with every change of the content."""


class Change(NamedTuple):
    """What the kernel has to hear: a name in a directory is another node's or nobody's (`name` given), or
    an inode has other attributes or content. *gone*: number and mode of the node that lost the name."""

    ino: int
    name: bytes | None = None
    gone: tuple[int, int] | None = None
    aspect: Aspect = Aspect.ATTRIBUTES
    """Says something of a change without a name."""


class Row(NamedTuple):
    """Where an inode is shown, and under which name its register wants it when another has that name."""

    parent: int
    name: bytes
    wanted: bytes | None

    @property
    def plain(self) -> bytes:
        """The name for whose sake it is shown."""
        return self.name if self.wanted is None else self.wanted


class Rows:
    """Reads and changes names; notes what the kernel must hear (`changes`)."""

    def __init__(self, fs: FileSystem, registers: Registers) -> None:
        self._fs = fs
        self._db = fs.db
        self._registers = registers
        self.changes: list[Change] = []
        self._numbers: dict[tuple[int, bytes], int] = {}  # of names that have been taken away
        self.last: dict[int, Displaced] = {}  # by inode that lost a name: that name
        self.lost: list[int] = []  # the inodes, as often as they lost one, and those that are to have none
        self.freed: list[tuple[int, bytes]] = []  # names that somebody had, or kept from others

    def of(self, ino: int, slots: Iterable[int] | None = None) -> dict[int, Row]:
        """The rows of an inode by slot: all, or those of these slots."""
        if slots is not None:
            return {slot: row for slot in slots if (row := self.at(ino, slot)) is not None}
        rows = self._db.execute("SELECT slot, parent, name, wanted FROM place WHERE ino = ?", (ino,))
        return {slot: Row(parent, name, wanted) for slot, parent, name, wanted in rows}

    def at(self, ino: int, slot: int) -> Row | None:
        """Where the inode is shown by that slot."""
        row = self._db.execute(
            "SELECT parent, name, wanted FROM place WHERE ino = ? AND slot = ?", (ino, slot)
        ).fetchone()
        return Row(*row) if row else None

    def is_shown(self, ino: int) -> bool:
        """Whether the inode has a name."""
        row = self._db.execute("SELECT 1 FROM place WHERE ino = ? LIMIT 1", (ino,))
        return row.fetchone() is not None

    def beside(self, parent: int, name: bytes, most: int) -> dict[tuple[int, int], Row]:
        """What is shown under a name, or beside it for its sake, by inode and slot; *most* of it."""
        rows = self._db.execute(
            "SELECT ino, slot, name, wanted FROM place WHERE parent = ? AND name = ? AND wanted IS NULL "
            "UNION ALL SELECT * FROM "
            "(SELECT ino, slot, name, wanted FROM place WHERE parent = ? AND wanted = ? "
            "ORDER BY name LIMIT ?) LIMIT ?",
            (parent, name, parent, name, most, most),
        )
        return {(ino, slot): Row(parent, shown, wanted) for ino, slot, shown, wanted in rows}

    def within(self, parent: int) -> list[tuple[int, int]]:
        """Inode and slot of all that is in a directory."""
        rows: list[tuple[int, int]] = self._db.execute(
            "SELECT ino, slot FROM place WHERE parent = ? ORDER BY number", (parent,)
        ).fetchall()
        return rows

    def is_wanted(self, parent: int, name: bytes) -> bool:
        """Whether some node has this very name there."""
        row = self._db.execute("SELECT wanted FROM place WHERE parent = ? AND name = ?", (parent, name))
        found = row.fetchone()
        return found is not None and found[0] is None

    def wanted(self, parent: int, name: bytes) -> bytes | None:
        """For the sake of which other name something is shown under this one there, if it is."""
        row = self._db.execute("SELECT wanted FROM place WHERE parent = ? AND name = ?", (parent, name))
        found = row.fetchone()
        return found[0] if found else None

    def remove(self, inode: Inode, slot: int) -> None:
        row = self._db.execute(
            "DELETE FROM place WHERE ino = ? AND slot = ? RETURNING parent, name, number, wanted",
            (inode.ino, slot),
        ).fetchone()
        if row is None:
            return
        parent, name, self._numbers[row[0], row[1]], wanted = row
        self.last[inode.ino] = Displaced(inode.id, self._fs.inodes.get(parent).id, name)
        self.lost.append(inode.ino)
        if is_conflict_name(name) and (wanted is None or is_kept(name)):
            self.freed.append((parent, name))
        self._counted(parent, inode, -1)
        self.changes.append(Change(parent, name, (inode.ino, inode.mode)))

    def remove_all(self, inode: Inode) -> None:
        """Take its names from a node that is seen as another one now. It may not have had any: a folder that
        has been made to live again may meet another of its name at once."""
        for slot in self.of(inode.ino):
            self.remove(inode, slot)
        self.lost.append(inode.ino)

    def _holder(self, parent: int, name: bytes) -> tuple[int, int, Row] | None:
        """Inode, slot and row of who is shown under the name there."""
        found = self._db.execute(
            "SELECT ino, slot, wanted FROM place WHERE parent = ? AND name = ?", (parent, name)
        ).fetchone()
        return (found[0], found[1], Row(parent, name, found[2])) if found else None

    def put(self, inode: Inode, slot: int, row: Row, evict: Callable[[int, int, Row], None]) -> None:
        """Show the inode there, and nowhere else by this slot; *evict* takes the name from who has it."""
        holder = self._holder(row.parent, row.name)
        if holder == (inode.ino, slot, row):
            if place_key(inode.id, slot) in self._fs.changes.unsigned:
                self._db.execute(
                    "UPDATE place SET stamp = ? WHERE ino = ? AND slot = ? AND stamp = 0",
                    (self._told(inode, slot), inode.ino, slot),
                )
            return
        if holder is not None and holder[:2] != (inode.ino, slot):
            evict(*holder)
        self.remove(inode, slot)
        number = self._numbers.get((row.parent, row.name))
        stamp = self._told(inode, slot)
        self._fs.places.insert(row.parent, row.name, inode.ino, slot, stamp, number, row.wanted)
        self._counted(row.parent, inode, 1)
        self.changes.append(Change(row.parent, row.name))

    def _told(self, inode: Inode, slot: int) -> int:
        """The stamp of a name: one that no update has told of can be taken back without a word."""
        return 1 if self._registers.values(place_key(inode.id, slot)) else 0

    def _counted(self, parent: int, inode: Inode, by: int) -> None:
        directory = self._fs.inodes.get(parent)
        if inode.is_directory:
            directory.nlink += by
        else:
            inode.nlink += by
            self.changes.append(Change(inode.ino))
        self._fs.inodes.touch(inode)
        self._fs.inodes.touch(directory)
        self.changes.append(Change(parent))
