"""Walking a chain of log segments: back by their `previous` to what is known, then forth to deliver.

Everything that depends on how heads and segments name segments is in the first half of this module.

A chain may be longer than memory holds. On the way back the segments near the head are dropped first,
as they are needed last, and fetched again when their turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from sync.codec import Buffer
from sync.errors import DecodeError
from sync.head import Head
from sync.segment import decode_segment, parse_segment_name, segment_name

__all__ = [
    "Budget",
    "Holds",
    "Piece",
    "Point",
    "Walk",
    "Wanted",
    "first_point",
    "newest_segment",
    "open_piece",
    "segments_of",
    "tips_of",
]

MAX_CHAIN: Final = 1 << 20
"""Segments in one walk; with the sizes that devices write this is far more than any log has."""

Point: TypeAlias = tuple[int, bytes]
"""An update of a device that is known from the context: its clock, and its hash or the beginning of it."""

Holds: TypeAlias = Callable[[bytes, int, bytes], bool]
"""(device, clock, 8 or more bytes of hash): whether our log holds that update, and so all its causes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A segment to be fetched, and what is known of its last update before it is here."""

    name: str
    last_clock: int | None = None
    last_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What a walk keeps of a segment: the updates as bytes, the stamps at both ends, the name before."""

    name: str
    first_clock: int
    before: Point | None
    last: Point
    previous: str | None
    updates: tuple[bytes, ...]
    size: int


def tips_of(head: Head) -> tuple[Point, ...]:
    """The newest updates of its own that the head states, on every branch that its writer knows of."""
    return head.own


def newest_segment(head: Head) -> Wanted | None:
    """The segment from which the head says that the others are found, None when there is none."""
    if head.extent is None:
        return None
    newest = head.newest
    last = newest.hash if newest and head.extent.last == newest.clock else None
    return Wanted(segment_name(head.writer, head.extent.first), head.extent.last, last)


def first_point(name: str) -> Point:
    """The clock of the first update in the segment of that name, and what the name tells of its hash."""
    return parse_segment_name(name)[1]


def segments_of(device: bytes, names: Iterable[str]) -> list[str]:
    """Those of `names` that a segment of `device` may have, the lowest clock first."""
    found = []
    for name in names:
        try:
            if parse_segment_name(name)[0] == device:
                found.append(name)
        except DecodeError:
            continue
    return sorted(found, key=first_point)


def open_piece(data: Buffer, wanted: Wanted, volume: bytes, key: bytes) -> Piece:
    """Decode what a cloud returned for a segment. Raises `DecodeError`, also when it is not all of it."""
    segment = decode_segment(data, wanted.name, volume, key)
    first, last = segment.updates[0].header, segment.updates[-1].header
    if wanted.last_clock not in (None, last.clock) or wanted.last_hash not in (None, last.hash):
        raise DecodeError(f"segment {wanted.name} does not end where the log goes on")
    updates = tuple(update.data for update in segment.updates)
    return Piece(
        wanted.name,
        first.clock,
        (first.prev_clock, first.prev) if first.prev_clock else None,
        (last.clock, last.hash),
        segment_name(segment.writer, segment.previous) if segment.previous else None,
        updates,
        sum(len(update) for update in updates),
    )


class Budget:
    """The bytes of updates that all walks together may keep."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Walk:
    """One walk along the segments of `device`, from `target` on. Drop it with `close`."""

    def __init__(self, device: bytes, target: Wanted, known: Holds, budget: Budget) -> None:
        self.device = device
        self.target = target.name
        self.end: Point | None = None
        """The last update of the target, once it has been seen."""
        self._known = known
        self._budget = budget
        self._path = [target]  # the target first, the oldest segment so far last
        self._pieces: dict[str, Piece] = {}  # in the order in which they came
        self._turned = False

    @property
    def wanted(self) -> Wanted | None:
        """The segment needed next, None when it is here or the walk is over."""
        self._skip_known()
        return self._path[-1] if self._path and self._path[-1].name not in self._pieces else None

    @property
    def turned(self) -> bool:
        """Whether the way back is done: what is next may be delivered."""
        self._skip_known()
        return self._turned

    @property
    def over(self) -> bool:
        """Whether everything has been delivered."""
        return not self._path

    @property
    def clock(self) -> int:
        """The first clock of the segment to be delivered next."""
        return first_point(self._path[-1].name)[0]

    def arrived(self, piece: Piece) -> None:
        """The wanted segment is here."""
        if piece.name == self.target:
            self.end = piece.last
        self._pieces[piece.name] = piece
        self._budget.used += piece.size
        while self._budget.used > self._budget.limit and len(self._pieces) > 1:
            self._drop(next(iter(self._pieces)))
        if self._turned:
            return
        if piece.before is None or piece.previous is None:
            self._turned = True
            return
        if len(self._path) >= MAX_CHAIN:
            raise DecodeError(f"more than {MAX_CHAIN} segments before {self.target}")
        self._path.append(Wanted(piece.previous, *piece.before))

    def take(self) -> Piece:
        """The next segment to deliver; `turned` holds, and nothing is `wanted`."""
        return self._drop(self._path.pop().name)

    def close(self) -> None:
        """Let go of everything."""
        for name in list(self._pieces):
            self._drop(name)
        self._path.clear()

    def _skip_known(self) -> None:
        """Leave out what has reached our log on another way meanwhile."""
        while self._path:
            oldest = self._path[-1]
            if oldest.name in self._pieces or oldest.last_clock is None or oldest.last_hash is None:
                return
            if not self._known(self.device, oldest.last_clock, oldest.last_hash):
                return
            self._path.pop()
            self._turned = True
            if oldest.name == self.target:
                self.end = (oldest.last_clock, oldest.last_hash)

    def _drop(self, name: str) -> Piece:
        piece = self._pieces.pop(name)
        self._budget.used -= piece.size
        return piece
