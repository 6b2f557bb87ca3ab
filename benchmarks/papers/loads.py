"""Clients that put and get at the same time: at the levels of distrust, and of an open volume."""

from __future__ import annotations

import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backends.s3 import S3Store
from benchmarks.papers.distrust import Pair
from sync.update import SignedUpdate
from tests.volume.device import Device

__all__ = ["CLIENTS", "KEY_SIZE", "BoxClient", "Client", "LevelClient", "Load", "run_load"]

CLIENTS: Final = 8
KEY_SIZE: Final = 32


class Client(ABC):
    """What one thread of a load asks."""

    @abstractmethod
    def put(self, key: str, value: bytes) -> float:
        """Put; returns the seconds of it that the cloud took, 0 when that is not known."""

    @abstractmethod
    def get(self, key: str) -> float:
        """Get what was put, and check it; returns likewise."""


class LevelClient(Client):
    """Sends what a level of distrust makes to one S3 server."""

    def __init__(self, level: str, root: Path, store: S3Store) -> None:
        self._pair, self._store = Pair(level, root), store
        self._sent: dict[str, tuple[bytes, bytes | SignedUpdate, bytes]] = {}

    def put(self, key: str, value: bytes) -> float:
        version = os.urandom(KEY_SIZE)
        sent = self._pair.put(version, value)
        begun = time.perf_counter()
        self._store.put(key, sent.data if isinstance(sent, SignedUpdate) else sent)
        took = time.perf_counter() - begun
        self._sent[key] = version, sent, value
        return took

    def get(self, key: str) -> float:
        version, sent, value = self._sent[key]
        data = sent.data if isinstance(sent, SignedUpdate) else sent
        begun = time.perf_counter()
        found = self._store.get(key, limit=len(data))
        took = time.perf_counter() - begun
        self._pair.get(version, sent, value)
        if found != data:
            raise SystemExit("what was read is not what was written")
        return took


class BoxClient(Client):
    """Asks the key-value store of an open volume."""

    def __init__(self, device: Device, box: str) -> None:
        self._box, self._store = box, device.volume.key_values.of(box)
        self._written: dict[str, bytes] = {}

    def put(self, key: str, value: bytes) -> float:
        self._store.put(self._box, key, value)
        self._written[key] = value
        return 0.0

    def get(self, key: str) -> float:
        if self._store.get(self._box, key).value != self._written[key]:
            raise SystemExit("what was read is not what was written")
        return 0.0


@dataclass
class Load:
    """Seconds of each operation, all in all and of the cloud."""

    get: list[float] = field(default_factory=list)
    put: list[float] = field(default_factory=list)
    get_cloud: list[float] = field(default_factory=list)
    put_cloud: list[float] = field(default_factory=list)


def run_load(
    client: Callable[[int], Client], size: int, reads: int, seconds: float, interval: float, keys: int
) -> Load:
    """Let clients ask once in an *interval* each, so many of a hundred times for a read. Each puts all of its
    own *keys* first."""
    load, ready = Load(), threading.Barrier(CLIENTS)

    def work(number: int) -> None:
        one, chance = client(number), random.Random(number)
        names = [f"{number}-{key}" for key in range(keys)]
        for name in names:
            one.put(name, os.urandom(size))
        ready.wait()
        due = time.perf_counter() + interval * number / CLIENTS
        for _ in range(max(1, round(seconds / interval))):
            time.sleep(max(0.0, due - time.perf_counter()))
            due += interval
            name, value = chance.choice(names), os.urandom(size)
            begun = time.perf_counter()
            if chance.random() * 100 < reads:
                cloud = one.get(name)
                load.get.append(time.perf_counter() - begun)
                load.get_cloud.append(cloud)
            else:
                cloud = one.put(name, value)
                load.put.append(time.perf_counter() - begun)
                load.put_cloud.append(cloud)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(work, range(CLIENTS)))
    return load
