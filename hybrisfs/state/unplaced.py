"""What the clouds do not hold yet: chunks in the journal, chunks of others, and changed registers."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from hybrisfs.kinds import KINDS, PACK, Trait
from hybrisfs.state.bulk import insert_many, select_many
from hybrisfs.state.chunk_states import ELSEWHERE, ONLY_HERE
from hybrisfs.state.database import Reader, RowWriter
from hybrisfs.state.journal import Journal

__all__ = [
    "PendingRow",
    "PendingTable",
    "WaitingNode",
    "UnplacedContent",
    "awaited",
    "chunk_ranges",
    "dirty_among",
    "dirty_ranges",
    "dirty_segments",
    "files_lacking",
    "first_pending",
    "held_of",
    "is_any_unplaced",
    "is_segment_named",
    "pending_after",
    "pending_bytes",
    "pending_row",
    "remove_unnamed_segments",
    "shown_in_segment",
    "staged_bytes",
    "staged_bytes_of",
    "staged_ranges",
    "unplaced_content",
    "unproven",
    "waiting_nodes",
]

PendingRow: TypeAlias = tuple[int, bytes, int, int, int]
"""Number, id, length, segment and position of a chunk that is PENDING."""
_PENDING: Final = "SELECT number, id, length, segment, position FROM chunk WHERE pack IS NULL"


def chunk_ranges(db: Reader, segment: int) -> list[tuple[int, int]]:
    """Where in a segment chunks lie, as (start, end)."""
    rows = db.execute("SELECT position, length FROM chunk WHERE segment = ?", (segment,))
    return [(position, position + length) for position, length in rows]


def is_segment_named(db: Reader, segment: int) -> bool:
    """Whether any chunk lies in a segment."""
    return db.execute("SELECT 1 FROM chunk WHERE segment = ? LIMIT 1", (segment,)).fetchone() is not None


def remove_unnamed_segments(db: RowWriter, journal: Journal) -> None:
    """Delete the segments that the database does not name: their bytes were never committed."""
    rows = db.execute("SELECT DISTINCT segment FROM chunk WHERE segment IS NOT NULL")
    for number in journal.numbers() - {segment for (segment,) in rows}:
        if not journal.dirty_pieces[number]:
            journal.remove(number)


def shown_in_segment(db: Reader, segment: int) -> list[tuple[int, int, int, int, int]]:
    """Number, position and length of the chunks in a segment, each with the node of a file that shows it and
    a folder in which that stands: one row for each of these."""
    return db.execute(
        "SELECT c.number, c.position, c.length, f.ino, p.parent FROM chunk c "
        "CROSS JOIN file_chunk f ON f.chunk = c.number CROSS JOIN place p ON p.ino = f.ino "
        "WHERE c.segment = ?",
        (segment,),
    ).fetchall()


def dirty_ranges(db: Reader) -> Iterator[tuple[int, int, int]]:
    """Segment, position and length of all chunks that keep their segment dirty."""
    return db.execute(f"SELECT segment, position, length FROM chunk WHERE {ONLY_HERE}")


def dirty_segments(db: Reader) -> set[int]:
    """The segments that hold bytes, cut into chunks or not, which no cloud is known to have."""
    rows = db.execute(f"SELECT segment FROM chunk WHERE {ONLY_HERE} UNION SELECT segment FROM extent")
    return {segment for (segment,) in rows}


def dirty_among(db: RowWriter, numbers: Iterable[int]) -> list[int]:
    """Those of the chunks that keep their segment dirty."""
    query = f"SELECT number FROM chunk WHERE number IN (VALUES {{}}) AND {ONLY_HERE}"
    return [number for (number,) in select_many(db, query, [(one,) for one in numbers])]


def staged_ranges(db: Reader) -> Iterator[tuple[int, int, int]]:
    """Segment, position and length of all bytes in segments that have not been cut into chunks yet."""
    return db.execute("SELECT segment, position, length FROM extent WHERE segment > 0")


def staged_bytes(db: Reader) -> int:
    """How many bytes in segments have not been cut into chunks yet."""
    (size,) = db.execute("SELECT total(length) FROM extent WHERE segment > 0").fetchone()
    return int(size)


def staged_bytes_of(db: RowWriter, inos: Iterable[int]) -> int:
    """How many of them files with these numbers have."""
    query = "SELECT total(length) FROM extent WHERE segment > 0 AND ino IN (VALUES {})"
    return sum(int(size) for (size,) in select_many(db, query, [(ino,) for ino in inos]))


def pending_after(db: Reader, number: int, limit: int) -> list[PendingRow]:
    """The first *limit* PENDING chunks above a number, in the order in which they were made."""
    return db.execute(f"{_PENDING} AND number > ? ORDER BY number LIMIT ?", (number, limit)).fetchall()


def pending_row(db: Reader, number: int) -> PendingRow | None:
    """The chunk with this number if it is PENDING."""
    row: PendingRow | None = db.execute(f"{_PENDING} AND number = ?", (number,)).fetchone()
    return row


def first_pending(db: Reader, but: Container[int]) -> int | None:
    """The lowest number of a PENDING chunk that is none of *but*."""
    rows = db.execute("SELECT number FROM chunk WHERE pack IS NULL ORDER BY number")
    return next((number for (number,) in rows if number not in but), None)


def deferred_chunks(db: Reader) -> dict[int, int]:
    """The PENDING chunks that the log on the clouds names already, and for which no change waits that it does
    not have; and the inode of a file that shows each, 0 where none does."""
    if first_pending(db, ()) is None:
        return {}
    return dict(
        db.execute(
            "SELECT number, ifnull((SELECT ino FROM file_chunk WHERE chunk = number LIMIT 1), 0) FROM chunk "
            "WHERE pack IS NULL AND number <= (SELECT ifnull(max(chunk_high), 0) FROM log "
            "WHERE clock <= (SELECT value FROM meta WHERE key = 'published')) "
            "AND number > ifnull((SELECT value FROM meta WHERE key = 'hurried'), 0) "
            "AND NOT EXISTS (SELECT 1 FROM file_chunk f JOIN pending p ON p.ino = f.ino "
            "WHERE f.chunk = number)"
        ).fetchall()
    )


def pending_bytes(db: Reader) -> int:
    """The sum of the lengths of PENDING chunks."""
    (size,) = db.execute("SELECT total(length) FROM chunk WHERE pack IS NULL").fetchone()
    return int(size)


class WaitingNode(NamedTuple):
    """A node with something that the clouds lack: bytes of its content, its attributes, a name, or that it is
    gone."""

    ino: int
    size: int
    """Bytes of its content. Two files that share a chunk both count it."""
    changed: int | None
    """Its ctime, in ns; None when the node is gone."""


def waiting_nodes(db: Reader) -> Iterator[WaitingNode]:
    """All nodes with changes of this device, or of others in its place, that the clouds lack. Those that
    changed first come first, and those that are gone before them."""
    rows = db.execute(
        "SELECT w.ino, total(w.size), n.ctime FROM ("
        "SELECT ino, 0 AS size FROM pending "
        "UNION ALL SELECT ino, length FROM extent WHERE segment > 0 "
        "UNION ALL SELECT f.ino, c.length FROM chunk c CROSS JOIN file_chunk f ON f.chunk = c.number "
        "WHERE c.pack IS NULL"
        ") w LEFT JOIN node n ON n.ino = w.ino GROUP BY w.ino ORDER BY n.ctime, w.ino"
    )
    return (WaitingNode(ino, int(size), changed) for ino, size, changed in rows)


# -- chunks that no cloud is known to have, and that others bring there ---------------------------------


_CHUNKS: Final = f"chunk c CROSS JOIN file_chunk f ON f.chunk = c.number WHERE c.pack = {ELSEWHERE}"
_PAGES: Final = f"chunk c CROSS JOIN content_page f ON f.chunk = c.number WHERE c.pack = {ELSEWHERE}"
_DEVICES: Final = "writer w JOIN log_branch b ON b.id = w.branch"
_FILES_LACKING: Final = (
    "SELECT ino FROM file_chunk WHERE chunk = ?1 AND EXISTS ({absent}) "
    "UNION SELECT ino FROM content_page WHERE chunk = ?1 AND EXISTS ({absent})"
).format(absent=f"SELECT 1 FROM chunk WHERE number = ?1 AND segment IS NULL AND pack = {ELSEWHERE}")


class UnplacedContent(NamedTuple):
    """How many files there are, the bytes of theirs that no cloud is known to have, and the devices that
    wrote these files, by id."""

    files: int
    size: int
    devices: tuple[bytes, ...]


def unplaced_content(db: Reader) -> UnplacedContent:
    """What files show of chunks that are on no cloud and not for this device to bring there."""
    rows = db.execute(
        f"SELECT n.content_stamp & 65535, count(*) FROM (SELECT f.ino FROM {_CHUNKS} UNION "
        f"SELECT f.ino FROM {_PAGES}) u CROSS JOIN node n ON n.ino = u.ino GROUP BY 1"
    ).fetchall()
    if not rows:
        return UnplacedContent(0, 0, ())
    (listed,) = db.execute(
        f"SELECT total(length) FROM chunk WHERE pack = {ELSEWHERE} AND EXISTS "
        "(SELECT 1 FROM file_chunk f WHERE f.chunk = number)"
    ).fetchone()
    (unlisted,) = db.execute(
        f"SELECT total(n.size) FROM (SELECT DISTINCT f.ino FROM {_PAGES}) p "
        "JOIN unlisted u ON u.ino = p.ino JOIN node n ON n.ino = p.ino"
    ).fetchone()
    devices = {
        device
        for writer, _ in rows
        for (device,) in db.execute(f"SELECT b.device FROM {_DEVICES} WHERE w.number = ?", (writer,))
    }
    return UnplacedContent(sum(files for _, files in rows), int(listed + unlisted), tuple(sorted(devices)))


def is_any_unplaced(db: Reader, through: int) -> bool:
    """Whether files show such chunks up to that number."""
    query = " UNION ALL ".join(f"SELECT 1 FROM {rows} AND c.number <= ?1" for rows in (_CHUNKS, _PAGES))
    return db.execute(f"{query} LIMIT 1", (through,)).fetchone() is not None


def held_of(db: Reader, devices: Collection[bytes], branches: Collection[bytes]) -> list[int]:
    """The UNPLACED and SET_ASIDE chunks of files that these devices wrote, or that were written on these
    branches."""
    wanted = f"b.device IN ({_literals(devices)}) OR b.id IN ({_literals(branches)})"
    # The plus has SQLite go by the index of what is elsewhere, and not by that of all that is cached.
    held = " UNION ".join(
        f"SELECT c.number FROM (SELECT c.number, f.ino FROM {rows} AND +c.segment IS NOT NULL) c "
        "CROSS JOIN node n ON n.ino = c.ino WHERE n.content_stamp & 65535 IN "
        f"(SELECT w.number FROM {_DEVICES} WHERE {wanted})"
        for rows in (_CHUNKS, _PAGES)
    )
    return [number for (number,) in db.execute(held)]


def unproven(db: Reader) -> list[int]:
    """The UNPLACED and SET_ASIDE chunks that members say to be on the clouds: by reading them there one finds
    out (`Fetcher.prove`)."""
    rows = db.execute(
        f"SELECT number FROM chunk c WHERE pack = {ELSEWHERE} AND segment IS NOT NULL "
        "AND EXISTS (SELECT 1 FROM spare s WHERE s.chunk = c.number)"
    )
    return [number for (number,) in rows]


def awaited(db: Reader) -> dict[bytes, int]:
    """The chunks that are AWAITED or LOST, by id: their numbers."""
    return dict(db.execute(f"SELECT id, number FROM chunk WHERE pack = {ELSEWHERE} AND segment IS NULL"))


def files_lacking(db: Reader, number: int) -> list[int]:
    """The files that show a chunk or have it as a page, if it is AWAITED or LOST."""
    return [ino for (ino,) in db.execute(_FILES_LACKING, (number,))]


def _literals(ids: Collection[bytes]) -> str:
    return ", ".join(f"x'{one.hex()}'" for one in ids)


# -- the registers that the view has changed and the clouds do not hold yet: the table `pending` --------
# A change is *unsigned* until an update holds it, and *shipped* when the clouds hold that. Keys that are held
# (`hybrisfs.state.decisions`) are here, too, and unsigned, though no update is going to hold them as they
# are.


_LAST: Final = f"?1 || x'{'ff' * 64}'"
_OF_NODE: Final = " OR ".join(
    f"key BETWEEN {kind.sql_key('?1')} AND {kind.sql_key(_LAST)}"
    for kind in KINDS
    if kind.traits & (Trait.TREE | Trait.DIRECT)
)
_IS_HELD: Final = "EXISTS (SELECT 1 FROM held h WHERE h.key = p.key AND h.former IS NULL)"


class PendingTable:
    """The pending changes of one volume, under its lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database

    def unsigned(self) -> list[tuple[bytes, int, int]]:
        """Key, inode and number of all changes that no update holds."""
        return self._db.execute("SELECT key, ino, seq FROM pending WHERE clock IS NULL").fetchall()

    def newest(self) -> int:
        """The highest number that a change has had."""
        number: int = self._db.meta("seq")
        return number

    def put(self, changes: Sequence[tuple[bytes, int, int]], newest: int) -> None:
        """These have changed, given as `unsigned` gives them; nothing else is pending of their keys then."""
        insert_many(self._db, "INSERT OR REPLACE INTO pending (key, ino, seq) VALUES {}", changes)
        self._db.set_meta("seq", newest)

    def drop(self, keys: Iterable[bytes]) -> None:
        """Nothing is pending of these keys."""
        self._db.executemany("DELETE FROM pending WHERE key = ?", [(key,) for key in keys])

    def sign(self, clock: int, changes: Iterable[tuple[bytes, int]]) -> None:
        """The update with this clock holds changes, given by key and number."""
        self._db.executemany(
            "UPDATE pending SET clock = ? WHERE key = ? AND seq = ?",
            [(clock, key, seq) for key, seq in changes],
        )

    def ship(self, clock: int) -> None:
        """The clouds hold every own update up to this clock."""
        self._db.execute("DELETE FROM pending WHERE clock <= ?", (clock,))
        self._db.set_meta("published", clock)

    # -- what is pending -------------------------------------------------------------------------

    def count_nodes(self) -> int:
        """How many nodes have changes that the clouds are to get."""
        (count,) = self._db.execute(
            f"SELECT count(DISTINCT ino) FROM pending p WHERE ino > 0 AND NOT {_IS_HELD}"
        ).fetchone()
        return int(count)

    def signed_nodes(self) -> set[int]:
        """The inodes whose changes an update holds that the clouds are to get."""
        rows = self._db.execute("SELECT DISTINCT ino FROM pending WHERE ino > 0 AND clock IS NOT NULL")
        return {ino for (ino,) in rows}

    def is_node_pending(self, node: bytes) -> bool:
        """Whether the clouds are to get a register that says something of a node."""
        query = f"SELECT 1 FROM pending p WHERE ({_OF_NODE}) AND NOT {_IS_HELD} LIMIT 1"
        return self._db.execute(query, (node,)).fetchone() is not None

    def packs(self) -> set[bytes]:
        """The registers of packs that the clouds lack."""
        return {key for (key,) in self._db.execute(f"SELECT key FROM pending WHERE {PACK.sql_rows()}")}
