"""What must stay on this device: the pins, in the table `hoard`, which files and chunks they cover, and
content that nobody else has.

A pin is on a node, by its id. It says where the node was last seen, too: programs save a file by putting
another in its place, which is then the one that is meant.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from hybrisfs.kinds import CONTENT, PLACE, Kind
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.state.chunk_states import ELSEWHERE, ON_CLOUDS, ONLY_HERE
from hybrisfs.state.database import Reader, RowWriter
from hybrisfs.state.nodes import PlaceTable
from hybrisfs.state.registers import after, branches_by_number
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import ino_of, ino_shown_for, nodes_shown_as
from hybrisfs.state.unplaced import shown_in_segment
from sync import VersionVector

__all__ = ["KeptChunk", "Measure", "PinTable", "Precious", "Subtree"]


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

    def kept_in(
        self, segment: int, also: Collection[int] = (), precious: Precious | None = None
    ) -> dict[int, KeptChunk]:
        """The chunks of a journal segment that pinned files show, those at and below the inodes *also*, and
        those that are *precious*, by number."""
        rows = shown_in_segment(self._db, segment)
        known = dict.fromkeys((*self.inodes(), *also), True)
        return {
            number: KeptChunk(position, length)
            for number, position, length, ino, parent in rows
            if ino in known
            or self._is_kept(parent, known)
            or (precious is not None and precious.has(ino, parent))
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


# -- what some nodes and all below them hold, measured in a snapshot of the database --------------------


_IS_FILE = "mode & 61440 = 32768"  # S_IFMT, S_IFREG
_DESCEND = """
INSERT INTO {name} WITH RECURSIVE below(ino) AS (
    SELECT ino FROM {name}_root UNION SELECT p.ino FROM below b CROSS JOIN place p ON p.parent = b.ino
) SELECT ino FROM below
"""


class Measure(Struct, frozen=True):
    """Regular files, the bytes of their content (holes are none, equal chunks count once), and how many of
    these are not on this device."""

    files: int
    bytes: int
    missing: int


class Subtree:
    """The nodes at and below *roots*, as a table *name* of a connection's own.

    *snapshot* is what `Database.snapshot` yields.
    """

    def __init__(self, snapshot: sqlite3.Connection, roots: Iterable[int], name: str = "below") -> None:
        self._db = snapshot
        self._table = f"temp.{name}"
        for table in (self._table, f"{self._table}_root"):
            snapshot.execute(f"CREATE TABLE {table} (ino INTEGER PRIMARY KEY)")
        snapshot.executemany(
            f"INSERT OR IGNORE INTO {self._table}_root VALUES (?)", [(ino,) for ino in roots]
        )
        snapshot.execute(_DESCEND.format(name=self._table))
        self._chunks = f"(SELECT f.chunk FROM {self._table} b CROSS JOIN file_chunk f ON f.ino = b.ino)"

    def measure(self) -> Measure:
        """How much there is. Files whose list of chunks is elsewhere count as missing, as do their lists."""
        (files,) = self._one(
            f"SELECT count(*) FROM {self._table} b JOIN node n ON n.ino = b.ino AND {_IS_FILE}"
        )
        size, missing = self._one(
            "SELECT total(length), total(CASE WHEN segment IS NULL THEN length ELSE 0 END) "
            f"FROM chunk WHERE number IN {self._chunks}"
        )
        (staged,) = self._one(
            f"SELECT total(e.length) FROM {self._table} b JOIN extent e ON e.ino = b.ino WHERE e.segment > 0"
        )
        (unlisted,) = self._one(
            f"SELECT total(n.size) FROM unlisted u JOIN {self._table} b ON b.ino = u.ino "
            "JOIN node n ON n.ino = u.ino"
        )
        return Measure(int(files), int(size + staged + unlisted), int(missing + unlisted))

    def staged(self) -> int:
        """Bytes on this device that no cloud is known to have."""
        (staged,) = self._one(
            f"SELECT total(e.length) FROM {self._table} b JOIN extent e ON e.ino = b.ino WHERE e.segment > 0"
        )
        (waiting,) = self._one(
            f"SELECT total(length) FROM chunk WHERE {ONLY_HERE} AND number IN {self._chunks}"
        )
        return int(staged + waiting)

    def missing(self) -> array[int]:
        """Numbers of the chunks that are not here, those last whose place on the clouds is not known yet."""
        return self._numbers(
            f"SELECT number FROM chunk WHERE segment IS NULL AND number IN {self._chunks} "
            f"ORDER BY pack = {ELSEWHERE}, number"
        )

    def unlisted(self) -> list[int]:
        """The files whose list of chunks is elsewhere."""
        rows = self._db.execute(f"SELECT u.ino FROM unlisted u JOIN {self._table} b ON b.ino = u.ino")
        return [ino for (ino,) in rows]

    def files(self) -> Iterator[tuple[int, int]]:
        """The files whose content is in chunks, each with a folder in which it stands."""
        yield from self._db.execute(
            f"SELECT b.ino, p.parent FROM {self._table} b CROSS JOIN place p ON p.ino = b.ino "
            "WHERE EXISTS (SELECT 1 FROM file_chunk f WHERE f.ino = b.ino)"
        )

    def evictable(self, kept: Subtree) -> array[int]:
        """Numbers of the chunks that are here and on the clouds, but for those that files in *kept* show."""
        return self._numbers(
            f"SELECT number FROM chunk WHERE segment IS NOT NULL AND {ON_CLOUDS} "
            f"AND number IN {self._chunks} AND number NOT IN {kept._chunks}"
        )

    def shared_with(self, kept: Subtree) -> int:
        """Bytes that are here and on the clouds, and that files in *kept* show as well."""
        (size,) = self._one(
            f"SELECT total(length) FROM chunk WHERE segment IS NOT NULL AND {ON_CLOUDS} "
            f"AND number IN {self._chunks} AND number IN {kept._chunks}"
        )
        return int(size)

    def _one(self, query: str) -> tuple[float, ...]:
        row: tuple[float, ...] = self._db.execute(query).fetchone()
        return row

    def _numbers(self, query: str) -> array[int]:
        return array("q", (number for (number,) in self._db.execute(query)))


# -- content that other devices cannot be counted on to have: what must not be evicted here -----------
# A folder for whose copies a label asks is *precious* here until enough other devices state that they have
# all of it, as of some vector. Then a file in it is precious no more, if that vector covers each update that
# gave the file its content and its place in the folder; those of the folders between the two included, which
# may have been moved there. What the clouds have yet to hear of, nobody else has.
#
# It is asked when bytes are to go, of the tree of that moment, so that no list can be out of date.


_IS_PENDING: Final = "SELECT 1 FROM pending WHERE key >= ? AND key < ? LIMIT 1"
_UPDATES: Final = "SELECT writer, clock FROM register WHERE key >= ? AND key < ?"

_Updates: TypeAlias = frozenset[tuple[int, int]] | None
"""Writers and clocks; None when something is in no update that the clouds have."""


class Precious:
    """The precious content of the folders that are asked for, in one look at the tree."""

    def __init__(self, db: Reader, folders: Mapping[int, VersionVector | None]) -> None:
        """*folders*: by inode, up to which vector enough other devices have all of it; None: they have not.
        Inodes must have been flushed."""
        self._db = db
        branches = branches_by_number(db) if any(one is not None for one in folders.values()) else {}
        self._folders = {
            ino: None if vector is None else {number: vector[branch] for number, branch in branches.items()}
            for ino, vector in folders.items()
        }
        self._above: dict[int, tuple[_Updates, int]] = {}  # of a folder: how it came there, and where it is

    def __bool__(self) -> bool:
        return bool(self._folders)

    def has(self, ino: int, parent: int) -> bool:
        """Whether a file that stands in the folder *parent* is precious."""
        updates = self._updates(CONTENT, ino)
        if self._is_asked_for(ino, updates):
            return True
        updates, at = _together(updates, self._updates(PLACE, ino)), parent
        while not self._is_asked_for(at, updates):
            if at == ROOT_INO:
                return False
            moved, at = self._step(at)
            updates = _together(updates, moved)
        return True

    def _is_asked_for(self, ino: int, updates: _Updates) -> bool:
        """Whether what these updates made must stay for the sake of this folder, or file."""
        if ino not in self._folders:
            return False
        held = self._folders[ino]
        return updates is None or held is None or any(held.get(who, 0) < clock for who, clock in updates)

    def _step(self, folder: int) -> tuple[_Updates, int]:
        step = self._above.get(folder)
        if step is None:
            row = self._db.execute("SELECT parent FROM place WHERE ino = ?", (folder,)).fetchone()
            parent = ROOT_INO if row is None else int(row[0])
            step = self._above[folder] = self._updates(PLACE, folder), parent
        return step

    def _updates(self, kind: Kind, ino: int) -> _Updates:
        """What gave a node, and those that are merged with it, its content or its place."""
        found: set[tuple[int, int]] = set()
        for node in self._nodes(ino):
            first = kind.key(node)
            span = first, after(first)
            if self._db.execute(_IS_PENDING, span).fetchone() is not None:
                return None
            found.update(self._db.execute(_UPDATES, span))
        return frozenset(found)

    def _nodes(self, ino: int) -> list[bytes]:
        copied = self._db.execute("SELECT id FROM copy WHERE ino = ?", (ino,)).fetchall()
        return [*nodes_shown_as(self._db, ino), *(node for (node,) in copied)]


def _together(one: _Updates, other: _Updates) -> _Updates:
    return None if one is None or other is None else one | other
