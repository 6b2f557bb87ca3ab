"""Indexes: what is written is read; what is not exactly so is refused, within bounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.codec import Reader, Writer
from sync.errors import DecodeError
from sync.log_index import IndexEntry, LogIndexReader, LogIndexWriter


def grown(seed: int, count: int) -> list[IndexEntry]:
    """Entries of some devices that now and then hear of each other, and sometimes fork."""
    choices = random.Random(seed)
    made: list[IndexEntry] = []
    for _ in range(count):
        device = bytes([choices.randrange(3)]) * 16
        own = [number for number, entry in enumerate(made) if entry.device == device]
        prev = None if not own else own[-1] if choices.random() < 0.8 else choices.choice(own)
        others = [number for number, entry in enumerate(made) if entry.device != device]
        causes = sorted(choices.sample(others, min(len(others), choices.randrange(3))))
        clock = 1 + max((made[one].clock for one in (*causes, *([] if prev is None else [prev]))), default=0)
        made.append(
            IndexEntry(device, clock, choices.randbytes(32), prev, causes, choices.randrange(1 << 63))
        )
    order = sorted(range(count), key=lambda one: (made[one].clock, made[one].hash))
    at = {number: place for place, number in enumerate(order)}
    return [
        IndexEntry(
            entry.device,
            entry.clock,
            entry.hash,
            None if entry.prev is None else at[entry.prev],
            sorted((at[cause] for cause in entry.causes), reverse=True),
            entry.time_ns,
        )
        for entry in (made[number] for number in order)
    ]


def encoded(entries: list[IndexEntry]) -> bytes:
    writer = LogIndexWriter()
    return b"".join(writer.encode(entry) for entry in entries)


def decoded(data: bytes) -> list[IndexEntry]:
    reader, index = Reader(data), LogIndexReader()
    entries = []
    while reader.remaining:
        entries.append(index.read(reader))
    return entries


@given(st.integers(0, 1 << 32), st.integers(0, 40))
def test_round_trip(seed: int, count: int) -> None:
    entries = grown(seed, count)
    assert decoded(encoded(entries)) == entries


@given(st.integers(0, 1 << 32), st.integers(1, 20), st.integers(0, 1 << 16), st.binary(max_size=9))
def test_what_is_altered_is_refused_or_another_index(seed: int, count: int, at: int, instead: bytes) -> None:
    data = encoded(grown(seed, count))
    at %= len(data)
    try:
        entries = decoded(data[:at] + instead + data[at + len(instead) :])
    except DecodeError:
        return
    assert decoded(encoded(entries)) == entries


@given(st.binary(max_size=400))
def test_hostile_bytes_raise_nothing_else(data: bytes) -> None:
    try:
        decoded(data)
    except DecodeError:
        return


A, B = bytes(16), bytes([1]) * 16
FIRST = Writer().varint(0).raw(A).varint(0).varint(0).u64(1).raw(b"a" * 32).getvalue()


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (Writer().varint(0).raw(A), "introduced twice"),
        (Writer().varint(2), "above its limit"),
        (Writer().varint(0).raw(B).varint(1), "another machine"),
        (Writer().varint(1).varint(2), "above its limit"),
        (Writer().varint(0).raw(B).varint(0).varint(2).varint(1).varint(1), "ascending"),
        (Writer().varint(0).raw(B).varint(0).varint(0).u64(1).raw(b"a" * 32), "ascending"),
        (Writer().varint(0).raw(B).varint(0).varint(0).u64(1 << 63).raw(b"b" * 32), "63 bits"),
        (Writer().varint(1).varint(1).varint(0).u64(1).raw(b"b" * 31), "ends early"),
    ],
)
def test_what_no_correct_device_writes(then: Writer, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decoded(FIRST + then.getvalue())
