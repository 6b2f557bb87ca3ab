"""Containers in the log: what machines see of each other's writes, and that no value is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import cast

import pytest

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kinds import ENTRY
from hybrisfs.kv.containers import Key
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.log_store import LogStore
from hybrisfs.kv.record import ABSENT, Condition, Timestamp
from hybrisfs.log import Merged
from hybrisfs.members.roles import Role
from hybrisfs.registers.entries import MAX_ENTRY_KEY, MAX_ENTRY_VALUE, Entry, container_key
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.write.relayer import Shipping
from tests.members.test_roles import founded
from tests.merge.fleet import Device, Fleet
from tests.merge.limits import say
from tests.system.deadline import until

BOX = "box"


class AtOnce(Shipping):
    """As if clouds had all at once: here are none."""

    def wait(self, timeout: float) -> bool:
        return True


def store(device: Device) -> LogStore:
    rig = device.rig
    shipping = AtOnce(rig.fs, rig.signals)
    return LogStore(rig.fs, rig.sharing.signer, rig.committer, rig.signals, shipping)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Three machines that all have the container, which the first has made."""
    fleet = Fleet(3)
    store(fleet[0]).create_container(BOX)
    fleet.meet()
    yield fleet
    fleet.discard()


@pytest.fixture
def limited() -> Iterator[Fleet]:
    """Two machines. The first can make a reader of the other."""
    fleet = founded(2)
    yield fleet
    fleet.discard()


@pytest.fixture
def alone(fleet: Fleet) -> LogStore:
    return store(fleet[0])


def get(device: Device, key: str) -> bytes:
    return store(device).get(BOX, key).value


def every(device: Device, key: str) -> set[bytes]:
    """All values of a key."""
    one = store(device)
    return {one.get(BOX, key, tag=facts.timestamp).value for facts in one.values(BOX, key)}


def keys(device: Device) -> list[str]:
    return [facts.key for facts in store(device).list(BOX)]


# -- one machine ---------------------------------------------------------------------------------------


def test_what_a_put_has_returned_survives_a_crash(fleet: Fleet) -> None:
    device = fleet[0]
    written = store(device).put(BOX, "a", b"1", attributes=b"said")
    store(device).put(BOX, "b", b"")
    device.rig = device.rig.crashed()
    found = store(device).get(BOX, "a")
    assert (found.value, found.timestamp, found.facts.attributes) == (b"1", written, b"said")
    assert get(device, "b") == b""
    assert store(device).stat(BOX, "a") == found.facts
    assert keys(device) == ["a", "b"]


def test_versions_go_on_after_a_deletion(alone: LogStore) -> None:
    assert [alone.put(BOX, "a", b"1").sn, alone.put(BOX, "a", b"2").sn] == [1, 2]
    deleted = alone.delete(BOX, "a")
    assert deleted is not None and deleted.sn == 3
    assert alone.delete(BOX, "a") is None
    with pytest.raises(NoSuchKeyError):
        alone.get(BOX, "a")
    assert alone.put(BOX, "a", b"4").sn == 4
    assert [one.timestamp.sn for one in alone.list(BOX)] == [4]


def test_a_condition_that_does_not_hold_keeps_all_from_being_written(fleet: Fleet, alone: LogStore) -> None:
    first = alone.put(BOX, "a", b"1", ABSENT)
    second = alone.put(BOX, "a", b"2", Condition(tag=first))
    before = len(fleet[0].log())
    for condition in (ABSENT, Condition(tag=first), Condition(version=1)):
        with pytest.raises(ConditionNotMetError, match=r"box/a has version 2"):
            alone.put(BOX, "a", b"3", condition)
        with pytest.raises(ConditionNotMetError):
            alone.delete(BOX, "a", condition)
        with pytest.raises(ConditionNotMetError):
            alone.tput({Key(BOX, "b"): b"x"}, {Key(BOX, "a"): condition})
    assert len(fleet[0].log()) == before
    assert keys(fleet[0]) == ["a"]
    assert alone.edit(BOX, "a", lambda value: (value or b"") + b"!")[1] == 2
    assert get(fleet[0], "a") == b"2!"
    assert alone.put(BOX, "a", b"4", Condition(version=second.sn + 1)).sn == 4


def together(device: Device, works: Sequence[Callable[[LogStore], object]]) -> list[Future[object]]:
    """Begin all of these while the device cuts, so that each waits for the same moment."""
    one = store(device)
    with ThreadPoolExecutor(len(works)) as pool:
        with device.rig.fs.state.cutting:
            begun = [pool.submit(work, one) for work in works]
            until(lambda: len(one._writer._waiting) == len(works), "all to wait")
        return begun


