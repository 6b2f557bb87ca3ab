"""A snapshot of the database whose tables `log` and `register` hold what they held at an earlier vector.

`EarlierState` lays views over these tables, for its connection only: all that reads the snapshot afterwards
sees log and registers of that time. Which registers held what, `hybrisfs.checkpoint.state_at_vector` finds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.registers import branches_by_number
from hybrisfs.state.stored_log import vector_of
from sync import VersionVector

__all__ = ["EarlierState", "LaterUpdate"]

_SINCE: Final = "FROM main.log l LEFT JOIN cut c USING (branch) WHERE l.clock > ifnull(c.base, 0)"
_LOG: Final = (
    "CREATE TEMP VIEW log AS "
    "SELECT l.* FROM main.log l JOIN cut c ON c.branch = l.branch AND l.clock <= c.clock"
)
_REGISTER: Final = (
    "CREATE TEMP VIEW register AS "
    "SELECT key, clock, writer, value FROM main.register WHERE key NOT IN (SELECT key FROM touched) "
    "UNION ALL SELECT key, clock, writer, value FROM earlier"
)


class LaterUpdate(NamedTuple):
    """An update that the base does not cover: its *vector* encoded, its *data* as it travels. *within*: the
    vector that is looked back at covers it."""

    branch: bytes
    clock: int
    vector: bytes
    data: bytes
    within: bool


class EarlierState:
    """The state at *vector*, seen from *base*, which it covers."""

    def __init__(self, db: sqlite3.Connection, vector: VersionVector, base: VersionVector) -> None:
        """*db*: a read-only view of a volume's database, in a transaction, used for this alone."""
        self._db = db
        self._vector = vector
        self._base = base
        db.execute(
            "CREATE TEMP TABLE cut (branch BLOB PRIMARY KEY, clock INTEGER, base INTEGER) WITHOUT ROWID"
        )
        rows = [(branch, clock, base[branch]) for branch, clock in vector.items()]
        db.executemany("INSERT INTO cut VALUES (?, ?, ?)", rows)

    def are_states(self) -> bool:
        """Whether a log could end at both: what they name is here under these names, with all that it depends
        on."""
        return self._is_state(self._vector) and self._is_state(self._base)

    def _is_state(self, vector: VersionVector) -> bool:
        for branch, clock in vector.items():
            known = vector_of(self._db, branch, clock)
            if known is None or not vector.covers(known):
                return False
        return True

    def bytes_since_base(self) -> int | None:
        """Bytes of all updates, also later ones, that the base does not cover; None when some are bare."""
        bare, size = self._db.execute(
            f"SELECT count(*) - count(bytes), total(length(bytes)) {_SINCE}"
        ).fetchone()
        return None if bare else int(size)

    def updates_since_base(self) -> Iterator[LaterUpdate]:
        """These updates, in the order in which they were accepted; none may be bare."""
        rows = self._db.execute(
            f"SELECT l.branch, l.clock, l.vector, l.bytes, l.clock <= ifnull(c.clock, 0) {_SINCE} "
            "ORDER BY number"
        )
        return map(LaterUpdate._make, rows)

    def stamps_of_base(self) -> list[Stamp]:
        """The updates that the base covers, in the order in which a snapshot numbers them."""
        rows = self._db.execute(
            "SELECT branch, l.clock FROM main.log l JOIN cut c USING (branch) WHERE l.clock <= c.base "
            "ORDER BY l.clock, l.hash"
        )
        return [Stamp(clock, branch) for branch, clock in rows]

    def show(self, touched: set[bytes], values: Iterable[tuple[bytes, Iterable[Value]]]) -> None:
        """From now on, the log ends at the vector, and *values* are what the registers in *touched* hold."""
        numbers = {branch: number for number, branch in branches_by_number(self._db).items()}
        self._db.execute("CREATE TEMP TABLE touched (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self._db.executemany("INSERT INTO touched VALUES (?)", ((key,) for key in touched))
        self._db.execute(
            "CREATE TEMP TABLE earlier (key BLOB, clock INTEGER, writer INTEGER, value BLOB, "
            "PRIMARY KEY (key, clock, writer)) WITHOUT ROWID"
        )
        self._db.executemany(
            "INSERT INTO earlier VALUES (?, ?, ?, ?)",
            (
                (key, one.stamp.clock, numbers[one.stamp.branch], one.value)
                for key, latest in values
                for one in latest
            ),
        )
        self._db.execute(_LOG)
        self._db.execute(_REGISTER)
