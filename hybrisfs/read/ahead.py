"""Finds readers that read in order, and says what to fetch ahead of each.

Chunks have numbers in the order in which they were made or, on a device that took over a checkpoint, in the
order of their packs. A *run* is what is fetched by one request. What one reader reads in order is a *stream*:

* a chunk behind the last run: a file from front to back, or one small file after the other;
* a chunk that is all of a small file, *around* one of the latest runs: the files of a folder in another order
  than they were packed in;
* any small file, while most of the latest ones were such: somebody *walks* through a tree from folder to
  folder.

Runs are begun ahead of the reader of a stream. The first chunk of each is a *milestone*: when it is read, one
run more is begun. A stream ends with its file, unless small files are read one after the other.

Pure. Not thread-safe: the lock of the fetcher guards it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from msgspec import Struct, field

__all__ = ["AROUND", "Readers", "Stream"]

AROUND: Final = 128
"""Numbers by which chunks of files of one folder may differ, so that one is expected to be read after the
other."""

_MOST_AHEAD: Final = 8  # under way at a time, of all streams together
_REMEMBERED: Final = 256  # runs to which the next chunk may be wanted
_LATEST: Final = 8  # runs around which another chunk may be wanted
_STREAMS: Final = 32
_JUDGED: Final = 16  # small files by which it is seen whether somebody walks


class Stream(Struct, eq=False):
    """What one reader reads in order."""

    last: int
    """The last chunk that was begun."""
    across: bool = False
    """Whether it goes on behind the end of a file."""
    milestones: deque[int] = field(default_factory=deque)
    """The nearest first."""
    extending: bool = False
    """Whether a thread begins what follows."""


class Readers:
    """The readers of a volume, by what they have asked for."""

    def __init__(self) -> None:
        self._runs: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # the latest first
        self._streams: deque[Stream] = deque()  # the latest last
        self._expected: deque[bool] = deque(maxlen=_JUDGED)  # of small files: around the latest runs?
        self._ahead = 0  # runs under way that nobody has asked for

    def wanted(self, number: int, *, whole: bool) -> Stream | None:
        """A chunk is wanted that is neither here nor under way; `whole`: it is all of a small file.
        Returns the stream to which it belongs; None when it is read by itself."""
        is_next = any(last == number - 1 for _, last in self._runs)
        is_around = whole and (
            is_next or any(a - AROUND <= number <= b + AROUND for a, b in islice(self._runs, _LATEST))
        )
        walks = whole and 2 * sum(self._expected) > _JUDGED
        if whole:
            self._expected.append(is_around)
        if not (is_next or is_around or walks):
            return None
        reach = AROUND if is_around and not is_next else 1
        for stream in self._streams:
            if abs(number - stream.last) <= reach:
                stream.across = stream.across or whole
                return stream
        stream = Stream(number, across=walks)
        self._streams.append(stream)
        return stream

    def forgotten(self) -> Sequence[int]:
        """The milestones of the streams that were too many: nobody need tell of them any more."""
        too_many = len(self._streams) - _STREAMS
        dropped = [self._streams.popleft() for _ in range(too_many)]
        return [number for stream in dropped for number in stream.milestones]

    def begun(self, numbers: Sequence[int], stream: Stream | None, *, ahead: bool) -> None:
        """These chunks, the wanted one first, are being fetched by one run."""
        if stream is not None:
            stream.last = max(numbers)
        if ahead and stream is not None:
            stream.milestones.append(numbers[0])
            self._ahead += 1
        self._runs.appendleft((min(numbers), max(numbers)))

    def ended(self) -> None:
        """A run that was begun ahead of a reader has ended."""
        self._ahead -= 1

    def reached(self, stream: Stream, number: int) -> Sequence[int] | None:
        """A milestone is being read. Returns those that are behind the reader, of which nobody need tell any
        more; None when this one is, too."""
        if number not in stream.milestones:
            return None
        passed = []
        while (one := stream.milestones.popleft()) != number:
            passed.append(one)
        return passed

    def wants_more(self, stream: Stream, most: int) -> bool:
        """Whether a run more is to be begun ahead of the reader, of which there are *most*. When not, the
        next milestone asks again."""
        return len(stream.milestones) < most and self._ahead < _MOST_AHEAD
