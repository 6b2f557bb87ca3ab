"""What packs hold: chunks that are read from a pack, that it holds besides, or that went with it.

A pack that the clouds have lost is *set aside* (`ChunkStore.set_aside`). It counts as lost as long as a chunk
that was read from it stands nowhere else.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hybrisfs.state.chunk_states import CHUNK_COLUMNS, ELSEWHERE, IS_SHOWN, ChunkRef, Reader

__all__ = ["IS_LOST", "Lost", "chunks_of_lost_pack", "lost_packs", "what_is_lost"]

_LOST: Final = (
    f"spare s JOIN chunk c ON c.number = s.chunk AND s.lost AND c.pack = {ELSEWHERE} "
    "JOIN pack p ON p.number = s.pack"
)
IS_LOST: Final = (
    "pack.n > 0 AND EXISTS (SELECT 1 FROM spare s JOIN chunk c ON c.number = s.chunk "
    f"WHERE s.pack = pack.number AND s.lost AND c.pack = {ELSEWHERE})"
)
"""Of a row of `pack`: it is set aside, and holds what no other pack does."""


class Lost(NamedTuple):
    """How many pieces of files no cloud has any more, how many bytes these are, and how many of the pieces
    are not on this device either."""

    chunks: int
    bytes: int
    absent: int


def lost_packs(db: Reader) -> dict[int, bytes]:
    """The packs that are set aside and hold what no other pack does: their ids by their numbers."""
    return dict(db.execute(f"SELECT DISTINCT p.number, p.id FROM {_LOST} WHERE p.n > 0"))


def chunks_of_lost_pack(db: Reader, pack: int) -> list[ChunkRef]:
    """The chunks that a pack which was set aside is known to hold, in their order there."""
    return [
        ChunkRef(*row)
        for row in db.execute(
            f"SELECT {CHUNK_COLUMNS} FROM spare s JOIN chunk c ON c.number = s.chunk "
            "WHERE s.pack = ? ORDER BY s.offset",
            (pack,),
        )
    ]


def what_is_lost(db: Reader, pack: int | None = None) -> Lost:
    """What files show of that which is set aside, all of it or that of one pack."""
    chunks, size, absent = db.execute(
        "SELECT count(*), total(length), total(segment IS NULL) FROM "
        f"(SELECT DISTINCT c.number, c.length, c.segment FROM {_LOST} WHERE p.n > 0 AND {IS_SHOWN} "
        "AND (?1 IS NULL OR s.pack = ?1))",
        (pack,),
    ).fetchone()
    return Lost(chunks, int(size), int(absent))
