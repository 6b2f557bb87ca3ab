"""Of a changed file: the stretches that are cut into new chunks, and the parts of former ones that it keeps.

A change of a few bytes makes a chunk of a few blocks, and the file keeps the parts of the former chunk on
both sides. That is cheap to upload and dear to keep: each part is a row here, a run in the file's list and,
for a device without the file, a piece to fetch. So a part of the file is cut again as a whole

* when a stretch of `ChunkLimits.size` is made of more than `ChunkLimits.parts` parts. So a log that grows by
  blocks of 4 KiB uploads each byte some four times;
* when the file shows less than a quarter of a chunk. So the clouds keep at most four times the bytes that the
  file shows, and a program has written three times the bytes that are cut again;
* when the file is small.

Bytes that are not on this device are never asked for: what touches them stays as it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.registers.tree import Run
from hybrisfs.state.chunk_states import MAX_CHUNK
from hybrisfs.state.extents import ZEROS, Extent
from hybrisfs.state.file_chunks import BaseRow, ContentPage

__all__ = ["ChunkLimits", "Layout", "in_pages", "page_length", "plan", "to_list", "without_holes"]

_LEAST_SHOWN: Final = 4  # a chunk of which a file shows less than one part in so many is cut again
_PAGE_BOUND: Final = 4  # times what a page usually has, and one part in so many of it


class ChunkLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    size: int = MAX_CHUNK
    """Most bytes of a chunk that is cut here, up to MAX_CHUNK; those of other devices may be longer."""
    block: int = 4096
    """Chunks that hold a change are whole blocks of so many bytes."""
    small: int = 32 << 10
    """A file of up to so many bytes is cut as a whole."""
    deferred: int = 8 << 20
    """The chunks of a new file of so many bytes that no program has synced are deferred: nothing waits for
    them."""
    parts: int = 64
    """Of which a stretch of *size* bytes is made, beyond which it is cut again."""
    direct_runs: int = 64
    """Runs of a content's list, beyond which it is split into pages, ..."""
    runs_per_page: int = 128
    """... and those that a page usually has."""


class Layout(NamedTuple):
    """A file after its change."""

    stretches: list[tuple[int, int]]
    """What is cut into chunks, as (start, end), in order."""
    kept: list[BaseRow]
    """The parts of former chunks that the file shows, in order. Between them all is a hole."""


def plan(size: int, extents: Sequence[Extent], rows: Sequence[BaseRow], limits: ChunkLimits) -> Layout:
    """The layout of a file of *size* bytes with these staged *extents* over the parts *rows*; both are in
    order."""
    if not rows and [(one.start, one.end) for one in extents] == [(0, size)]:
        return Layout([(0, size)], [])  # a new file, as most are
    changed = _merged(_widened(extents, rows, size, limits.block))
    kept = _outside(rows, changed)
    again = [*_too_many_parts(changed, kept, size, limits), *_hardly_shown(kept)]
    if changed and size <= limits.small and _are_here(kept, 0, size):
        again = [(0, size)]
    if not again:
        return Layout(changed, kept)
    stretches = _merged([*changed, *again])
    return Layout(stretches, _outside(kept, stretches))


def _widened(
    extents: Iterable[Extent], rows: Sequence[BaseRow], size: int, block: int
) -> Iterator[tuple[int, int]]:
    """What was written, widened to whole blocks where the rest of them is here."""
    for extent in extents:
        start, end = extent.start, min(extent.end, size)
        if start >= end:
            continue
        first, last = _down(start, block), min(_up(end, block), size)
        yield first if _are_here(rows, first, start) else start, last if _are_here(rows, end, last) else end


