"""Which chunks the contents of files name (`hybrisfs.state.contents`), and where these are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from hybrisfs.kinds import CONTENT, PLACE, sql_node
from hybrisfs.state.bulk import select_many
from hybrisfs.state.chunk_states import CHUNK_COLUMNS, ELSEWHERE, IS_SHOWN, ChunkRef
from hybrisfs.state.database import Reader

__all__ = [
    "Whereabouts",
    "bytes_of_versions_alone",
    "chunk_named",
    "chunks_after",
    "hidden_contents",
    "is_at_hand",
    "is_known",
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


def parts_of_file(db: Reader, ino: int) -> Iterator[tuple[int, int, bytes]]:
    """Offset and length of each part of a file, and the id of its chunk; in order."""
    return db.execute(
        "SELECT f.offset, f.length, c.id FROM file_chunk f JOIN chunk c ON c.number = f.chunk "
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
    (`hybrisfs.versions.needs`)."""
    (size,) = db.execute(
        f"SELECT ifnull(sum(c.length), 0) FROM kept_chunk k JOIN chunk c ON c.id = k.id WHERE NOT {IS_SHOWN}"
    ).fetchone()
    return int(size)
