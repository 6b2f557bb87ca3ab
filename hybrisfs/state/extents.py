"""The staged content of files: which of their bytes are in the journal, and where; the table `extent`.

An extent never overlaps another. Each carries the *epoch* in which it was written. The epoch ends when the
publisher takes a snapshot of the file and when the extents go to the database, and bytes of ended epochs are
never overwritten in place: a snapshot stays readable while programs go on writing, and a power cut leaves
what was committed as it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from hybrisfs.state.database import RowWriter
from hybrisfs.state.journal import Journal
from hybrisfs.state.redo import ExtentRows

__all__ = [
    "ZEROS",
    "Extent",
    "ExtentMap",
    "ExtentTable",
    "Piece",
    "changed_extents",
    "cut_pieces",
    "put_extents",
]

ZEROS: Final = 0  # the segment number that stands for zeros


class Extent(NamedTuple):
    """Bytes start..end of a file are at *position* of journal segment *segment*."""

    start: int
    end: int
    segment: int
    position: int
    epoch: int


class Piece(NamedTuple):
    """A part of a requested range: bytes in the journal, zeros, or (segment None) not staged."""

    start: int
    end: int
    segment: int | None
    position: int


class ExtentMap:
    """Extents sorted by start. *dirty_pieces* counts extents per segment and is kept up to date.

    `take_changes` tells what must be written to the database since it was last called.
    """

    __slots__ = ("_added", "_dirty_pieces", "_items", "_removed", "_starts", "epoch")

    def __init__(self, dirty_pieces: Counter[int], rows: Iterable[tuple[int, int, int, int]] = ()) -> None:
        self.epoch = 1  # the rows are of an earlier one: they have been committed
        self._dirty_pieces = dirty_pieces
        # What was written before the map was loaded may be a chunk already (chunking that was cut short).
        self._items = [Extent(start, start + length, seg, pos, -1) for start, length, seg, pos in rows]
        self._items.sort()
        self._starts = [item.start for item in self._items]
        self._added: dict[int, Extent] = {}
        self._removed: set[int] = set()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Extent]:
        return iter(self._items)

    def snapshot(self) -> list[Extent]:
        """The extents as they are; they stay readable, for their epoch ends here."""
        self.epoch += 1
        return list(self._items)

    def data_bytes(self) -> int:
        return sum(item.end - item.start for item in self._items if item.segment != ZEROS)

    # -- changing --------------------------------------------------------------------------------

    def write(self, start: int, end: int, segment: int, position: int) -> None:
        """Bytes *start*..*end* are now at *position* of *segment*."""
        items, starts = self._items, self._starts
        appended = not items or start >= items[-1].end
        index = len(items) if appended else self._clear(start, end)
        if index:
            before = items[index - 1]
            if (
                before.end == start
                and before.segment == segment
                and before.epoch == self.epoch
                and (segment == ZEROS or before.position + (start - before.start) == position)
            ):
                grown = Extent(before.start, end, segment, before.position, self.epoch)
                items[index - 1] = grown
                self._added[before.start] = grown
                return
        fresh = Extent(start, end, segment, position, self.epoch)
        items.insert(index, fresh)
        starts.insert(index, start)
        self._note_added(fresh)

    def truncate(self, size: int) -> None:
        """Forget everything from *size* on."""
        if self._items and self._items[-1].end > size:
            self._clear(size, self._items[-1].end)

    def drop_epochs(self, last: int) -> None:
        """Forget the extents written in epochs up to *last*: their content is in chunks now."""
        keep = [item for item in self._items if item.epoch > last]
        for item in self._items:
            if item.epoch <= last:
                self._note_removed(item)
        self._items = keep
        self._starts = [item.start for item in keep]

    def clear(self) -> None:
        """Forget everything."""
        self.drop_epochs(self.epoch)

    def _clear(self, start: int, end: int) -> int:
        """Cut start..end out; return the index at which it would be inserted."""
        items, starts = self._items, self._starts
        low = bisect_right(starts, start) - 1
        if low < 0 or items[low].end <= start:
            low += 1
        high = bisect_left(starts, end, low)
        if low == high:
            return low
        first, last = items[low], items[high - 1]
        for item in items[low:high]:
            self._note_removed(item)
        rest: list[Extent] = []
        if first.start < start:
            rest.append(first._replace(end=start))
        if last.end > end:
            skip = end - last.start
            position = last.position if last.segment == ZEROS else last.position + skip
            rest.append(last._replace(start=end, position=position))
        for item in rest:
            self._note_added(item)
        items[low:high] = rest
        starts[low:high] = [item.start for item in rest]
        return low + (1 if first.start < start else 0)

    def _note_added(self, item: Extent) -> None:
        self._added[item.start] = item
        if item.segment != ZEROS:
            self._dirty_pieces[item.segment] += 1

    def _note_removed(self, item: Extent) -> None:
        self._added.pop(item.start, None)
        self._removed.add(item.start)
        if item.segment != ZEROS:
            self._dirty_pieces[item.segment] -= 1

    def take_changes(self) -> tuple[list[int], list[Extent]]:
        """(starts whose rows go, extents whose rows come) since the last call; rows go first."""
        changes = list(self._removed), list(self._added.values())
        self._removed, self._added = set(), {}
        # What a commit names is not overwritten in place: a power cut could leave a page half old, half new.
        self.epoch += 1
        return changes

    # -- reading ---------------------------------------------------------------------------------

    def in_place(self, start: int, end: int) -> tuple[int, int] | None:
        """(segment, position) where start..end may be overwritten: one extent of this epoch holds it."""
        index = bisect_right(self._starts, start) - 1
        if index < 0:
            return None
        item = self._items[index]
        if item.end < end or item.epoch != self.epoch or item.segment == ZEROS:
            return None
        return item.segment, item.position + (start - item.start)

    def pieces(self, start: int, end: int) -> list[Piece]:
        """start..end in order, as staged pieces and gaps."""
        return cut_pieces(self._items, self._starts, start, end)


class ExtentTable:
    """The extents of one volume, under its lock. A journal segment that an extent names is dirty."""

    def __init__(self, database: RowWriter, journal: Journal) -> None:
        self._db = database
        self._dirty_pieces = journal.dirty_pieces
        for segment, count in database.execute("SELECT segment, count(*) FROM extent GROUP BY segment"):
            if segment != ZEROS:
                self._dirty_pieces[segment] += count

    def empty(self) -> ExtentMap:
        """The extents of a file that has none yet."""
        return ExtentMap(self._dirty_pieces)

    def of(self, ino: int) -> ExtentMap:
        """The extents of a file; their rows have been counted already."""
        rows = self._db.execute("SELECT start, length, segment, position FROM extent WHERE ino = ?", (ino,))
        return ExtentMap(self._dirty_pieces, rows.fetchall())

    def is_staged(self, ino: int) -> bool:
        """Whether a file has extents, as of the last `put`."""
        return self._db.execute("SELECT 1 FROM extent WHERE ino = ? LIMIT 1", (ino,)).fetchone() is not None

    def put(self, rows: ExtentRows) -> None:
        """Let rows go, and others come."""
        put_extents(self._db, rows)


def changed_extents(files: Mapping[int, ExtentMap | None]) -> ExtentRows:
    """The rows of what has changed in the extents of files since they were last asked."""
    gone: list[tuple[int, int]] = []
    come: list[tuple[int, int, int, int, int]] = []
    for ino, extents in files.items():
        if extents is not None:
            removed, added = extents.take_changes()
            gone.extend((ino, start) for start in removed)
            come.extend((ino, one.start, one.end - one.start, one.segment, one.position) for one in added)
    return ExtentRows(gone, come)


def put_extents(db: RowWriter, rows: ExtentRows) -> None:
    """See `ExtentTable.put`."""
    if rows.gone:
        db.executemany("DELETE FROM extent WHERE ino = ? AND start = ?", rows.gone)
    if rows.come:
        db.executemany("INSERT OR REPLACE INTO extent VALUES (?, ?, ?, ?, ?)", rows.come)


def cut_pieces(items: list[Extent], starts: list[int], start: int, end: int) -> list[Piece]:
    """start..end in order, as pieces of *items* (sorted, their starts in *starts*) and gaps between them."""
    found: list[Piece] = []
    index = max(bisect_right(starts, start) - 1, 0)
    at = start
    while index < len(items) and at < end:
        item = items[index]
        index += 1
        if item.end <= at:
            continue
        if item.start >= end:
            break
        if item.start > at:
            found.append(Piece(at, item.start, None, 0))
            at = item.start
        upto = min(item.end, end)
        position = 0 if item.segment == ZEROS else item.position + (at - item.start)
        found.append(Piece(at, upto, item.segment, position))
        at = upto
    if at < end:
        found.append(Piece(at, end, None, 0))
    return found
