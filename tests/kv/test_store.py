"""The key-value store: what operations do, what is on the clouds, and the worst cases one by one."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.errors import UsageError
from hybrisfs.kv.containers import Key
from hybrisfs.kv.errors import ConditionNotMetError, NoSuchContainerError, NoSuchKeyError
from hybrisfs.kv.record import ABSENT, MAX_VALUE, PRESENT, Condition
from tests.dispersal.fakes import HASTY
from tests.kv.rig import CONTAINER, Rig

BIG = os.urandom(3 << 20)


@pytest.mark.parametrize(("f", "k", "size"), [(1, 1, 3), (1, 2, 4), (2, 1, 5)])
@pytest.mark.parametrize("value", [b"", b"small", BIG])
def test_put_get_delete(tmp_path: Path, f: int, k: int, size: int, value: bytes) -> None:
    with Rig(tmp_path, f, k, size) as rig:
        with pytest.raises(NoSuchKeyError):
            rig.get("key")
        rig.put("key", value)
        assert rig.get("key") == value
        holders = [objects for objects in rig.objects() if objects]
        coded = k > 1 and len(value) > 1 << 20
        assert len(holders) == (f + k if coded else f + 1)
        assert len(set().union(*holders)) == (f + k if coded else 1)
        rig.store.delete(CONTAINER, "key")
        with pytest.raises(NoSuchKeyError):
            rig.get("key")
        assert rig.store.delete(CONTAINER, "key") is None
        assert not rig.store.collector.collect()
        assert not any(rig.objects())


def test_of_two_deletes_at_the_same_time_one_finds_nothing(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig, ThreadPoolExecutor(4) as pool:
        for _ in range(50):
            rig.put("key", b"value")
            deletes = [pool.submit(rig.store.delete, CONTAINER, "key") for _ in range(4)]
            assert sum(one.result() is not None for one in deletes) == 1


def test_a_write_takes_place_only_if_its_condition_holds(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        put, delete = rig.store.put, rig.store.delete
        first = put(CONTAINER, "key", b"one", ABSENT)
        with pytest.raises(
            ConditionNotMetError, match=f"box/key has version 1 .tag {first.tag}, 3 bytes., not none"
        ):
            put(CONTAINER, "key", b"two", ABSENT)
        second = put(CONTAINER, "key", b"two", Condition(tag=first))
        for wrong in (Condition(tag=first), Condition(version=1), ABSENT):
            with pytest.raises(ConditionNotMetError):
                put(CONTAINER, "key", b"three", wrong)
            with pytest.raises(ConditionNotMetError):
                delete(CONTAINER, "key", wrong)
            with pytest.raises(ConditionNotMetError):
                rig.store.tput({Key(CONTAINER, "other"): b"x"}, {Key(CONTAINER, "key"): wrong})
        assert (rig.get("key"), rig.store.list(CONTAINER)[0].timestamp) == (b"two", second)
        assert [one.key for one in rig.store.list(CONTAINER)] == ["key"]
        rig.store.collector.collect()
        assert sum(map(len, rig.objects())) == 2, "what was not written is not on any cloud"
        assert delete(CONTAINER, "key", Condition(version=2)) is not None
        with pytest.raises(ConditionNotMetError, match="has no value"):
            delete(CONTAINER, "key", PRESENT)


def test_a_condition_is_not_only_checked_at_the_start(tmp_path: Path) -> None:
    """Whoever was there first while a value went up has won."""
    with Rig(tmp_path) as rig, ThreadPoolExecutor(1) as pool:
        rig.cluster.behave("hang")
        slow = pool.submit(rig.store.put, CONTAINER, "key", b"slow", ABSENT)
        assert all(rig.hanging.acquire(timeout=20) for _ in range(2))
        rig.cluster.behave("ok")
        rig.store.put(CONTAINER, "key", b"quick", ABSENT)
        rig.release()
        with pytest.raises(ConditionNotMetError):
            slow.result()
        assert rig.get("key") == b"quick"


def test_edits_lose_nothing(tmp_path: Path) -> None:
    def append(word: bytes) -> None:
        rig.store.edit(CONTAINER, "key", lambda before: (before or b"") + word)

    with Rig(tmp_path) as rig, ThreadPoolExecutor(4) as pool:
        words = [b"%d " % number for number in range(40)]
        list(pool.map(append, words))
        assert sorted(rig.get("key").split()) == sorted(word.strip() for word in words)


class Sized:
    """A value in a file, so to say: it tells its size, and is read when there is room."""

    def __init__(self, reads: threading.Semaphore, go_on: threading.Event, size: int) -> None:
        self.size = size
        self._reads = reads
        self._go_on = go_on

    def read(self) -> bytes:
        self._reads.release()
        assert self._go_on.wait(60)
        return bytes(self.size)


def test_writes_that_wait_hold_no_value(tmp_path: Path) -> None:
    reads, go_on = threading.Semaphore(0), threading.Event()
    with Rig(tmp_path) as rig, ThreadPoolExecutor(6) as pool:
        values = [Sized(reads, go_on, MAX_VALUE) for _ in range(6)]
        puts = [
            pool.submit(rig.store.put, CONTAINER, str(number), value) for number, value in enumerate(values)
        ]
        assert all(reads.acquire(timeout=60) for _ in range(2))
        rig.put("small", b"small ones find a place beside them")
        assert not reads.acquire(blocking=False)
        go_on.set()
        for put in puts:
            put.result()
        assert all(reads.acquire(timeout=60) for _ in range(4))


def test_a_read_that_waits_for_room_does_not_run_out_of_time(tmp_path: Path) -> None:
    """Only what the clouds take counts."""
    reads, go_on = threading.Semaphore(0), threading.Event()
    with Rig(tmp_path, get_timeout=0.5) as rig, ThreadPoolExecutor(3) as pool:
        rig.put("key", BIG)
        puts = [
            pool.submit(rig.store.put, CONTAINER, str(number), Sized(reads, go_on, MAX_VALUE))
            for number in range(2)
        ]
        assert all(reads.acquire(timeout=60) for _ in range(2))
        reading = pool.submit(rig.get, "key")
        with pytest.raises(TimeoutError):
            reading.result(2 * 0.5)
        go_on.set()
        assert reading.result() == BIG
        for put in puts:
            put.result()


def test_more_clients_than_a_cloud_has_room_for_wait(tmp_path: Path) -> None:
    """No write fails because others are under way."""
    with Rig(tmp_path) as rig, ThreadPoolExecutor(600) as pool:
        rig.cluster.behave("hang")
        puts = [pool.submit(rig.put, str(number), b"value") for number in range(600)]
        assert all(rig.hanging.acquire(timeout=60) for _ in range(4))
        rig.release()
        for put in puts:
            put.result()
        assert len(rig.store.list(CONTAINER)) == 600


def test_clouds_see_neither_keys_nor_values(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("my secret key", b"my secret value" * 10)
        for store in rig.cluster.stores:
            for name, data in store.objects.items():
                assert "secret" not in name
                assert b"secret" not in data


def test_list_and_transactions(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("old", b"1")
        rig.store.tput(
            {Key(CONTAINER, "new/b"): b"22", Key(CONTAINER, "new/a"): BIG, Key(CONTAINER, "old"): None}
        )
        requests = rig.gets()
        assert [(one.key, one.size) for one in rig.store.list(CONTAINER)] == [
            ("new/a", len(BIG)),
            ("new/b", 2),
        ]
        assert [one.key for one in rig.store.list(CONTAINER, "new/", after="new/a")] == ["new/b"]
        assert [one.key for one in rig.store.list(CONTAINER, limit=1)] == ["new/a"]
        assert rig.store.stat(CONTAINER, "new/b").size == 2
        assert rig.gets() == requests
        with pytest.raises(NoSuchKeyError):
            rig.get("old")
        assert rig.store.tput({}) == []


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        with pytest.raises(NoSuchContainerError):
            rig.store.put("nowhere", "key", b"")
        for key in ("", "k" * 1025, "\0", "\udcff"):
            with pytest.raises(UsageError):
                rig.put(key, b"")
        for container in ("", "a/b", "c" * 256, "\n"):
            with pytest.raises(UsageError):
                rig.store.create_container(container)
        with pytest.raises(UsageError):
            rig.put("key", bytes(MAX_VALUE + 1))
        assert not any(rig.objects())


def test_a_write_that_fails_has_not_taken_place_and_leaves_nothing(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"before")
        before = rig.objects()
        rig.cluster.behave("full", 0, 1)
        with pytest.raises(CloudsUnavailable):
            rig.put("key", b"after")
        with pytest.raises(CloudsUnavailable):
            rig.store.tput({Key(CONTAINER, "key"): b"after", Key(CONTAINER, "other"): b"x"})
        assert rig.get("key") == b"before"
        assert [one.key for one in rig.store.list(CONTAINER)] == ["key"]
        rig.cluster.behave("ok")
        rig.store.collector.collect()
        assert rig.objects() == before


def test_a_slow_write_does_not_undo_a_quick_one(tmp_path: Path) -> None:
    """No old-new inversion: the one that began first has the lower timestamp, whenever it ends."""
    with Rig(tmp_path) as rig, ThreadPoolExecutor(1) as pool:
        rig.cluster.behave("hang")
        slow = pool.submit(rig.put, "key", b"slow")
        assert all(rig.hanging.acquire(timeout=20) for _ in range(2))
        rig.cluster.behave("ok")
        rig.put("key", b"quick")
        assert rig.get("key") == b"quick"
        rig.release()
        slow.result()
        assert rig.get("key") == b"quick"
        rig.store.collector.collect()
        assert sum(map(len, rig.objects())) == 2


def test_a_read_of_what_is_deleted_meanwhile_begins_anew(tmp_path: Path) -> None:
    """And blames no cloud that has deleted what it was told to."""
    with Rig(tmp_path) as rig, ThreadPoolExecutor(1) as pool:
        rig.put("key", b"one")
        rig.cluster.behave("hang")
        reading = pool.submit(rig.get, "key")
        assert rig.hanging.acquire(timeout=20)
        rig.cluster.behave("ok")
        rig.put("key", b"two")
        rig.store.collector.collect()
        rig.release()
        assert reading.result() == b"two"
        assert rig.cluster.bad() == set()


def test_a_read_that_no_cloud_can_serve_ends_with_the_next_version(tmp_path: Path) -> None:
    """The worst case waits for news of the key (Hybris 3.5)."""
    with Rig(tmp_path, timing=HASTY) as rig, ThreadPoolExecutor(1) as pool:
        rig.put("key", b"one")
        for store in rig.cluster.stores:
            store.objects.clear()
            store.names.clear()
        reading = pool.submit(rig.get, "key")
        while sum(len(store.names) for store in rig.cluster.stores) < 6:  # it insists
            assert not reading.done()
        rig.put("key", b"two")
        assert reading.result() == b"two"


def test_a_read_insists_until_a_cloud_comes_round(tmp_path: Path) -> None:
    """Eventually consistent clouds do not see at once what was put."""
    with Rig(tmp_path, timing=HASTY) as rig, ThreadPoolExecutor(1) as pool:
        rig.put("key", b"one")
        rig.cluster.behave("missing")
        before = rig.gets()
        reading = pool.submit(rig.get, "key")
        while rig.gets() < before + 6:
            assert not reading.done()
        rig.cluster.behave("ok")
        assert reading.result() == b"one"


def test_a_read_ends_in_time_and_names_the_clouds(tmp_path: Path) -> None:
    with Rig(tmp_path, timing=HASTY, get_timeout=0.05) as rig:
        rig.put("key", b"one")
        rig.cluster.behave("corrupt")
        with pytest.raises(CloudsUnavailable, match=r"c[012]"):
            rig.get("key")


def test_no_more_is_taken_in_than_the_metadata_say(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"value")
        [name] = set().union(*rig.objects())
        liar = next(store for store in rig.cluster.stores if name in store.objects)
        liar.objects[name] += bytes(1 << 20)
        assert all(rig.get("key") == b"value" for _ in range(3))
        limits = {len(store.objects[name]) for store in rig.cluster.stores if name in store.objects}
        assert len(limits) == 2


def test_a_cloud_that_is_away_deletes_when_it_is_back(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"one")
        [away] = [number for number, names in enumerate(rig.objects()) if names][:1]
        rig.cluster.behave("down", away)
        rig.put("key", b"two")
        assert rig.store.collector.collect()
        assert rig.store.metadata.owing().keys() == {away}
        assert len(rig.objects()[away]) == 1
        rig.cluster.behave("ok")
        rig.cluster.clock.advance(3600)
        rig.store.collector.collect()
        rig.cluster.clock.advance(3600)
        assert not rig.store.collector.collect()
        assert sum(map(len, rig.objects())) == 2


def test_a_lie_about_a_value_is_forgotten_with_the_value(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"one")
        [name] = set().union(*rig.objects())
        asked_first = rig.cluster.asked_first([n for n, names in enumerate(rig.objects()) if name in names])
        objects = rig.cluster.stores[asked_first].objects
        objects[name] = b"x" * len(objects[name])
        assert all(rig.get("key") == b"one" for _ in range(3))
        assert list(rig.cluster.states().values()) == ["lying"]
        rig.store.delete(CONTAINER, "key")
        rig.store.collector.collect()
        assert rig.cluster.states() == {}


def test_a_write_under_way_is_no_garbage(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig, ThreadPoolExecutor(1) as pool:
        rig.cluster.behave("hang")
        writing = pool.submit(rig.put, "key", b"value")
        assert rig.hanging.acquire(timeout=20)
        assert rig.store.metadata.counts() == (1, 0)
        assert not rig.store.collector.collect()
        rig.release()
        writing.result()
        rig.store.collector.collect()
        assert rig.get("key") == b"value"


# -- the cache ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("cache_bytes", "asked"), [(0, 2), (10_000, 0)])
def test_what_is_cached(tmp_path: Path, cache_bytes: int, asked: int) -> None:
    with Rig(tmp_path, cache_bytes=cache_bytes) as rig:
        rig.put("key", b"value")
        assert rig.get("key") == b"value"
        assert rig.get("key") == b"value"
        assert rig.gets() == asked


def test_what_is_read_is_cached(tmp_path: Path) -> None:
    with Rig(tmp_path, cache_bytes=10_000) as rig:
        rig.put("key", b"value")
        rig.store.close()
        rig.reopen()
        assert rig.get("key") == b"value"
        assert rig.get("key") == b"value"
        assert rig.gets() == 1


def test_the_cache_is_bounded_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    with Rig(tmp_path, cache_bytes=4000) as rig:
        for number in range(9):
            rig.put(str(number), bytes([number]) * 800)
            rig.get("0")
        assert rig.store._cache.size <= 4000
        before = rig.gets()
        rig.get("0")
        assert rig.gets() == before
        rig.get("1")
        assert rig.gets() == before + 1
        rig.put("large", bytes(5000))
        assert rig.store._cache.size <= 4000


UNCACHED = bytes(20_000)
"""The cache of these tests has no room for it, and keeps the value before."""


def test_reads_may_be_stale_for_so_long(tmp_path: Path) -> None:
    with Rig(tmp_path, cache_bytes=10_000) as rig:
        rig.put("key", b"one")
        rig.clock.now += 500
        rig.put("key", UNCACHED)
        assert rig.store.get(CONTAINER, "key", max_age=600).value == b"one"
        assert rig.store.get(CONTAINER, "key", max_age=500).value == UNCACHED
        rig.put("key", b"three")
        assert rig.get("key") == b"three"


def test_reads_may_be_so_many_versions_behind(tmp_path: Path) -> None:
    with Rig(tmp_path, cache_bytes=10_000) as rig:
        rig.put("key", b"0")
        rig.put("key", UNCACHED + b"1")
        rig.put("key", UNCACHED + b"2")
        assert rig.store.get(CONTAINER, "key", max_versions=2).value == b"0"
        assert rig.store.get(CONTAINER, "key", max_versions=1).value == UNCACHED + b"2"


def test_a_client_reads_at_least_what_it_has_written(tmp_path: Path) -> None:
    """Read-my-writes (Hybris 3.10): what a put returns is all that the client has to remember."""
    with Rig(tmp_path, cache_bytes=10_000) as rig:
        first = rig.store.put(CONTAINER, "key", b"mine")
        theirs = rig.store.put(CONTAINER, "key", UNCACHED)
        assert rig.store.get(CONTAINER, "key", at_least=first).value == b"mine"
        assert rig.store.get(CONTAINER, "key", at_least=theirs).value == UNCACHED
        rig.store.delete(CONTAINER, "key")
        with pytest.raises(NoSuchKeyError):
            rig.store.get(CONTAINER, "key", at_least=first)


def test_timestamps_grow(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        written = [rig.store.put(CONTAINER, "key", b"x") for _ in range(5)]
        assert all(earlier < later for earlier, later in pairwise(written))
        assert rig.store.get(CONTAINER, "key").timestamp == written[-1]