def test_writes_that_wait_for_the_same_moment_become_one_update(fleet: Fleet) -> None:
    """Hundreds of programs that put values at once would sign, and sync the disk, as many times."""
    commits: list[int] = []
    fleet[0].rig.db.after_commit = lambda: commits.append(1)
    before = len(fleet[0].log())
    puts = [partial(LogStore.put, container=BOX, key=f"k{number}", value=b"v") for number in range(20)]
    written = together(fleet[0], puts)
    assert {one.result() for one in written} == {one.timestamp for one in store(fleet[0]).list(BOX)}
    assert (len(fleet[0].log()) - before, len(commits)) == (1, 1)
    fleet.meet()
    assert keys(fleet[2]) == sorted(f"k{number}" for number in range(20))


def test_each_of_the_writes_that_wait_holds_for_itself(fleet: Fleet) -> None:
    """Those of one key follow each other, as their conditions see; one that fails keeps no other back."""
    puts = [partial(LogStore.put, container=BOX, key="hot", value=b"%d" % number) for number in range(5)]
    first = partial(LogStore.put, container=BOX, key="first", value=b"1", condition=ABSENT)
    again = partial(LogStore.create_container, name=BOX)
    values = [{Key(BOX, f"{one}{number}"): bytes(MAX_ENTRY_VALUE) for number in range(9)} for one in "ab"]
    large = [partial(LogStore.tput, values=some) for some in values]
    *hot, one, other, made, _, _ = together(fleet[0], [*puts, first, first, again, *large])
    assert sorted(cast("Timestamp", put.result()).sn for put in hot) == [1, 2, 3, 4, 5]
    assert sum(isinstance(put.exception(), ConditionNotMetError) for put in (one, other)) == 1
    assert isinstance(made.exception(), ContainerExistsError)
    assert len(keys(fleet[0])) == 20
    assert max(map(len, fleet[0].log())) < 4 << 20, "another device would take in too much at once"
    fleet.meet()
    assert keys(fleet[1]) == keys(fleet[0])
    assert store(fleet[1]).stat(BOX, "hot").timestamp.sn == 5


def test_nobody_hears_that_a_write_took_place_whose_commit_has_failed(fleet: Fleet) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "broken disk")

    fleet[0].rig.around.fdatasync = fleet[0].rig.around.fsync = broken
    puts = [partial(LogStore.put, container=BOX, key=f"k{number}", value=b"v") for number in range(3)]
    assert all(isinstance(one.exception(), OSError) for one in together(fleet[0], puts))


def test_a_defect_in_one_write_keeps_nobody_waiting(fleet: Fleet) -> None:
    puts = [partial(LogStore.put, container=BOX, key=f"k{number}", value=b"v") for number in range(3)]
    broken = partial(LogStore.put, container=BOX, key="k", value=b"v", condition=cast("Condition", 1))
    assert all(one.exception() is not None for one in together(fleet[0], [*puts, broken]))
    store(fleet[0]).put(BOX, "k", b"v")


def test_a_list_is_of_one_moment_and_in_pages(alone: LogStore) -> None:
    alone.tput({Key(BOX, f"k{number:02}"): b"v" for number in range(25)})
    alone.put(BOX, "other", b"v")
    alone.delete(BOX, "k03")
    with alone.listing(BOX, "k", after="k01", most=10) as pages:
        alone.put(BOX, "k02", b"later")
        alone.put(BOX, "k99", b"later")
        found = [[one.key for one in page] for page in pages]
    wanted = [f"k{number:02}" for number in range(2, 25) if number != 3]
    assert found == [wanted[:10], wanted[10:20], wanted[20:]]
    assert [one.key for one in alone.list(BOX, "k", limit=3)] == ["k00", "k01", "k02"]
    assert [one.key for one in alone.list(BOX, after="k24")] == ["k99", "other"]
    assert [one.key for one in alone.list(BOX, "k99")] == ["k99"]


def test_a_container_does_not_show_the_keys_of_another_one(alone: LogStore) -> None:
    alone.create_container("bo")
    alone.put("bo", "x1", b"1")
    alone.put(BOX, "1", b"2")
    assert [one.key for one in alone.list("bo")] == ["x1"]
    assert [one.key for one in alone.list(BOX)] == ["1"]
    assert alone.containers() == ["bo", BOX]


