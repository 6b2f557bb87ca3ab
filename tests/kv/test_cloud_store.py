"""Containers on the clouds: what operations do, how often they ask, what becomes of what is overwritten, and
histories of threads while clouds lie."""

from __future__ import annotations

import os
import random
import struct
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import pytest

from backends.errors import TransientError
from backends.webdav import WebDavStore
from hybrisfs.cloud_registers.consensus import KEPT_SECONDS
from hybrisfs.cloud_registers.names import Version
from hybrisfs.cloud_registers.rounds import Answer, Protocol
from hybrisfs.cloud_registers.runner import Runner, RunnerLimits
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.erasure import split
from hybrisfs.dispersal.errors import CloudsUnavailable, IntegrityError
from hybrisfs.dispersal.ranking import Timing
from hybrisfs.environment import Environment, Limits
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.cloud_mend import CloudMender
from hybrisfs.kv.cloud_objects import Metadata, Shares
from hybrisfs.kv.cloud_place import CloudPlace
from hybrisfs.kv.cloud_store import CloudStore
from hybrisfs.kv.containers import ANYBODY, Key
from hybrisfs.kv.errors import (
    AmbiguousVersionError,
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.record import ABSENT, MAX_VALUE, PRESENT, Condition
from sync import OneKey
from tests.backends.faulty_server import FaultyProxy
from tests.backends.servers import FixedCredentials, wsgidav
from tests.dispersal.fakes import CALM, HASTY, SEALER, TABLES, Cluster
from tests.kv.linearizability import (
    Operation,
    deleted,
    is_linearizable,
    listed,
    read,
    replaced,
    unless,
    wrote,
)
from tests.system.deadline import until

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


@pytest.mark.parametrize("wish", PLACES)
@pytest.mark.parametrize("value", [b"", b"small", BIG, b"x" * 4097])
def test_what_one_device_puts_another_gets(wish: str, value: bytes) -> None:
    with Rig(wish) as rig:
        there = rig.open()
        with pytest.raises(NoSuchKeyError):
            there.get("box", "key")
        first = rig.store.put("box", "key", value, attributes=b"of it")
        found = there.get("box", "key")
        assert (found.value, found.timestamp, found.facts.attributes) == (value, first, b"of it")
        assert there.stat("box", "key") == found.facts
        assert found.facts.size == len(value)
        second = there.put("box", "key", b"other")
        assert second.sn == first.sn + 1
        assert rig.store.get("box", "key").value == b"other"
        assert rig.store.delete("box", "key") is not None
        with pytest.raises(NoSuchKeyError):
            there.get("box", "key")
        assert there.delete("box", "key") is None
        assert there.put("box", "key", b"again").sn > second.sn


def test_values_have_bounds() -> None:
    with Rig() as rig:
        with pytest.raises(UsageError, match="too large"):
            rig.store.put("box", "key", bytes(MAX_VALUE + 1))
        with pytest.raises(UsageError, match="attributes"):
            rig.store.put("box", "key", b"", attributes=bytes(5000))
        with pytest.raises(UsageError, match="cannot be a key"):
            rig.store.put("box", "", b"")
        rig.store.put("box", "k" * 1024, b"v" * 4096, attributes=b"a" * 4096)
        assert rig.open().stat("box", "k" * 1024).size == 4096


@pytest.mark.parametrize("wish", PLACES)
def test_a_condition_is_that_of_one_value(wish: str) -> None:
    with Rig(wish) as rig:
        put, there = rig.store.put, rig.open()
        first = put("box", "key", b"one", ABSENT)
        with pytest.raises(ConditionNotMetError, match=f"version 1 .tag {first.tag}, 3 bytes., not none"):
            there.put("box", "key", b"two", ABSENT)
        second = there.put("box", "key", b"two", Condition(tag=first))
        for wrong in (Condition(tag=first), ABSENT):
            with pytest.raises(ConditionNotMetError):
                put("box", "key", b"three", wrong)
            with pytest.raises(ConditionNotMetError):
                there.delete("box", "key", wrong)
        assert there.get("box", "key", tag=second).value == b"two"
        with pytest.raises(ConditionNotMetError):
            there.get("box", "key", tag=first)
        with pytest.raises(ConditionNotMetError, match=r"has version 2 .*not version 1"):
            put("box", "key", b"three", Condition(version=1))
        assert put("box", "key", b"three", Condition(version=2)).sn == 3
        assert there.edit("box", "key", lambda value: (value or b"") + b"!")[1] == 6
        assert rig.store.get("box", "key").value == b"three!"
        with pytest.raises(ConditionNotMetError, match="has no value"):
            put("box", "absent", b"x", PRESENT)


def _after_an_empty_list(write: Protocol[Version], clouds: Sequence[int]) -> Protocol[Version]:
    """A write that has listed the names before all others."""
    next(write)
    steps = write.send([dict.fromkeys(clouds, Answer())])
    while True:
        try:
            steps = write.send((yield steps))
        except StopIteration as end:
            written: Version = end.value
            return written


@pytest.mark.parametrize("wish", PLACES)
def test_a_version_that_two_values_have_had_is_no_condition(wish: str) -> None:
    """Somebody may have read the first one; that stays so when it is deleted from the clouds."""
    with Rig(wish) as rig:
        keys = rig.store.keys
        register = keys._register(rig.store._require("box").id, "key")
        for value in (b"one", b"other"):
            draft = keys.codec.draft("key", value, b"", 1, 1, keys.place.clouds)
            write = _after_an_empty_list(register.write(draft), keys.place.clouds)
            keys.overwritten.add(register.names.prefix, keys.run("it was not written", write))
        tag = rig.store.get("box", "key").timestamp
        for _ in range(2):
            with pytest.raises(AmbiguousVersionError, match="two values with version 1"):
                rig.store.put("box", "key", b"next", Condition(version=1))
            rig.clear()
        assert rig.store.put("box", "key", b"next", Condition(tag=tag)).sn == 2
        assert rig.store.put("box", "key", b"last", Condition(version=2)).sn == 3


@pytest.mark.parametrize("wish", PLACES)
def test_a_transaction_takes_place_or_does_not(wish: str) -> None:
    with Rig(wish) as rig:
        there = rig.open()
        one, other, absent = Key("box", "one"), Key("box", "other"), Key("box", "absent")
        tags = rig.store.tput({one: b"1", other: BIG}, {one: ABSENT, absent: ABSENT}, {other: b"of it"})
        assert [there.get(*key).timestamp for key in (one, other)] == list(tags)
        assert there.get("box", "other").facts.attributes == b"of it"
        for wrong in ({absent: PRESENT}, {one: ABSENT}, {other: Condition(tag=tags[0])}):
            with pytest.raises(ConditionNotMetError):
                there.tput({one: b"2", other: b"2"}, wrong)
        assert there.get("box", "one").value == b"1"
        there.tput({one: None, absent: b"3"}, {other: Condition(tag=tags[1])})
        assert [facts.key for facts in rig.store.list("box")] == ["absent", "other"]
        there.tput({absent: None}, {absent: PRESENT})
        assert [facts.key for facts in rig.store.list("box")] == ["other"]


def test_a_transaction_of_as_many_keys_as_programs_may_write() -> None:
    with Rig() as rig:
        values = {Key("box", f"{number:03}"): f"{number}".encode() for number in range(256)}
        rig.store.tput(values)
        assert [facts.key for facts in rig.store.list("box")] == [key.key for key in values]


def test_what_a_transaction_leaves_is_deleted_when_nobody_needs_it() -> None:
    with Rig() as rig:
        rig.store.tput({Key("box", "one"): b"1", Key("box", "other"): b"2"})
        assert any("/transactions/" in name for name in rig.names())
        rig.clear()
        assert not any("/transactions/" in name for name in rig.names())
        assert rig.open().get("box", "one").value == b"1"


@pytest.mark.parametrize("wish", PLACES)
def test_money_that_moves_is_always_there(wish: str) -> None:
    """Transfers of several clients between three accounts: whoever lists them sees the same sum."""
    with Rig(wish, timing=UNHURRIED) as rig, ThreadPoolExecutor(4) as pool:
        accounts = [Key("box", name) for name in "abc"]
        rig.store.tput(dict.fromkeys(accounts, b"100"))

        def transfer(store: CloudStore, chance: Random) -> None:
            for _ in range(6):
                source, target = chance.sample(accounts, 2)
                before = {key: store.get(*key) for key in (source, target)}
                amounts = [
                    int(one.value) + change for one, change in zip(before.values(), (-1, 1), strict=True)
                ]
                with suppress(ConditionNotMetError):
                    store.tput(
                        {key: b"%d" % amount for key, amount in zip(before, amounts, strict=True)},
                        {key: Condition(tag=one.timestamp) for key, one in before.items()},
                    )

        transfers = [pool.submit(transfer, rig.open(), Random(number)) for number in range(3)]
        looker = rig.open()
        while not all(one.done() for one in transfers):
            with suppress(HybrisError):  # others write all the time
                assert sum(int(one.metadata.value or b"") for one in looker.latest("box")) == 300
        for one in transfers:
            one.result()
        assert sum(int(rig.store.get(*key).value) for key in accounts) == 300


def test_of_two_deletes_at_the_same_time_one_finds_nothing() -> None:
    with Rig() as rig, ThreadPoolExecutor(3) as pool:
        stores = [rig.open() for _ in range(3)]
        for _ in range(10):
            rig.store.put("box", "key", b"value")
            deletes = [pool.submit(store.delete, "box", "key") for store in stores]
            assert sum(one.result() is not None for one in deletes) == 1


@pytest.mark.parametrize("wish", PLACES)
def test_containers(wish: str) -> None:
    with Rig(wish) as rig:
        there = rig.open()
        with pytest.raises(ContainerExistsError):
            there.create_container("box")
        there.create_container("another")
        assert rig.store.containers() == there.containers() == ["another", "box"]
        with pytest.raises(NoSuchContainerError, match="There are: another, box"):
            there.put("boxes", "key", b"")
        with pytest.raises(NoSuchContainerError):
            there.get("boxes", "key")
        with pytest.raises(NoSuchContainerError):
            there.delete_container("boxes")
        there.put("box", "key", b"value")
        with pytest.raises(ContainerInUseError):
            rig.store.delete_container("box")
        there.delete("box", "key")
        there.delete_container("box")
        assert rig.open().containers() == ["another"]
        with pytest.raises(NoSuchContainerError):
            rig.open().get("box", "key")
        rig.store.create_container("box")


def test_a_put_beside_the_end_of_its_container_is_not_lost() -> None:
    with Rig() as rig:
        there = rig.open()
        assert there.has_container("box")
        rig.store.delete_container("box")
        there.put("box", "key", b"value")
        assert rig.open().get("box", "key").value == b"value"
        assert rig.open().has_container("box")


@pytest.mark.parametrize("wish", PLACES)
def test_a_list_has_all_keys_in_order(wish: str) -> None:
    with Rig(wish) as rig:
        names = sorted(["a", "a/b", "b", "ä", "z" * 1000, *map(str, range(30))], key=str.encode)
        for name in names:
            rig.store.put("box", name, name.encode()[:5])
        rig.store.put("box", "gone", b"")
        rig.store.delete("box", "gone")
        there = rig.open()
        assert [one.key for one in there.list("box")] == names
        assert [one.key for one in there.list("box", "a")] == ["a", "a/b"]
        assert [one.key for one in there.list("box", after="a", limit=2)] == ["a/b", "b"]
        with there.listing("box", most=10) as pages:
            assert [len(page) for page in pages] == [10, 10, 10, 5]
        assert there.list("box", "b")[0] == there.stat("box", "b")
        with rig.counting() as asked:
            there.list("box")
        assert asked == {"list": 2}, "what this device has seen of a version is not asked for again"


# -- the rounds that an operation takes -----------------------------------------------------------------


def test_rounds_without_contention() -> None:
    """A write takes three rounds, PASIS's two, a read two; nothing is fetched twice."""
    for wish, most in {"clouds": {"list": 1, "put": 2}, "clouds:pasis": {"list": 1, "put": 1}}.items():
        with Rig(wish) as rig:
            with rig.counting() as asked:
                rig.store.put("box", "key", BIG)
            assert asked == most
            with rig.counting() as asked:
                assert rig.store.get("box", "key").value == BIG
            assert asked == {"list": 1, "get_range": 1}


@pytest.mark.parametrize("size", [4, 5, 7])
def test_a_read_moves_little_more_than_the_value(size: int) -> None:
    with Rig(size=size, f=(size - 1) // 3) as rig:
        rig.store.put("box", "key", BIG)
        rig.rest()
        before = [len(store.names) for store in rig.stores]
        assert rig.store.get("box", "key").value == BIG
        moved = sum(
            len(store.objects.get(name, b""))
            for store, start in zip(rig.stores, before, strict=True)
            for name in store.names[start:]
        )
        assert moved <= 1.05 * len(BIG)
        stored = sum(len(data) for store in rig.stores for data in store.objects.values())
        f = rig.place.t
        assert stored <= 1.05 * len(BIG) * size / (size - 2 * f)


# -- when clouds fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", PLACES)
@pytest.mark.parametrize("behaviour", ["down", "auth", "missing", "corrupt", "altered", "swapped", "full"])
def test_f_clouds_may_do_as_they_like(wish: str, behaviour: str) -> None:
    for victim in range(5):
        with Rig(wish, timing=HASTY) as rig:
            rig.store.put("box", "before", BIG)
            rig.behave(behaviour, victim)  # type: ignore[arg-type]
            there = rig.open()
            assert there.get("box", "before").value == BIG
            assert there.put("box", "new", BIG, ABSENT)
            assert rig.store.get("box", "new").value == BIG
            assert [one.key for one in there.list("box")] == ["before", "new"]
            rig.behave("ok")
            other = (victim + 1) % 5
            rig.behave(behaviour, other)  # type: ignore[arg-type]
            assert rig.open().get("box", "new").value == BIG


def test_a_cloud_that_hangs_is_not_waited_for() -> None:
    with Rig(timing=HASTY) as rig:
        rig.store.put("box", "key", BIG)
        rig.behave("hang", 2)
        assert rig.open().get("box", "key").value == BIG
        rig.store.put("box", "key", b"small")
        assert rig.open().get("box", "key").value == b"small"


def test_values_do_not_pile_up_in_memory_for_a_cloud_that_hangs() -> None:
    with Rig(timing=HASTY) as rig:
        rig.behave("hang", 2)
        for n in range(12):
            rig.store.put("box", "key", os.urandom(24 << 20))
            rig.store.put("box", f"small-{n}", b"small")
        hanging = rig.engine.clouds[2]._workers
        large = [job for job in hanging._waiting if not job.small]
        assert 6 <= len(large) <= 8, "of 8 MiB each"
        rig.stores[2].behaviour = "ok"
        rig.stores[2].released.set()
        assert len(rig.store.list("box")) == 13


def test_more_than_f_clouds_that_fail_are_named() -> None:
    with Rig(timing=HASTY) as rig:
        rig.store.put("box", "key", b"value")
        rig.behave("down", 0, 1)
        for what in (rig.store.get, lambda container, key: rig.store.put(container, key, b"other")):
            with pytest.raises(CloudsUnavailable, match=r"connection refused; c.: connection refused"):
                what("box", "key")
        rig.behave("ok")
        assert rig.store.get("box", "key").value == b"value"


def test_clouds_that_the_volume_has_no_more_count_as_failed() -> None:
    with Rig(size=5) as rig:
        rig.store.put("box", "key", BIG)
        rig.rest()
        rig.engine.retire_cloud(1)
        there = rig.open()
        assert there.get("box", "key").value == BIG
        there.put("box", "key", b"value", PRESENT)
        assert [one.key for one in there.list("box")] == ["key"]
        (held,) = CloudMender(there).held()
        (finding,) = filter(None, (CloudMender(there).look_at(held, cloud) for cloud in range(5)))
        assert (finding.kind, finding.what) == (
            "unreadable",
            "the value of box/key (cloud 1: is no longer configured)",
        )
        rig.engine.retire_cloud(2)
        with pytest.raises(CloudsUnavailable, match="is no longer configured"):
            there.get("box", "key")


def test_a_value_that_is_lost_is_not_looked_for_for_long() -> None:
    with Rig(timing=HASTY) as rig:
        rig.store.put("box", "key", b"value")
        rig.rest()
        prefix = rig.box
        for store in rig.stores:
            for name in [name for name in store.objects if name.startswith(prefix) and store.objects[name]]:
                del store.objects[name]
        with pytest.raises(CloudsUnavailable, match=r"box/key cannot be read .*no such object"):
            rig.store.get("box", "key")


def test_a_removed_device_cannot_read_what_is_written_later() -> None:
    with Rig() as rig:
        rig.store.put("box", "key", BIG)
        with pytest.raises(IntegrityError):
            rig.open(b"former".ljust(32)).get("box", "key")


@pytest.mark.parametrize("value", [b"small", BIG])
@pytest.mark.parametrize("wish", PLACES)
def test_a_reader_completes_what_a_writer_has_not(wish: str, value: bytes) -> None:
    """PoWerStore's puts back the proof alone, PASIS's the objects, made again from those that are there."""
    with Rig(wish) as rig:
        for reader in ("stat", "get", "list"):
            before = set(_keys(rig))
            rig.store.put("box", "key", value)
            new = set(_keys(rig)) - before
            proofs = {name for name in new if not rig.stores[0].objects[name]}
            assert len(proofs) == (wish == "clouds")
            lost = proofs or new
            for store in rig.stores[3:]:
                for name in lost:
                    del store.objects[name]
            there = rig.open()
            if reader == "list":
                assert there.list("box")[0].size == len(value)
            else:
                getattr(there, reader)("box", "key")
            rig.rest()
            assert any(lost <= store.objects.keys() for store in rig.stores[3:])
            rig.behave("down", 0)
            assert rig.open().get("box", "key").value == value
            rig.behave("ok")


# -- what is overwritten --------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", PLACES)
def test_what_is_overwritten_is_deleted(wish: str) -> None:
    with Rig(wish) as rig:
        for value in (b"one", BIG, b"three"):
            rig.store.put("box", "key", value)
        rig.store.put("box", "key", b"four", PRESENT)
        rig.store.put("box", "key", b"five")
        rig.clear()
        (register,) = {name.rpartition("/")[0] for name in _keys(rig)} - {""}
        left = [name for name in _keys(rig) if name.startswith(register)]
        assert len(left) == (2 if wish == "clouds" else 1) * 5
        assert rig.open().get("box", "key").value == b"five"


def _keys(rig: Rig) -> list[str]:
    """The objects of the registers in the container, on all clouds."""
    rig.rest()
    prefix = rig.box
    return [name for store in rig.stores for name in store.objects if name.startswith(prefix)]


def test_nothing_is_deleted_before_it_is_time() -> None:
    moment = count()
    with Rig() as rig:
        rig.store.put("box", "key", b"one")
        rig.store.put("box", "key", b"two")
        waiting = list(rig.store.keys.overwritten._waiting)
        assert next(moment) == 0
        began = rig.engine.environment.boot_time()
        assert all(due > began + KEPT_SECONDS - 60 for due, _, _ in waiting)
        assert len(_keys(rig)) == 2 * 2 * 5


# -- what clouds lose -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", PLACES)
def test_what_a_cloud_has_lost_or_altered_is_put_back(wish: str) -> None:
    with Rig(wish) as rig:
        for key in ("big", "small", "whole"):
            rig.store.put("box", key, BIG if key == "big" else key.encode())
        rig.rest()
        lossy, liar = rig.stores[1].objects, rig.stores[3].objects
        mender = CloudMender(rig.open())
        held = {one.label: one for one in mender.held()}
        assert sorted(held) == ["box/big", "box/small", "box/whole"]
        for label in ("box/big", "box/small"):
            name = held[label].register.names.of_version(held[label].version)
            del lossy[name]
            liar[name] = bytes(len(liar[name]))
        assert mender.look_at(held["box/whole"], 1) is None
        for label in ("box/big", "box/small"):
            lost, altered = mender.look_at(held[label], 1), mender.look_at(held[label], 3)
            assert lost is not None and altered is not None
            assert (lost.kind, altered.kind) == ("missing", "corrupt")
            assert lost.what == f"the value of {label} (c1: no such object)"
            repairs = mender.mend(held[label], range(4))
            assert [(one.cloud, one.now_at, one.failure) for one in repairs] == [(1, 1, ""), (3, 3, "")]
        assert [mender.mend(one, range(4)) for one in held.values()] == [[], [], []]
        assert rig.bad() == set(), "a cloud that was away when a value was written has not lied"
        rig.behave("down", 0)
        assert rig.open().get("box", "big").value == BIG


def test_what_cannot_be_put_back_is_named() -> None:
    with Rig(timing=HASTY) as rig:
        rig.store.put("box", "key", BIG)
        rig.rest()
        mender = CloudMender(rig.store)
        (held,) = mender.held()
        name = held.register.names.of_version(held.version)
        del rig.stores[1].objects[name]
        rig.behave("full", 1)
        (repair,) = mender.mend(held, range(5))
        assert repair.now_at is None
        assert repair.failure.startswith("no space left")
        (repair,) = mender.mend(held, {0, 2, 3, 4})
        assert repair.failure == "no cloud can take it now"
        for store in rig.stores[2:]:
            del store.objects[name]
        assert {one.failure for one in mender.mend(held, range(5))} == {
            "too little of the value of box/key is left to rebuild it"
        }
        rig.store.put("box", "key", b"other")
        assert mender.mend(held, range(5)) == []
        assert mender.look_at(held, 2) is None


def test_lists_that_come_often_remember_what_is_overwritten_once() -> None:
    with Rig() as rig:
        for value in (b"one", b"two"):
            rig.store.put("box", "key", value)
        there = rig.open()
        for _ in range(5):
            there.list("box")
        assert len(there.keys.overwritten._waiting) == 1


# -- members that lie -----------------------------------------------------------------------------------


def damage(rig: Rig, container: bytes, key: str, metadata: bytes) -> None:
    """Write what no correct device writes, as a member can."""
    keys = rig.store.keys
    draft = keys.codec.draft(key, b"", b"", 0, 2, rig.place.clouds)
    sealed = keys.codec._sealer.seal(draft.write, metadata)
    head = struct.pack(">BHH", 1, len(metadata), len(sealed)) + sealed
    draft.size, draft.verifier, draft.objects = len(head), keys.names.verifier(head), lambda _: head
    keys.run("", keys._register(container, key).write(draft))


def test_what_a_member_damages_hides_no_other_key_and_no_other_container() -> None:
    with Rig() as rig:
        rig.store.put("box", "key", b"value")
        rig.store.create_container("other")
        known = rig.store._find("box")
        assert known is not None
        damage(rig, known.id, "damaged", b"no metadata")
        damage(rig, b"", "another", Metadata(0, "another", value=b"no id").encode())
        damage(rig, b"", "third", b"no metadata")
        there = rig.open()
        assert there.containers() == ["box", "other"]
        assert [one.key for one in there.list("box")] == ["key"]
        assert [one.label for one in CloudMender(there).held()] == ["box/key"]
        with pytest.raises(IntegrityError):
            there.get("box", "damaged")
        with pytest.raises(NoSuchContainerError):
            there.get("another", "key")
        there.put("box", "damaged", b"right")
        assert rig.store.get("box", "damaged").value == b"right"


@pytest.mark.parametrize("wish", PLACES)
@pytest.mark.parametrize("lacking", [0, 2, 4])
@pytest.mark.parametrize("objects", ["none that fit", "nonsense", "shares of two values"])
def test_what_a_member_names_hides_no_other_key_and_no_other_container(
    wish: str, lacking: int, objects: str
) -> None:
    """*lacking* clouds have not even the names."""
    with Rig(wish) as rig:
        rig.store.put("box", "key", b"value")
        known = rig.store._find("box")
        assert known is not None
        for container, key in ((known.id, "damaged"), (known.id, "key"), (b"", "another")):
            before = set(_all_names(rig))
            if objects == "nonsense":
                damage(rig, container, key, b"no metadata")
            elif objects == "none that fit":
                draft = rig.store.keys._draft(key, b"", b"", 0)
                draft.objects = lambda _: b"no object"
                rig.store.keys.run("", rig.store.keys._register(container, key).write(draft))
            else:
                _mix(rig, container, key)
            rig.rest()
            for store in rig.stores[:lacking]:
                for name in store.objects.keys() - before:
                    del store.objects[name]
        rig.store.put("box", "other", b"value")
        there = rig.open()
        assert {"other"} <= {one.key for one in there.list("box")} <= {"damaged", "key", "other"}
        assert "box" in there.containers()
        rig.behave("down", 4)
        assert {"other"} <= {one.key for one in rig.open().list("box")} <= {"damaged", "key", "other"}


def _mix(rig: Rig, container: bytes, key: str) -> None:
    """Write shares of two values, so that what a reader gets depends on whom it asks."""
    keys, place = rig.store.keys, rig.place
    draft = keys._draft(key, BIG, b"", 0)
    k = place.thresholds.k
    sealed = [keys.codec._sealer.seal(draft.write, value) for value in (BIG, BIG[::-1])]
    one, other = (split(k, len(place.clouds), each) for each in sealed)
    shares = [*one[:2], *other[2:]]
    facts = Shares(len(BIG), len(sealed[0]), place.clouds, tuple(map(keys.names.checksum, shares)))
    metadata = Metadata(0, key, shares=facts).encode()
    box = keys.codec._sealer.seal(draft.write, metadata)
    head = struct.pack(">BHH", 1, len(metadata), len(box)) + box
    draft.size, draft.verifier = len(head) + len(shares[0]), keys.names.verifier(head)
    draft.objects = lambda cloud: head + shares[cloud]
    keys.run("", keys._register(container, key).write(draft))


def _all_names(rig: Rig) -> list[str]:
    rig.rest()
    return [name for store in rig.stores for name in store.objects]


def test_a_list_that_cannot_see_a_key_is_refused() -> None:
    """A value that may be there is not left out because clouds are away."""
    with Rig(timing=HASTY) as rig:
        rig.store.put("box", "key", b"value")
        rig.rest()
        prefix = rig.box
        for store in rig.stores[:2]:
            for name in [name for name in store.objects if name.startswith(prefix) and store.objects[name]]:
                del store.objects[name]
        there = rig.open()
        assert there.has_container("box")
        for store in rig.stores[2:]:
            store.before_get = _fail
        with pytest.raises(HybrisError, match="cannot be listed"):
            there.list("box")


def _fail() -> None:
    raise TransientError("fake://", "get", "", "connection reset")


# -- room, and slow lines -------------------------------------------------------------------------------


def test_large_values_are_read_only_when_there_is_room_for_them() -> None:
    with Rig() as rig, ThreadPoolExecutor(1) as pool:
        rig.store.put("box", "key", os.urandom(4 << 20))
        rig.rest()
        memory = rig.store.keys.rooms._memory
        with rig.store.keys.rooms.taken([1 << 30]):
            reading = pool.submit(rig.store.get, "box", "key")
            until(lambda: memory._line, "the read to wait for room", 30)
            assert not any("get_range" in store.requests[-3:] for store in rig.stores)
        assert len(reading.result().value) == 4 << 20


def test_what_takes_long_is_read_while_it_moves(tmp_path: Path) -> None:
    """30 MB at 3.6 Mbit/s must not be a value that can be stored and never read."""
    patience, rate = 2.0, 500_000
    value = os.urandom(int(2 * patience * rate))
    with wsgidav(tmp_path) as server, FaultyProxy(server.address) as proxy:
        far = WebDavStore(server.url(authority=proxy.authority), FixedCredentials(server.secrets))
        far.initialise()
        environment = Environment(limits=Limits(RunnerLimits(patience)))
        with closing(Engine([Cloud(0, "far", far)], 0, SEALER, TABLES, environment=environment)) as engine:
            place = CloudPlace.wished("clouds", [0], 0)
            with closing(
                CloudStore(place, Runner(engine.clouds, engine.environment), KEY, OneKey(b"e" * 32), ANYBODY)
            ) as store:
                store.create_container("box")
                store.put("box", "key", value)
                proxy.answer_rate = rate
                assert store.get("box", "key").value == value
                assert engine.health()[0].state == "ok"


# -- histories ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", PLACES)
@pytest.mark.parametrize("behaviour", ["ok", "corrupt", "missing", "down"])
def test_histories_of_several_devices_are_linearizable(wish: str, behaviour: str) -> None:
    for seed in range(3):
        with Rig(wish, timing=HASTY) as rig:
            rig.behave(behaviour, seed)  # type: ignore[arg-type]
            history = _History()
            devices = [
                threading.Thread(target=_work, args=(rig.open(), history, random.Random(f"{seed} {n}")))
                for n in range(3)
            ]
            for device in devices:
                device.start()
            for device in devices:
                device.join()
            assert history.trouble == []
            assert is_linearizable(history.operations)


class _History:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.trouble: list[BaseException] = []
        self._moments = count()
        self._lock = threading.Lock()

    def moment(self) -> int:
        with self._lock:
            return next(self._moments)


def _work(store: CloudStore, history: _History, chance: random.Random) -> None:
    try:
        for n in range(6):
            _operate(store, history, chance, f"{chance.random()}{n}".encode())
    except BaseException as error:
        history.trouble.append(error)
        raise


def _operate(store: CloudStore, history: _History, chance: random.Random, value: bytes) -> None:
    key = chance.choice("ab")
    kind = chance.choice(("get", "get", "put", "delete", "if absent", "list"))
    called = history.moment()
    match kind:
        case "get":
            try:
                effect = read(key, store.get("box", key).value)
            except NoSuchKeyError:
                effect = read(key, None)
        case "put":
            store.put("box", key, value)
            effect = wrote({key: value})
        case "delete":
            effect = deleted(key, store.delete("box", key) is not None)
        case "if absent":
            try:
                store.put("box", key, value, ABSENT)
                effect = replaced(key, None, value)
            except ConditionNotMetError:
                effect = unless(key, None)
        case _:
            effect = listed([one.key for one in store.list("box")])
    history.operations.append(Operation(kind, called, history.moment(), effect))
