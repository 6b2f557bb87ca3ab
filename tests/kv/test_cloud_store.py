"""Containers on the clouds: what operations do, how often they ask, and histories of threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from random import Random

import pytest

from hybrisfs.errors import UsageError
from hybrisfs.kv.cloud_store import CloudStore
from hybrisfs.kv.containers import Key
from hybrisfs.kv.errors import (
    AmbiguousVersionError,
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.record import ABSENT, MAX_VALUE, PRESENT, Condition
from hybrisfs.quorums.names import Version
from hybrisfs.quorums.rounds import Answer, Protocol
from tests.dispersal.fakes import HASTY
from tests.kv.cloud_rig import BIG, PLACES, UNHURRIED, Rig
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


@pytest.mark.parametrize("wish", PLACES)
def test_a_list_ends_while_others_write_all_the_time(wish: str) -> None:
    with Rig(wish, timing=UNHURRIED) as rig, ThreadPoolExecutor(3) as pool:
        ended = threading.Event()
        begun = threading.Barrier(4)

        def write(store: CloudStore, name: str) -> int:
            written = 0
            while not ended.is_set():
                store.put("box", f"{name} {written % 3}", b"")
                written += 1
                if written == 1:
                    begun.wait(30)
            return written

        writers = [pool.submit(write, rig.open(), name) for name in "abc"]
        begun.wait(30)
        try:
            for _ in range(3):
                assert len(rig.store.list("box")) >= 3
        finally:
            ended.set()
        assert all(one.result() > 1 for one in writers)


# -- the rounds that an operation takes -----------------------------------------------------------------


def test_rounds_without_contention() -> None:
    """A write takes three rounds, PASIS's two, a read two; nothing is fetched twice. Once in a while a write
    also lists the holds, in its first round."""
    for wish, most in {"clouds": {"list": 1, "put": 2}, "clouds:pasis": {"list": 1, "put": 1}}.items():
        with Rig(wish) as rig:
            with rig.counting() as asked:
                rig.store.put("box", "key", b"")
            assert asked == {**most, "list": 2}
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
