"""The body of an update: round trip, one form, bounds."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.errors import DecodeError, LimitError
from sync.update import MAX_KEY, MAX_VALUE, MAX_WRITES, Write, decode_writes, encode_writes
from tests.sync.support import decodes, flip, writes


@given(writes)
def test_round_trip_and_truncation(entries: list[Write]) -> None:
    body = encode_writes(entries)
    assert list(decode_writes(body, len(entries))) == entries
    lengths = [*range(min(len(body), 64)), len(body) - 1]
    assert not any(
        decodes(lambda data: decode_writes(data, len(entries)), body[:length]) for length in lengths
    )
    assert not decodes(lambda data: decode_writes(data, len(entries)), body + b"\0")


@given(writes, st.integers(min_value=0), st.integers(-2, 2))
def test_what_decodes_is_canonical(entries: list[Write], bit: int, more: int) -> None:
    altered, count = flip(encode_writes(entries), bit), max(0, len(entries) + more)
    if decodes(lambda data: decode_writes(data, count), altered):
        assert encode_writes(decode_writes(altered, count)) == altered


@given(st.binary(max_size=60), st.integers(0, 5))
def test_noise(body: bytes, count: int) -> None:
    if decodes(lambda data: decode_writes(data, count), body):
        assert encode_writes(decode_writes(body, count)) == body


def test_a_tombstone_is_not_an_empty_value() -> None:
    entries = [(b"a", None), (b"b", b""), (b"c", b"x")]
    assert list(decode_writes(encode_writes(entries), 3)) == entries


def test_three_bytes_frame_a_small_write() -> None:
    assert len(encode_writes([(b"k" * 25, b"v" * 35)] * 1)) == 60 + 4
    assert len(encode_writes([(b"%d" % n, b"") for n in range(10)])) == 10 + 2 + 20


@pytest.mark.parametrize(
    "entries",
    [
        [(b"k" * (MAX_KEY + 1), b"")],
        [(b"k", bytes(MAX_VALUE + 1))],
        [(b"", None)] * (MAX_WRITES + 1),
    ],
    ids=["key", "value", "count"],
)
def test_limits(entries: list[Write]) -> None:
    with pytest.raises(LimitError):
        encode_writes(entries)


def test_the_largest_key_and_value_pass() -> None:
    entries = [(b"k" * MAX_KEY, bytes(MAX_VALUE)), (b"l", None)]
    assert list(decode_writes(encode_writes(entries), 2)) == entries


@pytest.mark.parametrize("entries", [[(b"", b"x")], [(b"a", b"x"), (b"a", None)]], ids=["empty", "twice"])
def test_ambiguous_keys_are_refused(entries: list[Write]) -> None:
    with pytest.raises(ValueError):
        encode_writes(entries)


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (struct.pack(">BBHB", 2, 1, MAX_KEY + 1, 0) + bytes(MAX_KEY + 1), 1, "longer than 600"),
        (struct.pack(">BBBIc", 1, 4, 1, MAX_VALUE + 2, b"k") + bytes(MAX_VALUE + 1), 1, "value is longer"),
        (struct.pack(">BBBB", 1, 1, 0, 0), 1, "a key is empty"),
        (struct.pack(">BB4B2s", 1, 1, 1, 1, 0, 0, b"kk"), 2, "written twice"),
        (struct.pack(">BBHBc", 2, 1, 1, 0, b"k"), 1, "wider than it need"),
        (struct.pack(">BBBHc", 1, 2, 1, 0, b"k"), 1, "wider than it need"),
        (struct.pack(">BBBBc", 1, 3, 1, 0, b"k"), 1, "unknown column widths"),
        (struct.pack(">BBBBc", 1, 1, 1, 2, b"k"), 1, "left"),
        (struct.pack(">BB", 1, 1), MAX_WRITES, "ends early"),
    ],
    ids=["key", "value", "empty key", "twice", "wide keys", "wide values", "width", "short", "count"],
)
def test_malformed_bodies_are_refused(body: bytes, count: int, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_writes(body, count)
