"""What the tables `log` and `log_branch` hold, asked of the open transaction or of a snapshot.

A row of `log` is an accepted update, see the schema. `UpdateLog` alone writes rows; those that it has yet to
store, these functions do not see. Rows that a function gives by the hundred thousand are plain tuples, read
as the caller goes on: its docstring says what is in one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.state.database import Reader, RowWriter
from sync import HASH_SIZE, Branch, DecodeError, VersionVector, parse_segment_name

__all__ = [
    "changed_spans",
    "Body",
    "BodyStore",
    "Dropped",
    "SegmentEnd",
    "Signer",
    "StoredUpdate",
    "UpdateName",
    "body_of",
    "branches",
    "clock_before",
    "count_bare_updates",
    "count_by_branch",
    "count_updates",
    "device_of_branch",
    "devices_of_branches",
    "end_of_segment",
    "first_moment",
    "first_signer",
    "has_update",
    "hash_of",
    "is_covered",
    "latest_moment",
    "names_of_updates",
    "newest_by_branch",
    "signer_of",
    "update_beginning",
    "updates_by_clock",
    "updates_in_order",
    "vector_of",
]

_UPDATE: Final = "number, branch, clock, device, hash, chunk_high, vector, bytes"


class StoredUpdate(NamedTuple):
    """A row of `log`. *number*: its place in the order in which updates were accepted; *chunk_high*: None
    unless this device signed it; *vector*: encoded; *data*: None of a bare one."""

    number: int
    branch: bytes
    clock: int
    device: bytes
    hash: bytes
    chunk_high: int | None
    vector: bytes
    data: bytes | None


class UpdateName(NamedTuple):
    """The same without what it says."""

    number: int
    branch: bytes
    clock: int
    device: bytes
    hash: bytes
    vector: bytes


class Body(NamedTuple):
    """An update as it travels, None of a bare one, and the encoded vector of all that it depends on."""

    data: bytes | None
    vector: bytes


class Signer(NamedTuple):
    """A device that signed an update, what it is called (empty when that is not known), and when it did so by
    its clock, ns since the epoch."""

    device: bytes
    name: str
    time_ns: int

    @property
    def shown_name(self) -> str:
        """What it is called, or else the beginning of its id."""
        return self.name or self.device.hex()[:8]


def branches(db: Reader) -> list[Branch]:
    """The branches of all devices, in no order."""
    return [Branch(*row) for row in db.execute("SELECT id, device, parent, above FROM log_branch")]


def devices_of_branches(db: Reader) -> dict[bytes, bytes]:
    """The device that has written each branch."""
    return dict(db.execute("SELECT id, device FROM log_branch").fetchall())


def device_of_branch(db: Reader, branch: bytes) -> bytes | None:
    """The device that has written a branch; None of an unknown one."""
    row = db.execute("SELECT device FROM log_branch WHERE id = ?", (branch,)).fetchone()
    return None if row is None else bytes(row[0])


def newest_by_branch(db: Reader) -> VersionVector:
    """The clock of the newest update of each branch."""
    rows = db.execute(
        "SELECT id, (SELECT max(clock) FROM log WHERE branch = b.id) AS newest FROM log_branch b "
        "WHERE newest IS NOT NULL"
    )
    return VersionVector(dict(rows.fetchall()))


def count_by_branch(db: Reader) -> list[tuple[bytes, int, int]]:
    """Each branch with the clock of its newest update and the number of its updates."""
    return db.execute("SELECT branch, max(clock), count(*) FROM log GROUP BY branch").fetchall()


def count_updates(db: Reader) -> int:
    """How many updates there are."""
    return int(db.execute("SELECT count(*) FROM log").fetchone()[0])


def count_bare_updates(db: Reader) -> int:
    """How many of them are bare."""
    return int(db.execute("SELECT count(*) FROM log WHERE bytes IS NULL").fetchone()[0])


def first_signer(db: Reader) -> bytes | None:
    """The device that signed the first update that was signed here; None while there is none."""
    row = db.execute("SELECT device FROM log WHERE chunk_high IS NOT NULL ORDER BY clock LIMIT 1").fetchone()
    return None if row is None else bytes(row[0])


def vector_of(db: Reader, branch: bytes, clock: int) -> VersionVector | None:
    """The vector of all that an update depends on; None of one that is not stored. Raises DecodeError."""
    row = db.execute("SELECT vector FROM log WHERE branch = ? AND clock = ?", (branch, clock)).fetchone()
    return None if row is None else VersionVector.decode(row[0])


def clock_before(db: Reader, clock: int, branch: bytes) -> int | None:
    """The clock of the update before this one on its branch; None when none is stored."""
    row = db.execute("SELECT max(clock) FROM log WHERE branch = ? AND clock < ?", (branch, clock)).fetchone()
    return None if row is None else row[0]


def signer_of(db: Reader, branch: bytes, clock: int) -> Signer | None:
    """The device that signed an update; None if the update is not stored."""
    row = db.execute(
        "SELECT l.device, ifnull(m.name, ''), l.time FROM log l "
        "LEFT JOIN member m ON m.device = l.device WHERE l.branch = ? AND l.clock = ?",
        (branch, clock),
    ).fetchone()
    return None if row is None else Signer(*row)


def first_moment(db: Reader) -> int | None:
    """The moment of the first update, ns since the epoch; None while there is none."""
    moment: int | None = db.execute("SELECT min(moment) FROM log WHERE moment > 0").fetchone()[0]
    return moment


def changed_spans(db: Reader, after: int, length: int) -> list[int]:
    """The spans of *length* in which there was an update with a moment above *after*, by their ends; all ns
    since the epoch."""
    rows = db.execute("SELECT DISTINCT moment / ?1 FROM log WHERE moment > ?2", (length, after))
    return [(number + 1) * length for (number,) in rows]


def latest_moment(db: Reader) -> int:
    """The latest moment of an update, ns since the epoch; 0 while there is none."""
    return int(db.execute("SELECT ifnull(max(moment), 0) FROM log").fetchone()[0])


def hash_of(db: Reader, branch: bytes, clock: int) -> bytes | None:
    """The hash of an update; None of one that is not stored."""
    row = db.execute("SELECT hash FROM log WHERE branch = ? AND clock = ?", (branch, clock)).fetchone()
    return None if row is None else bytes(row[0])


def body_of(db: Reader, branch: bytes | None, clock: int) -> Body | None:
    """What an update says; None of one that is not stored."""
    row = db.execute(
        "SELECT bytes, vector FROM log WHERE branch = ? AND clock = ?", (branch, clock)
    ).fetchone()
    return None if row is None else Body(*row)


def has_update(db: Reader, device: bytes, beginning: bytes) -> bool:
    """Whether an update of the device is stored whose hash begins so."""
    row = db.execute(
        "SELECT 1 FROM log WHERE hash BETWEEN ? AND ? AND device = ?", (*_hashes(beginning), device)
    ).fetchone()
    return row is not None


def update_beginning(db: Reader, beginning: bytes) -> UpdateName | None:
    """The update whose hash begins so."""
    row = db.execute(
        "SELECT number, branch, clock, device, hash, vector FROM log WHERE hash BETWEEN ? AND ?",
        _hashes(beginning),
    ).fetchone()
    return None if row is None else UpdateName(*row)


def _hashes(beginning: bytes) -> tuple[bytes, bytes]:
    """The first and the last hash that begins so."""
    rest = HASH_SIZE - len(beginning)
    return beginning + bytes(rest), beginning + b"\xff" * rest


def updates_in_order(db: Reader) -> Iterator[StoredUpdate]:
    """All updates in the order in which they were accepted: after all that they depend on."""
    return map(StoredUpdate._make, db.execute(f"SELECT {_UPDATE} FROM log ORDER BY number"))


def updates_by_clock(db: Reader) -> Iterator[tuple[bytes, int, bytes, bytes, int, bytes]]:
    """Branch, clock, device, hash, time (ns since the epoch) and encoded vector of all updates, by clock and
    hash: an order that is the same on all devices, and in which they come after what they depend on."""
    return db.execute("SELECT branch, clock, device, hash, time, vector FROM log ORDER BY clock, hash")


def names_of_updates(db: Reader) -> Iterator[tuple[bytes, int, bytes]]:
    """Hash, clock and branch of all updates, in no order."""
    return db.execute("SELECT hash, clock, branch FROM log")


# -- dropping the bodies of accepted updates, which leaves their rows of the log bare -------------------
# A row is removed and put back without its body: SQLite would leave a row that has only become shorter where
# it is, and its page hardly filled.


_KEPT: Final = "number, branch, clock, device, hash, chunk_high, vector, time, moment"


class Dropped(Struct, frozen=True):
    """How many bodies have been dropped, and how many bytes they had."""

    updates: int
    bytes: int


class BodyStore:
    """The bodies in one volume's log, under the volume's lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database
        self._counted: tuple[object, int] | None = None

    def drop(self, covered: VersionVector, own: bytes, from_clock: int, most: int) -> int:
        """Drop up to *most* bodies of updates that *covered* covers, but for those of device *own* from this
        clock on; how many there were."""
        for branch, clock in covered.items():
            rows = self._db.execute(
                f"SELECT {_KEPT}, length(bytes) FROM log INDEXED BY log_whole "
                "WHERE branch = ? AND clock <= ? AND bytes IS NOT NULL "
                "AND NOT (device = ? AND clock >= ?) ORDER BY clock LIMIT ?",
                (branch, clock, own, from_clock, most),
            ).fetchall()
            if rows:
                self._make_bare(rows)
                return len(rows)
        return 0

    def _make_bare(self, rows: list[tuple[object, ...]]) -> None:
        self._db.execute("SAVEPOINT bare")
        try:
            self._db.executemany("DELETE FROM log WHERE number = ?", [row[:1] for row in rows])
            self._db.executemany(
                f"INSERT INTO log ({_KEPT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [row[:-1] for row in rows]
            )
            for key, more in (("dropped_updates", len(rows)), ("dropped_bytes", sum(map(_size, rows)))):
                self._db.execute("UPDATE meta SET value = value + ? WHERE key = ?", (more, key))
        except BaseException:
            self._db.execute("ROLLBACK TO bare")
            raise
        finally:
            self._db.execute("RELEASE bare")

    def dropped(self) -> Dropped:
        """What has been dropped so far."""
        return Dropped(self._db.meta("dropped_updates"), self._db.meta("dropped_bytes"))

    def left(self) -> int:
        """How many bodies there are. They are counted again only when that may have changed."""
        (newest,) = self._db.execute("SELECT max(number) FROM log").fetchone()
        state = newest, self._db.meta("dropped_updates")
        if self._counted is None or self._counted[0] != state:
            query = "SELECT count(*) FROM log INDEXED BY log_whole WHERE bytes IS NOT NULL"
            self._counted = state, int(self._db.execute(query).fetchone()[0])
        return self._counted[1]


