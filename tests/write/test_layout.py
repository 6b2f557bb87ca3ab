"""Which stretches of a changed file are cut anew, and what it keeps of its former chunks."""

import os
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.registers.tree import Run
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.extents import ZEROS, Extent
from hybrisfs.state.file_chunks import BaseRow, ContentPage
from hybrisfs.write.layout import ChunkLimits, Layout, in_pages, page_length, plan, to_list, without_holes

BLOCK = 8
LIMITS = ChunkLimits(size=128, block=BLOCK, small=16, parts=6)


def chunk(number: int, length: int, *, here: bool = True) -> ChunkRef:
    segment, position = (1, 0) if here else (None, None)
    return ChunkRef(number, number.to_bytes(32, "big"), length, segment, position, 1, 0, 0, 1)


def row(offset: int, length: int, skip: int, number: int, whole: int, *, here: bool = True) -> BaseRow:
    return BaseRow(offset, length, skip, chunk(number, whole, here=here))


def written(start: int, end: int, segment: int = 1) -> Extent:
    return Extent(start, end, segment, start, 1)


def described(layout: Layout) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    return layout.stretches, [(one.offset, one.length, one.skip) for one in layout.kept]


def test_a_small_change_keeps_what_is_on_both_sides() -> None:
    layout = plan(1000, [written(403, 405)], [row(0, 1000, 0, 1, 1000)], LIMITS)
    assert described(layout) == ([(400, 408)], [(0, 400, 0), (408, 592, 408)])


def test_a_change_across_two_parts() -> None:
    rows = [row(0, 300, 0, 1, 300), row(300, 300, 50, 2, 400)]
    layout = plan(600, [written(280, 330)], rows, LIMITS)
    assert described(layout) == ([(280, 336)], [(0, 280, 0), (336, 264, 86)])


def test_what_is_not_here_is_not_touched() -> None:
    """Neither to fill a block, nor to have fewer parts, nor because little of it is shown."""
    rows = [row(0, 300, 0, 1, 300, here=False), row(300, 40, 5, 2, 400, here=False)]
    layout = plan(340, [written(203, 205)], rows, LIMITS)
    assert described(layout) == ([(203, 205)], [(0, 203, 0), (205, 95, 205), (300, 40, 5)])


def test_an_append_ends_the_last_block() -> None:
    layout = plan(1012, [written(1003, 1012)], [row(0, 1003, 0, 1, 1003)], LIMITS)
    assert described(layout) == ([(1000, 1012)], [(0, 1000, 0)])


def test_a_small_file_is_cut_as_a_whole() -> None:
    assert described(plan(16, [written(3, 5)], [row(0, 16, 0, 1, 16)], LIMITS)) == ([(0, 16)], [])
    assert described(plan(16, [], [row(0, 16, 0, 1, 16)], LIMITS)) == ([], [(0, 16, 0)])


