"""The chunks of files: the tables `file_chunk`, `content_page` and `unlisted`, and where these chunks are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from hybrisfs.kinds import CONTENT, PLACE, sql_node
from hybrisfs.state.bulk import insert_many, select_many
from hybrisfs.state.chunk_states import CHUNK_COLUMNS, ELSEWHERE, IS_SHOWN, MAX_CHUNK, ChunkRef
from hybrisfs.state.database import Reader, RowWriter

__all__ = [
    "BaseRow",
    "ContentPage",
    "ContentTable",
    "Part",
    "RecentParts",
    "Whereabouts",
    "bytes_of_versions_alone",
    "chunk_named",
    "chunks_after",
    "hidden_contents",
    "is_at_hand",
    "is_known",
    "of_small_files",
    "packs_of_file",
    "pages_of_file",
    "parts_of_file",
    "shown_only_by",
    "whereabouts",
]

_CHUNKS: Final = "chunk c WHERE c.number IN (SELECT chunk FROM file_chunk WHERE ino = :ino)"
_SHOWN_BY: Final = (
    "SELECT f.chunk, n.content_stamp & 65535 FROM "
    "(SELECT ino, chunk FROM file_chunk UNION ALL SELECT ino, chunk FROM content_page) f "
    "JOIN node n ON n.ino = f.ino WHERE f.chunk IN (VALUES {})"
)
"""Chunks, and the numbers of the writers of the contents that show them."""
_PAGES: Final = "chunk c WHERE c.number IN (SELECT chunk FROM content_page WHERE ino = :ino)"
_FIRST_PLACE: Final = PLACE.sql_key(sql_node("r.key"))
_LAST_PLACE: Final = PLACE.sql_key(f"{sql_node('r.key')} || x'ffffffffffffffffffff'")
# Contents that are not just what their file shows, unless all names of the file say that it was removed: a
# place of a file ends in these two bytes then (its flags, with or without `yields`, and no `former`), and no
# name can.
_HIDDEN: Final = f"""
SELECT r.value FROM register r
WHERE {CONTENT.sql_rows("r.key")} AND r.value IS NOT NULL
AND NOT EXISTS (
    SELECT 1 FROM node n WHERE n.id = {sql_node("r.key")} AND n.content_stamp = (r.clock << 16 | r.writer)
    AND NOT EXISTS (SELECT 1 FROM pending q WHERE q.key = r.key AND q.clock IS NULL)
)
AND (
    NOT EXISTS (SELECT 1 FROM register p WHERE p.key >= {_FIRST_PLACE}
                AND p.key < {_LAST_PLACE})
    OR EXISTS (SELECT 1 FROM register p WHERE p.key >= {_FIRST_PLACE}
               AND p.key < {_LAST_PLACE}
               AND (p.value IS NULL OR substr(p.value, -2) NOT IN (x'0100', x'0300')))
)
"""


def chunks_after(db: Reader, number: int, limit: int) -> list[ChunkRef]:
    """Up to *limit* chunks that stand after this one in a file, of several files one."""
    rows = db.execute(
        f"SELECT {CHUNK_COLUMNS} FROM file_chunk f JOIN chunk c ON c.number = f.chunk, "
        "(SELECT ino, offset FROM file_chunk WHERE chunk = ? LIMIT 1) this "
        "WHERE f.ino = this.ino AND f.offset > this.offset ORDER BY f.offset LIMIT ?",
        (number, limit),
    ).fetchall()
    return [ChunkRef(*row) for row in rows]


def of_small_files(db: Reader, refs: Iterable[ChunkRef], size: int) -> list[ChunkRef]:
    """Those of the chunks that files of less than *size* bytes show, in the same order."""
    query = (
        "SELECT f.chunk FROM file_chunk f JOIN node n ON n.ino = f.ino "
        f"WHERE f.chunk IN (VALUES {{}}) AND n.size < {size:d}"
    )
    by_number = {ref.number: ref for ref in refs}
    found = {number for (number,) in select_many(db, query, [(number,) for number in by_number])}
    return [ref for number, ref in by_number.items() if number in found]


def parts_of_file(db: Reader, ino: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Offset and length of each part of a file, from which byte of its chunk on, and the chunk's id; in
    order."""
    return db.execute(
        "SELECT f.offset, f.length, f.skip, c.id FROM file_chunk f JOIN chunk c ON c.number = f.chunk "
        "WHERE f.ino = ? ORDER BY f.offset",
        (ino,),
    )


