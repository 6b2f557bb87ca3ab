"""What a volume asks of its clouds: as many requests as docs/internals/placement.md says, and no more."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from backends.errors import AuthError
from backends.store import MAX_PAGE, Buffer, Page, Store, StoreWrapper
from hybrisfs.dispersal.ranking import TimerBounds, Timing
from hybrisfs.dispersal.share import parse_share_name, sealed_table_size
from hybrisfs.state.packs import count_of_pack, owed_packs
from hybrisfs.write.pack import PackLimits
from tests.volume.device import PATIENCE, Device, Second
from tests.volume.middlemen import put_before

MOST_SAMPLES = 4 * 3 * (2 + 2 + 1)
"""In two hours on three clouds: of the newest share and a random one, with contents, and of an older one."""


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
        self.away = False
        """Whether it takes nothing."""

    def put(self, name: str, data: Buffer) -> None:
        if self.away:
            self._requests.note("refused", name)
            raise AuthError(self.url, "put", name, "not now")
        self._requests.note("put", name)
        super().put(name, data)

    def get(self, name: str, *, limit: int) -> bytes:
        data = b""
        try:
            data = super().get(name, limit=limit)
        finally:
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
    timing = Timing(timers=TimerBounds(shortest=PATIENCE, longest=PATIENCE))
    one = Device(tmp_path, limits=[timing, PackLimits(first_retry=0.01, last_retry=0.01)])
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
    assert count["get volume"] == 3 and 2 <= count["get packs"] <= 3 and len(count) == 2
    assert down < 200


def test_dropping_the_cache_looks_closely_before(device: Device, requests: Requests) -> None:
    device.volume.drop_cache()
    count, _ = requests.take()
    assert count["get volume"] == 3 and count["get packs"] >= 2


def hours(device: Device, count: float) -> None:
    """What the thread that looks at the clouds does in so many hours."""
    checkup = device.volume.checkup
    for _ in range(round(count * 60)):
        device.around.passed += 60
        checkup.step()


def test_the_newest_shares_are_asked_for_and_not_read(device: Device, requests: Requests) -> None:
    """Whether a cloud was set back shows by their first bytes."""
    hours(device, 0.1)
    requests.take()
    hours(device, 0.1)
    count, down = requests.take()
    assert 2 <= count["get packs"] <= 3 and len(count) == 1
    assert down <= 48


def test_who_waits_long_for_something_new_asks_for_the_newest_shares_less_often(
    device: Device, requests: Requests
) -> None:
    """As often as not for more than a tenth of the quiet, but each half hour: then samples are read, too."""
    hours(device, 5)
    requests.take()
    hours(device, 2)
    count, _ = requests.take()
    assert count["get volume"] == 4 * 3 and count["get packs"] <= MOST_SAMPLES
    device.write("note", os.urandom(4096))
    device.sync()
    hours(device, 0.2)
    requests.take()
    hours(device, 0.1)
    assert requests.take()[0]["get packs"] >= 2, "there is something new"


def test_a_header_is_read_at_once(device: Device, requests: Requests) -> None:
    """The database tells how many chunks a pack has, and so how long its table is."""
    with device.volume.fs.state.transaction() as tx:
        song = next(owed_packs(tx))
        expected = sealed_table_size(count_of_pack(tx, song.id), song.k, len(song.placement))
    sample = partial(device.volume.engine.upkeep.sample_share, song.placement[0], song.id, 0, most=0)
    assert sample(expected=expected) is None
    assert requests.take()[0] == {"get packs": 1}
    assert sample(expected=expected - 1) is None
    assert requests.take()[0] == {"get packs": 2}
    assert sample(expected=1 << 24) is None, "the object ends before that"
    assert requests.take()[0] == {"get packs": 2}


def test_the_shares_of_another_device_take_no_more_requests(device: Device, tmp_path: Path) -> None:
    """Though it has read none of them, so that only a member says that they are there."""
    requests = Requests()
    device.write("song", os.urandom(3 << 20))
    device.sync()
    second = Second(tmp_path / "second", device)
    try:
        until = time.monotonic() + PATIENCE
        packs = device.volume.maintenance.objects.expected.counts()[0]
        expected = second.volume.maintenance.objects.expected
        assert second.volume.signals.wait_until(lambda: expected.counts()[0] == packs, until)
        for folder in second.clouds:
            put_before(second, folder, lambda store: Counting(store, requests))
        hours(second, 5)
        requests.take()
        hours(second, 2)
        assert requests.take()[0]["get packs"] <= MOST_SAMPLES
        assert second.fsck(clouds=True).problems == []
    finally:
        second.close()


def test_signposts_are_seldom_listed(device: Device, tmp_path: Path, requests: Requests) -> None:
    """Within a day only the object `signpost` is looked at, on f+1 clouds."""
    second = Second(tmp_path / "second", device)
    second.close()
    signposts = device.volume._cloud_set._signposts
    until = time.monotonic() + PATIENCE
    assert device.volume.signals.wait_until(lambda: signposts._last is not None, until, step=0.01)
    signposts.read(closely=True)
    requests.take()
    for _ in range(6):
        signposts.read(closely=False)
    assert requests.take()[0] == {"get signpost": 6 * 2}
    device.around.passed += 86_400
    signposts.read(closely=False)
    count, _ = requests.take()
    assert (count["get signpost"], count["list signposts"]) == (3, 3)
    signposts.read(closely=False)
    assert "list signposts" not in requests.take()[0]


def test_what_one_cloud_took_while_the_others_were_away_is_not_sent_again(device: Device) -> None:
    requests = Requests()
    stores = [put_before(device, folder, lambda store: Counting(store, requests)) for folder in device.clouds]
    stores[0].away = stores[1].away = True
    device.write("song", os.urandom(3 << 20))
    until = time.monotonic() + PATIENCE
    assert device.volume.signals.wait_until(lambda: requests.count["refused packs"] > 20, until, step=0.01)
    stores[0].away = stores[1].away = False
    device.sync()
    count, _ = requests.take()
    assert count["put packs"] <= 3  # it may have been asked once more before it answered


def test_a_share_that_was_sent_before_a_restart_is_not_sent_again(device: Device) -> None:
    """Equal chunks in equal order make equal packs."""
    for folder in device.clouds[:2]:
        put_before(device, folder, lambda store: Counting(store, Requests())).away = True
    song = os.urandom(12 << 20)
    device.write("song", song)
    number = device.volume.config.clouds[2].number

    def shares() -> dict[str, int]:
        """Those on the third cloud; another inode tells that one was written again."""
        folder = device.clouds[2]
        return {str(path.relative_to(folder)): path.stat().st_ino for path in folder.glob("packs/*/*")}

    until = time.monotonic() + PATIENCE
    assert device.volume.signals.wait_until(lambda: bool(shares()), until, step=0.01)
    device.close()
    sent = shares()
    device.reopen()
    device.sync()
    holder = device.volume.maintenance.objects.expected.holder
    used = [name for name in sent if holder(*parse_share_name(name) or (b"", 0)) == number]
    assert used and all(shares()[name] == sent[name] for name in used)
    assert device.read("song") == song
    assert device.fsck(clouds=True).problems == []