def _too_many_parts(
    changed: Sequence[tuple[int, int]], kept: Sequence[BaseRow], size: int, limits: ChunkLimits
) -> Iterator[tuple[int, int]]:
    """The stretches in which a change begins or ends, as far as they have become ones of too many parts."""
    parts = sorted([start for start, _ in changed] + [row.offset for row in kept])
    for number in sorted({at // limits.size for start, end in changed for at in (start, end - 1)}):
        start, end = number * limits.size, min((number + 1) * limits.size, size)
        many = bisect_left(parts, end) - bisect_left(parts, start) > limits.parts
        if many and _are_here(kept, start, end):
            yield start, end


def _hardly_shown(kept: Sequence[BaseRow]) -> Iterator[tuple[int, int]]:
    """All parts of chunks of which the file shows little."""
    partial = {row.chunk.number for row in kept if row.length < row.chunk.length}
    if not partial:
        return
    shown = Counter[int]()
    for row in kept:
        shown[row.chunk.number] += row.length
    for row in kept:
        chunk = row.chunk
        if chunk.number in partial and chunk.is_here and shown[chunk.number] * _LEAST_SHOWN < chunk.length:
            yield row.offset, row.end


def _down(at: int, unit: int) -> int:
    return at // unit * unit


def _up(at: int, unit: int) -> int:
    return -(-at // unit) * unit


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges, sorted; those that touch are joined."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _outside(rows: Sequence[BaseRow], ranges: Sequence[tuple[int, int]]) -> list[BaseRow]:
    """What the rows show outside the ranges; both are in order. A row that is whole is the same object."""
    found: list[BaseRow] = []
    first = 0
    for row in rows:
        while first < len(ranges) and ranges[first][1] <= row.offset:
            first += 1
        at, index = row.offset, first
        while index < len(ranges) and ranges[index][0] < row.end:
            start, end = ranges[index]
            if start > at:
                found.append(row.between(at, start))
            at, index = end, index + 1
        if index == first:
            found.append(row)
        elif at < row.end:
            found.append(row.between(at, row.end))
    return found


def _are_here(rows: Sequence[BaseRow], start: int, end: int) -> bool:
    """Whether this device has the bytes of all parts in start..end."""
    if start >= end:
        return True
    index = max(bisect_right(rows, start, key=lambda row: row.offset) - 1, 0)
    while index < len(rows) and rows[index].offset < end:
        if rows[index].end > start and not rows[index].chunk.is_here:
            return False
        index += 1
    return True


def without_holes(
    pieces: Iterable[tuple[int, int, int | None]], start: int, end: int, block: int
) -> Iterator[tuple[int, int]]:
    """What is to be cut of a stretch: all but the whole blocks that a program has made a hole of. *pieces*:
    start, end and journal segment of each piece of it, in order."""
    at = start
    for first, last, segment in pieces:
        if segment != ZEROS:
            continue
        hole = _up(first, block) if first > start else start
        upto = _down(last, block) if last < end else end
        if upto > hole:
            if hole > at:
                yield at, hole
            at = upto
    if end > at:
        yield at, end


# -- the list of a large file's chunks --------------------------------------------------------------------


def to_list(
    size: int, extents: Iterable[Extent], pages: Sequence[ContentPage], limits: ChunkLimits
) -> tuple[list[tuple[int, int]], list[ContentPage]]:
    """What of a file of *size* bytes has to be listed again, as (start, end) in order, and the pages for the
    rest. *pages* list all of it but for the staged *extents*.

    The pages for the stretches of `ChunkLimits.size` with a change are made again: `plan` looks as far.
    """
    near = _merged((_down(one.start, limits.size), _up(one.end, limits.size)) for one in extents)
    again: list[tuple[int, int]] = []
    kept: list[ContentPage] = []
    index = 0
    for page in pages:
        while index < len(near) and near[index][1] <= page.start:
            index += 1
        if index < len(near) and near[index][0] < page.end:
            again.append((page.start, page.end))
        else:
            kept.append(page)
    if pages[-1].end < size:
        again.append((pages[-1].end, size))
    return _merged(again), kept


def page_length(size: int, limits: ChunkLimits) -> int:
    """The runs that a page usually has in the list of a file of *size* bytes: so many that the list of its
    pages is not longer than a page."""
    runs, usual = size // (limits.size // 2), limits.runs_per_page
    while usual * usual < runs:
        usual *= 2
    return usual


def in_pages(runs: Sequence[Run], usual: int) -> Iterator[Sequence[Run]]:
    """The runs of a list in pages of *usual* runs or so.

    Where a page ends depends on the chunk at its end. So a change makes one new page, even when it adds
    runs.
    """
    start = 0
    for index, run in enumerate(runs, 1):
        count = index - start
        ends = run.chunk is not None and int.from_bytes(run.chunk[:4], "big") % usual == 0
        if (ends and count * _PAGE_BOUND >= usual) or count >= usual * _PAGE_BOUND or index == len(runs):
            yield runs[start:index]
            start = index