def pages_of_file(db: Reader, ino: int) -> set[bytes]:
    """The ids of the chunks in which the list of a file's chunks stands."""
    rows = db.execute(
        "SELECT c.id FROM content_page p JOIN chunk c ON c.number = p.chunk WHERE p.ino = ?", (ino,)
    )
    return {identity for (identity,) in rows}


class Whereabouts(NamedTuple):
    """Of the chunks of a file: whether any is not here (pages do not count), whether others have yet to say
    where one is, and whether this device has yet to bring one to the clouds."""

    absent: bool
    elsewhere: bool
    pending: bool


def whereabouts(db: Reader, ino: int) -> Whereabouts:
    """Where the chunks of a file are, and its pages."""
    absent, elsewhere, pending = db.execute(
        f"SELECT total(c.segment IS NULL), total(c.pack = {ELSEWHERE}), total(c.pack IS NULL) FROM {_CHUNKS}",
        {"ino": ino},
    ).fetchone()
    pages_elsewhere, pages_pending = db.execute(
        f"SELECT total(c.pack = {ELSEWHERE}), total(c.pack IS NULL) FROM {_PAGES}", {"ino": ino}
    ).fetchone()
    return Whereabouts(bool(absent), bool(elsewhere or pages_elsewhere), bool(pending or pages_pending))


def packs_of_file(db: Reader, ino: int) -> list[bytes]:
    """The ids of the packs from which the chunks of a file are read."""
    rows = db.execute(f"SELECT id FROM pack WHERE number IN (SELECT c.pack FROM {_CHUNKS})", {"ino": ino})
    return [identity for (identity,) in rows]


# -- by their ids, as registers name them -----------------------------------------------------------------