def test_containers_are_made_once_and_dropped_when_they_are_empty(alone: LogStore) -> None:
    with pytest.raises(ContainerExistsError):
        alone.create_container(BOX)
    alone.put(BOX, "a", b"1")
    with pytest.raises(ContainerInUseError):
        alone.delete_container(BOX)
    alone.delete(BOX, "a")
    alone.delete_container(BOX)
    assert alone.containers() == []
    for ask in (
        partial(alone.get, BOX, "a"),
        partial(alone.put, BOX, "a", b"1"),
        partial(alone.delete, BOX, "a"),
        partial(alone.list, BOX),
        partial(alone.delete_container, BOX),
    ):
        with pytest.raises(NoSuchContainerError):
            ask()
    alone.create_container(BOX)
    assert list(alone.list(BOX)) == []


def test_what_is_too_large_is_refused_with_a_way_out(alone: LogStore) -> None:
    alone.put(BOX, "k" * MAX_ENTRY_KEY, bytes(MAX_ENTRY_VALUE))
    with pytest.raises(UsageError, match="at most 512 bytes"):
        alone.put(BOX, "k" * (MAX_ENTRY_KEY + 1), b"")
    with pytest.raises(UsageError, match=r"(?s)262,144 bytes.*--metadata device"):
        alone.put(BOX, "a", bytes(MAX_ENTRY_VALUE + 1))
    with pytest.raises(UsageError, match="transaction is too large"):
        alone.tput({Key(BOX, str(number)): bytes(MAX_ENTRY_VALUE) for number in range(17)})
    with pytest.raises(UsageError, match="attributes are too large"):
        alone.put(BOX, "a", b"", attributes=bytes(4097))
    with pytest.raises(UsageError, match="no reads of at least"):
        alone.get(BOX, "a", at_least=Timestamp(1, 1))


# -- sessions ------------------------------------------------------------------------------------------


def test_a_session_ends_its_wait_with_the_last_write_that_it_has_seen(fleet: Fleet) -> None:
    """A program that has written on one machine, and goes on at another, reads what it has written."""
    store(fleet[0]).put(BOX, "a", b"1")
    fleet.meet()
    store(fleet[1]).put(BOX, "a", b"2")
    fleet.send(1, 0)
    session = store(fleet[0]).session()
    with pytest.raises(HybrisError, match="not yet seen"):
        store(fleet[2]).catch_up(session, 0.0)
    fleet.send(0, 2)
    store(fleet[2]).catch_up(session, 0.0)
    assert get(fleet[2], "a") == b"2"
    store(fleet[2]).put(BOX, "a", b"3")
    store(fleet[2]).catch_up(session, 0.0)


@pytest.mark.parametrize("session", ["", "no session", "AAAA", "\u00e4", "A" * 48_000])
def test_what_is_no_session_is_refused(alone: LogStore, session: str) -> None:
    with pytest.raises(UsageError, match="not a session"):
        alone.catch_up(session, 0.0)


# -- several -------------------------------------------------------------------------------------------


def test_others_see_a_put_and_work_on_without_any_cloud(fleet: Fleet) -> None:
    store(fleet[0]).put(BOX, "a", b"1")
    fleet.send(0, 1)
    assert get(fleet[1], "a") == b"1"
    with pytest.raises(NoSuchKeyError):
        get(fleet[2], "a")
    assert store(fleet[1]).put(BOX, "a", b"2").sn == 2
    fleet.meet()
    assert [every(device, "a") for device in fleet.devices] == [{b"2"}] * 3


def test_values_written_without_knowing_of_each_other_are_all_kept_until_one_has_seen_them(
    fleet: Fleet,
) -> None:
    store(fleet[0]).put(BOX, "a", b"before")
    fleet.meet()
    store(fleet[0]).put(BOX, "a", b"ada")
    store(fleet[1]).put(BOX, "a", b"bob")
    store(fleet[1]).put(BOX, "quiet", b"1")
    fleet.meet()
    assert [every(device, "a") for device in fleet.devices] == [{b"ada", b"bob"}] * 3
    assert len({get(device, "a") for device in fleet.devices}) == 1  # all read the same one
    assert [store(device).conflicts() for device in fleet.devices] == [[(Key(BOX, "a"), 2)]] * 3
    assert keys(fleet[2]) == ["a", "quiet"]
    with pytest.raises(ConditionNotMetError):
        store(fleet[2]).get(BOX, "a", tag=Timestamp(1, 1))
    store(fleet[2]).put(BOX, "a", b"cyd")
    fleet.meet()
    assert [every(device, "a") for device in fleet.devices] == [{b"cyd"}] * 3
    assert store(fleet[0]).conflicts() == []


