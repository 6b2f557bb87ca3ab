"""What is deleted from the clouds, when, how often, and who waits for it."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from hybrisfs.kv.collect import CollectLimits
from hybrisfs.kv.metadata import Garbage
from hybrisfs.kv.repetition import MAX_WRITES, pack_writes, unpack_writes
from sync.codec import DecodeError
from tests.dispersal.fakes import HASTY, FakeStore
from tests.kv.rig import CONTAINER, Rig
from tests.kv.test_orphans import back_up, orphans, restore

FIRST, SECOND = CollectLimits().repeat_after
HURRIED = CollectLimits(batch=2, patience=1.0)  # the wait for who hangs is real


def put_late(store: FakeStore, name: str) -> None:
    """A request to put this object has been on its way since before its deletion."""
    store.objects[name] = b"late"


def deletions(rig: Rig) -> list[int]:
    return [store.requests.count("delete") for store in rig.cluster.stores]


# -- deleting again ----------------------------------------------------------------------------


def test_what_arrives_after_its_deletion_is_deleted_again(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("kept", b"kept")
        before = rig.objects()
        rig.put("key", b"value")
        [name] = set().union(*rig.objects()) - set().union(*before)
        rig.store.delete(CONTAINER, "key")
        rig.store.collector.collect()
        assert rig.objects() == before
        for pause in (FIRST, SECOND):
            put_late(rig.cluster.stores[2], name)
            rig.clock.now += pause - 1
            asked = deletions(rig)
            rig.store.collector.collect()
            assert (name in rig.objects()[2], deletions(rig)) == (True, asked)  # too early
            rig.clock.now += 1
            assert not rig.store.collector.collect()
            assert rig.objects() == before
            assert deletions(rig) == [count + 1 for count in asked]
        asked = deletions(rig)
        put_late(rig.cluster.stores[2], name)
        rig.clock.now += 9 * SECOND
        rig.store.collector.collect()
        assert deletions(rig) == asked
        assert rig.store.metadata.first_repetitions() == {}
        assert orphans(rig).look().unnamed == {2: [name]}
        assert rig.get("kept") == b"kept"


def test_what_a_killed_daemon_was_putting_is_deleted_again(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        [write] = rig.store.collector.draw(1)
        rig.store.metadata.intend([Garbage(write, 1)])
        [name] = rig.store.uploader.names(write, 1)
        rig.store.close()
        rig.reopen()
        assert not rig.store.collector.collect()
        for pause in (FIRST, SECOND):
            for store in rig.cluster.stores:
                put_late(store, name)
            rig.store.close()
            rig.clock.now += pause
            rig.reopen()
            assert not rig.store.collector.collect()
            assert not any(rig.objects())


def test_what_a_cloud_owed_it_deletes_again_after_it_has_deleted_it(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"value")
        [name] = set().union(*rig.objects())
        rig.cluster.behave("down", 0)
        rig.store.delete(CONTAINER, "key")
        assert rig.store.collector.collect()
        rig.clock.now += 9 * SECOND
        rig.cluster.clock.advance(9 * SECOND)
        assert rig.store.collector.collect()
        rig.cluster.behave("ok")
        rig.cluster.clock.advance(9 * SECOND)
        assert not rig.store.collector.collect()
        assert rig.store.metadata.first_repetitions().keys() == {0, 1, 2}
        put_late(rig.cluster.stores[0], name)
        rig.clock.now += FIRST
        assert not rig.store.collector.collect()
        assert not any(rig.objects())


def test_a_cloud_that_is_away_deletes_again_when_it_is_back(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"value")
        [name] = set().union(*rig.objects())
        rig.store.delete(CONTAINER, "key")
        rig.store.collector.collect()
        put_late(rig.cluster.stores[1], name)
        rig.cluster.behave("down", 1)
        rig.clock.now += FIRST
        assert rig.store.collector.collect()
        assert rig.store.metadata.owing() == {}  # nobody is told: most likely there is nothing
        rig.cluster.behave("ok")
        rig.cluster.clock.advance(3600)
        assert not rig.store.collector.collect()
        assert not any(rig.objects())


def test_a_clock_that_was_ahead_delays_nothing_for_years(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"value")
        [name] = set().union(*rig.objects())
        rig.store.delete(CONTAINER, "key")
        rig.clock.now += 1e9
        rig.store.collector.collect()
        rig.clock.now -= 1e9
        put_late(rig.cluster.stores[1], name)
        assert not rig.store.collector.collect()
        assert not any(rig.objects())


def test_repetitions_of_a_restored_backup_spare_what_was_written_since(tmp_path: Path) -> None:
    """The restored store gives its writes the numbers that others had after the backup."""
    with Rig(tmp_path) as rig:
        for number in range(9):
            rig.put(f"old{number % 3}", b"old")
        rig.store.collector.collect()
        backup = back_up(rig, tmp_path)
        for number in range(9):
            rig.put(f"lost{number}", b"lost")
            rig.store.delete(CONTAINER, f"old{number % 3}")
        restore(rig, backup)
        for number in range(9):
            rig.put(f"new{number}", b"new")
        for pause in (FIRST, SECOND):
            rig.clock.now += pause
            rig.store.collector.collect()
        assert rig.store.metadata.first_repetitions() == {}
        assert [rig.get(f"new{number}") for number in range(9)] == [b"new"] * 9


def test_what_is_to_be_deleted_again_is_not_unnamed(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"value")
        [name] = set().union(*rig.objects())
        rig.store.delete(CONTAINER, "key")
        rig.store.collector.collect()
        put_late(rig.cluster.stores[1], name)
        assert orphans(rig).look().counts == (0, 0)


def test_deletions_are_remembered_in_little_room(tmp_path: Path) -> None:
    """What is deleted one by one becomes few rows when it is deleted again."""
    with Rig(tmp_path) as rig:
        for number in range(60):
            rig.put("key", b"%d" % number)
            rig.store.collector.collect()
        rows = rig.store.metadata.repeated(0, 999)
        assert len(rows) == 3 * 59
        rig.clock.now += FIRST
        rig.store.collector.collect()
        rows = rig.store.metadata.repeated(0, 999)
        assert [one.times for one in rows] == [2, 2, 2]
        assert all(len(one.writes) < 16 for one in rows)
    scattered = sorted(random.Random(1).sample(range(100_000), 500))
    assert len(pack_writes([(write, 1) for write in scattered])) < 500 * 4


@pytest.mark.parametrize(
    "writes", [[], [(1, 1)], [(1, 1), (2, 1), (3, 3), (9, 3)], [(n, 1) for n in range(7, 7 + MAX_WRITES)]]
)
def test_writes_are_packed(writes: list[tuple[int, int]]) -> None:
    packed = pack_writes(random.Random(1).sample(writes, len(writes)))
    assert unpack_writes(packed) == writes
    for position in range(len(packed)):
        with pytest.raises(DecodeError):
            unpack_writes(packed[:position] + bytes((packed[position] ^ 4,)) + packed[position + 1 :])


def test_damaged_rows_delete_nothing(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"value")
        before = rig.objects()
        rig.store.delete(CONTAINER, "key")
        rig.store.collector.collect()
        rows = rig.store.metadata.repeated(0, 9)
        damaged = [one._replace(writes=one.writes[:-1] + b"\x09") for one in rows]
        rig.store.metadata.repeat([one.number for one in rows], damaged)
        for store, names in zip(rig.cluster.stores, before, strict=True):
            store.objects.update(dict.fromkeys(names, b"late"))
        rig.clock.now += FIRST
        assert not rig.store.collector.collect()
        assert rig.objects() == before
        assert rig.store.metadata.first_repetitions() == {}


# -- who waits for whom ------------------------------------------------------------------------


def hold(store: FakeStore) -> threading.Event:
    """Have deletions of a cloud hang until the event."""
    released = threading.Event()

    def wait() -> None:
        store.hanging.release()
        released.wait()

    store.before_delete = wait
    return released


def test_a_cloud_that_hangs_holds_up_none_of_the_others(tmp_path: Path) -> None:
    with Rig(tmp_path, collect=HURRIED) as rig:
        hanging, *others = rig.cluster.stores
        released = hold(hanging)
        for number in range(9):
            rig.put(str(number), b"value")
        for store in others:  # as if all were there
            store.objects.update(hanging.objects)
        for number in range(9):
            rig.store.delete(CONTAINER, str(number))
        assert rig.store.collector.collect()
        assert not any(store.objects for store in others)
        assert rig.store.metadata.owing().keys() == {0}
        assert rig.store.metadata.counts() == (0, 9)
        assert rig.hanging.acquire(timeout=20)
        assert not rig.hanging.acquire(blocking=False)  # it was asked once
        rig.clock.now += HURRIED.retry_pauses[0]
        assert rig.store.collector.collect()
        assert rig.hanging.acquire(timeout=20)  # now it is asked again, while the others go on
        rig.put("later", b"value")
        rig.store.delete(CONTAINER, "later")
        assert rig.store.collector.collect()
        assert not any(store.objects for store in others)
        assert not rig.hanging.acquire(blocking=False)
        released.set()
        while rig.store.metadata.owing():
            rig.store.collector.collect()
        assert not any(rig.objects())


def test_nobody_waits_for_clouds_that_owe_something(tmp_path: Path) -> None:
    """Two of them hang while they delete what they owe; the third gets on."""
    with Rig(tmp_path, collect=HURRIED) as rig:
        rig.put("key", b"value")
        rig.cluster.behave("down", 0, 1)
        rig.store.delete(CONTAINER, "key")
        assert rig.store.collector.collect()
        rig.cluster.behave("ok")
        rig.cluster.clock.advance(3600)
        released = [hold(store) for store in rig.cluster.stores[:2]]
        assert rig.store.collector.collect()
        assert all(rig.hanging.acquire(timeout=20) for _ in released)
        rig.put("later", b"value")
        rig.store.delete(CONTAINER, "later")
        assert rig.store.collector.collect()
        assert not rig.objects()[2]
        for one in released:
            one.set()
        while rig.store.metadata.owing():
            rig.store.collector.collect()
        assert not any(rig.objects())


def test_without_a_thread_a_cloud_is_asked_later(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"value")
        rig.cluster.behave("down", 0)
        rig.store.delete(CONTAINER, "key")
        assert rig.store.collector.collect()
        rig.cluster.behave("ok")
        rig.cluster.clock.advance(3600)
        usual = threading.stack_size(1 << 46)  # more than there is
        try:
            assert rig.store.collector.collect()
        finally:
            threading.stack_size(usual)
        assert not rig.store.collector.collect()
        assert not any(rig.objects())


def test_what_is_still_being_written_keeps_nothing_else_from_being_deleted(tmp_path: Path) -> None:
    with Rig(tmp_path, timing=HASTY, collect=HURRIED) as rig:
        for number in range(4):
            rig.put(str(number), b"value")
        slow = next(number for number, names in enumerate(rig.objects()) if names)
        rig.cluster.behave("hang", slow)
        while not rig.hanging.acquire(blocking=False):
            rig.put("slow", b"value")  # in the end another cloud has it
        rig.cluster.behave("ok", slow)
        for key in ("0", "1", "2", "3", "slow"):
            rig.store.delete(CONTAINER, key)
        assert rig.store.collector.collect()
        assert not any(rig.objects())
        assert rig.store.metadata.owed(slow, 99)
        rig.release()
        while rig.store.collector.collect():
            pass
        assert not any(rig.objects())
