"""Versions, former values of registers of the tree: the tables `past` and `removal`.

A row of `past` is a value that an update has superseded: written by the update that its clock and the number
of its branch name, true from one moment until another one (ns since the epoch). What stands there is kept:
the chunks that a content names are needed like those of files. `removal` holds the nodes of which a name was
removed, and at which moment last. What their contents hold is needed, too, although nothing shows it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from hybrisfs.kinds import CONTENT
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.bulk import insert_many
from hybrisfs.state.database import Reader, RowWriter
from hybrisfs.state.registers import PLACES, after

__all__ = [
    "FOREVER",
    "Interval",
    "Outlived",
    "OutlivedVersion",
    "Removal",
    "Version",
    "add_kept_chunks",
    "all_versions",
    "begin_kept_chunks",
    "contents_by_end",
    "count_versions",
    "end_stored_values",
    "end_unstored_values",
    "end_versions_sooner",
    "first_version",
    "forget_outlived",
    "forget_removals",
    "forget_versions",
    "intervals_of",
    "intervals_of_all",
    "intervals_with_prefix",
    "kept_contents",
    "know_no_versions_before_bare",
    "known_since",
    "note_removals",
    "places_in_time",
    "places_once",
    "removals",
    "removed_at",
    "rename_versions",
    "some_values",
    "spans_of_versions",
    "unshipped_contents",
    "unshipped_removed_contents",
    "version_stamped",
    "versions_ending_after",
]

_END: Final = "ON CONFLICT (key, clock, writer) DO UPDATE SET until = min(until, excluded.until)"


# -- noting them -----------------------------------------------------------------------------------------


def end_stored_values(db: RowWriter, rows: Sequence[tuple[int, int, bytes, int, int]]) -> None:
    """Note values that are about to leave their registers: since and until when they were true, then key,
    clock and number of the branch."""
    db.executemany(
        "INSERT INTO past (key, clock, writer, value, since, until) "
        "SELECT key, clock, writer, value, ?, ? FROM register "
        f"WHERE key = ? AND clock = ? AND writer = ? AND value IS NOT NULL {_END}",
        rows,
    )


def end_unstored_values(db: RowWriter, rows: Sequence[tuple[bytes, int, int, bytes, int, int]]) -> None:
    """Note values that never came into their registers: key, clock, number of the branch, value, since and
    until when they were true."""
    insert_many(db, "INSERT INTO past (key, clock, writer, value, since, until) VALUES {} " + _END, rows)


def versions_ending_after(db: Reader, key: bytes, until: int) -> list[tuple[int, int, int]]:
    """Number, clock and number of the branch of the versions of a register that were true after a moment."""
    return db.execute(
        "SELECT number, clock, writer FROM past WHERE key = ? AND until > ?", (key, until)
    ).fetchall()


def end_versions_sooner(db: RowWriter, numbers: Iterable[int], until: int) -> None:
    """Versions with these numbers were true until that moment only."""
    db.executemany("UPDATE past SET until = ? WHERE number = ?", [(until, number) for number in numbers])


def note_removals(db: RowWriter, removals: Iterable[tuple[bytes, int]]) -> None:
    """Names of these nodes were removed at these moments."""
    db.executemany(
        "INSERT INTO removal (node, moment) VALUES (?, ?) "
        "ON CONFLICT (node) DO UPDATE SET moment = max(moment, excluded.moment)",
        list(removals),
    )


def rename_versions(db: RowWriter, old: int, above: int, new: int) -> None:
    """Updates of the branch with number *old* with a clock above *above* are those of branch *new*."""
    db.execute("UPDATE OR REPLACE past SET writer = ? WHERE writer = ? AND clock > ?", (new, old, above))


def know_no_versions_before_bare(db: RowWriter) -> None:
    """Versions are known from the newest bare update on: values that were superseded before it are
    unknown."""
    db.execute(
        "UPDATE meta SET value = max(value, "
        "(SELECT ifnull(max(moment), 0) FROM log WHERE bytes IS NULL)) WHERE key = 'history'"
    )


# -- letting go of them ----------------------------------------------------------------------------------


class OutlivedVersion(NamedTuple):
    """The version with this number, as long as it was true until that moment, and no shorter."""

    number: int
    until: int


class Removal(NamedTuple):
    """A node of which a name was removed, at that moment last."""

    node: bytes
    moment: int


Outlived: TypeAlias = OutlivedVersion | Removal


def forget_outlived(db: RowWriter, outlived: Iterable[Outlived]) -> None:
    """Forget versions, and that names were removed; not those that have another end by now."""
    outlived = list(outlived)
    versions = [one for one in outlived if isinstance(one, OutlivedVersion)]
    removed = [one for one in outlived if isinstance(one, Removal)]
    db.executemany("DELETE FROM past WHERE number = ? AND until = ?", versions)
    db.executemany("DELETE FROM removal WHERE node = ? AND moment = ?", removed)


def forget_versions(db: RowWriter, numbers: Iterable[int]) -> None:
    """Forget the versions with these numbers."""
    db.executemany("DELETE FROM past WHERE number = ?", [(number,) for number in numbers])


def forget_removals(db: RowWriter, nodes: Iterable[bytes]) -> None:
    """Forget that names of these nodes were removed."""
    db.executemany("DELETE FROM removal WHERE node = ?", [(node,) for node in nodes])


def spans_of_versions(db: Reader) -> Iterator[tuple[int, int, int]]:
    """Number of each version, and the moments from which and until which it was true."""
    return db.execute("SELECT number, since, until FROM past")


def removals(db: Reader) -> Iterator[Removal]:
    """The nodes of which names were removed."""
    return map(Removal._make, db.execute("SELECT node, moment FROM removal"))


def contents_by_end(db: Reader) -> Iterator[tuple[Outlived, bytes | None]]:
    """The contents that are kept, with their values, and the nodes of which a name was removed, by the moment
    of their end."""
    for number, node, until, value in db.execute(
        f"SELECT number, NULL, until, value FROM past WHERE {CONTENT.sql_rows()} "
        "UNION ALL SELECT NULL, node, moment, NULL FROM removal ORDER BY 3"
    ):
        yield (OutlivedVersion(number, until) if node is None else Removal(node, until)), value


def unshipped_contents(db: Reader) -> list[tuple[int, bytes]]:
    """Number and value of the contents that are kept and of updates which the clouds may not have."""
    return db.execute(
        f"SELECT number, value FROM past WHERE {CONTENT.sql_rows()} "
        "AND clock > (SELECT value FROM meta WHERE key = 'published')"
    ).fetchall()


def unshipped_removed_contents(db: Reader) -> list[tuple[bytes, bytes]]:
    """The same of nodes of which a name was removed, with the nodes."""
    return db.execute(
        f"SELECT v.node, r.value FROM removal v JOIN register r ON r.key = {CONTENT.sql_key('v.node')} "
        "WHERE r.value IS NOT NULL AND r.clock > (SELECT value FROM meta WHERE key = 'published')"
    ).fetchall()


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


def count_versions(db: Reader) -> int:
    """How many are kept."""
    return int(db.execute("SELECT count(*) FROM past").fetchone()[0])


def known_since(db: Reader) -> int:
    """The moment before which versions are not known here, ns since the epoch; 0: all are."""
    return int(db.execute("SELECT value FROM meta WHERE key = 'history'").fetchone()[0])


def removed_at(db: Reader, node: bytes) -> int | None:
    """When a name of a node was removed last, ns since the epoch; None when none was, or it is forgotten."""
    row = db.execute("SELECT moment FROM removal WHERE node = ?", (node,)).fetchone()
    return None if row is None else int(row[0])


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


def begin_kept_chunks(db: sqlite3.Connection) -> None:
    """Make the table `kept_chunk (id)` in a snapshot, without rows: queries that look through packs ask it
    which chunks versions need."""
    db.execute("CREATE TEMP TABLE IF NOT EXISTS kept_chunk (id BLOB PRIMARY KEY) WITHOUT ROWID")
    db.execute("DELETE FROM kept_chunk")


def add_kept_chunks(db: sqlite3.Connection, chunks: Iterable[bytes]) -> None:
    """Versions need the chunks with these ids."""
    db.executemany("INSERT OR IGNORE INTO kept_chunk (id) VALUES (?)", [(one,) for one in chunks])


# -- all values that registers of the tree have ---------------------------------------------------------
# They come from `register` and `past` together: a value that a register still has ends at no moment.


FOREVER: Final = (1 << 63) - 1
"""Later than any moment."""
_MOMENT: Final = "ifnull((SELECT l.moment FROM log l WHERE l.branch = w.branch AND l.clock = r.clock), 0)"
_REGISTER: Final = (
    f"SELECT r.key, r.clock, w.branch, r.value, {_MOMENT}, {FOREVER} "
    "FROM register r JOIN writer w ON w.number = r.writer WHERE "
)
_PAST: Final = (
    "SELECT p.key, p.clock, w.branch, p.value, p.since, p.until "
    "FROM past p JOIN writer w ON w.number = p.writer WHERE "
)


class Interval(NamedTuple):
    """A value of a register and the moments from which and until which it was true; *until* None: still."""

    stamp: Stamp
    value: bytes | None
    since: int
    until: int | None

    @property
    def end(self) -> int:
        """`until`, `FOREVER` for what is still true."""
        return FOREVER if self.until is None else self.until


def intervals_of(db: Reader, key: bytes) -> list[Interval]:
    """Those of one register."""
    return _intervals(db, "key = ?", (key,)).get(key, [])


def intervals_of_all(db: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, list[Interval]]:
    """Those of some hundred registers, by key; those without any left out."""
    return _intervals(db, f"key IN ({', '.join('?' * len(keys))})", keys)


def intervals_with_prefix(db: sqlite3.Connection, prefix: bytes) -> dict[bytes, list[Interval]]:
    """Those of the registers whose keys begin so, by key."""
    return _intervals(db, "key >= ? AND key < ?", (prefix, after(prefix)))


def places_in_time(db: sqlite3.Connection, beginning: bytes) -> dict[bytes, list[Interval]]:
    """Of place registers, by key, those whose values begin so."""
    end = after(beginning)
    if end is None:
        return _intervals(db, f"{PLACES} AND value >= ?", (beginning,))
    return _intervals(db, f"{PLACES} AND value >= ? AND value < ?", (beginning, end))


def _intervals(db: Reader, condition: str, arguments: Iterable[Any]) -> dict[bytes, list[Interval]]:
    arguments = tuple(arguments)
    found: dict[bytes, list[Interval]] = {}
    for query in (_REGISTER, _PAST):
        for key, clock, branch, value, since, until in db.execute(query + condition, arguments):
            ends = None if until == FOREVER else until
            found.setdefault(key, []).append(Interval(Stamp(clock, branch), value, since, ends))
    return found
