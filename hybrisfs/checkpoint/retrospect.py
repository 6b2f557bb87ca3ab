"""What log and registers held at an earlier vector: so that devices which never rest can state one state.

What another device has stated lies in the past of one that has gone on meanwhile. It is found again from the
last agreed checkpoint, which is on the shelf, and the updates since then, whose bodies are in the log: only
registers that these have written to can have held something else than they hold now.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hybrisfs.checkpoint.reading import Latest, read_snapshot
from hybrisfs.checkpoint.snapshot import Header
from hybrisfs.members.role_table import Roles
from hybrisfs.merge.authority import counting
from hybrisfs.merge.registers import is_kept
from hybrisfs.merge.supersession import Supersession, Written
from hybrisfs.registers.values import Stamp, Value
from sync import VersionVector, decode_signed

__all__ = ["MOST_BYTES", "Base", "look_back"]

MOST_BYTES: Final = 64 << 20
"""Of updates since the last checkpoint: what they write is held in memory, with a multiple of that."""

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


class Base(NamedTuple):
    """The last agreed checkpoint: what it covers, and the slices of its snapshot."""

    vector: VersionVector
    pieces: Iterable[bytes]


def look_back(
    db: sqlite3.Connection, vector: VersionVector, base: Base | None, most_bytes: int = MOST_BYTES
) -> bool:
    """From now on, let `log` and `register` on *db* be what they were when nothing was accepted but what
    *vector* covers. False when that cannot be told: not all of it is here, or it goes by other names here, or
    more than *most_bytes* of updates have come since the base.

    *db*: a read-only view of a volume's database, in a transaction. *base*: covered by *vector*; None when
    there never was a checkpoint. Raises DecodeError and OSError when it cannot be read.
    """
    covered = base.vector if base is not None else VersionVector()
    db.execute("CREATE TEMP TABLE cut (branch BLOB PRIMARY KEY, clock INTEGER, base INTEGER) WITHOUT ROWID")
    rows = [(branch, clock, covered[branch]) for branch, clock in vector.items()]
    db.executemany("INSERT INTO cut VALUES (?, ?, ?)", rows)
    if not _is_state(db, vector) or not _is_state(db, covered):
        return False
    bare, size = db.execute(f"SELECT count(*) - count(bytes), total(length(bytes)) {_SINCE}").fetchone()
    if bare or size > most_bytes:
        return False
    touched: set[bytes] = set()
    updates = list(_updates_since(db, touched))
    before = {} if base is None else _values_at(db, base, touched)
    if before is None:
        return False
    change = Supersession({key: [one.stamp for one in values] for key, values in before.items()}, lambda _: 0)
    change.take(updates)
    for key, stamp in change.superseded:
        before[key] = [one for one in before[key] if one.stamp != stamp]
    _shadow(db, touched, (*before.items(), *change.come.items()))
    return True


def _is_state(db: sqlite3.Connection, vector: VersionVector) -> bool:
    """Whether a log could end there: what it names is here under these names, with all that it depends on."""
    for entry in vector.items():
        row = db.execute("SELECT vector FROM main.log WHERE branch = ? AND clock = ?", entry).fetchone()
        if row is None or not vector.covers(VersionVector.decode(row[0])):
            return False
    return True


def _updates_since(db: sqlite3.Connection, touched: set[bytes]) -> Iterator[Written]:
    """The updates after the base up to the cut; the keys of registers to which those, and all later ones,
    have written join *touched*."""
    rows = db.execute(
        f"SELECT l.branch, l.clock, l.vector, l.bytes, l.clock <= ifnull(c.clock, 0) {_SINCE} ORDER BY number"
    )
    roles = Roles(db)
    for branch, clock, vector, data, within in rows:
        writes = [one for one in counting(decode_signed(data), vector, roles).writes if is_kept(one[0])]
        touched.update(key for key, _ in writes)
        if within:
            yield Written(Stamp(clock, branch), VersionVector.decode(vector), writes)


def _values_at(db: sqlite3.Connection, base: Base, touched: set[bytes]) -> dict[bytes, list[Value]] | None:
    """What these registers held at the base; None when that goes by other names here."""
    stamps = [
        Stamp(clock, branch)
        for branch, clock in db.execute(
            "SELECT branch, l.clock FROM main.log l JOIN cut c USING (branch) WHERE l.clock <= c.base "
            "ORDER BY l.clock, l.hash"
        )
    ]
    found: dict[bytes, list[Value]] = {}
    for record in read_snapshot(base.pieces):
        if isinstance(record, Header) and record.updates != len(stamps):
            return None
        if isinstance(record, Latest) and record.key in touched:
            found.setdefault(record.key, []).append(Value(stamps[record.update], record.value))
    return found


def _shadow(
    db: sqlite3.Connection, touched: set[bytes], values: Iterable[tuple[bytes, Iterable[Value]]]
) -> None:
    """Let *values* stand for what the registers in *touched* hold, and the log end at the cut."""
    numbers: dict[bytes, int] = dict(db.execute("SELECT branch, number FROM writer"))
    db.execute("CREATE TEMP TABLE touched (key BLOB PRIMARY KEY) WITHOUT ROWID")
    db.executemany("INSERT INTO touched VALUES (?)", ((key,) for key in touched))
    db.execute(
        "CREATE TEMP TABLE earlier (key BLOB, clock INTEGER, writer INTEGER, value BLOB, "
        "PRIMARY KEY (key, clock, writer)) WITHOUT ROWID"
    )
    db.executemany(
        "INSERT INTO earlier VALUES (?, ?, ?, ?)",
        (
            (key, one.stamp.clock, numbers[one.stamp.writer], one.value)
            for key, latest in values
            for one in latest
        ),
    )
    db.execute(_LOG)
    db.execute(_REGISTER)
