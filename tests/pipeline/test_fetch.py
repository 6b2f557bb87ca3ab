"""Fetching: each chunk once however many ask, and no failure that outlives its cause."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from unittest import mock

import pytest

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.dispersal.runs import ChunkLocation
from hybrisfs.filesystem.chunks import ChunkRef
from tests.filesystem.rig import Rig

PATIENCE = 30.0
Get = Callable[[Sequence[ChunkLocation]], list[bytes]]


def elsewhere(rig: Rig, count: int, size: int = 100) -> list[ChunkRef]:
    """So many chunks of one pack that this device does not hold."""
    for number in range(count):
        rig.make(b"%d" % number, (b"%d " % number * size)[:size])
    rig.publish()
    rig.pack()
    rig.room.drop_all()
    numbers = [row[0] for row in rig.db.execute("SELECT number FROM chunk ORDER BY number").fetchall()]
    return [rig.fs.chunks.get(number) for number in numbers]


def text(number: int, size: int = 100) -> bytes:
    return (b"%d " % number * size)[:size]


@contextmanager
def getting(rig: Rig, get: Get) -> Iterator[None]:
    with mock.patch.object(rig.fetcher, "_get_chunks", get):
        yield


def test_neighbours_come_along(rig: Rig) -> None:
    refs = elsewhere(rig, 10)
    assert rig.fetcher.fetch_one(refs[3]) == text(3)
    assert [len(run) for run in rig.clouds.gets] == [7]
    rig.clouds.down = True
    assert [rig.read(rig.find(b"%d" % number)) for number in range(3, 10)] == [text(n) for n in range(3, 10)]


def test_only_so_many_neighbours_come_along(rig: Rig) -> None:
    with mock.patch("hybrisfs.pipeline.fetch._NEAR_BYTES", 500):
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

    def slowly(locations: Sequence[ChunkLocation]) -> list[bytes]:
        asked.set()
        assert go_on.wait(PATIENCE)
        return rig.clouds.get_chunks(locations)

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

    def fail(locations: Sequence[ChunkLocation]) -> list[bytes]:
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

    def without_second(locations: Sequence[ChunkLocation]) -> list[bytes]:
        if refs[1].id in [location.chunk_id for location in locations]:
            raise ChunkUnavailable("chunk", {})
        return rig.clouds.get_chunks(locations)

    with getting(rig, without_second):
        assert rig.fetcher.fetch_one(refs[0]) == text(0)
        with pytest.raises(ChunkUnavailable):
            rig.fetcher.fetch_one(refs[1])
        assert rig.fetcher.fetch_one(refs[2]) == text(2)


def test_who_waits_for_a_neighbour_that_failed_tries_itself(rig: Rig) -> None:
    refs = elsewhere(rig, 3)
    asked, go_on = threading.Event(), threading.Event()

    def without_first(locations: Sequence[ChunkLocation]) -> list[bytes]:
        asked.set()
        assert go_on.wait(PATIENCE)
        if refs[0].id in [location.chunk_id for location in locations]:
            raise ChunkUnavailable("chunk", {})
        return rig.clouds.get_chunks(locations)

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

    def slowly(locations: Sequence[ChunkLocation]) -> list[bytes]:
        asked.set()
        assert go_on.wait(PATIENCE)
        return rig.clouds.get_chunks(locations)

    with (
        mock.patch.object(rig.fs.chunks, "keep", side_effect=ValueError("a bug")),
        getting(rig, slowly),
        ThreadPoolExecutor(2) as pool,
    ):
        first = pool.submit(rig.fetcher.fetch_one, refs[0])
        assert asked.wait(PATIENCE)
        second = pool.submit(rig.fetcher.fetch_one, refs[1])
        go_on.set()
        for one in (first, second):
            assert isinstance(one.exception(PATIENCE), ValueError)
    assert rig.fetcher.fetch_one(refs[1]) == text(1)


def test_a_broken_cache_disk_keeps_nobody_from_reading(rig: Rig) -> None:
    elsewhere(rig, 2)
    with mock.patch.object(rig.journal, "append", side_effect=OSError(5, "broken disk")):
        assert rig.read(rig.find(b"0")) == text(0)
        assert rig.read(rig.find(b"1")) == text(1)


def test_a_full_cache_keeps_nobody_from_reading(rig: Rig) -> None:
    elsewhere(rig, 2)
    rig.journal.budget = 0
    assert rig.read(rig.find(b"0")) == text(0)
    assert rig.journal.bytes == 0
