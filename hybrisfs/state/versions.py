"""What registers of the tree held once: the tables `past` and `removal`.

A row of `past` is a value that an update has superseded: written by the update that its clock and the number
of its branch name, true from one moment until another one (ns since the epoch). What stands there is kept:
the chunks that a content names are needed like those of files. `removal` holds the nodes of which a name was
removed, and at which moment last. What their contents hold is needed, too, although nothing shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hybrisfs.kinds import CONTENT
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.bulk import insert_many
from hybrisfs.state.database import Database, Reader
from hybrisfs.state.registers import PLACES

__all__ = [
    "Version",
    "all_versions",
    "end_stored_values",
    "end_unstored_values",
    "end_versions_sooner",
    "first_version",
    "kept_contents",
    "know_no_versions_before_bare",
    "note_removals",
    "places_once",
    "rename_versions",
    "some_values",
    "version_stamped",
    "versions_ending_after",
]

_END: Final = "ON CONFLICT (key, clock, writer) DO UPDATE SET until = min(until, excluded.until)"


# -- noting them -----------------------------------------------------------------------------------------


def end_stored_values(db: Database, rows: Sequence[tuple[int, int, bytes, int, int]]) -> None:
    """Note values that are about to leave their registers: since and until when they were true, then key,
    clock and number of the branch."""
    db.executemany(
        "INSERT INTO past (key, clock, writer, value, since, until) "
        "SELECT key, clock, writer, value, ?, ? FROM register "
        f"WHERE key = ? AND clock = ? AND writer = ? AND value IS NOT NULL {_END}",
        rows,
    )


def end_unstored_values(db: Database, rows: Sequence[tuple[bytes, int, int, bytes, int, int]]) -> None:
    """Note values that never came into their registers: key, clock, number of the branch, value, since and
    until when they were true."""
    insert_many(db, "INSERT INTO past (key, clock, writer, value, since, until) VALUES {} " + _END, rows)


def versions_ending_after(db: Reader, key: bytes, until: int) -> list[tuple[int, int, int]]:
    """Number, clock and number of the branch of the versions of a register that were true after a moment."""
    return db.execute(
        "SELECT number, clock, writer FROM past WHERE key = ? AND until > ?", (key, until)
    ).fetchall()


def end_versions_sooner(db: Database, numbers: Iterable[int], until: int) -> None:
    """Versions with these numbers were true until that moment only."""
    db.executemany("UPDATE past SET until = ? WHERE number = ?", [(until, number) for number in numbers])


def note_removals(db: Database, removals: Iterable[tuple[bytes, int]]) -> None:
    """Names of these nodes were removed at these moments."""
    db.executemany(
        "INSERT INTO removal (node, moment) VALUES (?, ?) "
        "ON CONFLICT (node) DO UPDATE SET moment = max(moment, excluded.moment)",
        list(removals),
    )


def rename_versions(db: Database, old: int, above: int, new: int) -> None:
    """Updates of the branch with number *old* with a clock above *above* are those of branch *new*."""
    db.execute("UPDATE OR REPLACE past SET writer = ? WHERE writer = ? AND clock > ?", (new, old, above))


def know_no_versions_before_bare(db: Database) -> None:
    """Versions are known from the newest bare update on: what was superseded before nobody has told."""
    db.execute(
        "UPDATE meta SET value = max(value, "
        "(SELECT ifnull(max(moment), 0) FROM log WHERE bytes IS NULL)) WHERE key = 'history'"
    )


# -- looking them up -------------------------------------------------------------------------------------


class Version(NamedTuple):
    """A value that a register had once. *branch*: None when the row names an unknown one; *is_latest*: the
    register has it still, which is damage."""

    key: bytes
    clock: int
    branch: bytes | None
    value: bytes
    is_latest: bool


def all_versions(db: Reader) -> Iterator[Version]:
    """All that are kept, those of one update together."""
    rows = db.execute(
        "SELECT p.key, p.clock, w.branch, p.value, EXISTS (SELECT 1 FROM register r "
        "WHERE r.key = p.key AND r.clock = p.clock AND r.writer = p.writer) "
        "FROM past p LEFT JOIN writer w ON w.number = p.writer ORDER BY p.writer, p.clock"
    )
    return map(Version._make, rows)


def first_version(db: Reader, key: bytes) -> tuple[Stamp, int] | None:
    """The version of a register with the lowest clock that is kept, and since when it was true."""
    row = db.execute(
        "SELECT p.clock, w.branch, p.since FROM past p JOIN writer w ON w.number = p.writer "
        "WHERE p.key = ? ORDER BY p.clock LIMIT 1",
        (key,),
    ).fetchone()
    return None if row is None else (Stamp(*row[:2]), row[2])


def version_stamped(db: Reader, key: bytes, number: int) -> Value | None:
    """The version of a register with a stamp, which is given as the view stores it
    (`RegisterTable.number_of`)."""
    row = db.execute(
        "SELECT p.clock, w.branch, p.value FROM past p JOIN writer w ON w.number = p.writer "
        "WHERE p.key = ? AND p.clock = ? AND p.writer = ?",
        (key, number >> 16, number & 0xFFFF),
    ).fetchone()
    return None if row is None else Value(Stamp(*row[:2]), row[2])


def some_values(db: Reader, key: bytes, most: int) -> list[bytes | None]:
    """Up to so many of the values that a register has, or had once."""
    rows = db.execute(
        "SELECT value FROM past WHERE key = ?1 UNION SELECT value FROM register WHERE key = ?1 LIMIT ?2",
        (key, most),
    )
    return [value for (value,) in rows.fetchall()]


def places_once(db: Reader, first: bytes, last: bytes | None, most: int) -> list[bytes]:
    """Keys of up to so many versions of place registers, with values as in `RegisterTable.some_places`."""
    rows = db.execute(
        f"SELECT key FROM past WHERE {PLACES} AND value >= ? AND value < ? LIMIT ?", (first, last, most)
    )
    return [key for (key,) in rows.fetchall()]


def kept_contents(db: Reader) -> Iterator[tuple[bytes]]:
    """The contents whose chunks versions need: those that are kept, and those of nodes of which a name was
    removed."""
    return db.execute(
        f"SELECT value FROM past WHERE {CONTENT.sql_rows()} UNION ALL SELECT r.value FROM removal v "
        f"JOIN register r ON r.key = {CONTENT.sql_key('v.node')} WHERE r.value IS NOT NULL"
    )
