"""Version vectors are a lattice, and have one wire form."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sync.codec import Writer
from sync.errors import LimitError
from sync.vector import MAX_CLOCK, MAX_WRITERS, Order, Rename, VersionVector
from tests.sync.support import clocks, decodes, flip, ids, vectors

A, B = b"a" * 16, b"b" * 16
SMALL = st.dictionaries(st.sampled_from([A, B, b"c" * 16]), st.integers(1, 3)).map(VersionVector)


@given(SMALL, SMALL, SMALL)
def test_merge_is_the_least_upper_bound(one: VersionVector, two: VersionVector, three: VersionVector) -> None:
    merged = one.merge(two)
    assert merged == two.merge(one) and hash(merged) == hash(two.merge(one))
    assert merged.covers(one) and merged.covers(two)
    assert merged.merge(three) == one.merge(two.merge(three))
    if three.covers(one) and three.covers(two):
        assert three.covers(merged)


@given(SMALL, SMALL)
def test_compare_agrees_with_covers(one: VersionVector, two: VersionVector) -> None:
    expected = {
        (True, True): Order.EQUAL,
        (True, False): Order.AFTER,
        (False, True): Order.BEFORE,
        (False, False): Order.CONCURRENT,
    }
    assert one.compare(two) is expected[one.covers(two), two.covers(one)]
    assert (one == two) == (one.compare(two) is Order.EQUAL)


@given(vectors, ids, clocks)
def test_entries(vector: VersionVector, writer: bytes, clock: int) -> None:
    changed = vector.with_entries([(writer, clock)])
    assert changed[writer] == clock
    assert all(changed[other] == vector[other] for other, _ in vector.items() if other != writer)
    assert changed.highest == max(value for _, value in changed.items())
    assert list(changed.items()) == sorted(changed.items())


def test_absent_writer_and_empty_vector() -> None:
    empty = VersionVector()
    assert empty[A] == 0 and empty.highest == 0 and len(empty) == 0
    assert empty.compare(VersionVector({A: 1})) is Order.BEFORE


@pytest.mark.parametrize("entry", [(A, 0), (A, MAX_CLOCK + 1), (b"short", 1)])
def test_impossible_entries_are_refused(entry: tuple[bytes, int]) -> None:
    with pytest.raises(ValueError):
        VersionVector([entry])


@given(vectors)
def test_round_trip_and_truncation(vector: VersionVector) -> None:
    data = vector.encode()
    assert VersionVector.decode(data) == vector
    assert not any(decodes(VersionVector.decode, data[:length]) for length in range(len(data)))
    assert not decodes(VersionVector.decode, data + b"\0")


@given(vectors, st.integers(min_value=0))
def test_what_decodes_is_canonical(vector: VersionVector, bit: int) -> None:
    altered = flip(vector.encode(), bit)
    if decodes(VersionVector.decode, altered):
        assert VersionVector.decode(altered).encode() == altered


def test_unsorted_repeated_and_zero_entries_are_refused() -> None:
    def wire(*entries: tuple[bytes, int]) -> bytes:
        out = Writer().varint(len(entries))
        for writer, clock in entries:
            out.raw(writer).varint(clock)
        return out.getvalue()

    assert decodes(VersionVector.decode, wire((A, 1), (B, 1)))
    for entries in ([(B, 1), (A, 1)], [(A, 1), (A, 2)], [(A, 0)], [(A, MAX_CLOCK + 1)]):
        assert not decodes(VersionVector.decode, wire(*entries))


def test_the_number_of_writers_is_bounded() -> None:
    full = VersionVector({number.to_bytes(16, "big"): 1 for number in range(MAX_WRITERS)})
    assert VersionVector.decode(full.encode()) == full
    with pytest.raises(LimitError):
        full.with_entries([(b"x" * 16, 1)]).encode()
    assert not decodes(
        VersionVector.decode, Writer().varint(MAX_WRITERS + 1).raw(full.encode()[2:]).getvalue()
    )


@given(vectors, ids, ids, clocks)
def test_a_rename_moves_what_is_above(vector: VersionVector, old: bytes, new: bytes, above: int) -> None:
    assume(old != new and not vector[new])
    known = vector.with_entries([(old, above), (bytes(16), 5)] if old != bytes(16) else [(old, above)])
    assert known.renamed([Rename(old, above, new)]) == known
    assert known.with_entry(old, above)[old] == above
    moved = known.renamed([Rename(old, above - 1, new)])
    assert (moved[old], moved[new]) == (above - 1, above)
    assert moved.renamed([Rename(new, 0, bytes(15) + b"x")])[new] == 0