def test_a_deletion_takes_no_value_away_that_its_machine_had_not_seen(fleet: Fleet) -> None:
    store(fleet[0]).put(BOX, "a", b"1")
    fleet.meet()
    store(fleet[0]).put(BOX, "a", b"2")
    for _ in range(3):  # so that its update has the higher stamp
        store(fleet[1]).put(BOX, "b", b"x")
    store(fleet[1]).delete(BOX, "a")
    fleet.meet()
    for device in fleet.devices:
        assert every(device, "a") == {b"2"}
        assert store(device).conflicts() == []
        assert keys(device) == ["a", "b"]
        assert store(device).stat(BOX, "a").timestamp.sn == 2
    store(fleet[2]).delete(BOX, "a")
    fleet.meet()
    assert [keys(device) for device in fleet.devices] == [["b"]] * 3


def test_a_transaction_is_seen_whole_or_not_at_all(fleet: Fleet) -> None:
    store(fleet[0]).tput({Key(BOX, "anna"): b"10", Key(BOX, "bert"): b"0"})
    fleet.meet()
    store(fleet[0]).tput({Key(BOX, "anna"): b"3", Key(BOX, "bert"): b"7", Key(BOX, "carl"): None})
    for update in fleet[0].log():
        fleet[1].receive([update])
        assert (get(fleet[1], "anna"), get(fleet[1], "bert")) in ((b"10", b"0"), (b"3", b"7"))
    assert get(fleet[1], "bert") == b"7"


def test_a_container_that_is_dropped_stays_for_what_another_machine_has_put_there(fleet: Fleet) -> None:
    store(fleet[0]).delete_container(BOX)
    store(fleet[1]).put(BOX, "a", b"1")
    fleet.meet()
    for device in fleet.devices:
        assert store(device).containers() == [BOX]
        assert get(device, "a") == b"1"
    store(fleet[2]).delete(BOX, "a")
    assert store(fleet[2]).containers() == []
    store(fleet[2]).create_container(BOX)
    fleet.meet()
    assert [store(device).containers() for device in fleet.devices] == [[BOX]] * 3


def test_a_machine_that_was_set_back_forks_and_loses_nothing_that_others_have(fleet: Fleet) -> None:
    device = fleet[0]
    backup = device.saved()
    store(device).put(BOX, "a", b"before")
    store(device).put(BOX, "b", b"seen")
    fleet.send(0, 1)
    device.restore(backup)
    store(device).put(BOX, "a", b"after")
    fleet.meet()
    for one in fleet.devices:
        assert every(one, "a") == {b"before", b"after"}
        assert get(one, "b") == b"seen"


def test_a_machine_that_only_reads_writes_nothing(limited: Fleet) -> None:
    store(limited[0]).create_container(BOX)
    store(limited[0]).put(BOX, "a", b"1")
    say(limited[0], 1, Role.READER)
    limited.meet()
    reader = limited[1]
    before = len(reader.log())
    for ask in (
        partial(store(reader).put, BOX, "a", b"2"),
        partial(store(reader).delete, BOX, "a"),
        partial(store(reader).create_container, "mine"),
    ):
        with pytest.raises(HybrisError, match="only reads"):
            ask()
    assert len(reader.log()) == before
    assert get(reader, "a") == b"1"


def test_what_an_earlier_version_has_kept_hides_nothing(fleet: Fleet, alone: LogStore) -> None:
    """It knew no entries, so it checked none."""
    alone.put(BOX, "a", b"1")
    register = next(key for key in fleet[0].registers() if key[0] == ENTRY)
    nonsense = [
        (register, b"nonsense"),
        (register + b"\xff", Entry(1, 1, 1, b"value").encode()),
        (register + b"b", Entry(1, 1, 1, b"value").encode()[:-1]),
        (container_key("x")[:-1] + b"\xff", b"\1"),
    ]
    with fleet[0].rig.fs.state.transaction() as tx:
        stamp = Stamp(1 << 40, fleet[1].key.device_id)
        tx.registers.merge([Merged(key, [], [Value(stamp, value)]) for key, value in nonsense])
    assert alone.get(BOX, "a").value == b"1"
    assert [one.key for one in alone.list(BOX)] == ["a"]
    assert alone.containers() == [BOX]
    assert alone.conflicts() == []


def test_an_entry_that_no_program_writes_counts_nowhere(fleet: Fleet) -> None:
    store(fleet[0]).put(BOX, "a", b"1")
    register = next(key for key in fleet[0].registers() if key[0] == ENTRY)
    with fleet[0].rig.fs.state.transaction() as tx:
        fleet[0].rig.sharing.signer.sign(tx, [(register, b"nonsense")], 0)
    fleet[1].receive(fleet[0].log())
    assert get(fleet[1], "a") == b"1"
