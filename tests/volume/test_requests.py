"""What a volume asks of its clouds: as many requests as docs/internals/placement.md says, and no more."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.store import MAX_PAGE, Buffer, Page, Store, StoreWrapper
from hybrisfs.dispersal.ranking import TimerBounds, Timing
from tests.volume.device import PATIENCE, Device
from tests.volume.middlemen import put_before


class Requests:
    """Those to all clouds: how many by kind and folder, and how many bytes came back. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count: Counter[str] = Counter()
        self.down = 0

    def note(self, kind: str, name: str, down: int = 0) -> None:
        with self._lock:
            self.count[f"{kind} {name.split('/')[0]}"] += 1
            self.down += down

    def take(self) -> tuple[dict[str, int], int]:
        """What there was since the last time."""
        with self._lock:
            count, down = dict(self.count), self.down
            self.count.clear()
            self.down = 0
        return count, down


class Counting(StoreWrapper):
    def __init__(self, store: Store, requests: Requests) -> None:
        super().__init__(store)
        self._requests = requests

    def put(self, name: str, data: Buffer) -> None:
        self._requests.note("put", name)
        super().put(name, data)

    def get(self, name: str, *, limit: int) -> bytes:
        data = super().get(name, limit=limit)
        self._requests.note("get", name, len(data))
        return data

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        data = super().get_range(name, offset, length)
        self._requests.note("get", name, len(data))
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        self._requests.note("look", name)
        return super().get_if_changed(name, tag, limit=limit)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        self._requests.note("list", prefix)
        return super().list(prefix, after=after, limit=limit)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A device whose clouds never count as late, so that no other one stands in."""
    one = Device(tmp_path, limits=[Timing(timers=TimerBounds(shortest=PATIENCE, longest=PATIENCE))])
    yield one
    one.close()


@pytest.fixture
def requests(device: Device) -> Requests:
    """Requests from the second change on, when the head is on all clouds because they have been searched."""
    requests = Requests()
    for folder in device.clouds:
        put_before(device, folder, lambda store: Counting(store, requests))
    device.write("song", os.urandom(3 << 20))
    device.sync()
    volume = device.volume
    clouds, puller = set(volume.engine.numbers), volume.following.puller
    until = time.monotonic() + PATIENCE
    assert volume.signals.wait_until(lambda: clouds <= puller.earlier_heads().clouds, until)
    assert volume.writing.announce()
    requests.take()
    return requests


def test_a_small_change(device: Device, requests: Requests) -> None:
    """f+k copies of the pack, f+k of the log segment, and a head for each cloud."""
    device.write("note", os.urandom(4096))
    device.sync()
    assert requests.take() == ({"put packs": 2, "put log": 2, "put heads": 3}, 0)


def test_waiting_for_what_is_on_the_clouds_already(device: Device, requests: Requests) -> None:
    device.sync()
    assert requests.take() == ({}, 0)


def test_the_status(device: Device, requests: Requests) -> None:
    """Is each cloud there, and is its newest share? No share is read."""
    device.volume.status()
    count, down = requests.take()
    assert count == {"get volume": 3, "get packs": 2}
    assert down < 200


def test_dropping_the_cache_looks_closely_before(device: Device, requests: Requests) -> None:
    device.volume.drop_cache()
    count, _ = requests.take()
    assert count["get volume"] == 3 and count["get packs"] >= 2
