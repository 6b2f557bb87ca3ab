"""Stores of several devices over the same clouds, for tests of containers on the clouds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from hybrisfs.dispersal.ranking import Timing
from hybrisfs.kv.cloud_place import CloudPlace
from hybrisfs.kv.cloud_store import CloudStore
from hybrisfs.kv.containers import ANYBODY
from hybrisfs.quorums.runner import Runner
from sync import OneKey
from tests.dispersal.fakes import CALM, Cluster

KEY: Final = b"k" * 32
BIG: Final = os.urandom(1 << 20)
UNHURRIED: Final = replace(CALM, timers=replace(CALM.timers, first_pause=0.05))
"""Who meets a transaction waits for it, also on a busy machine."""
PLACES: Final = ("clouds", "clouds:pasis")


class Rig(Cluster):
    """Stores of several devices over the same clouds; a context manager."""

    def __init__(self, wish: str = "clouds", size: int = 5, f: int = 1, timing: Timing = CALM) -> None:
        super().__init__(f, 1, size, timing)
        self.place = CloudPlace.wished(wish, range(size), f)
        self.opened: list[CloudStore] = []
        self.store = self.open()
        self.store.create_container("box")

    def open(self, epoch_key: bytes = b"e" * 32) -> CloudStore:
        """The store as one more device has it."""
        store = CloudStore(
            self.place, Runner(self.engine.clouds, self.engine.environment), KEY, OneKey(epoch_key), ANYBODY
        )
        self.opened.append(store)
        return store

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for store in self.opened:
            store.close()

    @property
    def box(self) -> str:
        """What the names of all objects of the container begin with."""
        known = self.store._find("box")
        assert known is not None
        return self.store.keys.names.of_container(known.id.hex())

    @contextmanager
    def counting(self) -> Iterator[dict[str, int]]:
        """How many requests of each kind each cloud gets at the most."""
        self.rest()
        before = [len(store.requests) for store in self.stores]
        found: dict[str, int] = {}
        yield found
        self.rest()
        for store, start in zip(self.stores, before, strict=True):
            for kind in {*store.requests[start:]}:
                found[kind] = max(found.get(kind, 0), store.requests[start:].count(kind))

    def rest(self) -> None:
        """Let all that goes on at slow clouds come to its end."""
        for port in self.engine.clouds:
            workers = port._workers
            with workers._changed:
                workers._changed.wait_for(lambda: not (workers._running or workers._waiting))  # noqa: B023

    def clear(self) -> None:
        """What was overwritten is deleted now."""
        self.rest()
        overwritten = self.store.keys.overwritten
        for _, prefix, over in list(overwritten._waiting):
            self.store.keys._clear(prefix, over)

    def names(self) -> list[str]:
        """The names of all objects of all clouds."""
        self.rest()
        return [name for store in self.stores for name in store.objects]
