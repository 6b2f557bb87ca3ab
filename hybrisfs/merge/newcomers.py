"""Nodes that nobody here has heard of, under names that nobody else wants: made in bulk.

When a device brings a tree of thousands of files, nearly all nodes are of this kind, and all that `Refresh`
would find out about them is that there is nothing to be settled. What is out of the ordinary is left to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from stat import S_ISDIR, S_ISREG

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import NodeRow
from hybrisfs.filesystem.registers import Attr, Place, attr_key, content_key, place_key
from hybrisfs.merge.registers import Registers
from hybrisfs.merge.rows import Change
from hybrisfs.merge.rules import Stamp, Value, decode_place
from hybrisfs.store.bulk import select_many
from hybrisfs.store.schema import ROOT_ID, ROOT_INO
from sync.codec import DecodeError, Writer

__all__ = ["Newcomers"]


@dataclass(frozen=True, slots=True)
class _Newcomer:
    """A node of which each register has one value."""

    id: bytes
    place: Place
    attr: Attr
    content: bytes | None
    content_stamp: Stamp | None


class Newcomers:
    """One run, under the volume's lock; the view has been flushed. Use once: `settle`."""

    def __init__(self, fs: FileSystem, registers: Registers, only: Mapping[bytes, Value]) -> None:
        """*only*: the values of some registers that have no other."""
        self._fs = fs
        self._db = fs.db
        self._registers = registers
        self._only = only
        self._directories: dict[bytes, int | None] = {ROOT_ID: ROOT_INO}
        self._made: list[tuple[int, int, _Newcomer]] = []  # its number, that of its directory
        self.changes: list[Change] = []

    def settle(self, nodes: set[bytes]) -> set[bytes]:
        """Show the newcomers among *nodes*; the others."""
        if self._db.execute("SELECT 1 FROM moved LIMIT 1").fetchone():
            return nodes  # something waits for a directory, perhaps for one of these
        waiting: dict[bytes, list[_Newcomer]] = {}
        rest = set(nodes)
        for newcomer in self._read_all(nodes):
            rest.discard(newcomer.id)
            waiting.setdefault(newcomer.place.parent, []).append(newcomer)
        ready = [
            parent
            for parent in waiting
            if self._directory(parent) is not None and (parent not in rest or self._stays(parent))
        ]
        while ready:
            wanted = [
                (at, one)
                for parent in ready
                if (at := self._directory(parent)) is not None
                for one in waiting.pop(parent, ())
            ]
            free = self._free(wanted)
            rest.update(one.id for _, one in wanted if one.id not in free)
            ready = self._make([pair for pair in wanted if pair[1].id in free])
        rest.update(one.id for others in waiting.values() for one in others)
        self._write()
        return rest

    # -- who is one ------------------------------------------------------------------------------

    def _read_all(self, nodes: set[bytes]) -> Iterator[_Newcomer]:
        """The newcomers among *nodes*, in ascending order of their ids."""
        known = select_many(
            self._db,
            "WITH wanted (id) AS (VALUES {}) SELECT id FROM wanted "
            "WHERE id IN (SELECT id FROM node) OR id IN (SELECT id FROM joined)",
            [(node,) for node in nodes],
        )
        unsigned = self._fs.changes.unsigned
        unknown = sorted(
            # What is unsigned has been removed here.
            node
            for node in nodes.difference(node for (node,) in known)
            if node != ROOT_ID and place_key(node, 0) not in unsigned
        )
        linked = self._registers.linked(unknown)
        keys = [(place_key(node, 0), attr_key(node), content_key(node)) for node in unknown]
        others = self._registers.all_values(key for three in keys for key in three if key not in self._only)
        for node, three in zip(unknown, keys, strict=True):
            values = [[self._only[key]] if key in self._only else others.get(key, []) for key in three]
            newcomer = _newcomer(node, *values) if node not in linked else None
            if newcomer is not None:
                yield newcomer

    def _directory(self, node: bytes) -> int | None:
        """The number of a directory that is one node and is seen; None otherwise."""
        if node not in self._directories:
            row = self._db.execute(
                "SELECT ino, mode FROM node WHERE id = ?1 AND nlink > 0 "
                "AND NOT EXISTS (SELECT 1 FROM joined j WHERE j.ino = node.ino OR j.id = ?1)",
                (node,),
            ).fetchone()
            self._directories[node] = row[0] if row and S_ISDIR(row[1]) else None
        return self._directories[node]

    def _stays(self, directory: bytes) -> bool:
        """Whether a directory that has changed still stands where it stood."""
        if directory == ROOT_ID:
            return True
        values = self._registers.values(place_key(directory, 0))
        place = decode_place(values[0]) if len(values) == 1 else None
        row = self._db.execute(
            "SELECT d.id, ifnull(p.wanted, p.name) FROM node n JOIN place p ON p.ino = n.ino "
            "JOIN node d ON d.ino = p.parent WHERE n.id = ?",
            (directory,),
        ).fetchone()
        return place is not None and not place.removed and (place.parent, place.name) == row

    def _free(self, wanted: Sequence[tuple[int, _Newcomer]]) -> set[bytes]:
        """The ids of those whose name nobody else wants, or has for another's sake."""
        counts = self._registers.count_beginning({_beginning(one) for _, one in wanted})
        taken = set(
            select_many(
                self._db,
                "WITH wanted (parent, name) AS (VALUES {}) "
                "SELECT p.parent, p.name FROM wanted w CROSS JOIN place p USING (parent, name)",
                [(at, one.place.name) for at, one in wanted],
            )
        )
        return {
            one.id for at, one in wanted if counts[_beginning(one)] == 1 and (at, one.place.name) not in taken
        }

    # -- showing them ----------------------------------------------------------------------------

    def _make(self, wanted: Sequence[tuple[int, _Newcomer]]) -> list[bytes]:
        """Give numbers to these; the directories among them."""
        made: list[bytes] = []
        for ino, (at, one) in zip(self._fs.inodes.reserve(len(wanted)), wanted, strict=True):
            self._made.append((ino, at, one))
            if S_ISDIR(one.attr.mode):
                self._directories[one.id] = ino
                made.append(one.id)
        return made

    def _write(self) -> None:
        fs, made = self._fs, self._made
        files = {ino: one for ino, _, one in made if S_ISREG(one.attr.mode)}
        sizes = fs.received.show_all(
            {ino: one.content for ino, one in files.items() if one.content_stamp is not None}
        )
        fs.total_files += len(files)
        fs.inodes.insert(self._row(ino, one, sizes) for ino, _, one in made)
        self._db.executemany(
            "INSERT INTO xattr VALUES (?, ?, ?)",
            [(ino, name, value) for ino, _, one in made for name, value in one.attr.xattrs],
        )
        self._db.executemany(
            "INSERT INTO place (parent, name, ino, slot, stamp) VALUES (?, ?, ?, 0, 1)",
            [(at, one.place.name, ino) for ino, at, one in made],
        )
        self.changes += [Change(at, one.place.name) for _, at, one in made]
        subdirectories = Counter(at for _, at, one in made if S_ISDIR(one.attr.mode))
        for at in {at for _, at, _ in made}:
            directory = fs.inodes.get(at)
            directory.nlink += subdirectories[at]
            fs.inodes.touch(directory)
            self.changes.append(Change(at))
        fs.flush()

    def _row(self, ino: int, one: _Newcomer, sizes: Mapping[int, tuple[int, int]]) -> NodeRow:
        attr = one.attr
        size, stored = sizes.get(ino, (len(attr.target), 0))
        stamp = self._registers.number_of(one.content_stamp) if ino in sizes and one.content_stamp else 0
        now = self._fs.inodes.now()
        return (
            ino, one.id, attr.mode, attr.uid, attr.gid, attr.rdev, 2 if S_ISDIR(attr.mode) else 1,
            size, stored, attr.mtime, attr.mtime, now, attr.target or None, len(attr.xattrs), 1, stamp,
        )  # fmt: skip


def _newcomer(
    node: bytes, places: Sequence[Value], attrs: Sequence[Value], contents: Sequence[Value]
) -> _Newcomer | None:
    """The node as these registers have it; None when there is something to be settled."""
    if len(places) != 1 or len(attrs) != 1 or len(contents) > 1:
        return None
    place = decode_place(places[0])
    if place is None or place.removed:
        return None
    try:
        attr = Attr.decode(attrs[0].value or b"")
    except DecodeError:
        return None
    if not contents:
        return _Newcomer(node, place, attr, None, None)
    return _Newcomer(node, place, attr, contents[0].value, contents[0].stamp)


def _beginning(one: _Newcomer) -> bytes:
    """How the values of place registers begin that name the same place."""
    return Writer().raw(one.place.parent).blob(one.place.name).getvalue()
