"""The key-value store of a volume whose clouds are in memory, for a daemon that tests ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hybrisfs.api.key_value import ON_DEVICE, Place
from hybrisfs.daemon.service import Daemon
from hybrisfs.errors import UsageError
from hybrisfs.kv.containers import ContainerStore, Key
from hybrisfs.kv.log_moves import MovedContainer
from hybrisfs.kv.migrate import Moved
from hybrisfs.kv.rebuild import Orphans, RebuiltMetadata
from tests.daemon.fake import FakeVolumes
from tests.kv.rig import KEY, Rig

__all__ = ["Stored", "rig_of"]


class Stored(NamedTuple):
    """What a volume offers: one store, whatever place is asked for."""

    rig: Rig
    place: str = ON_DEVICE
    """Where the metadata are, as far as clients are told."""
    beside: Sequence[str] = ()
    """What a move says that it has put beside other values."""

    def of(self, container: str) -> ContainerStore:
        self.rig.store.metadata.container(container)
        return self.rig.store

    def create_container(self, container: str, place: str | None) -> str:
        if place not in (None, ON_DEVICE):
            raise UsageError(f"{place!r} is not the URL of an etcd")
        self.rig.store.create_container(container)
        return ON_DEVICE

    def delete_container(self, container: str) -> None:
        self.rig.store.delete_container(container)

    def migrate(self, container: str, place: str, step: Callable[[str, int, int], None]) -> Moved:
        step("keys", 3, 3)
        return Moved(3, self.beside)

    def containers(self) -> list[Place]:
        return [Place(self.place, list(self.rig.store.containers()), "")]

    def only_here(self) -> list[str]:
        return list(self.rig.store.containers()) if self.place == ON_DEVICE else []

    def session(self, seen: str | None, patience: float) -> str:
        return seen or "session"

    def conflicts(self) -> Sequence[tuple[Key, int]]:
        return []

    def moved(self) -> Sequence[MovedContainer]:
        return []

    def forget_service(self, url: str) -> None:
        raise UsageError(f"the volume uses no service {url!r}")

    def orphans(self, trusted: Collection[int]) -> Orphans:
        engine = self.rig.cluster.engine
        return Orphans(self.rig.store, KEY, engine.upkeep, engine.numbers)

    def rebuild(self) -> tuple[Path, RebuiltMetadata]:
        return Path("/state/aside"), RebuiltMetadata(same_store=True, keys=3, damaged=1)


@contextmanager
def rig_of(volume: str, daemon: Daemon, volumes: FakeVolumes, folder: Path) -> Iterator[Rig]:
    """Start a daemon one of whose volumes has a store."""
    daemon.start()
    with Rig(folder) as rig:
        volumes.opened[volume].key_values = Stored(rig)
        yield rig
