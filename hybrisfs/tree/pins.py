"""The hoard: what this device keeps in full, whether it is used or not (Depot 5.2).

A node that is pinned is kept with all that is below it, also what comes there later. Pins are facts of
this device alone: no other device hears of them.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.state.database import Database
from hybrisfs.state.journal_chunks import shown_in_segment
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode, InodeTable

__all__ = ["Hoard", "KeptChunk", "Pinned"]


class Pinned(Enum):
    """Whether a node's content is kept here: because of itself, of a folder above it, or not at all."""

    YES = "yes"
    INHERITED = "inherited"
    NO = "no"


class KeptChunk(NamedTuple):
    """A chunk that must stay in its segment, and the bytes it takes there."""

    position: int
    length: int


class Hoard:
    """The `hoard` table and what follows from it, under the volume's lock."""

    def __init__(self, database: Database, inodes: InodeTable) -> None:
        self._db = database
        self._inodes = inodes
        self._ids = {identity for (identity,) in database.execute("SELECT id FROM hoard")}
        self.generation = 0  # grows whenever something is pinned or unpinned

    def __bool__(self) -> bool:
        return bool(self._ids)

    # -- pins ------------------------------------------------------------------------------------

    def add(self, inode: Inode) -> None:
        """Pin a node that has a name."""
        parent, name = self._whereabouts(inode.ino)
        self._db.execute("INSERT OR REPLACE INTO hoard VALUES (?, ?, ?)", (inode.id, parent, name))
        self._ids.add(inode.id)
        self.generation += 1

    def remove(self, inode: Inode) -> None:
        """Unpin a node, and what is seen as one with it."""
        for identity in self._identities(inode):
            self._forget(identity)

    def _forget(self, identity: bytes) -> None:
        self._db.execute("DELETE FROM hoard WHERE id = ?", (identity,))
        self._ids.discard(identity)
        self.generation += 1

    def roots(self) -> list[int]:
        """The inodes of the nodes that are pinned themselves and are seen here."""
        self._inodes.flush()
        rows = self._db.execute(
            "SELECT n.ino FROM hoard h CROSS JOIN node n ON n.id = h.id "
            "UNION SELECT j.ino FROM hoard h CROSS JOIN joined j ON j.id = h.id ORDER BY 1"
        ).fetchall()
        return [ino for (ino,) in rows]

    def follow(self) -> None:
        """Note where pinned nodes are now; what has taken the place of one that is gone is pinned instead."""
        self._inodes.flush()
        for identity, parent, name in self._db.execute("SELECT id, parent, name FROM hoard").fetchall():
            row = self._db.execute(
                "SELECT ino FROM node WHERE id = ? UNION ALL SELECT ino FROM joined WHERE id = ?",
                (identity, identity),
            ).fetchone()
            if row is not None:
                where = self._whereabouts(row[0])
                if where != (parent, name):
                    self._db.execute("UPDATE hoard SET parent = ?, name = ? WHERE id = ?", (*where, identity))
                continue
            heir = self._db.execute(
                "SELECT p.ino FROM node d JOIN place p ON p.parent = d.ino WHERE d.id = ? AND p.name = ?",
                (parent, name),
            ).fetchone()
            if heir is not None:
                self._forget(identity)
                self.add(self._inodes.get(heir[0]))

    def _whereabouts(self, ino: int) -> tuple[bytes, bytes]:
        """The directory's id and the name of the first place of a node."""
        row = self._db.execute(
            "SELECT parent, name FROM place WHERE ino = ? ORDER BY number LIMIT 1", (ino,)
        ).fetchone()
        return (self._inodes.get(row[0]).id, row[1]) if row else (ROOT_ID, b"")

    def _identities(self, inode: Inode) -> list[bytes]:
        rows = self._db.execute("SELECT id FROM joined WHERE ino = ?", (inode.ino,)).fetchall()
        return [one for one in (inode.id, *(identity for (identity,) in rows)) if one in self._ids]

    # -- what they keep --------------------------------------------------------------------------

    def standing(self, inode: Inode) -> Pinned:
        """Whether the node is kept, and why."""
        if not self._ids:
            return Pinned.NO
        if self._identities(inode):
            return Pinned.YES
        known = self._verdicts()
        inherited = any(self._is_directory_kept(parent, known) for parent in self._parents(inode.ino))
        return Pinned.INHERITED if inherited else Pinned.NO

    def keeper(self, inode: Inode) -> Inode | None:
        """The pinned folder next above a node that is kept because of one."""
        pinned = self._verdicts()
        waiting = self._parents(inode.ino)
        while waiting:
            at = waiting.pop()
            if at in pinned:
                return self._inodes.get(at)
            waiting += self._parents(at)
        return None

    def kept_in(self, segment: int) -> dict[int, KeptChunk]:
        """The chunks of a journal segment that pinned files show, by number."""
        if not self._ids:
            return {}
        rows = shown_in_segment(self._db, segment)
        known = self._verdicts()
        return {
            number: KeptChunk(position, length)
            for number, position, length, ino, parent in rows
            if ino in known or self._is_directory_kept(parent, known)
        }

    def _verdicts(self) -> dict[int, bool]:
        """Which nodes are kept, as far as is known to begin with: those that are pinned themselves."""
        return dict.fromkeys(self.roots(), True)

    def _is_directory_kept(self, directory: int, known: dict[int, bool]) -> bool:
        """Whether a directory or one above it is pinned; *known* remembers what has been found out."""
        path: list[int] = []
        at = directory
        while at not in known:
            path.append(at)
            parents = self._parents(at)
            if not parents:
                known[at] = False
                break
            at = parents[0]
        known.update(dict.fromkeys(path, known[at]))
        return known[at]

    def _parents(self, ino: int) -> list[int]:
        if ino == ROOT_INO:
            return []
        rows = self._db.execute("SELECT DISTINCT parent FROM place WHERE ino = ?", (ino,)).fetchall()
        return [parent for (parent,) in rows]
