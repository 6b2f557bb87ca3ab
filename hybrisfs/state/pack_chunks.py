"""What packs hold: chunks that are read from a pack, that it holds besides, or that went with it.

A pack that the clouds have lost is *set aside* (`ChunkStore.set_aside`). It counts as lost as long as a chunk
that was read from it stands nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from hybrisfs.state.chunk_states import CHUNK_COLUMNS, ELSEWHERE, IS_SHOWN, ChunkRef
from hybrisfs.state.database import Reader

__all__ = [
    "Lost",
    "PackPlace",
    "chunks_of_lost_pack",
    "chunks_of_pack",
    "count_of_pack",
    "filled_packs",
    "lost_packs",
    "needs_of_pack",
    "neighbours",
    "owed_count",
    "owed_packs",
    "places_in_pack",
    "read_pack_near",
    "sealed_bytes",
    "what_is_lost",
]

_LOST: Final = (
    f"spare s JOIN chunk c ON c.number = s.chunk AND s.lost AND c.pack = {ELSEWHERE} "
    "JOIN pack p ON p.number = s.pack"
)
_IS_LOST: Final = (
    "pack.n > 0 AND EXISTS (SELECT 1 FROM spare s JOIN chunk c ON c.number = s.chunk "
    f"WHERE s.pack = pack.number AND s.lost AND c.pack = {ELSEWHERE})"
)
"""Of a row of `pack`: it is set aside, and holds what no other pack does."""
_IS_READ: Final = (
    "pack.n > 0 AND (EXISTS (SELECT 1 FROM chunk c WHERE c.pack = pack.number AND c.pack > 0 AND "
    "(pack.proven OR NOT EXISTS (SELECT 1 FROM spare s WHERE s.chunk = c.number AND s.proven))) "
    "OR EXISTS (SELECT 1 FROM spare s JOIN chunk c ON c.number = s.chunk "
    "WHERE s.pack = pack.number AND s.proven AND c.pack > 0 AND NOT c.proven))"
)
"""Of a row of `pack`: chunks are read from it. From others nothing is, though they may hold copies: what took
their place, after their code was changed or clouds had lost them, is read instead. Of a pack that only a
member says to have taken the place of another one, which this device knows, that one counts."""
_IS_OWED: Final = (
    f"(({_IS_READ}) OR {_IS_LOST}) AND NOT EXISTS (SELECT 1 FROM condemned d WHERE d.pack = pack.number)"
)
"""Of a row of `pack`: chunks are read from it, or the clouds have lost what no other pack holds. A pack that
this device has promised not to use again may be gone before it hears so."""


def chunks_of_pack(db: Reader, pack: int) -> list[ChunkRef]:
    """The chunks that are read from a pack, in their order there."""
    rows = db.execute(f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.pack = ? ORDER BY c.offset", (pack,))
    return [ChunkRef(*row) for row in rows]


def neighbours(db: Reader, ref: ChunkRef, within: int) -> Iterator[ChunkRef]:
    """The CLOUD_ONLY chunks of the same pack that were made next, up to so many numbers later."""
    rows = db.execute(
        f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.number > ? AND c.number <= ? AND c.pack = ? "
        "AND c.segment IS NULL ORDER BY c.number",
        (ref.number, ref.number + within, ref.pack),
    ).fetchall()
    return map(ChunkRef._make, rows)


def filled_packs(db: Reader) -> Iterator[tuple[bytes, int, int]]:
    """Placement and k of all packs, and how many bytes of sealed chunks are read from each."""
    for placement, k, sealed in db.execute(
        "WITH filled AS (SELECT pack, total(sealed) AS size FROM chunk WHERE pack > 0 GROUP BY pack) "
        "SELECT p.placement, p.k, coalesce(f.size, 0) FROM pack p LEFT JOIN filled f ON f.pack = p.number "
        "WHERE p.n > 0"
    ):
        yield placement, k, int(sealed)


# -- is it to be on the clouds? ----------------------------------------------------------------------------


class PackPlace(NamedTuple):
    """A pack, the cloud of each of its shares, and how many of these it takes to read it."""

    number: int
    id: bytes
    placement: bytes
    k: int


def owed_packs(db: Reader, after: int = 0, limit: int = -1) -> Iterator[PackPlace]:
    """The packs that are to be on the clouds, by number: those above *after*, up to *limit* of them unless
    that is negative."""
    rows = db.execute(
        f"SELECT number, id, placement, k FROM pack WHERE {_IS_OWED} AND number > ? ORDER BY number LIMIT ?",
        (after, limit),
    )
    return map(PackPlace._make, rows)


def owed_count(db: Reader) -> int:
    """How many packs are to be on the clouds."""
    (count,) = db.execute(f"SELECT count(*) FROM pack WHERE {_IS_OWED}").fetchone()
    return int(count)


def read_pack_near(db: Reader, cloud: int, number: int, *, below: bool = False) -> PackPlace | None:
    """A pack that chunks are read from and of which this cloud has a share: the first one from *number* on,
    or, with *below*, down from it."""
    where, order = ("number <= ?", "number DESC") if below else ("number >= ?", "number")
    row = db.execute(
        f"SELECT number, id, placement, k FROM pack WHERE {where} AND instr(placement, ?) "
        f"AND {_IS_READ} ORDER BY {order} LIMIT 1",
        (number, bytes((cloud,))),
    ).fetchone()
    return None if row is None else PackPlace(*row)


# -- may it go? ---------------------------------------------------------------------------------------------


def count_of_pack(db: Reader, pack: bytes) -> int:
    """How many chunks are read from the pack with this id."""
    (chunks,) = db.execute(
        "SELECT count(*) FROM chunk WHERE pack = (SELECT number FROM pack WHERE id = ?) AND pack > 0", (pack,)
    ).fetchone()
    return int(chunks)


def sealed_bytes(db: Reader, pack: int) -> int:
    """How many bytes of sealed chunks a pack is known to hold."""
    (sealed,) = db.execute(
        "SELECT (SELECT total(sealed) FROM chunk WHERE pack = ?1 AND pack > 0) + "
        "(SELECT total(sealed) FROM spare WHERE pack = ?1)",
        (pack,),
    ).fetchone()
    return int(sealed)


def needs_of_pack(db: Reader, pack: int) -> Iterator[tuple[int, bytes, int, int, int, int]]:
    """Of each chunk that a pack is said to hold: number, id and sealed length; whether it is read from
    elsewhere; whether it can do without this pack, as it goes to the clouds once more or has been read
    elsewhere; whether a file or a version shows it. The caller has made the table `kept_chunk`
    (`hybrisfs.versions.needs`)."""
    shown = f"{IS_SHOWN} OR EXISTS (SELECT 1 FROM kept_chunk k WHERE k.id = c.id)"
    return db.execute(
        f"SELECT c.number, c.id, c.sealed, 0, 0, {shown} FROM chunk c WHERE c.pack = ?1 AND c.pack > 0 "
        "UNION ALL SELECT c.number, c.id, s.sealed, 1, "
        f"CASE WHEN ifnull(c.pack, 0) = 0 THEN c.segment IS NOT NULL ELSE c.proven END, {shown} "
        "FROM spare s JOIN chunk c ON c.number = s.chunk WHERE s.pack = ?1",
        (pack,),
    )


def places_in_pack(db: Reader, pack: int) -> list[tuple[bytes, int, int, int, int]]:
    """(id, offset, sealed, length, whether it is read from there) of the chunks that a pack is said to hold,
    in their order there."""
    return db.execute(
        "SELECT id, offset, sealed, length, 1 FROM chunk WHERE pack = ?1 AND pack > 0 UNION ALL "
        "SELECT c.id, s.offset, s.sealed, c.length, 0 FROM spare s JOIN chunk c ON c.number = s.chunk "
        "WHERE s.pack = ?1 AND c.pack IS NOT ?1 ORDER BY 2",
        (pack,),
    ).fetchall()


# -- have the clouds lost it? -------------------------------------------------------------------------------


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
    """The chunks that files show and that are set aside: all of them, or those of one pack."""
    chunks, size, absent = db.execute(
        "SELECT count(*), total(length), total(segment IS NULL) FROM "
        f"(SELECT DISTINCT c.number, c.length, c.segment FROM {_LOST} WHERE p.n > 0 AND {IS_SHOWN} "
        "AND (?1 IS NULL OR s.pack = ?1))",
        (pack,),
    ).fetchone()
    return Lost(chunks, int(size), int(absent))
