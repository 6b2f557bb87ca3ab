"""What clouds do not list of that which they took: where one thing is missing, others may be.

A list costs one request for a thousand objects. It is a hint only, for a cloud may leave out what it has:
what is to be done about it is decided by reading.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from hybrisfs.clouds.holdings import Holdings
from hybrisfs.dispersal.share import share_name
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.state.pack_chunks import PackPlace

__all__ = ["Absent", "audit"]

_MOST_NAMES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Absent:
    """The packs of which clouds do not list shares, with these clouds, those first that lack most; and own
    segments of the log."""

    packs: Mapping[PackPlace, Collection[int]]
    segments: Collection[str]

    def lost(self) -> list[PackPlace]:
        """The packs that could not be read if these lists were true."""
        return [pack for pack, clouds in self.packs.items() if len(pack.placement) - len(clouds) < pack.k]


def audit(holdings: Holdings, upkeep: Upkeep, clouds: Collection[int]) -> Absent:
    """Compare what *clouds* list with what is on record there. One that does not tell lacks nothing."""
    packs, segments = list(holdings.packs()), list(holdings.segments())  # before the lists
    shares = {cloud: upkeep.names(cloud, "packs/", _MOST_NAMES) for cloud in clouds}
    logs = {cloud: upkeep.names(cloud, "log/", _MOST_NAMES) for cloud in clouds}
    listed = {cloud: frozenset(names) for cloud, names in shares.items() if names is not None}
    logged = {cloud: frozenset(names) for cloud, names in logs.items() if names is not None}
    absent = {
        pack: [
            cloud
            for index, cloud in enumerate(pack.placement)
            if cloud in listed and share_name(pack.id, index) not in listed[cloud]
        ]
        for pack in packs
    }
    found = sorted((one for one in absent.items() if one[1]), key=lambda one: -len(one[1]))
    return Absent(
        dict(found),
        [
            one.name
            for one in segments
            if any(cloud in logged and one.name not in logged[cloud] for cloud in one.placement)
        ],
    )
