"""The volumes that are really there: `hybrisfs.volume` as the daemon wants to see it."""

from __future__ import annotations

from collections.abc import Sequence

from hybrisfs.daemon.interfaces import Config, OpenVolume
from hybrisfs.home import Home
from hybrisfs.volume.config import list_volumes
from hybrisfs.volume.create import create_volume
from hybrisfs.volume.volume import Volume

__all__ = ["LocalVolumes"]


class LocalVolumes:
    """A `hybrisfs.daemon.interfaces.VolumeKind`."""

    def create(self, home: Home, name: str, clouds: Sequence[str], f: int | None, k: int | None) -> Config:
        return create_volume(home, name, clouds, f, k)

    def open(self, home: Home, name: str) -> OpenVolume:
        return Volume.open(home, name)

    def list(self, home: Home) -> Sequence[Config]:
        return list_volumes(home)
