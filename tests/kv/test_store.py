"""The key-value store: what operations do, what is on the clouds, and the worst cases one by one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.errors import UsageError
from hybrisfs.kv.errors import NoSuchContainerError, NoSuchKeyError
from hybrisfs.kv.record import MAX_VALUE
from hybrisfs.kv.store import Key, Session
from hybrisfs.kv.values import CachePolicy
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
        rig.cluster.clock.now += 3600
        rig.store.collector.collect()
        rig.cluster.clock.now += 3600
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


@pytest.mark.parametrize(
    ("policy", "after_put", "after_get"),
    [
        (CachePolicy.NOTHING, 1, 2),
        (CachePolicy.READS, 1, 1),
        (CachePolicy.WRITES, 0, 0),
        (CachePolicy.BOTH, 0, 0),
    ],
)
def test_what_is_cached(tmp_path: Path, policy: CachePolicy, after_put: int, after_get: int) -> None:
    with Rig(tmp_path, cache_bytes=10_000, policy=policy) as rig:
        rig.put("key", b"value")
        assert rig.get("key") == b"value"
        assert rig.gets() == after_put
        assert rig.get("key") == b"value"
        assert rig.gets() == after_get


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


def test_reads_may_be_stale_for_so_long(tmp_path: Path) -> None:
    with Rig(tmp_path, cache_bytes=10_000, policy=CachePolicy.READS) as rig:
        rig.put("key", b"one")
        rig.get("key")
        rig.clock.now += 5
        rig.put("key", b"two")
        assert rig.store.get(CONTAINER, "key", max_age=5).value == b"one"
        assert rig.store.get(CONTAINER, "key", max_age=4.9).value == b"two"
        rig.put("key", b"three")
        assert rig.get("key") == b"three"


def test_reads_may_be_so_many_versions_behind(tmp_path: Path) -> None:
    with Rig(tmp_path, cache_bytes=10_000, policy=CachePolicy.READS) as rig:
        rig.put("key", b"0")
        rig.get("key")
        rig.put("key", b"1")
        rig.put("key", b"2")
        assert rig.store.get(CONTAINER, "key", max_versions=2).value == b"0"
        assert rig.store.get(CONTAINER, "key", max_versions=1).value == b"2"


def test_a_session_reads_what_it_has_written(tmp_path: Path) -> None:
    with Rig(tmp_path, cache_bytes=10_000) as rig:
        session = Session(rig.store)
        session.put(CONTAINER, "key", b"mine")
        assert session.get(CONTAINER, "key").value == b"mine"
        rig.put("key", b"theirs")
        assert session.get(CONTAINER, "key").value in (b"mine", b"theirs")
        session.tput({Key(CONTAINER, "key"): b"mine again", Key(CONTAINER, "other"): None})
        assert session.get(CONTAINER, "key").value == b"mine again"
        session.delete(CONTAINER, "key")
        with pytest.raises(NoSuchKeyError):
            session.get(CONTAINER, "key")
        assert rig.gets() == 0


def test_timestamps_grow(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        written = [rig.store.put(CONTAINER, "key", b"x") for _ in range(5)]
        assert all(earlier < later for earlier, later in pairwise(written))
        assert rig.store.get(CONTAINER, "key").timestamp == written[-1]
