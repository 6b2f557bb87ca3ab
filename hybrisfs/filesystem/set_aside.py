"""Packs that the clouds have lost: what was in them is on no cloud until it has been put there anew.

A chunk whose pack is set aside counts as one that no cloud is known to have, so that its bytes stay where
they are, whatever members say of another place for it, until it has been read there. The table `spare`
remembers where it was (`lost`), in case that the clouds have it again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container
from typing import Final, NamedTuple

from hybrisfs.filesystem.chunks import CHUNK_COLUMNS, ELSEWHERE, ChunkRef
from hybrisfs.filesystem.discarded import rely_on_spares
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.store.database import Database

__all__ = [
    "IS_LOST",
    "Lost",
    "chunks_of",
    "lost_packs",
    "set_aside",
    "take_back",
    "what_is_lost",
]

_LOST: Final = (
    f"spare s JOIN chunk c ON c.number = s.chunk AND s.lost AND c.pack = {ELSEWHERE} "
    "JOIN pack p ON p.number = s.pack"
)
IS_LOST: Final = (
    "pack.n > 0 AND EXISTS (SELECT 1 FROM spare s JOIN chunk c ON c.number = s.chunk "
    f"WHERE s.pack = pack.number AND s.lost AND c.pack = {ELSEWHERE})"
)
"""Of a row of `pack`: it is set aside, and holds what no other pack does."""
_SHOWN: Final = (
    "EXISTS (SELECT 1 FROM file_chunk f WHERE f.chunk = c.number) "
    "OR EXISTS (SELECT 1 FROM content_page g WHERE g.chunk = c.number)"
)


class Lost(NamedTuple):
    """How many pieces of files no cloud has any more, how many bytes these are, and how many of the pieces
    are not on this device either."""

    chunks: int
    bytes: int
    absent: int


def set_aside(fs: FileSystem, pack: int, but: Container[int] = ()) -> None:
    """The clouds have lost the pack with this number. What other packs hold as well, except those of *but*,
    which they have lost, too, is read from there. The volume's lock is held."""
    rely_on_spares(fs, pack, but, gone=True)
    rows = fs.db.execute("SELECT number FROM chunk WHERE pack = ? AND pack > 0", (pack,)).fetchall()
    for (number,) in rows:
        fs.chunks.part(number)


def take_back(fs: FileSystem, pack: int) -> None:
    """The clouds have the pack with this number, after all. Chunks that are here are left to those who find
    out whether they are in it, unless that is known. The volume's lock is held."""
    rows = fs.db.execute(
        f"SELECT c.number FROM {_LOST} WHERE s.pack = ? AND p.n > 0 AND (s.proven OR c.segment IS NULL)",
        (pack,),
    ).fetchall()
    for (number,) in rows:
        fs.chunks.rely_on_spare(number, pack)


def lost_packs(db: Database | sqlite3.Connection) -> dict[int, bytes]:
    """The packs that are set aside and hold what no other pack does: their ids by their numbers."""
    return dict(db.execute(f"SELECT DISTINCT p.number, p.id FROM {_LOST} WHERE p.n > 0"))


def chunks_of(fs: FileSystem, pack: int) -> list[ChunkRef]:
    """The chunks that a pack which was set aside is known to hold, in their order there."""
    return [
        ChunkRef(*row)
        for row in fs.db.execute(
            f"SELECT {CHUNK_COLUMNS} FROM spare s JOIN chunk c ON c.number = s.chunk "
            "WHERE s.pack = ? ORDER BY s.offset",
            (pack,),
        )
    ]


def what_is_lost(db: Database | sqlite3.Connection, pack: int | None = None) -> Lost:
    """What files show of that which is set aside, all of it or that of one pack."""
    chunks, size, absent = db.execute(
        "SELECT count(*), total(length), total(segment IS NULL) FROM "
        f"(SELECT DISTINCT c.number, c.length, c.segment FROM {_LOST} WHERE p.n > 0 AND ({_SHOWN}) "
        "AND (?1 IS NULL OR s.pack = ?1))",
        (pack,),
    ).fetchone()
    return Lost(chunks, int(size), int(absent))