def _size(row: tuple[object, ...]) -> int:
    size = row[-1]
    assert isinstance(size, int)
    return size


# -- where log segments end: a segment's name tells the beginning of the hash of its last update --------
# So which segments are known to be on the clouds can be forgotten once a checkpoint covers them.


class SegmentEnd(NamedTuple):
    """The last update in a segment; *bare*: only a checkpoint tells what it and those before it wrote."""

    branch: bytes
    clock: int
    bare: bool


def end_of_segment(database: Reader, name: str) -> SegmentEnd | None:
    """The update with which a segment ends, None when it has not been accepted here, or the name is none.
    Called with the volume's lock held."""
    try:
        device, segment = parse_segment_name(name)
    except DecodeError:
        return None
    rest = HASH_SIZE - len(segment.prefix)
    row = database.execute(
        "SELECT branch, clock, bytes IS NULL FROM log WHERE hash BETWEEN ? AND ? AND device = ?",
        (segment.prefix + bytes(rest), segment.prefix + b"\xff" * rest, device),
    ).fetchone()
    return SegmentEnd(row[0], row[1], bool(row[2])) if row is not None else None


def is_covered(database: Reader, name: str, covered: VersionVector) -> bool:
    """Whether *covered* covers all updates in a segment, which is so when it covers the last one."""
    end = end_of_segment(database, name)
    return end is not None and covered[end.branch] >= end.clock
