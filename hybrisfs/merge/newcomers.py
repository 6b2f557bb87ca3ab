"""Nodes that nobody here has heard of, under names that nobody else wants: made in bulk.

When a device brings a tree of thousands of files, nearly all nodes are of this kind, and all that `Refresh`
would find out about them is that there is nothing to be settled. What is out of the ordinary is left to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from stat import S_ISDIR, S_ISREG

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import Inode
from hybrisfs.filesystem.registers import Attr, Place, attr_key, content_key, place_key
from hybrisfs.merge.registers import Registers
from hybrisfs.merge.rows import Change
from hybrisfs.merge.rules import Stamp, decode_place
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

    def __init__(self, fs: FileSystem, registers: Registers) -> None:
        self._fs = fs
        self._db = fs.db
        self._registers = registers
        self._directories: dict[bytes, int | None] = {ROOT_ID: ROOT_INO}
        self._places: list[tuple[int, bytes, int]] = []
        self._taken: set[tuple[int, bytes]] = set()
        self.changes: list[Change] = []

    def settle(self, nodes: set[bytes]) -> set[bytes]:
        """Show the newcomers among *nodes*; the others."""
        if self._db.execute("SELECT 1 FROM moved LIMIT 1").fetchone():
            return nodes  # something waits for a directory, perhaps for one of these
        waiting: dict[bytes, list[_Newcomer]] = {}
        rest: set[bytes] = set()
        for node in sorted(nodes):
            newcomer = self._read(node)
            if newcomer is None:
                rest.add(node)
            else:
                waiting.setdefault(newcomer.place.parent, []).append(newcomer)
        ready = [
            parent
            for parent in waiting
            if self._directory(parent) is not None and (parent not in rest or self._stays(parent))
        ]
        while ready:
            parent = ready.pop()
            at = self._directory(parent)
            for one in waiting.pop(parent, ()):
                if at is None or not self._is_free(at, one):
                    rest.add(one.id)
                    continue
                inode = self._make(at, one)
                if inode.is_directory:
                    self._directories[one.id] = inode.ino
                    ready.append(one.id)
        rest.update(one.id for others in waiting.values() for one in others)
        self._write()
        return rest

    # -- who is one ------------------------------------------------------------------------------

    def _read(self, node: bytes) -> _Newcomer | None:
        if place_key(node, 0) in self._fs.changes.unsigned:
            return None  # it has been removed here
        if self._db.execute(
            "SELECT 1 FROM node WHERE id = ?1 UNION ALL SELECT 1 FROM joined WHERE id = ?1 LIMIT 1", (node,)
        ).fetchone():
            return None
        places = self._registers.with_prefix(b"p" + node)
        attrs = self._registers.values(attr_key(node))
        contents = self._registers.values(content_key(node))
        if len(places) != 1 or place_key(node, 0) not in places or len(attrs) != 1 or len(contents) > 1:
            return None
        [values] = places.values()
        place = decode_place(values[0]) if len(values) == 1 else None
        if place is None or place.removed or node == ROOT_ID:
            return None
        try:
            attr = Attr.decode(attrs[0].value or b"")
        except DecodeError:
            return None
        content = contents[0] if contents else None
        return _Newcomer(
            node,
            place,
            attr,
            content.value if content is not None else None,
            content.stamp if content is not None else None,
        )

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

    def _is_free(self, at: int, one: _Newcomer) -> bool:
        """Whether nobody else wants the name, or has it for another's sake."""
        if (at, one.place.name) in self._taken:
            return False
        prefix = Writer().raw(one.place.parent).blob(one.place.name).getvalue()
        if len(self._registers.places_beginning(prefix)) != 1:
            return False
        return (
            self._db.execute(
                "SELECT 1 FROM place WHERE parent = ? AND name = ?", (at, one.place.name)
            ).fetchone()
            is None
        )

    # -- showing them ----------------------------------------------------------------------------

    def _make(self, at: int, one: _Newcomer) -> Inode:
        fs, attr = self._fs, one.attr
        inode = fs.inodes.create(attr.mode, attr.uid, attr.gid, attr.rdev, attr.target or None)
        inode.id = one.id  # it has no row yet
        inode.mtime = inode.atime = attr.mtime
        inode.attr_stamp = 1
        if attr.xattrs:
            self._db.executemany(
                "INSERT INTO xattr VALUES (?, ?, ?)",
                [(inode.ino, name, value) for name, value in attr.xattrs],
            )
            inode.xattrs = len(attr.xattrs)
        if S_ISREG(attr.mode):
            fs.total_files += 1
            if one.content_stamp is not None:
                inode.content_stamp = self._registers.number_of(one.content_stamp)
                fs.received.show(inode, one.content)
        if inode.is_directory:
            fs.inodes.get(at).nlink += 1
        self._taken.add((at, one.place.name))
        self._places.append((at, one.place.name, inode.ino))
        self.changes.append(Change(at, one.place.name))
        return inode

    def _write(self) -> None:
        self._db.executemany(
            "INSERT INTO place (parent, name, ino, slot, stamp) VALUES (?, ?, ?, 0, 1)", self._places
        )
        for directory in {parent for parent, _, _ in self._places}:
            self._fs.inodes.touch(self._fs.inodes.get(directory))
            self.changes.append(Change(directory))
        self._fs.flush()
