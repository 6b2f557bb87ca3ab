"""Fetching: each chunk once however many ask, and no failure that outlives its cause."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from random import Random

import pytest

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.dispersal.pack import ChunkLocation
from hybrisfs.environment import Environment
from hybrisfs.merge.cloud_records import CloudRecord, entries_of
from hybrisfs.read.fetch import FetchLimits
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.tree.inodes import Inode
from tests.read.full import nothing_can_be_added
from tests.tree.rig import AskDevices, Rig, small_chunks

PATIENCE = 30.0


def elsewhere(rig: Rig, count: int, size: int = 100) -> list[ChunkRef]:
    """So many chunks of one pack that this device does not hold."""
    for number in range(count):
        rig.make(b"%d" % number, (b"%d " % number * size)[:size])
    rig.publish()
    rig.pack()
    rig.room.drop_all()
    numbers = [row[0] for row in rig.db.rows.execute("SELECT number FROM chunk ORDER BY number").fetchall()]
    return [rig.tx.chunks.get(number) for number in numbers]


def text(number: int, size: int = 100) -> bytes:
    return (b"%d " % number * size)[:size]


@contextmanager
def getting(rig: Rig, first: Callable[[Sequence[ChunkLocation]], object]) -> Iterator[None]:
    """The clouds do this first, when they are asked for chunks."""
    before, rig.clouds.before_get = rig.clouds.before_get, first
    yield
    rig.clouds.before_get = before


def test_neighbours_come_along(rig: Rig) -> None:
    refs = elsewhere(rig, 10)
    assert rig.fetcher.fetch_one(refs[3]) == text(3)
    assert [len(run) for run in rig.clouds.gets] == [7]
    rig.clouds.down = True
    assert [rig.read(rig.find(b"%d" % number)) for number in range(3, 10)] == [text(n) for n in range(3, 10)]


def test_only_so_many_neighbours_come_along(rig: Rig) -> None:
    rig.fetcher.limits = FetchLimits(near_bytes=500)
    refs = elsewhere(rig, 40)
    rig.fetcher.fetch_one(refs[0])
    assert len(rig.clouds.gets[-1]) <= 15
    after = len(rig.clouds.gets[-1])
    rig.fetcher.fetch_one(refs[after])  # front to back: more is fetched ahead
    assert len(rig.clouds.gets[-1]) == 40 - after


def test_what_is_here_is_not_fetched_again(rig: Rig) -> None:
    refs = elsewhere(rig, 10)
    rig.fetcher.fetch_one(refs[5])
    rig.fetcher.fetch_one(refs[0])
    assert [len(run) for run in rig.clouds.gets] == [5, 5]


def test_one_chunk_is_asked_for_once(rig: Rig) -> None:
    refs = elsewhere(rig, 3)
    asked, go_on = threading.Event(), threading.Event()

    def slowly(locations: Sequence[ChunkLocation]) -> None:
        asked.set()
        assert go_on.wait(PATIENCE)

    with getting(rig, slowly), ThreadPoolExecutor(6) as pool:
        first = pool.submit(rig.fetcher.fetch_one, refs[0])
        assert asked.wait(PATIENCE)
        others: list[Future[bytes]] = [pool.submit(rig.fetcher.fetch_one, refs[n % 3]) for n in range(5)]
        go_on.set()
        assert first.result(PATIENCE) == text(0)
        assert [other.result(PATIENCE) for other in others] == [text(n % 3) for n in range(5)]
    assert len(rig.clouds.gets) == 1


def test_all_who_wait_hear_of_a_failure_and_the_next_tries_again(rig: Rig) -> None:
    refs = elsewhere(rig, 1)
    asked, go_on = threading.Event(), threading.Event()

    def fail(locations: Sequence[ChunkLocation]) -> None:
        asked.set()
        assert go_on.wait(PATIENCE)
        raise ChunkUnavailable("chunk", {})

    with getting(rig, fail), ThreadPoolExecutor(2) as pool:
        first = pool.submit(rig.fetcher.fetch_one, refs[0])
        assert asked.wait(PATIENCE)
        second = pool.submit(rig.fetcher.fetch_one, refs[0])
        go_on.set()
        for one in (first, second):
            assert isinstance(one.exception(PATIENCE), ChunkUnavailable)
    assert rig.fetcher.fetch_one(refs[0]) == text(0)


def test_a_chunk_is_readable_though_its_neighbour_is_not(rig: Rig) -> None:
    refs = elsewhere(rig, 3)

    def without_second(locations: Sequence[ChunkLocation]) -> None:
        if refs[1].id in [location.chunk_id for location in locations]:
            raise ChunkUnavailable("chunk", {})

    with getting(rig, without_second):
        assert rig.fetcher.fetch_one(refs[0]) == text(0)
        with pytest.raises(ChunkUnavailable):
            rig.fetcher.fetch_one(refs[1])
        assert rig.fetcher.fetch_one(refs[2]) == text(2)


def test_who_waits_for_a_neighbour_that_failed_tries_itself(rig: Rig) -> None:
    refs = elsewhere(rig, 3)
    asked, go_on = threading.Event(), threading.Event()

    def without_first(locations: Sequence[ChunkLocation]) -> None:
        asked.set()
        assert go_on.wait(PATIENCE)
        if refs[0].id in [location.chunk_id for location in locations]:
            raise ChunkUnavailable("chunk", {})

    with getting(rig, without_first), ThreadPoolExecutor(3) as pool:
        first = pool.submit(rig.fetcher.fetch_one, refs[0])
        assert asked.wait(PATIENCE)
        neighbours = [pool.submit(rig.fetcher.fetch_one, refs[n]) for n in (1, 2)]
        go_on.set()
        assert isinstance(first.exception(PATIENCE), ChunkUnavailable)
        assert [one.result(PATIENCE) for one in neighbours] == [text(1), text(2)]


def test_an_unexpected_failure_leaves_nobody_waiting(rig: Rig) -> None:
    refs = elsewhere(rig, 2)
    asked, go_on = threading.Event(), threading.Event()

    def fail(locations: Sequence[ChunkLocation]) -> None:
        asked.set()
        assert go_on.wait(PATIENCE)
        raise ValueError("a bug")

    with getting(rig, fail), ThreadPoolExecutor(2) as pool:
        first = pool.submit(rig.fetcher.fetch_one, refs[0])
        assert asked.wait(PATIENCE)
        second = pool.submit(rig.fetcher.fetch_one, refs[1])
        go_on.set()
        for one in (first, second):
            assert isinstance(one.exception(PATIENCE), ValueError)
    assert rig.fetcher.fetch_one(refs[1]) == text(1)


class _Gate:
    """Clouds that answer when they are let, and count the requests under way."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self.flying = self.most = 0

    def get(self, _: Sequence[ChunkLocation]) -> None:
        with self._changed:
            self.flying += 1
            self.most = max(self.most, self.flying)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._open, PATIENCE)
            self.flying -= 1
            self._changed.notify_all()

    def wait_for(self, flying: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.flying >= flying, PATIENCE), self.flying

    def wait_for_rest(self) -> None:
        """Until no request is under way."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self.flying, PATIENCE)

    def close(self) -> None:
        with self._changed:
            self._open = False

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()


CHUNK = 512
"""Bytes; so short ones are cut at equal lengths."""


@contextmanager
def long_file(rig: Rig, chunks: int) -> Iterator[tuple[Inode, bytes, _Gate]]:
    """A file of so many chunks that this device does not hold, of which runs ahead hold two each."""
    rig.fetcher.limits = FetchLimits(near_bytes=0, ahead_bytes=2 * CHUNK + 100)
    rig.chunker.limits = small_chunks(CHUNK)
    content = Random(1).randbytes(CHUNK * chunks)
    inode = rig.make(b"long", content)
    rig.publish()
    rig.pack()
    rig.room.drop_all()
    gate = _Gate()
    with getting(rig, gate.get):
        yield inode, content, gate


def test_the_chunks_of_one_read_are_fetched_side_by_side(rig: Rig) -> None:
    with long_file(rig, 4) as (inode, content, gate), ThreadPoolExecutor(1) as pool:
        reading = pool.submit(rig.read, inode)
        gate.wait_for(3)  # one chunk, and two runs that go on from there
        gate.open()
        assert reading.result(PATIENCE) == content


def test_requests_run_ahead_of_who_reads_a_file_from_front_to_back(rig: Rig) -> None:
    with long_file(rig, 40) as (inode, content, gate), ThreadPoolExecutor(1) as pool:
        gate.open()
        assert rig.read(inode, 0, CHUNK) == content[:CHUNK]
        assert gate.most == 1  # nobody knows yet
        gate.close()
        reading = pool.submit(rig.read, inode, CHUNK, CHUNK)
        gate.wait_for(7)  # what is wanted, and six runs ahead
        gate.open()
        assert reading.result(PATIENCE) == content[CHUNK : 2 * CHUNK]
        for start in range(2 * CHUNK, len(content), CHUNK):
            assert rig.read(inode, start, CHUNK) == content[start : start + CHUNK]
        rig.fetcher.join()
        assert gate.most <= 8
        fetched = [chunk for run in rig.clouds.gets for chunk in run]
        assert len(fetched) == len(set(fetched))  # each once


def test_who_reads_what_is_here_already_has_more_fetched_ahead(rig: Rig) -> None:
    with long_file(rig, 60) as (inode, content, gate), ThreadPoolExecutor(1) as pool:
        gate.open()
        assert rig.read(inode, 0, CHUNK) == content[:CHUNK]
        gate.close()
        reading = pool.submit(rig.read, inode, CHUNK, CHUNK)
        gate.wait_for(7)
        gate.open()
        assert reading.result(PATIENCE) == content[CHUNK : 2 * CHUNK]
        gate.wait_for_rest()
        gate.close()
        for start in range(2 * CHUNK, 6 * CHUNK, CHUNK):  # all of it has come by now
            assert rig.read(inode, start, CHUNK) == content[start : start + CHUNK]
        gate.wait_for(2)  # the reader is in the second run ahead: two are begun behind the last
        gate.open()


def small_files(rig: Rig, count: int) -> list[Inode]:
    """So many files, one chunk each, that this device does not hold; runs ahead hold five each."""
    rig.fetcher.limits = FetchLimits(near_bytes=300, ahead_bytes=5 * 140)
    inodes = [rig.make(b"%03d" % number, text(number)) for number in range(count)]
    rig.publish()
    rig.pack()
    rig.room.drop_all()
    return inodes


def test_small_files_are_fetched_ahead_of_who_reads_one_after_the_other(rig: Rig) -> None:
    inodes, gate = small_files(rig, 100), _Gate()
    with getting(rig, gate.get), ThreadPoolExecutor(1) as pool:
        gate.open()
        read = 0
        while len(rig.clouds.gets) < 2:  # nobody knows yet
            assert rig.read(inodes[read]) == text(read)
            read += 1
        gate.close()
        reading = pool.submit(lambda: [rig.read(inode) for inode in inodes[read:]])
        gate.wait_for(7)
        gate.open()
        assert reading.result(PATIENCE) == [text(number) for number in range(read, 100)]
    rig.fetcher.join()
    fetched = [chunk for run in rig.clouds.gets for chunk in run]
    assert len(fetched) == len(set(fetched)) == 100
    assert len(rig.clouds.gets) <= 25


def test_files_of_a_folder_are_fetched_together_whatever_the_order(rig: Rig) -> None:
    inodes = small_files(rig, 100)
    order = Random(2).sample(range(100), 100)
    for number in order:
        assert rig.read(inodes[number]) == text(number)
    rig.fetcher.join()
    fetched = [chunk for run in rig.clouds.gets for chunk in run]
    assert len(fetched) == len(set(fetched)) == 100
    assert len(rig.clouds.gets) <= 34


def test_what_stands_behind_a_large_file_is_not_fetched_ahead_of_its_reader(rig: Rig) -> None:
    rig.fetcher.limits = FetchLimits(near_bytes=0, ahead_bytes=2 * CHUNK + 100)
    rig.chunker.limits = small_chunks(CHUNK)
    large, others = rig.make(b"large", Random(1).randbytes(CHUNK * 20)), 200
    for number in range(others):
        rig.make(b"%d" % number, Random(number).randbytes(250))
    rig.publish()
    rig.pack()
    rig.room.drop_all()
    for start in range(0, CHUNK * 20, CHUNK):
        rig.read(large, start, CHUNK)
    rig.fetcher.join()
    assert sum(map(len, rig.clouds.gets)) <= 20 + 10  # a run or two reach beyond its end


def test_nothing_is_read_ahead_while_transfers_are_to_be_spared(rig: Rig) -> None:
    with long_file(rig, 10) as (inode, content, gate):
        gate.open()
        rig.signals.pause_transfers(True)
        for start in range(0, 3 * CHUNK, CHUNK):
            assert rig.read(inode, start, CHUNK) == content[start : start + CHUNK]
        rig.fetcher.join()
        assert [len(run) for run in rig.clouds.gets] == [1, 1, 1]


def test_a_chunk_is_fetched_as_soon_as_it_is_known_where_it_is() -> None:
    reader, waits = 0, threading.Event()

    def look_at_clock() -> float:
        if threading.get_ident() == reader:
            waits.set()
        return 0.0

    rig = Rig(environment=Environment(monotonic=look_at_clock))
    (ref,) = elsewhere(rig, 1)
    place = (ref.pack, ref.offset, ref.sealed)
    rig.db.rows.execute(
        "UPDATE chunk SET pack = 0, offset = NULL, sealed = NULL WHERE number = ?", (ref.number,)
    )
    ref = rig.tx.chunks.get(ref.number)

    def read() -> dict[int, bytes]:
        nonlocal reader
        reader = threading.get_ident()
        return rig.fetcher.fetch([ref])

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert waits.wait(PATIENCE)
        assert not rig.clouds.gets
        with rig.fs.state.transaction() as tx:
            tx.chunks.packed(ref.number, *place)  # type: ignore[arg-type]
        assert reading.result(PATIENCE) == {ref.number: text(0)}
    rig.discard()


@pytest.mark.parametrize("told", [True, False])
def test_a_cloud_of_which_others_tell_is_waited_for_until_it_is_open(told: bool) -> None:
    reader, looks, waits = 0, 0, threading.Event()

    def look_at_clock() -> float:
        nonlocal looks
        looks += threading.get_ident() == reader and not rig.clouds.numbers
        if looks == 2:  # first it looks how long it may wait
            waits.set()
        return 0.0

    rig = Rig(environment=Environment(monotonic=look_at_clock))
    (ref,) = elsewhere(rig, 1)
    if told:
        clouds = {number: CloudRecord(f"{number}", f"file:///{number}") for number in rig.clouds.numbers}
        rig.sharing.signer.sign(rig.tx, entries_of(clouds, None), 0)
    opened, rig.clouds.numbers = rig.clouds.numbers, range(0)

    def fail(_: object) -> None:
        if not rig.clouds.numbers:
            raise ChunkUnavailable("chunk", {})

    def read() -> dict[int, bytes]:
        nonlocal reader
        reader = threading.get_ident()
        return rig.fetcher.fetch([ref])

    with getting(rig, fail), ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        if told:
            assert waits.wait(PATIENCE)
            rig.clouds.numbers = opened
            rig.clouds.opened()
            assert reading.result(PATIENCE) == {ref.number: text(0)}
        else:  # no cloud of the volume is missing
            with pytest.raises(ChunkUnavailable):
                reading.result(PATIENCE)
    rig.discard()


def test_closing_ends_the_wait_for_where_a_chunk_is(rig: Rig) -> None:
    (ref,) = elsewhere(rig, 1)
    rig.db.rows.execute("UPDATE chunk SET pack = 0 WHERE number = ?", (ref.number,))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(rig.fetcher.fetch, [rig.tx.chunks.get(ref.number)])
        rig.fetcher.close()
        assert isinstance(reading.exception(PATIENCE), ChunkUnavailable)


def test_a_broken_cache_disk_keeps_nobody_from_reading(rig: Rig) -> None:
    elsewhere(rig, 2)
    with nothing_can_be_added(rig):
        assert rig.read(rig.find(b"0")) == text(0)
        assert rig.read(rig.find(b"1")) == text(1)
    assert rig.journal.bytes == 0


def test_a_full_cache_keeps_nobody_from_reading(rig: Rig) -> None:
    elsewhere(rig, 2)
    rig.journal.budget = 0
    assert rig.read(rig.find(b"0")) == text(0)
    assert rig.journal.bytes == 0


@contextmanager
def linked(rig: Rig, ask: AskDevices) -> Iterator[None]:
    """There is a device that answers so."""
    before, rig.links.ask = rig.links.ask, ask
    try:
        yield
    finally:
        rig.links.ask = before


def test_other_devices_are_asked_for_many_at_once_and_clouds_for_what_they_lack(rig: Rig) -> None:
    refs = elsewhere(rig, 10)
    asked: list[list[bytes]] = []

    def ask(identities: Sequence[bytes], _seconds: float) -> list[bytes | None]:
        asked.append(list(identities))
        return [None if at % 2 else rig.plaintexts[one] for at, one in enumerate(identities)]

    with linked(rig, ask):
        assert rig.fetcher.fetch_one(refs[0]) == text(0)
    assert asked == [[ref.id for ref in refs]]
    assert rig.clouds.gets == [[ref.id for ref in refs[1::2]]]
    rig.clouds.down = True
    rig.tx.chunks._recent.clear()  # so that they are read from the disk
    assert [rig.read(rig.find(b"%d" % number)) for number in range(10)] == [text(n) for n in range(10)]


def test_no_more_bytes_are_asked_for_at_once_than_leave_room_for_others(rig: Rig) -> None:
    refs = elsewhere(rig, 10)
    asked: list[int] = []

    def ask(identities: Sequence[bytes], _seconds: float) -> list[bytes | None]:
        asked.append(len(identities))
        return [rig.plaintexts[one] for one in identities]

    rig.fetcher.limits = FetchLimits(asked_bytes=450)
    with linked(rig, ask):
        rig.fetcher.fetch_one(refs[0])
    assert asked == [4, 4, 2]
    assert not rig.clouds.gets


def test_what_devices_lack_is_left_to_be_fetched_otherwise(rig: Rig) -> None:
    refs = elsewhere(rig, 4)
    with linked(rig, lambda identities, _: [None, *(rig.plaintexts[one] for one in identities[1:])]):
        assert rig.fetcher.fetch_from_devices(refs) == 3
        assert rig.fetcher.fetch_from_devices(refs[1:]) == 0  # they are here
    assert not rig.clouds.gets
    assert [ref.number for ref in rig.tx.chunks.missing([ref.number for ref in refs])] == [refs[0].number]
    rig.clouds.down = True
    assert [rig.read(rig.find(b"%d" % number)) for number in range(1, 4)] == [text(n) for n in range(1, 4)]


def test_who_waits_for_what_a_device_did_not_have_gets_it_from_a_cloud(rig: Rig) -> None:
    refs = elsewhere(rig, 2)
    waiting, go_on = threading.Event(), threading.Event()

    def ask(identities: Sequence[bytes], _seconds: float) -> list[bytes | None]:
        waiting.set()
        assert go_on.wait(PATIENCE)
        return [None] * len(identities)

    with linked(rig, ask), ThreadPoolExecutor(2) as pool:
        first = pool.submit(rig.fetcher.fetch_from_devices, refs)
        assert waiting.wait(PATIENCE)
        second = pool.submit(rig.fetcher.fetch_one, refs[1])
        go_on.set()
        assert (first.result(PATIENCE), second.result(PATIENCE)) == (0, text(1))


def test_what_a_device_cannot_be_asked_for_is_under_way_no_more(rig: Rig) -> None:
    refs = elsewhere(rig, 2)

    def fail(identities: Sequence[bytes], _seconds: float) -> list[bytes | None]:
        raise RuntimeError("unexpected")

    with linked(rig, fail), pytest.raises(RuntimeError):
        rig.fetcher.fetch_from_devices(refs)
    assert rig.fetcher.fetch_one(refs[0]) == text(0)
