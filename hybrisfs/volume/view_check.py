"""Is the view what the registers say? Every name, attribute and content of it, and nothing is missing.

What is plain, one name by one register with one value, is compared directly. The rest is compared with what
`hybrisfs.merge.resolver` makes of the registers; what waits to be signed is as the view has it, and what
follows from that for other nodes is shown when it is signed.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, cast

from hybrisfs.filesystem.registers import Place, attr_key, content_key, place_key, slot_of
from hybrisfs.kinds import CONTENT, NODE, PLACE, sql_node
from hybrisfs.merge.arrange import copy_id
from hybrisfs.merge.names import is_kept, name_by_id
from hybrisfs.merge.registers import Registers
from hybrisfs.merge.resolver import Resolver, Standing
from hybrisfs.merge.rules import MOST_CONTENDERS, MOST_COPIES, Contender, Stamp, judge, standing_attr
from hybrisfs.store.database import Database
from hybrisfs.volume.content_check import ContentCheck
from hybrisfs.volume.log_check import Vectors
from hybrisfs.volume.unsigned_snapshot import UnsignedSnapshot, attributes
from sync import DecodeError, decode_signed
from sync.codec import Buffer

__all__ = ["ViewCheck"]

_PROGRESS_EVERY: Final = 256
_RESOLVED: Final = 256  # nodes that one resolver answers for, which remembers all of them
_FOREIGN: Final = 1  # the stamp of what another device wrote


class _Row(NamedTuple):
    """A name in the view: node *id* stands in *parent*, whose id is *directory*."""

    parent: int
    directory: bytes
    name: bytes
    wanted: bytes | None
    ino: int
    slot: int
    stamp: int
    id: bytes
    mode: int
    original: bytes | None  # the node of which it is a concurrent version

    @property
    def told(self) -> bytes:
        """The name in the register."""
        return self.name if self.wanted is None else self.wanted

    def __str__(self) -> str:
        return f"{self.name!r} in folder {self.parent} (node {self.id.hex()})"


_ROWS: Final = (
    "SELECT p.parent, d.id, p.name, p.wanted, p.ino, p.slot, p.stamp, n.id, n.mode, c.id "
    "FROM place p JOIN node n ON n.ino = p.ino JOIN node d ON d.ino = p.parent "
    "LEFT JOIN copy c ON c.ino = p.ino"
)


class ViewCheck:
    """Compares the view in *db*, a snapshot of a volume's database, with the registers in it."""

    def __init__(self, db: sqlite3.Connection, chunk_id: Callable[[Buffer], bytes], vectors: Vectors) -> None:
        self._db = db
        self._contents = ContentCheck(db, chunk_id)
        self._vectors = vectors
        self._unsigned = UnsignedSnapshot(db)
        self._registers = Registers(cast("Database", db))  # which is only read from
        self._questions = 0
        self._current = self._new_resolver()
        db.create_function("slot_of", 1, slot_of, deterministic=True)

    def _new_resolver(self) -> Resolver:
        return Resolver(self._registers, self._unsigned, self._depends)

    def _depends(self, later: Stamp, earlier: Stamp) -> bool:
        vector = self._vectors.of(later.writer, later.clock)
        return vector is not None and vector[earlier.writer] >= earlier.clock

    @property
    def _resolver(self) -> Resolver:
        self._questions += 1
        if self._questions % _RESOLVED == 0:
            self._current = self._new_resolver()
        return self._current

    def run(self, progress: Callable[[int, int], None]) -> Iterator[str]:
        """What differs, in words."""
        names, nodes = self._db.execute(
            "SELECT (SELECT count(*) FROM place), (SELECT count(*) FROM node)"
        ).fetchone()
        done = 0
        for count, columns in enumerate(self._db.execute(f"{_ROWS} ORDER BY p.number")):
            yield from self._check_name(_Row(*columns))
            if count % _PROGRESS_EVERY == 0:
                progress(done + count, names + nodes)
        done += names
        for count, problems in enumerate(self._check_nodes()):
            yield from problems
            if count % _PROGRESS_EVERY == 0:
                progress(done + count, names + nodes)
        yield from self._missing_names()
        yield from self._missing_versions()
        yield from self._joined()
        yield from self._moved()
        progress(names + nodes, names + nodes)

    # -- names that are there --------------------------------------------------------------------

    def _check_name(self, row: _Row) -> Iterator[str]:
        key = place_key(row.id, row.slot)
        if key in self._unsigned.keys:
            return
        if row.original is not None:
            yield from self._check_copy_name(row, row.original)
            return
        values = self._db.execute("SELECT clock, value FROM register WHERE key = ?", (key,)).fetchall()
        newest = max((clock for clock, _ in values), default=0)
        if row.stamp == 0:
            yield f"{row}: it is in no signed update and does not wait for one"
        elif row.stamp != _FOREIGN and row.stamp >> 16 > newest and not self._withdrew(row.stamp):
            yield f"{row}: its stamp is not of an update that wrote it"
        if len(values) != 1 or not _is_plain(row, values[0][1]):
            yield from self._check_odd_name(row)

    def _withdrew(self, stamp: int) -> bool:
        """Whether the update wrote places, maybe of nodes that were seen as one with this."""
        row = self._db.execute(
            "SELECT l.bytes FROM log l JOIN writer w ON w.branch = l.branch "
            "WHERE w.number = ? AND l.clock = ?",
            (stamp & 0xFFFF, stamp >> 16),
        ).fetchone()
        if row is not None and row[0] is None:
            return True  # it is bare: nobody knows here what it wrote
        try:
            return row is not None and any(key[0] == PLACE for key, _ in decode_signed(row[0]).writes)
        except DecodeError:
            return False

    def _check_odd_name(self, row: _Row) -> Iterator[str]:
        resolver = self._resolver
        standing = next((one for one in resolver.names(row.id) if one.slot == row.slot), None)
        if standing is None:
            if not self._may_change(row.id, row.slot):
                yield f"{row}: no update says that it has this name"
            return
        if standing.place.name != row.told:
            yield f"{row}: its name is not the one signed, {standing.place.name!r}"
        if not self._unsigned.has_places:  # which may open or close a circle of folders
            parent = resolver.parent(row.id, standing)
            if parent not in self._folders(row.parent, row.directory):
                yield f"{row}: it should stand in the folder with id {parent.hex()}"
            is_moved = self._db.execute("SELECT parent FROM moved WHERE id = ?", (row.id,)).fetchone()
            if parent != standing.place.parent and is_moved is None:
                yield f"{row}: that it stands elsewhere than signed is not on record"
        if row.wanted is not None:
            yield from self._check_loser(row, standing)

    def _may_change(self, node: bytes, slot: int) -> bool:
        """Whether a removed node may come or go when what is unsigned is signed: the view waits for that."""
        return self._unsigned.has_places and any(
            one.place.removed for one in self._resolver.registered(node) if one.slot == slot
        )

    def _check_loser(self, row: _Row, standing: Standing) -> Iterator[str]:
        """Another node must have the name that *row* wants."""
        holder = self._at(row.parent, row.told)
        if holder is None or holder.wanted is not None:
            if not self._unsigned.has_places and not (holder is not None and is_kept(row.told)):
                yield f"{row}: it stands under a conflict name, but nobody has the name {row.told!r}"
            return
        if self._unsigned.any_place(holder.id) or holder.original is not None:
            return
        found = next((one for one in self._resolver.names(holder.id) if one.slot == holder.slot), None)
        if found is None:
            return  # which is said of the holder
        if row.name == name_by_id(row.told, row.id, row.slot):  # one of a crowd
            before = row.name < name_by_id(row.told, holder.id, holder.slot)
        else:
            mine = _contender(row, standing)
            before = judge([mine, _contender(holder, found)])[0].node is mine
        if before:
            yield f"{row}: the name {row.told!r} belongs to it, another node has it"

    def _check_copy_name(self, row: _Row, original: bytes) -> Iterator[str]:
        """A concurrent version stands beside the file of which it is one."""
        if content_key(original) in self._unsigned.keys or self._unsigned.any_place(original):
            return
        beside = any(
            (one.parent, one.told) == (row.parent, row.wanted)
            for one in map(_row, self._db.execute(f"{_ROWS} WHERE n.id = ?", (original,)))
        )
        if not beside:
            yield f"{row}: it is a version of node {original.hex()}, but does not stand beside that"

    def _at(self, parent: int, name: bytes) -> _Row | None:
        row = self._db.execute(f"{_ROWS} WHERE p.parent = ? AND p.name = ?", (parent, name)).fetchone()
        return _Row(*row) if row else None

    def _folders(self, ino: int, directory: bytes) -> set[bytes]:
        """The ids of the directories that are this one directory in the view."""
        rows = self._db.execute("SELECT id FROM joined WHERE ino = ?", (ino,))
        return {directory, *(identity for (identity,) in rows)}

    # -- attributes and contents -----------------------------------------------------------------

    def _check_nodes(self) -> Iterator[Iterator[str]]:
        for ino, node, mode, size, attr_stamp, content_stamp, original in self._db.execute(
            "SELECT n.ino, n.id, n.mode, n.size, n.attr_stamp, n.content_stamp, c.id "
            "FROM node n LEFT JOIN copy c ON c.ino = n.ino "
            "WHERE n.ino NOT IN (SELECT ino FROM orphan) ORDER BY n.ino"
        ):
            if original is None:
                yield self._check_node(ino, node, mode, size, attr_stamp, content_stamp)
            else:
                yield self._check_copy(ino, node, mode, size, original)

    def _check_node(
        self, ino: int, node: bytes, mode: int, size: int, attr_stamp: int, content_stamp: int
    ) -> Iterator[str]:
        name = f"node {node.hex()} (inode {ino})"
        if attr_key(node) not in self._unsigned.keys:
            standing = standing_attr(self._registers.values(attr_key(node)))
            if standing is None:
                yield f"{name}: no update says what its attributes are"
            elif standing[1] != attributes(self._db, ino):
                yield f"{name}: its attributes are not those signed"
            elif attr_stamp == 0 or (attr_stamp != _FOREIGN and attr_stamp >> 16 > standing[0].clock):
                yield f"{name}: the stamp of its attributes is not of an update that wrote them"
        if stat.S_ISREG(mode) and content_key(node) not in self._unsigned.keys:
            contents = self._current.contents(node)
            problem = self._contents.problem(ino, size, contents[0].value if contents else None)
            if problem is None and content_stamp >> 16 > (contents[0].stamp.clock if contents else 0):
                problem = "the stamp of its content is not of an update that wrote it"
            if problem is not None:
                yield f"{name}: {problem}"

    def _check_copy(self, ino: int, node: bytes, mode: int, size: int, original: bytes) -> Iterator[str]:
        if content_key(original) in self._unsigned.keys:
            return
        name = f"node {node.hex()} (inode {ino}), a version of node {original.hex()}"
        contents = self._current.contents(original)[1:]
        value = next((one for one in contents if copy_id(original, one) == node), None)
        if value is None or not stat.S_ISREG(mode):
            yield f"{name}: no update has left such a version"
            return
        problem = self._contents.problem(ino, size, value.value)
        if problem is not None:
            yield f"{name}: {problem}"

    # -- what is not there -----------------------------------------------------------------------

    def _missing_names(self) -> Iterator[str]:
        """Names in registers that the view does not have."""
        for (key,) in self._db.execute(
            f"SELECT DISTINCT r.key FROM register r LEFT JOIN node n ON n.id = {sql_node('r.key')} "
            "LEFT JOIN place p ON p.ino = n.ino AND p.slot = slot_of(r.key) "
            f"WHERE {PLACE.sql_rows('r.key')} AND p.number IS NULL"
        ):
            node, slot = key[NODE], slot_of(key)
            if key in self._unsigned.keys:
                continue
            resolver = self._resolver
            standing = next((one for one in resolver.names(node) if one.slot == slot), None)
            if standing is None or self._may_change(node, slot):
                continue
            parent = resolver.parent(node, standing)
            if self._is_shown(parent) and not self._is_joined_at(node, parent, standing.place.name):
                yield (
                    f"node {node.hex()}: its name {standing.place.name!r} in the folder with id "
                    f"{parent.hex()} is missing"
                )

    def _is_shown(self, directory: bytes) -> bool:
        row = self._db.execute(
            "SELECT 1 FROM node WHERE id = ? UNION ALL SELECT 1 FROM joined WHERE id = ?",
            (directory, directory),
        )
        return row.fetchone() is not None

    def _is_joined_at(self, node: bytes, parent: bytes, name: bytes) -> bool:
        """Whether the node is seen as one with another that has this name in this directory."""
        rows = self._db.execute(f"{_ROWS} JOIN joined j ON j.ino = p.ino WHERE j.id = ?", (node,))
        return any(
            row.told == name and parent in self._folders(row.parent, row.directory)
            for row in map(_row, rows.fetchall())
        )

    def _missing_versions(self) -> Iterator[str]:
        """Concurrent contents that are shown nowhere."""
        for (key,) in self._db.execute(
            f"SELECT key FROM register WHERE {CONTENT.sql_rows()} GROUP BY key HAVING count(*) > 1"
        ):
            node = key[NODE]
            shown = self._db.execute("SELECT mode FROM node WHERE id = ?", (node,)).fetchone()
            if key in self._unsigned.keys or shown is None or not stat.S_ISREG(shown[0]):
                continue
            if self._has_many_beside(node):
                continue  # of so many versions, or in a crowd, not all are shown
            for value in self._current.contents(node)[1:]:
                found = self._db.execute(
                    "SELECT 1 FROM node n JOIN copy c ON c.ino = n.ino WHERE n.id = ? AND c.id = ?",
                    (copy_id(node, value), node),
                )
                if found.fetchone() is None:
                    yield (
                        f"node {node.hex()}: the concurrent version that update {value.stamp.clock} "
                        "wrote is missing"
                    )

    def _has_many_beside(self, node: bytes) -> bool:
        """Whether as much is shown for the sake of the node's first name as there is at most."""
        (count,) = self._db.execute(
            "SELECT count(*) FROM place o WHERE (o.parent, o.wanted) = "
            "(SELECT p.parent, ifnull(p.wanted, p.name) FROM node n JOIN place p ON p.ino = n.ino "
            "WHERE n.id = ? ORDER BY p.slot LIMIT 1)",
            (node,),
        ).fetchone()
        return bool(count >= min(MOST_CONTENDERS, MOST_COPIES))

    # -- what is shown otherwise than one node per id --------------------------------------------

    def _joined(self) -> Iterator[str]:
        for node, ino, mode in self._db.execute(
            "SELECT j.id, j.ino, n.mode FROM joined j LEFT JOIN node n ON n.ino = j.ino"
        ):
            if self._unsigned.any_place(node):
                continue
            name = f"node {node.hex()}, seen as one with inode {ino}"
            if mode is None:
                yield f"{name}: there is no such inode"
            elif self._db.execute("SELECT 1 FROM node WHERE id = ?", (node,)).fetchone():
                yield f"{name}: it is seen by itself, too"
            elif not self._resolver.names(node):
                if not self._unsigned.has_places:
                    yield f"{name}: it was removed"
            elif self._resolver.is_directory(node) != stat.S_ISDIR(mode):
                yield f"{name}: one is a directory, the other is not"

    def _moved(self) -> Iterator[str]:
        if self._unsigned.has_places:
            return
        for node, parent in self._db.execute("SELECT id, parent FROM moved"):
            resolver = self._resolver
            if not any(
                resolver.parent(node, one) == parent != one.place.parent for one in resolver.names(node)
            ):
                yield f"node {node.hex()}: it is on record in the folder with id {parent.hex()} by mistake"


def _row(columns: tuple[int, bytes, bytes, bytes | None, int, int, int, bytes, int, bytes | None]) -> _Row:
    return _Row(*columns)


def _contender(row: _Row, standing: Standing) -> Contender:
    return Contender(row.id, row.slot, standing.stamp, stat.S_ISDIR(row.mode), standing.place.yields, None)


def _is_plain(row: _Row, value: bytes | None) -> bool:
    """Whether the only value of the register says just what the row shows."""
    try:
        place = Place.decode(value or b"")
    except DecodeError:
        return False
    told = place.parent, place.name, place.removed
    return row.wanted is None and told == (row.directory, row.name, False)