def test_a_stretch_of_many_parts_is_cut_anew() -> None:
    """The log grows by blocks: up to six parts stand in a stretch of 128 bytes."""
    rows: list[BaseRow] = []
    cut = 0
    for number in range(200):
        start, end = number * BLOCK, (number + 1) * BLOCK
        stretches, kept = plan(end, [written(start, end)], rows, LIMITS)
        rows = sorted(
            [*kept, *(row(at, upto - at, 0, 1000 + number, upto - at) for at, upto in stretches)],
            key=lambda one: one.offset,
        )
        cut += sum(upto - at for at, upto in stretches)
        assert max(len([one for one in rows if one.offset // 128 == window]) for window in range(13)) <= 6
    assert cut <= 3 * 200 * BLOCK


def test_a_chunk_of_which_little_is_shown_is_cut_anew() -> None:
    rows = [row(0, 60, 0, 1, 400), row(60, 40, 100, 2, 150), row(100, 39, 350, 1, 400)]
    assert described(plan(139, [], rows, LIMITS)) == ([(0, 60), (100, 139)], [(60, 40, 100)])
    rows[2] = row(100, 40, 350, 1, 400)
    assert plan(140, [], rows, LIMITS) == Layout([], rows)


def test_a_file_that_is_empty() -> None:
    assert plan(0, [], [], LIMITS) == Layout([], [])
    assert plan(0, [written(0, 5)], [], LIMITS) == Layout([], [])


@st.composite
def files(draw: st.DrawFn) -> tuple[int, list[Extent], list[BaseRow]]:
    """The size, and what is staged over which parts; some parts show pieces of one chunk."""
    rows: list[BaseRow] = []
    at = 0
    for number in range(draw(st.integers(0, 12))):
        at += draw(st.sampled_from([0, 0, 0, 3, 50]))
        length, skip = draw(st.integers(1, 90)), draw(st.sampled_from([0, 0, 7, 200]))
        whole = skip + length + draw(st.sampled_from([0, 0, 5, 500]))
        shown = chunk(draw(st.sampled_from([number, 0])), whole, here=draw(st.booleans()))
        rows.append(BaseRow(at, length, skip, shown))
        at += length
    size = at + draw(st.sampled_from([0, 1, 40]))
    extents: list[Extent] = []
    at = 0
    for _ in range(draw(st.integers(0, 6))):
        at += draw(st.integers(0, 100))
        end = at + draw(st.integers(1, 60))
        extents.append(written(at, end, draw(st.sampled_from([1, ZEROS]))))
        at = end
    return max(size, draw(st.sampled_from([0, at]))), extents, rows


@given(files())
def test_each_byte_is_where_it_was_or_cut_anew(given: tuple[int, list[Extent], list[BaseRow]]) -> None:
    size, extents, rows = given
    stretches, kept = plan(size, extents, rows, LIMITS)
    source = {one.offset + at: (one.chunk.number, one.skip + at) for one in rows for at in range(one.length)}
    now = {one.offset + at: (one.chunk.number, one.skip + at) for one in kept for at in range(one.length)}
    anew = {at for start, end in stretches for at in range(start, end)}
    staged = {at for one in extents for at in range(one.start, min(one.end, size))}
    assert len(now) == sum(one.length for one in kept) and len(anew) == sum(e - s for s, e in stretches)
    assert not anew & now.keys() and staged <= anew <= set(range(size))
    assert now == {at: source[at] for at in source.keys() - anew}
    absent = {one.offset + at for one in rows if not one.chunk.is_here for at in range(one.length)}
    assert not (anew - staged) & absent
    assert all(end < start for (_, end), (start, _) in pairwise(stretches))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from([1, None, ZEROS])), max_size=12),
    st.integers(0, 20),
)
def test_holes_are_whole_blocks(lengths: list[tuple[int, int | None]], begin: int) -> None:
    pieces: list[tuple[int, int, int | None]] = []
    at = begin
    for length, segment in lengths:
        if not pieces or pieces[-1][2] != segment:
            pieces.append((at, at + length, segment))
            at += length
    ranges = list(without_holes(pieces, begin, at, BLOCK))
    cut = {byte for start, end in ranges for byte in range(start, end)}
    assert cut <= set(range(begin, at)) and len(cut) == sum(end - start for start, end in ranges)
    for start, end, segment in pieces:
        if segment == ZEROS:
            whole = range(-(-start // BLOCK) * BLOCK, end // BLOCK * BLOCK)
            assert not cut & set(whole)
        else:
            assert set(range(start, end)) <= cut


# -- pages ------------------------------------------------------------------------------------------------


def some_runs(count: int) -> list[Run]:
    return [Run(1000, os.urandom(32)) for _ in range(count)]


def encoded(runs: Sequence[Run], usual: int = 16) -> list[tuple[Run, ...]]:
    return [tuple(page) for page in in_pages(runs, usual)]


def test_pages_hold_all_runs_in_order() -> None:
    for count in (1, 2, 15, 16, 17, 256):
        runs = some_runs(count)
        found = encoded(runs)
        assert [run for page in found for run in page] == runs
        assert all(4 <= len(page) <= 64 for page in found[:-1])
    assert 256 / 40 < len(found) < 256 / 8
    assert encoded([]) == []


@pytest.mark.parametrize("change", ["replace", "insert", "remove"])
def test_a_change_makes_a_page_or_two(change: str) -> None:
    for at in (0, 100, 499):
        runs = some_runs(500)
        former = set(encoded(runs))
        runs[at : at + (change != "insert")] = some_runs(change != "remove")
        assert len(set(encoded(runs)) - former) <= 4


def test_equal_runs_and_holes_have_pages_too() -> None:
    assert {len(page) for page in encoded([Run(1, bytes(31) + b"\1")] * 80)} == {4}
    assert {len(page) for page in encoded([Run(1, b"\xff" * 32)] * 128)} == {64}
    assert {len(page) for page in encoded([Run(1, None)] * 128)} == {64}


def test_a_longer_list_has_longer_pages() -> None:
    limits = ChunkLimits()
    assert page_length(1 << 31, limits) == 128
    for size in (1 << 35, 1 << 40, 1 << 42):
        usual, runs = page_length(size, limits), size >> 19
        assert runs / usual <= usual < 4 * runs / usual


def page(start: int, length: int) -> ContentPage:
    return ContentPage(start, length, start, bytes(32))


def test_pages_near_a_change_are_made_again() -> None:
    wide = 10 << 20
    listed = [page(number * wide, wide) for number in range(5)]
    size = 5 * wide

    def found(size: int, *extents: tuple[int, int]) -> tuple[list[tuple[int, int]], list[ContentPage]]:
        return to_list(size, [written(*one) for one in extents], listed, ChunkLimits())

    assert found(size) == ([], listed)
    assert found(size, (wide + 5, wide + 6)) == ([(wide, 2 * wide)], [listed[0], *listed[2:]])
    assert found(size, (wide - 1, wide + 1), (3 * wide - 1, 3 * wide)) == ([(0, 3 * wide)], listed[3:])
    assert found(size + 9) == ([(size, size + 9)], listed)
    assert found(size + 9, (size, size + 9)) == ([(size, size + 9)], listed)
    assert found(size + 9, (size - 1, size + 9)) == ([(4 * wide, size + 9)], listed[:4])
