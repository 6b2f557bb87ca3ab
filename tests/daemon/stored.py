"""The key-value store of a made-up volume: a real one, over clouds in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from hybrisfs.kv.salvage import Orphans, Salvaged
from hybrisfs.kv.store import KeyValueStore
from tests.kv.rig import KEY, Rig

__all__ = ["Stored"]


class Stored(NamedTuple):
    """What the volume offers."""

    rig: Rig

    def open(self) -> KeyValueStore:
        return self.rig.store

    def orphans(self, trusted: Callable[[], Collection[int]]) -> Orphans:
        engine = self.rig.cluster.engine
        return Orphans(self.rig.store, KEY, engine.upkeep, lambda: engine.numbers)

    def rebuild(self) -> tuple[Path, Salvaged]:
        return Path("/state/aside"), Salvaged(same_store=True, keys=3, damaged=1)
