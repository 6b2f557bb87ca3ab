"""Grouping chunks of one pack into runs that are worth one ranged request each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hybrisfs.dispersal.erasure import fragment_length
from hybrisfs.dispersal.seal import MAX_SEALED

__all__ = ["ChunkLocation", "plan_runs"]

MAX_RUN = 4 * MAX_SEALED  # bytes fetched by one request
MAX_GAP = 32 << 10  # bytes read in vain rather than to ask again


class ChunkLocation(NamedTuple):
    """Where a chunk is: cloud `placement[i]` holds share i, its fragment begins at `offset` in each share.

    `owed`: this device knows that the clouds have acknowledged the pack; else somebody says so.
    """

    pack_id: bytes
    k: int
    n: int
    placement: tuple[int, ...]
    chunk_id: bytes
    length: int
    offset: int
    sealed_length: int
    owed: bool = True


def plan_runs(locations: Sequence[ChunkLocation]) -> list[list[ChunkLocation]]:
    """Return the chunks by offset, cut into runs. ValueError when they are of several packs."""
    runs: list[list[ChunkLocation]] = []
    start = end = 0
    for location in sorted(set(locations), key=lambda item: item.offset):
        if runs and location[:4] != runs[0][0][:4]:
            raise ValueError("the chunks of a run are of one pack")
        after = location.offset + fragment_length(location.k, location.sealed_length)
        if not runs or location.offset - end > MAX_GAP or after - start > MAX_RUN:
            runs.append([])
            start = location.offset
        runs[-1].append(location)
        end = max(end, after)
    return runs
