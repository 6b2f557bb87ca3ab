"""A key-value store over clouds in memory."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from types import TracebackType

from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.ranking import Timing
from hybrisfs.environment import Environment, Limits
from hybrisfs.kv.collect import CollectLimits
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.rmds import DeviceStore
from hybrisfs.kv.seal import new_store_id
from hybrisfs.kv.store import KeyValueLimits
from tests.dispersal.fakes import CALM, Cluster, FakeClock

__all__ = ["CONTAINER", "KEY", "LONG", "PATIENT", "UNHURRIED", "Rig", "new_database"]

CONTAINER = "box"
KEY = b"k" * 32
LONG = 600.0  # seconds: nothing is collected unless a test does it
PATIENT = CollectLimits(patience=60.0)  # so that a busy machine does not make a cloud look late
UNHURRIED = Environment(limits=Limits(KeyValueLimits(cache_bytes=0, collect_seconds=LONG)))


def new_database(folder: Path) -> Path:
    """An empty metadata database."""
    path = folder / "kv.db"
    MetadataDatabase.create(path, new_store_id(KEY))
    return path


class Rig:
    """A store with one container over `size` clouds; a context manager."""

    def __init__(
        self,
        folder: Path,
        f: int = 1,
        k: int = 1,
        size: int = 3,
        *,
        timing: Timing = CALM,
        cache_bytes: int = 0,
        get_timeout: float = 30.0,
        mend_timeout: float = 10.0,
        collect: CollectLimits = PATIENT,
    ) -> None:
        self.path = new_database(folder)
        self.cluster = Cluster(f, k, size, timing)
        self.hanging = threading.Semaphore(0)  # released by each call to any cloud that begins to hang
        for store in self.cluster.stores:
            store.hanging = self.hanging
        self.clock = FakeClock()
        self._open = partial(
            DeviceStore,
            self.path,
            self.cluster.engine.values,
            KEY,
            Redundancy(f, k),
            environment=Environment(
                time_ns=lambda: int(self.clock() * 1e9),
                monotonic=lambda: time.monotonic() + self.clock(),
                limits=Limits(KeyValueLimits(cache_bytes, LONG, get_timeout, mend_timeout), collect),
            ),
        )
        self.store = self._open()
        self.store.create_container(CONTAINER)

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.__exit__()
        self.store.close()

    def reopen(self) -> None:
        """Open the store that is at `path` now, after the other one was closed."""
        self.store = self._open()

    def put(self, key: str, value: bytes) -> None:
        self.store.put(CONTAINER, key, value)

    def get(self, key: str) -> bytes:
        return self.store.get(CONTAINER, key).value

    def release(self) -> None:
        """Let all clouds answer again, and what hangs go on."""
        self.cluster.behave("ok")
        for store in self.cluster.stores:
            store.released.set()

    def objects(self) -> list[set[str]]:
        """What each cloud holds."""
        return [set(store.objects) for store in self.cluster.stores]

    def gets(self) -> int:
        """How many objects the clouds have been asked for."""
        return sum(store.requests.count("get") for store in self.cluster.stores)
