"""The index of a log: for each update its name, and what it follows and depends on, without what it wrote.

It is all that exchange, the detection of forks and history hashes need of updates that a checkpoint stands
for. The updates of one causally closed set, in ascending order of (clock, hash); for each:

    device   varint: 0, then 16: a device that has not come up before; n: the n-th that has come up
    prev     varint: how many updates before this one stands the one that it follows, 0 = it is the first
    causes   varint, how many, at most MAX_WRITERS; then for each, ascending, varint: how many updates before
             this one it stands. With `prev` they imply all that the update depends on
    time     u64, ns since the epoch by the writer's clock
    hash     32

Clocks follow: that of an update is one more than the highest of `prev` and `causes`. As branches have no
names here, devices that know of different forks write equal bytes of equal sets.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sync.codec import HASH_SIZE, Reader, Writer
from sync.errors import DecodeError
from sync.identity import DEVICE_ID_SIZE
from sync.vector import MAX_CLOCK, MAX_WRITERS

__all__ = ["MAX_INDEXED", "IndexEntry", "LogIndexReader", "LogIndexWriter"]

MAX_INDEXED = 1 << 24
"""Most updates that one index names."""

_MAX_TIME = (1 << 63) - 1


class IndexEntry(Struct, frozen=True):
    """One update. `prev` and `causes` are the numbers of other updates, counted from 0 in the order above."""

    device: bytes
    clock: int
    hash: bytes
    prev: int | None
    causes: Sequence[int]
    time_ns: int


class LogIndexWriter:
    """Encodes the updates of one index, in order."""

    def __init__(self) -> None:
        self._devices: dict[bytes, int] = {}
        self._count = 0

    def encode(self, entry: IndexEntry) -> bytes:
        """The bytes of the next update."""
        out = Writer()
        number = self._devices.get(entry.device)
        if number is None:
            self._devices[entry.device] = len(self._devices) + 1
            out.varint(0).raw(entry.device)
        else:
            out.varint(number)
        here = self._count
        out.varint(0 if entry.prev is None else here - entry.prev)
        out.varint(len(entry.causes))
        for distance in sorted(here - cause for cause in entry.causes):
            out.varint(distance)
        self._count += 1
        return out.u64(entry.time_ns).raw(entry.hash).getvalue()


class LogIndexReader:
    """Decodes the updates of one index, in order; what it keeps of each is a few dozen bytes."""

    def __init__(self) -> None:
        self._devices: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._writers: list[int] = []  # of each update
        self._clocks: list[int] = []
        self._last = b""

    def read(self, reader: Reader) -> IndexEntry:
        """The next update. Raises `DecodeError`."""
        device = self._device(reader)
        here = len(self._clocks)
        distance = reader.varint(here)
        prev = here - distance if distance else None
        if prev is not None and self._writers[prev] != device:
            raise DecodeError("an update follows one of another machine")
        causes: list[int] = []
        before = 0
        for _ in range(reader.varint(MAX_WRITERS)):
            distance = reader.varint(here)
            if distance <= before:
                raise DecodeError("causes are not in ascending order")
            causes.append(here - distance)
            before = distance
        clocks = self._clocks
        clock = 1 + max((clocks[cause] for cause in causes), default=0)
        if prev is not None and clocks[prev] >= clock:
            clock = clocks[prev] + 1
        if clock > MAX_CLOCK:
            raise DecodeError("a clock above its limit")
        time_ns, identity = reader.u64(), reader.raw(HASH_SIZE)
        if time_ns > _MAX_TIME:
            raise DecodeError(f"time {time_ns} ns does not fit 63 bits")
        if clocks and (clock, identity) <= (clocks[-1], self._last):
            raise DecodeError("updates are not in ascending order")
        clocks.append(clock)
        self._writers.append(device)
        self._last = identity
        return IndexEntry(self._devices[device], clock, identity, prev, causes, time_ns)

    def _device(self, reader: Reader) -> int:
        number = reader.varint(len(self._devices))
        if number:
            return number - 1
        device = reader.raw(DEVICE_ID_SIZE)
        if device in self._numbers or len(self._devices) >= MAX_WRITERS:
            raise DecodeError("a machine is introduced twice, or one too many")
        self._numbers[device] = len(self._devices)
        self._devices.append(device)
        return self._numbers[device]
