"""Who reads in order: the machine alone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.read.ahead import AROUND, Readers, Stream


def read(readers: Readers, *numbers: int, whole: bool = False) -> Stream | None:
    """The first chunk is wanted, the others come along."""
    stream = readers.wanted(numbers[0], whole=whole)
    readers.begun(numbers, stream, ahead=False)
    return stream


def extend(readers: Readers, stream: Stream, size: int = 1) -> int:
    """Begin all that is wanted ahead of a reader; returns how many runs that are."""
    count = 0
    while readers.wants_more(stream, 6):
        first = stream.last + 1
        readers.begun(range(first, first + size), stream, ahead=True)
        count += 1
    return count


def test_what_follows_the_last_run_is_read_in_order() -> None:
    readers = Readers()
    assert read(readers, 10, 11, 12) is None
    assert read(readers, 20) is None
    stream = read(readers, 13, 14)
    assert stream is not None
    assert (stream.last, stream.across) == (14, False)
    assert read(readers, 15) is stream
    assert not stream.across  # a file from front to back


def test_random_reads_of_a_large_file_are_no_stream() -> None:
    readers, chance = Readers(), Random(1)
    for number in chance.sample(range(0, 1000, 2), 400):
        assert read(readers, number) is None


def test_random_small_files_are_no_stream() -> None:
    readers, chance = Readers(), Random(1)
    found = [read(readers, number, whole=True) for number in chance.sample(range(0, 10**6, 2), 400)]
    assert sum(one is not None for one in found) <= 4


def test_small_files_one_after_the_other_are_a_stream_that_goes_on() -> None:
    readers = Readers()
    read(readers, 1, 2, whole=True)
    stream = read(readers, 3, 4, whole=True)
    assert stream is not None
    assert not stream.across
    assert read(readers, 5, 6, whole=True) is stream
    assert stream.across


def test_small_files_of_a_folder_in_any_order_are_a_stream() -> None:
    readers = Readers()
    read(readers, 1000, whole=True)
    stream = read(readers, 1000 + AROUND, whole=True)
    assert stream is not None
    assert read(readers, 1020, whole=True) is stream
    assert stream.across
    assert read(readers, 1020 + 10 * AROUND, whole=True) is None


def test_who_walks_from_folder_to_folder_reads_in_order_there_at_once() -> None:
    readers, at_once = Readers(), []
    for folder in range(0, 20_000, 1000):
        stream = read(readers, folder, whole=True)
        at_once.append(stream is not None and stream.across)
        for number in (7, 3, 5):
            read(readers, folder + number, whole=True)
    assert at_once == [False] * at_once.count(False) + [True] * at_once.count(True)
    assert at_once.count(True) >= 15
    for number in range(100_000, 200_000, 1000):  # and then no more
        stream = read(readers, number, whole=True)
    assert stream is None


def test_so_many_runs_are_ahead_of_a_reader_and_one_more_for_each_that_is_reached() -> None:
    readers = Readers()
    read(readers, 1)
    stream = read(readers, 2)
    assert stream is not None
    assert extend(readers, stream, 10) == 6
    first, second, third, *_ = stream.milestones
    assert readers.reached(stream, first) == []
    readers.ended()
    assert extend(readers, stream, 10) == 1
    assert readers.reached(stream, third) == [second]  # skipped
    assert readers.reached(stream, second) is None
    for _ in range(6):
        readers.ended()
    assert extend(readers, stream, 10) == 2


def test_all_readers_together_have_no_more_under_way_than_so_many() -> None:
    readers, streams = Readers(), []
    for start in range(0, 10_000, 1000):
        read(readers, start)
        stream = read(readers, start + 1)
        assert stream is not None
        streams.append(stream)
    assert [extend(readers, stream) for stream in streams] == [6, 2, *[0] * 8]
    readers.ended()
    assert extend(readers, streams[-1]) == 1


def test_the_milestones_of_readers_that_went_away_are_forgotten() -> None:
    readers = Readers()
    streams = []
    for start in range(0, 100_000, 1000):
        read(readers, start)
        stream = read(readers, start + 1)
        assert stream is not None
        streams.append(stream)
        for _ in range(extend(readers, stream)):
            readers.ended()
    assert len(readers.forgotten()) == 6 * (100 - 32)
    assert readers.forgotten() == []


@given(st.lists(st.tuples(st.integers(0, 2000), st.booleans(), st.integers(1, 40)), max_size=80))
def test_never_more_than_so_much_is_begun(reads: Sequence[tuple[int, bool, int]]) -> None:
    """Whatever is read: what is ahead of a reader is bounded, and each milestone is of one stream."""
    readers = Readers()
    streams: list[Stream] = []
    for number, whole, size in reads:
        stream = read(readers, *range(number, number + size), whole=whole)
        forgotten = set(readers.forgotten())
        streams = [one for one in streams if not forgotten.intersection(one.milestones)]
        if stream is not None:
            if stream not in streams:
                streams.append(stream)
            for _ in range(extend(readers, stream, size)):
                readers.ended()
            assert len(stream.milestones) == 6
            ahead = list(stream.milestones)
            at = ahead.index(ahead[number % 6])  # the file may have been dropped and wanted again
            assert readers.reached(stream, ahead[at]) == ahead[:at]
    assert len(streams) <= 32