def chunk_named(db: Reader, identity: bytes) -> ChunkRef | None:
    """The chunk with this id; None when this device does not know it, or has dropped it."""
    row = db.execute(f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.id = ?", (identity,)).fetchone()
    return None if row is None else ChunkRef(*row)


def is_known(db: Reader, identity: bytes) -> bool:
    """Whether there is a chunk with this id, wherever it is."""
    return db.execute("SELECT 1 FROM chunk WHERE id = ?", (identity,)).fetchone() is not None


def is_at_hand(db: Reader, identity: bytes) -> bool:
    """Whether a chunk is here, or a cloud is known to have it."""
    ref = chunk_named(db, identity)
    return ref is not None and (ref.is_here or ref.is_on_clouds)


def shown_only_by(db: Reader, writer: bytes, chunks: Collection[int]) -> set[int]:
    """Those of the chunks that files show, and only files that the device of this branch wrote."""
    rows = select_many(db, _SHOWN_BY, [(number,) for number in chunks])
    own = {
        number
        for (number,) in db.execute(
            "SELECT w.number FROM log_branch b JOIN log_branch o ON o.device = b.device "
            "JOIN writer w ON w.branch = o.id WHERE b.id = ?",
            (writer,),
        )
    }
    found, others = set[int](), set[int]()
    for chunk, author in rows:
        (found if author in own else others).add(chunk)
    return found - others


def hidden_contents(db: Reader) -> Iterator[bytes]:
    """The values of content registers that the view does not show, and may show again without another one
    being written: concurrent values, contents hidden by changes that are not signed yet or are held, those of
    files without a name so far. Not those of files that have been removed by all their names."""
    return (value for (value,) in db.execute(_HIDDEN))


def bytes_of_versions_alone(db: Reader) -> int:
    """The sum of the lengths of the chunks in `kept_chunk` that no file shows. The caller has made that table
    (`hybrisfs.versions.contents`)."""
    (size,) = db.execute(
        f"SELECT ifnull(sum(c.length), 0) FROM kept_chunk k JOIN chunk c ON c.id = k.id WHERE NOT {IS_SHOWN}"
    ).fetchone()
    return int(size)


# -- the chunks of files: the tables `file_chunk`, `content_page` and `unlisted` ------------------------
# A file shows chunks by its *parts*, which never overlap. The list of a long file's chunks stands in chunks
# itself, its *pages*. Until these have been read the file has no parts: it is *unlisted*. So is a file, until
# it is read, of which the program before this one could not read the list.


Part: TypeAlias = tuple[int, int, int, int, int]
"""The inode of a file, the offset and length of a part, the number of the chunk that it shows, and from
which byte of that on."""
_INSERT: Final = "INSERT INTO file_chunk (ino, offset, length, chunk, skip) VALUES {}"


class BaseRow(Struct, frozen=True):
    """A part of a file in chunks: *length* bytes of *chunk*, from byte *skip* of it on, stand at *offset*."""

    offset: int
    length: int
    skip: int
    chunk: ChunkRef

    @property
    def end(self) -> int:
        return self.offset + self.length

    def between(self, start: int, end: int) -> BaseRow:
        """Of the part what stands from *start* to *end*, which are in it."""
        return BaseRow(start, end - start, self.skip + start - self.offset, self.chunk)


class ContentPage(NamedTuple):
    """A page of the list of a file's chunks: it lists those of *length* bytes of the file from *start* on."""

    start: int
    length: int
    chunk: int
    """Its number."""
    id: bytes

    @property
    def end(self) -> int:
        return self.start + self.length


class ContentTable:
    """The contents of one volume's files, under its lock; or as a snapshot shows them, without it."""

    def __init__(self, db: Reader) -> None:
        self._db = db

    def clear(self, ino: int) -> None:
        """Remove all parts and pages of a file."""
        self._db.execute("DELETE FROM file_chunk WHERE ino = ?", (ino,))
        self._db.execute("DELETE FROM content_page WHERE ino = ?", (ino,))

    # -- parts -----------------------------------------------------------------------------------

    def parts_between(self, ino: int, start: int, end: int, longest: int) -> list[BaseRow]:
        """The parts of a file that touch start..end, in order. None is of more than *longest* bytes."""
        rows = self._db.execute(
            f"SELECT f.offset, f.length, f.skip, {CHUNK_COLUMNS} "
            "FROM file_chunk f JOIN chunk c ON c.number = f.chunk "
            "WHERE f.ino = ? AND f.offset > ? AND f.offset < ? ORDER BY f.offset",
            (ino, start - longest, end),
        ).fetchall()
        return [_row(*row) for row in rows if row[0] + row[1] > start]

    def chunks_of(self, ino: int) -> list[int]:
        """The numbers of the chunks that a file shows parts of, some perhaps several times."""
        rows = self._db.execute("SELECT chunk FROM file_chunk WHERE ino = ?", (ino,))
        return [number for (number,) in rows]

    def add_parts(self, parts: Sequence[Part]) -> None:
        """Let files show these parts, too."""
        insert_many(self._db, _INSERT, parts)

    def set_parts(self, ino: int, parts: Sequence[Part]) -> None:
        """Let a file show these parts and no others."""
        self._db.execute("DELETE FROM file_chunk WHERE ino = ?", (ino,))
        self.add_parts(parts)

    def replace_parts(self, ino: int, regions: Iterable[tuple[int, int]], parts: Iterable[Part]) -> None:
        """Let a file show new parts instead of those that begin in *regions*, which are given as (start,
        end)."""
        self._db.executemany(
            "DELETE FROM file_chunk WHERE ino = ? AND offset >= ? AND offset < ?",
            [(ino, start, end) for start, end in regions],
        )
        self._db.executemany(_INSERT.format("(?, ?, ?, ?, ?)"), parts)

    def cut_off(self, ino: int, size: int) -> int:
        """Let a file show no part from *size* on; by how many bytes it shows less."""
        cut = 0
        last = self._db.execute(
            "SELECT offset, length FROM file_chunk WHERE ino = ? AND offset < ? ORDER BY offset DESC LIMIT 1",
            (ino, size),
        ).fetchone()
        if last is not None and sum(last) > size:
            offset, length = last
            cut = offset + length - size
            query = "UPDATE file_chunk SET length = ? WHERE ino = ? AND offset = ?"
            self._db.execute(query, (size - offset, ino, offset))
        (gone,) = self._db.execute(
            "SELECT total(length) FROM file_chunk WHERE ino = ? AND offset >= ?", (ino, size)
        ).fetchone()
        if gone:
            self._db.execute("DELETE FROM file_chunk WHERE ino = ? AND offset >= ?", (ino, size))
        return cut + int(gone)

    # -- pages -----------------------------------------------------------------------------------

    def add_pages(self, pages: Iterable[tuple[int, int]]) -> None:
        """The list of a file's chunks stands in this chunk, too: the inode of each file, and the chunk."""
        self._db.executemany("INSERT OR IGNORE INTO content_page (ino, chunk) VALUES (?, ?)", pages)

    def drop_pages(self, ino: int) -> None:
        """The list of a file's chunks stands in no chunks any more."""
        self._db.execute("DELETE FROM content_page WHERE ino = ?", (ino,))

    # -- files that are unlisted -----------------------------------------------------------------

    def unlisted(self) -> set[int]:
        """All files that are unlisted."""
        return {ino for (ino,) in self._db.execute("SELECT ino FROM unlisted")}

    def value_unlisted(self, ino: int) -> bytes | None:
        """The content register of a file that is unlisted; None of others."""
        row = self._db.execute("SELECT value FROM unlisted WHERE ino = ?", (ino,)).fetchone()
        return None if row is None else bytes(row[0])

    def leave_unlisted(self, ino: int, value: bytes) -> None:
        """A file, which is not unlisted, has this content register; its pages have yet to be read."""
        self._db.execute("INSERT INTO unlisted VALUES (?, ?)", (ino, value))

    def end_unlisted(self, ino: int) -> None:
        """A file is not unlisted any more."""
        self._db.execute("DELETE FROM unlisted WHERE ino = ?", (ino,))


# -- the parts that were read last ----------------------------------------------------------------------
# Half of the time of a small read was the query for its part. Parts are kept by windows of the file, as long
# as no row of the database changes: so nothing has to say that it moves a chunk or changes a file. (What a
# savepoint takes back are rows of the log only.)


_WINDOW: Final = 16 << 20
_MOST_PARTS: Final = 8192
"""About 3 MiB of memory, and 8 GiB of large files."""


class RecentParts:
    """The parts of the files that are being read. Under the volume's lock."""

    def __init__(self, most: int = _MOST_PARTS) -> None:
        self._most = most
        self._as_of = -1
        self._windows: dict[tuple[int, int], tuple[list[int], list[BaseRow]]] = {}
        self._parts = 0

    def between(self, db: RowWriter, ino: int, start: int, end: int) -> Sequence[BaseRow]:
        """The parts of a file that touch start..end, in order. None is of more than `MAX_CHUNK` bytes."""
        window = start // _WINDOW
        if (end - 1) // _WINDOW != window:
            return ContentTable(db).parts_between(ino, start, end, MAX_CHUNK)
        as_of = db.total_changes()
        if as_of != self._as_of or self._parts > self._most:
            self._windows.clear()
            self._as_of, self._parts = as_of, 0
        found = self._windows.get((ino, window))
        if found is None:
            found = self._windows[ino, window] = _read_window(db, ino, window * _WINDOW)
            self._parts += len(found[1]) + 1
        offsets, rows = found
        first = max(bisect_right(offsets, start) - 1, 0)
        if first < len(rows) and rows[first].offset + rows[first].length <= start:
            first += 1
        last = first
        while last < len(rows) and offsets[last] < end:
            last += 1
        return rows[first:last]


def _row(offset: int, length: int, skip: int, *chunk: Any) -> BaseRow:
    return BaseRow(offset, length, skip, ChunkRef(*chunk))


def _read_window(db: RowWriter, ino: int, start: int) -> tuple[list[int], list[BaseRow]]:
    rows = ContentTable(db).parts_between(ino, start, start + _WINDOW, MAX_CHUNK)
    return [row.offset for row in rows], rows
