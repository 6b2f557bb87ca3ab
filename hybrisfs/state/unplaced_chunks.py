"""Chunks that no cloud is known to have, and that others bring there; and the files that show them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from hybrisfs.state.chunk_states import ELSEWHERE
from hybrisfs.state.database import Reader

__all__ = [
    "UnplacedContent",
    "awaited",
    "files_lacking",
    "held_of",
    "is_any_unplaced",
    "unplaced_content",
    "unproven",
]

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
