"""The `checkpoint` table: what this device states, and which checkpoint is the newest agreed one.

A row is a `Recorded`. The slices of its snapshot are files, see `hybrisfs.checkpoint.snapshot`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.state.database import Reader, RowWriter
from sync import VersionVector
from sync.checkpoint import Slice

__all__ = [
    "CheckpointTable",
    "HintedRow",
    "Recorded",
    "StoredSnapshot",
    "has_agreed_checkpoint",
    "packs_to_hint",
]

_SLICE: Final = struct.Struct(">32sI")
_COLUMNS: Final = "snapshot, vector, through, slices, hints, root, deposited, former"
# What is looked back at goes through the same update as what is stated next, if nothing comes between. Then a
# mere statement is newer than what is agreed, and that is newer than what was agreed on and is on the clouds.
_NEWEST: Final = "ORDER BY through DESC, root IS NOT NULL, deposited IS NOT NULL LIMIT 1"


class StoredSnapshot(Struct, frozen=True):
    """A snapshot on the snapshots: its hash, and the slices that it and its hints consist of."""

    snapshot: bytes
    slices: tuple[Slice, ...]
    hints: tuple[Slice, ...]


class Recorded(Struct, frozen=True):
    """A row of the table. *root*: the encoded root of an agreed checkpoint, None of a mere statement;
    *deposited*: the name of a root of it that is on the clouds. *former*: what the agreed one that it came
    after covers, once that was on the clouds."""

    stored: StoredSnapshot
    vector: VersionVector
    through: int
    root: bytes | None = None
    deposited: bytes | None = None
    former: VersionVector | None = None


class CheckpointTable:
    """At most one statement, one agreed checkpoint, and, while that is not on the clouds, the one before it
    which is: all under the volume's lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database

    def stated(self) -> Recorded | None:
        """The newest statement, agreed upon or not."""
        return self._one("")

    def agreed(self) -> Recorded | None:
        """The newest agreed checkpoint."""
        return self._one("WHERE root IS NOT NULL")

    def deposited(self) -> Recorded | None:
        """The newest agreed checkpoint that is on the clouds."""
        return self._one("WHERE deposited IS NOT NULL")

    def all(self) -> list[Recorded]:
        """All rows."""
        return [_recorded(row) for row in self._db.execute(f"SELECT {_COLUMNS} FROM checkpoint")]

    def _one(self, condition: str) -> Recorded | None:
        row = self._db.execute(f"SELECT {_COLUMNS} FROM checkpoint {condition} {_NEWEST}").fetchone()
        return _recorded(row) if row else None

    def put(self, one: Recorded) -> None:
        """Record a statement or an agreed checkpoint in the place of what came before it."""
        if one.deposited:
            replaced = "through < ?1 OR (through = ?1 AND root IS NOT NULL)"
        elif one.root:
            replaced = "through <= ?1 AND deposited IS NULL"
        else:
            replaced = "through <= ?1 AND root IS NULL"
        self._db.execute(f"DELETE FROM checkpoint WHERE {replaced}", (one.through,))
        self._db.execute(
            f"INSERT OR REPLACE INTO checkpoint ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                one.stored.snapshot,
                one.vector.encode(),
                one.through,
                _packed(one.stored.slices),
                _packed(one.stored.hints),
                one.root,
                one.deposited,
                None if one.former is None else one.former.encode(),
            ),
        )

    def through(self) -> int:
        """The number of the newest update in the log, 0 when there is none."""
        return int(self._db.execute("SELECT ifnull(max(number), 0) FROM log").fetchone()[0])

    def is_shipped(self, through: int) -> bool:
        """Whether the clouds have all updates up to that number that were signed here."""
        row = self._db.execute(
            "SELECT 1 FROM log WHERE chunk_high IS NOT NULL AND clock > ? AND number <= ? LIMIT 1",
            (self._db.shipped_clock(), through),
        ).fetchone()
        return row is None

    def grown_beyond(self, covered: VersionVector) -> int:
        """Bytes of the updates that have been accepted and are not covered."""
        branches = self._db.execute("SELECT id FROM log_branch").fetchall()
        query = "SELECT total(length(bytes)) FROM log WHERE branch = ? AND clock > ?"
        return sum(
            int(self._db.execute(query, (branch, covered[branch])).fetchone()[0]) for (branch,) in branches
        )


def has_agreed_checkpoint(db: Reader) -> bool:
    """Whether there is an agreed checkpoint."""
    return db.execute("SELECT 1 FROM checkpoint WHERE root IS NOT NULL LIMIT 1").fetchone() is not None


class HintedRow(NamedTuple):
    """A pack, and the place that a checkpoint hints at. *branch*, *clock*: of the update with that place."""

    number: int
    id: bytes
    k: int
    n: int
    placement: bytes
    branch: bytes
    clock: int


def packs_to_hint(db: Reader) -> Iterator[HintedRow]:
    """The packs that an update has named, by their ids, but for those that may have ended or not."""
    rows = db.execute(
        "SELECT number, id, k, n, placement, branch, clock FROM pack "
        "WHERE clock > 0 AND (n > 0 OR NOT doubted) ORDER BY id"
    )
    return map(HintedRow._make, rows)


def _packed(slices: Sequence[Slice]) -> bytes:
    return b"".join(_SLICE.pack(*one) for one in slices)


def _recorded(
    row: tuple[bytes, bytes, int, bytes, bytes, bytes | None, bytes | None, bytes | None],
) -> Recorded:
    snapshot, vector, through, slices, hints, root, deposited, former = row
    pieces, more = (tuple(Slice(*one) for one in _SLICE.iter_unpack(packed)) for packed in (slices, hints))
    return Recorded(
        StoredSnapshot(snapshot, pieces, more),
        VersionVector.decode(vector),
        through,
        root,
        deposited,
        None if former is None else VersionVector.decode(former),
    )
