"""The clouds as those see them that write and read packs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hybrisfs.dispersal.pack import EncodedPack
from hybrisfs.dispersal.runs import ChunkLocation
from hybrisfs.topic import Topic

__all__ = ["PackClouds"]


class PackClouds(Protocol):
    """The engine, or clouds in memory."""

    opened: Topic[[]]
    """There is one cloud more."""

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the clouds that are open."""

    def put_pack(self, pack: EncodedPack, /) -> Sequence[int]:
        """Store all shares; return the cloud of each. Raises CloudsUnavailable."""

    def get_chunks(self, locations: Sequence[ChunkLocation], /) -> list[bytes]:
        """Return chunks of one pack. Raises ChunkUnavailable."""

    def find_shares(self, pack_id: bytes, n: int, /) -> Sequence[int]:
        """Return the cloud of each of the `n` shares of a pack, as `Upkeep.find_shares` does."""
