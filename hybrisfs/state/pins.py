"""The pins of this device: the table `hoard`, and which files and chunks it covers.

A pin is on a node, by its id. It says where the node was last seen, too: programs save a file by putting
another in its place, which is then the one that is meant.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.state.database import RowWriter
from hybrisfs.state.journal_chunks import shown_in_segment
from hybrisfs.state.places import PlaceTable
from hybrisfs.state.shown_nodes import ino_of, ino_shown_for

__all__ = ["KeptChunk", "PinTable"]


class KeptChunk(NamedTuple):
    """A chunk that must stay in its segment, and the bytes it takes there."""

    position: int
    length: int


class PinTable:
    """The pins of one volume, under its lock; inodes must have been flushed."""

    def __init__(self, database: RowWriter, places: PlaceTable) -> None:
        self._db = database
        self._places = places

    def nodes(self) -> set[bytes]:
        """The nodes that are pinned themselves."""
        return {node for (node,) in self._db.execute("SELECT id FROM hoard")}

    def inodes(self) -> list[int]:
        """The inodes that show these, in order."""
        rows = self._db.execute(
            "SELECT n.ino FROM hoard h CROSS JOIN node n ON n.id = h.id "
            "UNION SELECT j.ino FROM hoard h CROSS JOIN joined j ON j.id = h.id ORDER BY 1"
        ).fetchall()
        return [ino for (ino,) in rows]

    def put(self, node: bytes, ino: int) -> None:
        """Pin a node, which this inode shows."""
        row = node, *self._whereabouts(ino)
        self._db.execute("INSERT OR REPLACE INTO hoard VALUES (?, ?, ?)", row)

    def remove(self, node: bytes) -> None:
        """Unpin a node."""
        self._db.execute("DELETE FROM hoard WHERE id = ?", (node,))

    def follow(self) -> dict[bytes, int]:
        """Note where pinned nodes are now; those that are gone, with the inode that has taken the place of
        each, if one has."""
        replaced: dict[bytes, int] = {}
        for node, *where in self._db.execute("SELECT id, parent, name FROM hoard").fetchall():
            ino = ino_shown_for(self._db, node)
            if ino is not None:
                if self._whereabouts(ino) != tuple(where):
                    self.put(node, ino)
                continue
            folder = ino_of(self._db, where[0])
            place = None if folder is None else self._places.find(folder, where[1])
            if place is not None:
                replaced[node] = place[0]
        return replaced

    def _whereabouts(self, ino: int) -> tuple[bytes, bytes]:
        """The directory's id and the name of the first place of a node."""
        row: tuple[bytes, bytes] | None = self._db.execute(
            "SELECT d.id, p.name FROM place p JOIN node d ON d.ino = p.parent "
            "WHERE p.ino = ? ORDER BY p.number LIMIT 1",
            (ino,),
        ).fetchone()
        return row or (ROOT_ID, b"")

    # -- what they cover -------------------------------------------------------------------------

    def covers(self, ino: int) -> bool:
        """Whether a folder above an inode is pinned."""
        known = dict.fromkeys(self.inodes(), True)
        return any(self._is_kept(parent, known) for parent in self._places.parents_of(ino))

    def keeper(self, ino: int) -> int | None:
        """The pinned folder next above an inode."""
        pinned = set(self.inodes())
        waiting = self._places.parents_of(ino)
        while waiting:
            at = waiting.pop()
            if at in pinned:
                return at
            waiting += self._places.parents_of(at)
        return None

    def kept_in(self, segment: int) -> dict[int, KeptChunk]:
        """The chunks of a journal segment that pinned files show, by number."""
        rows = shown_in_segment(self._db, segment)
        known = dict.fromkeys(self.inodes(), True)
        return {
            number: KeptChunk(position, length)
            for number, position, length, ino, parent in rows
            if ino in known or self._is_kept(parent, known)
        }

    def _is_kept(self, directory: int, known: dict[int, bool]) -> bool:
        """Whether a directory or one above it is pinned; *known* remembers results."""
        path: list[int] = []
        for at in chain((directory,), self._places.above(directory)):
            if at in known:
                break
            path.append(at)
        verdict = known.get(at, False)
        known.update(dict.fromkeys(path, verdict))
        return verdict
