"""Version vectors: for each writer, the clock of its newest known update (Depot 4.1).

A writer is a branch of a device, see `sync.log_tree`: the device itself as long as it has not forked.

Wire form, canonical (sorted, no zero clocks, no writer twice):

    count   varint, at most MAX_WRITERS
    entry   writer (16) + clock (varint, 1 .. MAX_CLOCK), ascending by writer, `count` times
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Mapping
from enum import Enum

from msgspec import Struct

from sync.codec import Buffer, Reader, Writer
from sync.errors import DecodeError, LimitError
from sync.identity import DEVICE_ID_SIZE

__all__ = ["MAX_CLOCK", "MAX_WRITERS", "Order", "Rename", "VersionVector"]

MAX_WRITERS = 1024
MAX_CLOCK = (1 << 63) - 1
"""Clocks stay within a signed 64-bit integer, which is what SQLite holds."""


class Order(Enum):
    """How two vectors relate: the first is ... the second."""

    BEFORE = "before"
    AFTER = "after"
    EQUAL = "equal"
    CONCURRENT = "concurrent"


class Rename(Struct, frozen=True):
    """The updates of writer `old` with a clock above `above` are now those of writer `new`."""

    old: bytes
    above: int
    new: bytes


class VersionVector:
    """An immutable version vector. A writer that is not in it has clock 0."""

    __slots__ = ("_clocks",)

    def __init__(self, clocks: Mapping[bytes, int] | Iterable[tuple[bytes, int]] = ()) -> None:
        self._clocks: dict[bytes, int] = dict(sorted(dict(clocks).items()))
        for writer, clock in self._clocks.items():
            if len(writer) != DEVICE_ID_SIZE or not 0 < clock <= MAX_CLOCK:
                raise ValueError(f"not a version vector entry: {writer.hex()} at {clock}")

    @classmethod
    def _of(cls, clocks: dict[bytes, int]) -> VersionVector:
        """The vector of entries that are valid and sorted."""
        vector = cls.__new__(cls)
        vector._clocks = clocks
        return vector

    def __getitem__(self, writer: bytes) -> int:
        return self._clocks.get(writer, 0)

    def __len__(self) -> int:
        return len(self._clocks)

    def items(self) -> ItemsView[bytes, int]:
        """The (writer, clock) entries, ascending by writer."""
        return self._clocks.items()

    @property
    def highest(self) -> int:
        """The highest clock of all, 0 when empty."""
        return max(self._clocks.values()) if self._clocks else 0

    def with_entry(self, writer: bytes, clock: int) -> VersionVector:
        """This vector with one entry replaced or added."""
        if len(writer) != DEVICE_ID_SIZE or not 0 < clock <= MAX_CLOCK:
            raise ValueError(f"not a version vector entry: {writer.hex()} at {clock}")
        clocks = self._clocks.copy()
        clocks[writer] = clock
        return self._of(clocks if len(clocks) == len(self._clocks) else dict(sorted(clocks.items())))

    def with_entries(self, entries: Iterable[tuple[bytes, int]]) -> VersionVector:
        """This vector with the given entries replaced or added."""
        return VersionVector(self._clocks | dict(entries))

    def renamed(self, renames: Iterable[Rename]) -> VersionVector:
        """This vector after updates were given to other writers."""
        clocks = self._clocks.copy()
        for rename in renames:
            clock = clocks.get(rename.old, 0)
            if clock > rename.above:
                clocks[rename.new] = clock
                if rename.above:
                    clocks[rename.old] = rename.above
                else:
                    del clocks[rename.old]
        return VersionVector(clocks)

    def merge(self, other: VersionVector) -> VersionVector:
        """The least vector that covers both."""
        merged = dict(self._clocks)
        for writer, clock in other._clocks.items():
            if clock > merged.get(writer, 0):
                merged[writer] = clock
        return VersionVector(merged)

    def covers(self, other: VersionVector) -> bool:
        """True when `other` is equal to or before this vector."""
        mine = self._clocks
        return all(clock <= mine.get(writer, 0) for writer, clock in other._clocks.items())

    def compare(self, other: VersionVector) -> Order:
        """How this vector stands to `other`."""
        if self._clocks == other._clocks:
            return Order.EQUAL
        if other.covers(self):
            return Order.BEFORE
        if self.covers(other):
            return Order.AFTER
        return Order.CONCURRENT

    def write_to(self, out: Writer) -> None:
        """Append the wire form. Raises `LimitError` above MAX_WRITERS."""
        if len(self._clocks) > MAX_WRITERS:
            raise LimitError(
                f"{len(self._clocks)} writers in one version vector, at most {MAX_WRITERS} are allowed"
            )
        out.varint(len(self._clocks))
        for writer, clock in self._clocks.items():
            out.raw(writer).varint(clock)

    @classmethod
    def read_from(cls, reader: Reader) -> VersionVector:
        """Read the wire form. Raises `DecodeError`."""
        clocks: dict[bytes, int] = {}
        previous = b""
        for _ in range(reader.varint(MAX_WRITERS)):
            writer = reader.raw(DEVICE_ID_SIZE)
            if writer <= previous:
                raise DecodeError("version vector entries are not in ascending order")
            clock = reader.varint(MAX_CLOCK)
            if clock == 0:
                raise DecodeError("version vector entry with clock 0")
            clocks[writer] = clock
            previous = writer
        return cls._of(clocks)

    def encode(self) -> bytes:
        """The wire form alone. Raises `LimitError` above MAX_WRITERS."""
        out = Writer()
        self.write_to(out)
        return out.getvalue()

    @classmethod
    def decode(cls, data: Buffer) -> VersionVector:
        """Decode the wire form, with nothing after it. Raises `DecodeError`."""
        reader = Reader(data)
        vector = cls.read_from(reader)
        reader.end()
        return vector

    def __eq__(self, other: object) -> bool:
        return self._clocks == other._clocks if isinstance(other, VersionVector) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._clocks.items()))

    def __repr__(self) -> str:
        entries = ", ".join(f"{writer.hex()}: {clock}" for writer, clock in self._clocks.items())
        return f"VersionVector({{{entries}}})"
