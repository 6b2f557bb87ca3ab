"""The metadata store in a service, against real ones: answers get lost, machines fall silent."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from unittest.mock import ANY
from uuid import uuid4

import pytest

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import DamagedError
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    NoSuchContainerError,
)
from hybrisfs.kv.metadata import Change, Garbage, Listed
from hybrisfs.kv.record import ABSENT, PRESENT, Condition, KeyMetadata, Timestamp, leaving
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.service import KeyValue, MetadataService, OutcomeUnknownError, Put
from hybrisfs.kv.service_metadata import ServiceMetadata
from hybrisfs.kv.service_writes import WriteLimits, WriteLostError
from tests.kv.rig import new_database
from tests.kv.services import (
    FORMS,
    SERVICES,
    Forgetful,
    Passing,
    Servers,
    client_of,
    in_form,
    service_cluster,
)

CHECKSUM = b"c" * 16
Open = Callable[..., ServiceMetadata]


def entry(sn: int, write: int) -> KeyMetadata:
    return KeyMetadata(sn, write, 100, 129, 1, (0, 1), (CHECKSUM,))


@pytest.fixture(scope="module", params=SERVICES)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with service_cluster(request.param, tmp_path_factory.mktemp("service")) as cluster:
        yield cluster


@pytest.fixture(params=FORMS)
def open_store(request: pytest.FixtureRequest, cluster: Servers, tmp_path: Path) -> Iterator[Open]:
    """Opens the store of this test for a device, each time by a process of its own."""
    root, opened = f"{uuid4().hex}/", list[ServiceMetadata]()

    def open_for(
        device: int = 1,
        client: Callable[[MetadataService], MetadataService] | None = None,
        environment: Environment = SYSTEM,
    ) -> ServiceMetadata:
        connection = in_form(request.param, client_of(cluster.url, root))
        if client is not None:
            connection = client(connection)
        folder = tmp_path / uuid4().hex
        folder.mkdir()
        debts = DeviceMetadata(new_database(folder), SYSTEM)
        opened.append(ServiceMetadata(connection, debts, bytes([device]) * 16, environment))
        return opened[-1]

    yield open_for
    for store in opened:
        store.close()


@pytest.fixture
def metadata(open_store: Open) -> ServiceMetadata:
    store = open_store()
    store.create_container("box")
    return store


@pytest.fixture
def box(metadata: ServiceMetadata) -> int:
    return metadata.container("box")


def listed(
    metadata: ServiceMetadata, box: int, prefix: bytes = b"", after: bytes | None = None
) -> list[Listed]:
    with metadata.listing(box, prefix, after, 2) as pages:
        return list(chain.from_iterable(pages))


def new_entry(metadata: ServiceMetadata, sn: int = 0) -> KeyMetadata:
    """Of a write that has begun, and whose objects may be on the clouds."""
    write = metadata.new_write()
    metadata.intend([Garbage(write, 1)])
    return entry(sn, write)


def test_conditional_updates(metadata: ServiceMetadata, box: int) -> None:
    place = (box, b"key")
    assert metadata.read(place) is None
    first, second = new_entry(metadata), new_entry(metadata)
    assert metadata.update([Change(place, second)]) == [second._replace(sn=1)]
    assert metadata.update([Change(place, first._replace(sn=1))]) is None, "the second one has overtaken it"
    assert metadata.read(place) == second._replace(sn=1)
    third = new_entry(metadata)
    assert metadata.update([Change(place, third)]) == [third._replace(sn=2)]
    tombstone = KeyMetadata(0, metadata.new_write())
    assert metadata.update([Change(place, tombstone)], {place: PRESENT}) == [tombstone._replace(sn=3)]
    with pytest.raises(ConditionNotMetError):
        metadata.update([Change(place, KeyMetadata(0, metadata.new_write()))], {place: PRESENT})


def test_conditions_are_checked_against_what_is_there_now(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    """Not against what this machine has seen last."""
    a, b = (box, b"a"), (box, b"b")
    other = open_store(2)
    assert other.container("box") == box
    made = metadata.update([Change(a, new_entry(metadata))], {a: ABSENT})
    assert made is not None
    with pytest.raises(ConditionNotMetError) as caught:
        other.update([Change(b, new_entry(other))], {a: ABSENT})
    assert caught.value.found == made[0]
    tag = Condition(tag=Timestamp(made[0].sn, made[0].write))
    replaced = other.update([Change(a, new_entry(other))], {a: tag})
    assert replaced is not None
    with pytest.raises(ConditionNotMetError):
        metadata.update([Change(a, new_entry(metadata))], {a: tag})
    assert metadata.read(a) == replaced[0]
    assert metadata.read(b) is None


def test_transactions_of_two_machines_are_whole(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    """Two keys always have the same version, whoever writes them."""
    pair = [(box, b"a"), (box, b"b")]
    stores = [metadata, open_store(2)]
    stores[1].container("box")

    def write(number: int) -> None:
        store = stores[number % 2]
        while store.update([Change(place, new_entry(store)) for place in pair]) is None:
            pass

    with ThreadPoolExecutor(6) as pool:
        writes = [pool.submit(write, number) for number in range(30)]
        while not all(one.done() for one in writes):
            assert len({one.entry.sn for one in listed(metadata, box)}) <= 1
        for one in writes:
            one.result()
    assert [one.entry.sn for one in listed(metadata, box)] == [30, 30]


def test_lists(metadata: ServiceMetadata, box: int) -> None:
    keys = [b"a", b"a/1", b"a/2", b"a\xff", b"b", "ä".encode(), b"\xff\xff"]
    for key in keys:
        metadata.update([Change((box, key), new_entry(metadata))])
    metadata.update([Change((box, b"a/1"), KeyMetadata(0, metadata.new_write()))])

    def keys_of(prefix: bytes, after: bytes | None = None) -> list[bytes]:
        return [one.key for one in listed(metadata, box, prefix, after)]

    left = sorted(set(keys) - {b"a/1"})
    assert keys_of(b"") == left
    assert keys_of(b"a") == [b"a", b"a/2", b"a\xff"]
    assert keys_of(b"a\xff") == [b"a\xff"]
    assert keys_of(b"\xff") == [b"\xff\xff"]
    assert keys_of(b"", after=left[1]) == left[2:]
    assert keys_of(b"a", after=b"a/2") == [b"a\xff"]
    assert keys_of(b"b", after=b"a") == [b"b"]
    with metadata.listing(box, b"", None, 2) as pages:
        first = next(pages)
        metadata.update([Change((box, b"a"), new_entry(metadata))])
        metadata.update([Change((box, b"zz"), new_entry(metadata))])
        assert [one.key for one in (*first, *chain.from_iterable(pages))] == left, "all of one moment"
    metadata.update([Change((box, b"zz"), KeyMetadata(0, metadata.new_write()))])
    assert {one.place[1] for one in metadata.values()} == set(left)
    assert (metadata.held(0), metadata.held(7), metadata.count()) == (len(left), 0, len(keys) + 1)


def test_a_watched_key_tells_of_what_others_do(open_store: Open, metadata: ServiceMetadata, box: int) -> None:
    """Whether there was one before, or is one afterwards."""
    other, place = open_store(2), (box, b"key")
    other.container("box")
    for change in (new_entry(other), new_entry(other), KeyMetadata(0, other.new_write())):
        told = threading.Event()
        with metadata.watch(place, told.set):
            other.update([Change((box, b"another"), new_entry(other))])
            other.update([Change(place, change)])
            assert told.wait(60.0)


def test_a_list_of_a_container_that_others_have_made_again_is_of_the_new_one(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    other = open_store(2)
    other.container("box")
    other.delete_container("box")
    with pytest.raises(NoSuchContainerError):
        listed(metadata, box)
    other.create_container("box")
    place = (other.container("box"), b"key")
    other.update([Change(place, new_entry(other))])
    with pytest.raises(NoSuchContainerError):
        listed(metadata, box)
    assert [one.key for one in listed(metadata, metadata.container("box"))] == [b"key"]


def test_a_machine_that_has_used_no_container_reads_entries(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    """It looks after values of all containers, which it finds by number."""
    made = metadata.update([Change((box, b"key"), new_entry(metadata))])
    assert made is not None
    other = open_store(2)
    assert other.read((box, b"key")) == made[0]
    moved = new_entry(other)
    assert other.move((box, b"key"), made[0], made[0]._replace(moved=moved.write))
    with pytest.raises(NoSuchContainerError):
        other.read((box + 1, b"key"))


def test_a_container_with_another_name_is_found_by_its_number(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    place, other = (box, b"key"), open_store(2)
    other.read(place)
    metadata.rename_container("box", "chest")
    with pytest.raises(NoSuchContainerError):
        other.read(place)
    assert other.read(place) is None
    assert metadata.update([Change(place, new_entry(metadata))]) is not None
    with pytest.raises(NoSuchContainerError):
        metadata.container("box")
    with pytest.raises(NoSuchContainerError):
        metadata.rename_container("box", "chest")
    metadata.create_container("box")
    with pytest.raises(ContainerExistsError):
        metadata.rename_container("box", "chest")
    assert metadata.containers() == ["box", "chest"]
    assert other.container("chest") == box


def test_nobody_writes_to_a_container_that_has_been_copied(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    """The write would be lost. It began when the container had its name still."""
    other = open_store(2)
    other.container("box")
    place, began = (box, b"key"), new_entry(other)
    made = metadata.update([Change(place, new_entry(metadata))])
    assert made is not None
    metadata.rename_container("box", leaving("box", "mark"))
    for store in (other, metadata):
        for _ in range(2):
            with pytest.raises(NoSuchContainerError):
                store.update([Change(place, began)])
            with pytest.raises(NoSuchContainerError):
                store.move(place, made[0], made[0]._replace(moved=began.write))
    assert metadata.read(place) == made[0]


def test_containers(open_store: Open, metadata: ServiceMetadata, box: int) -> None:
    other = open_store(2)
    with pytest.raises(ContainerExistsError):
        other.create_container("box")
    place = (other.container("box"), b"key")
    metadata.update([Change(place, new_entry(metadata))])
    with pytest.raises(ContainerInUseError):
        other.delete_container("box")
    metadata.update([Change(place, KeyMetadata(0, metadata.new_write()))])
    other.delete_container("box")
    for change in (new_entry(metadata), KeyMetadata(0, metadata.new_write())):
        with pytest.raises(NoSuchContainerError):
            metadata.update([Change(place, change)])
    with pytest.raises(NoSuchContainerError):
        other.container("box")
    other.create_container("box")
    again = other.container("box")
    assert again != box
    other.update([Change((again, b"key"), new_entry(other))])
    with pytest.raises(NoSuchContainerError):
        metadata.read(place)
    assert metadata.container("box") == again, "after that error it is looked up"
    assert metadata.read((again, b"key")) is not None
    assert metadata.containers() == ["box"]


def test_writes_without_success_become_garbage_and_cannot_take_place_any_more(
    metadata: ServiceMetadata, box: int
) -> None:
    failed, replaced, kept = (new_entry(metadata) for _ in range(3))
    place = (box, b"key")
    metadata.update([Change(place, replaced)])
    metadata.update([Change(place, kept)])
    writes = metadata.writes
    assert [one.write for one in writes.garbage()] == [replaced.write], "the others have not ended"
    writes.ended([failed.write, replaced.write, kept.write])
    assert sorted(one.write for one in writes.garbage()) == [failed.write, replaced.write]
    with pytest.raises(WriteLostError):
        metadata.update([Change(place, failed)])
    assert metadata.read(place) == kept._replace(sn=2)
    writes.forget([failed.write, replaced.write])
    assert writes.garbage() == []


def test_a_process_takes_over_what_the_one_before_has_left(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    left, kept = new_entry(metadata), new_entry(metadata)
    metadata.update([Change((box, b"key"), kept)])
    again = open_store()
    again.container("box")
    garbage = {one.write for one in again.writes.garbage()}
    assert left.write in garbage
    assert kept.write not in garbage
    with pytest.raises(WriteLostError):
        metadata.update([Change((box, b"key"), left)])


def test_machines_take_over_what_a_silent_one_has_left(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    """A laptop sleeps through its lease; its write must fail, as the others may have deleted the objects."""
    sleeping, other = open_store(2), open_store(3)
    sleeping.container("box")
    other.container("box")
    place = (box, b"key")
    sleeping.update([Change(place, new_entry(sleeping))])
    began = new_entry(sleeping)
    assert other.writes.garbage() == [], "it is at work"
    fall_silent(sleeping)
    assert began.write in {one.write for one in metadata.writes.garbage()}
    with pytest.raises(WriteLostError):
        sleeping.update([Change(place, began)])
    assert metadata.read(place) is not None


def test_numbers_of_writes_are_never_used_twice(open_store: Open, metadata: ServiceMetadata) -> None:
    stores = [metadata, open_store(2), open_store(3)]
    with ThreadPoolExecutor(6) as pool:
        drawn = list(pool.map(lambda number: stores[number % 3].new_write(), range(2000)))
    assert len(set(drawn)) == len(drawn)


def test_blocks_go_when_all_their_writes_have_ended(metadata: ServiceMetadata, box: int) -> None:
    writes = [metadata.new_write() for _ in range(257)]
    for write in writes[:10]:
        metadata.intend([Garbage(write, 1)])
        metadata.update([Change((box, b"key"), entry(0, write))])
    metadata.writes.ended(writes[:255])
    metadata.writes.forget([one.write for one in metadata.writes.garbage()])
    assert len(list(metadata.writes._all_of(b"b"))) == 2
    metadata.writes.ended(writes[255:])
    assert metadata.writes.garbage() == []
    assert len(list(metadata.writes._all_of(b"b"))) == 1
    assert list(metadata.writes._all_of(b"u")) == []


@pytest.mark.parametrize("lost", [1, 3])
def test_what_took_place_without_an_answer_is_not_done_twice(open_store: Open, lost: int) -> None:
    store, other = open_store(client=Forgetful), open_store(2)
    client = store._client
    assert isinstance(client, Forgetful)
    client.lose = lost
    store.create_container("box")
    place = (store.container("box"), b"key")
    other.container("box")
    for number in range(3):
        client.lose = lost
        made = store.update([Change(place, new_entry(store))], {place: Condition(version=number)})
        assert made is not None
        assert (made[0].sn, store.read(place)) == (number + 1, made[0])
    mine = new_entry(store)
    client.lose = 1
    # Another one writes before the answer that was lost is asked for again.
    client.before = lambda: other.update([Change(place, new_entry(other))])
    made = store.update([Change(place, mine)])
    assert made is not None
    assert made[0].sn == 4, "it took place before the other one, once"
    found = store.read(place)
    assert found is not None
    assert found.sn == 5
    assert mine.write in {one.write for one in other.writes.garbage()}, "the other one has replaced it"


def fall_silent(store: ServiceMetadata) -> None:
    """As if the machine slept for too long."""
    store._client.withdraw()


def test_what_took_place_without_an_answer_is_kept_when_others_have_cleaned_up(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    """The mark that it took place has gone with its block: that it is missing proves nothing."""
    sleeping = open_store(2, client=Forgetful)
    sleeping.container("box")
    place, mine = (box, b"key"), new_entry(sleeping)
    client = sleeping._client
    assert isinstance(client, Forgetful)
    client.lose = 1

    def others_clean_up() -> None:
        fall_silent(sleeping)
        metadata.writes.garbage()

    client.before = others_clean_up  # before the answer that was lost is asked for again
    with pytest.raises(OutcomeUnknownError, match="not known whether this took place"):
        sleeping.update([Change(place, mine)])
    sleeping.writes.ended([mine.write])
    assert metadata.read(place) == mine._replace(sn=1)
    for store in (sleeping, metadata):
        assert mine.write not in {one.write for one in store.writes.garbage()}


def test_marks_of_a_block_that_others_have_taken_over_stay_until_they_have_seen_them(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    sleeping = open_store(2)
    sleeping.container("box")
    kept = new_entry(sleeping)
    sleeping.update([Change((box, b"key"), kept)])
    rest = [sleeping.new_write() for _ in range(255)]
    block, _ = sleeping.writes._all_of(b"b")  # the second one was taken ahead
    metadata.new_write()
    metadata.writes._take_over(sleeping.writes._device, block, [])
    sleeping.writes.ended([kept.write, *rest])
    sleeping.writes.garbage()
    metadata.writes._finish()
    garbage = {one.write for one in metadata.writes.garbage()}
    assert kept.write not in garbage
    assert set(rest) <= garbage


class Interrupted(Passing):
    """A client whose machine sleeps before it looks for the marks of a block, or for keys."""

    wake: Callable[[], object] | None = None

    def scan(self, first: bytes, end: bytes, *, keys_only: bool = False) -> Iterator[KeyValue]:
        if self.wake is not None and first.startswith((b"u/", b"k/")):
            wake, self.wake = self.wake, None
            wake()
        return super().scan(first, end, keys_only=keys_only)


def test_a_machine_that_slept_while_it_looked_for_garbage_makes_none_of_what_is_named(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    """Another one has finished its work meanwhile, and removed the marks."""
    first, sleeping = open_store(2), open_store(3, client=Interrupted)
    first.container("box")
    kept = new_entry(first)
    first.update([Change((box, b"key"), kept)])
    sleeping.new_write()
    (block,) = first.writes._all_of(b"b")
    sleeping.writes._take_over(first.writes._device, block, [])
    client = sleeping._client
    assert isinstance(client, Interrupted)

    def others_work() -> None:
        fall_silent(sleeping)
        metadata.writes.garbage()

    client.wake = others_work
    sleeping.writes._finish()
    assert client.wake is None
    for store in (metadata, sleeping):
        assert kept.write not in {one.write for one in store.writes.garbage()}


def test_a_container_that_was_put_back_to_use_while_it_was_dropped_stays(
    open_store: Open, metadata: ServiceMetadata, box: int
) -> None:
    """The machine that drops it is so slow that another one has given up waiting for it."""
    slow = open_store(2, client=Interrupted)
    key = metadata._containers.key("box")
    clock = itertools.count()
    other = open_store(3, environment=Environment(monotonic=lambda: next(clock) * 20.0))
    client = slow._client
    assert isinstance(client, Interrupted)
    client.wake = lambda: other.container("box")
    with pytest.raises(ContainerInUseError):
        slow.delete_container("box")
    assert client.wake is None
    assert metadata._client.get(key) == [KeyValue(key, b"%016x" % box, ANY)]
    metadata.update([Change((box, b"key"), new_entry(metadata))])


def test_damaged_keys_keep_others_from_nothing(open_store: Open, metadata: ServiceMetadata, box: int) -> None:
    writes, device = metadata.writes, b"\1" * 16
    kept, failed = new_entry(metadata), new_entry(metadata)
    metadata.update([Change((box, b"key"), kept)])
    writes.ended([failed.write])
    mine = device.hex().encode()
    for key, value in (
        (b"g/%b/%016x" % (mine, 7), b"many"),
        (b"g/%b/%016x" % (mine, 8), b"99999999999"),
        (b"g/%b/write" % mine, b"1"),
        (b"f/%b/%b/%016x" % (mine, mine, 9), b"1000000000000000000"),
        (b"f/%b/%b/%016x" % (mine, mine, 1 << 63), b"3"),
        (b"b/%b/block" % (b"9" * 32), b"256"),
        (b"k/nowhere/key", b""),
        (b"c/\xff", b"nothing"),
    ):
        metadata._client.change([Put(key, value)])
    assert failed.write in {one.write for one in writes.garbage()}
    assert [one.place for one in metadata.values()] == [(box, b"key")]
    assert "box" in metadata.containers()
    assert len(metadata.containers()) == 2


@pytest.mark.parametrize("value", [b"", b"7", b"%016x " % 7, b"%016x listing" % 7, b"%016X" % 10])
def test_a_damaged_container_is_left_as_it_is(metadata: ServiceMetadata, value: bytes) -> None:
    metadata._client.change([Put(b"c/box", value)])
    with pytest.raises(DamagedError):
        metadata.delete_container("box")
    assert metadata._client.get(b"c/box") == [KeyValue(b"c/box", value, ANY)]


@pytest.mark.parametrize("number", [b"", b"-1", b"7", b"0x101", b"9223372036854775809"])
def test_a_damaged_counter_gives_no_numbers(open_store: Open, number: bytes) -> None:
    store = open_store()
    store._client.change([Put(b"n", number)])
    with pytest.raises(DamagedError):
        store.new_write()


def test_a_machine_that_slept_can_write_again(open_store: Open, metadata: ServiceMetadata, box: int) -> None:
    """The first write fails; the next one has a number of a new block."""
    sleeping, place = open_store(2), (box, b"key")
    sleeping.container("box")
    sleeping.update([Change(place, new_entry(sleeping))])
    fall_silent(sleeping)
    metadata.writes.garbage()
    with pytest.raises(WriteLostError):
        sleeping.update([Change(place, new_entry(sleeping))])
    made = sleeping.update([Change(place, new_entry(sleeping))])
    assert made is not None
    assert metadata.read(place) == made[0]


def test_an_outcome_that_stays_unknown_is_said_to_be(
    metadata: ServiceMetadata, open_store: Open, box: int
) -> None:
    clock = itertools.count()
    hurried = Environment(monotonic=lambda: next(clock) * 10.0)
    store = open_store(client=Forgetful, environment=hurried)
    store.container("box")
    change = Change((box, b"key"), new_entry(store))
    client = store._client
    assert isinstance(client, Forgetful)
    client.lose = 1000
    with pytest.raises(OutcomeUnknownError, match="not known whether this took place"):
        store.update([change])
    client.lose = 0
    store.writes.ended([change.entry.write])
    assert metadata.read((box, b"key")) == change.entry._replace(sn=1)
    assert change.entry.write not in {one.write for one in store.writes.garbage()}


def test_a_block_is_taken_ahead_while_there_are_numbers_left(open_store: Open) -> None:
    """Otherwise all threads of a machine would wait for the next one together."""
    store = open_store(2)
    for _ in range(WriteLimits().block // 2):
        store.new_write()
    assert len(list(store.writes._all_of(b"b"))) == 1
    store.new_write()
    assert len(list(store.writes._all_of(b"b"))) == 2
