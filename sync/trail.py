"""Walking a chain of log segments: back by their `previous` to what is known, then forth to deliver.

Everything that depends on how heads and segments name segments is in the first half of this module.

A chain may be longer than memory holds. On the way back the segments near the head are dropped first,
as they are needed last, and fetched again when their turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from sync.codec import Buffer
from sync.errors import DecodeError
from sync.head import Head
from sync.seal import SealKeys
from sync.segment import SegmentId, decode_segment, parse_segment_name, segment_name

__all__ = [
    "Budget",
    "Holds",
    "Piece",
    "ChainWalk",
    "Wanted",
    "id_of",
    "newest_segment",
    "open_piece",
    "relayed_segments",
    "segments_of",
    "tips_of",
]

MAX_CHAIN: Final = 1 << 20
"""Segments in one walk; with the sizes that devices write this is far more than any log has."""

Holds: TypeAlias = Callable[[bytes, bytes], bool]
"""(device, hash or 8 bytes of its beginning): whether our log holds that update, and so all its causes."""


class Wanted(Struct, frozen=True):
    """A segment to be fetched, and the hash of its last update where it is known from the context."""

    name: str
    last: bytes | None = None

    @property
    def end(self) -> bytes:
        """The hash of the last update, or the beginning of it."""
        return self.last or id_of(self.name).prefix


class Piece(Struct, frozen=True):
    """What a walk keeps of a segment: the updates as bytes, the hash of the last one, the segment before."""

    name: str
    last: bytes
    previous: Wanted | None
    updates: tuple[bytes, ...]
    size: int


def tips_of(head: Head) -> tuple[bytes, ...]:
    """The newest updates of its own that the head states, on every branch that its writer knows of."""
    return tuple(tip.hash for tip in head.own)


def newest_segment(head: Head) -> Wanted | None:
    """The segment from which the head says that the others are found, None when there is none."""
    if head.on_clouds is None:
        return None
    newest = head.newest
    last = newest.hash if newest and head.on_clouds.last == newest.clock else None
    return Wanted(segment_name(head.writer, head.on_clouds.newest), last)


def relayed_segments(head: Head) -> list[tuple[bytes, Wanted]]:
    """(author, segment) of what the head's writer has put on the clouds for other devices."""
    return [(author, Wanted(segment_name(author, segment))) for author, segment in head.relayed]


def id_of(name: str) -> SegmentId:
    """What the name of a segment tells of it."""
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
    return sorted(found, key=id_of)


def open_piece(data: Buffer, wanted: Wanted, volume: bytes, keys: SealKeys) -> Piece:
    """Decode what a cloud returned for a segment. Raises `DecodeError`, also when it is another one."""
    segment = decode_segment(data, wanted.name, volume, keys)
    last = segment.updates[-1].hash
    if wanted.last not in (None, last):
        raise DecodeError(f"segment {wanted.name} does not end where the log goes on")
    previous = None
    if segment.previous is not None:
        previous = Wanted(segment_name(segment.writer, segment.previous), segment.updates[0].header.prev)
    updates = tuple(update.data for update in segment.updates)
    return Piece(wanted.name, last, previous, updates, sum(len(update) for update in updates))


class Budget:
    """The bytes of updates that all walks together may keep."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class ChainWalk:
    """One walk along the segments of `device`, from `target` on. Drop it with `close`.

    The log may grow on another way at any moment. It is asked in `skip_known` only, so that what the
    properties say holds together from one call of that to the next.
    """

    def __init__(self, device: bytes, target: Wanted, known: Holds, budget: Budget) -> None:
        self.device = device
        self.target = target.name
        self.end: bytes | None = None
        """The hash of the last update of the target, once it has been seen."""
        self._known = known
        self._budget = budget
        self._path = [target]  # the target first, the oldest segment so far last
        self._pieces: dict[str, Piece] = {}  # in the order in which they came
        self._turned = False

    @property
    def wanted(self) -> Wanted | None:
        """The segment needed next, None when it is here or the walk is over."""
        return self._path[-1] if self._path and self._path[-1].name not in self._pieces else None

    @property
    def turned(self) -> bool:
        """Whether the way back is done: what is next may be delivered."""
        return self._turned

    @property
    def over(self) -> bool:
        """Whether everything has been delivered."""
        return not self._path

    @property
    def clock(self) -> int:
        """The first clock of the segment to be delivered next."""
        return id_of(self._path[-1].name).first

    def skip_known(self) -> None:
        """Leave out what has reached our log on another way by now."""
        while self._path:
            oldest = self._path[-1]
            if oldest.name in self._pieces or not self._known(self.device, oldest.end):
                return
            self._path.pop()
            self._turned = True
            if oldest.name == self.target:
                self.end = oldest.end

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
        if piece.previous is None:
            self._turned = True
            return
        if len(self._path) >= MAX_CHAIN:
            raise DecodeError(f"more than {MAX_CHAIN} segments before {self.target}")
        self._path.append(piece.previous)

    def take(self) -> Piece:
        """The next segment to deliver; `turned` holds, and nothing is `wanted`."""
        return self._drop(self._path.pop().name)

    def close(self) -> None:
        """Let go of everything."""
        for name in list(self._pieces):
            self._drop(name)
        self._path.clear()

    def _drop(self, name: str) -> Piece:
        piece = self._pieces.pop(name)
        self._budget.used -= piece.size
        return piece
