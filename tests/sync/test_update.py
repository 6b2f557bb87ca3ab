"""Signed updates: the bytes that travel are the bytes that are signed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sync.codec import ZERO_HASH, Writer
from sync.errors import DecodeError, LimitError, NewerFormatError
from sync.identity import SIGNATURE_SIZE
from sync.update import (
    MAX_UPDATE,
    MAX_VALUE,
    SignedUpdate,
    Update,
    UpdateStamp,
    decode_signed,
    decode_signed_header,
    encode_signed,
)
from sync.vector import MAX_CLOCK
from tests.sync.support import KEYS, NOON, STRANGER, VOLUME, as_update, decodes, flip, stamps, writes

KEY = KEYS[0]
FIRST = Update(VOLUME, KEY.device_id, 1, 0, ZERO_HASH, (), bytes(32), NOON, ((b"key", b"value"),))

updates = st.builds(
    lambda clock, deps, history, time_ns, entries, prev: Update(
        VOLUME,
        KEY.device_id,
        clock,
        clock - 1,
        prev if clock > 1 else ZERO_HASH,
        tuple(sorted(deps)),
        history,
        time_ns,
        tuple(entries),
    ),
    st.integers(1, MAX_CLOCK),
    st.lists(stamps, max_size=6, unique=True),
    st.binary(min_size=32, max_size=32),
    st.integers(0, (1 << 63) - 1),
    writes,
    st.binary(min_size=32, max_size=32).filter(any),
)


def signed(update: Update) -> SignedUpdate:
    return decode_signed(encode_signed(update, KEY))


@given(updates)
def test_round_trip(update: Update) -> None:
    data = encode_signed(update, KEY)
    arrived = decode_signed(data)
    assert as_update(arrived) == update and arrived.data == data
    assert arrived.header.verify(KEY.public) and not arrived.header.verify(STRANGER.public)
    assert decode_signed_header(data) == arrived.header == decode_signed_header(arrived.header.data)


@given(updates, st.integers(min_value=0))
def test_any_flipped_bit_is_noticed(update: Update, bit: int) -> None:
    data = encode_signed(update, KEY)
    altered = flip(data, bit)
    if decodes(decode_signed, altered):
        assert not decode_signed(altered).header.verify(KEY.public)


@given(updates, st.data())
def test_truncation_and_addition(update: Update, data: st.DataObject) -> None:
    whole = encode_signed(update, KEY)
    assert not decodes(decode_signed, whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert not decodes(decode_signed, whole + b"\0")
    header = decode_signed_header(whole).data
    assert not decodes(decode_signed_header, header[: data.draw(st.integers(0, len(header) - 1))])


@given(st.binary(max_size=400))
def test_noise(noise: bytes) -> None:
    assert not decodes(decode_signed, noise)
    decodes(decode_signed, encode_signed(FIRST, KEY)[:6] + noise)


def test_every_field_is_in_the_hash() -> None:
    changes: list[dict[str, object]] = [
        {"volume": bytes(16)},
        {"clock": 2},
        {"prev": b"p" * 32, "prev_clock": 1},
        {"prev": b"p" * 32, "prev_clock": 2},
        {"deps": (UpdateStamp(KEYS[1].device_id, 1, bytes(16)),)},
        {"deps": (UpdateStamp(KEYS[1].device_id, 1, bytes(15) + b"x"),)},
        {"history": b"h" * 32},
        {"time_ns": NOON + 1},
        {"writes": ((b"key", b"other"),)},
        {"writes": ((b"key", None),)},
    ]
    hashes = {signed(replace(FIRST, **change)).hash for change in changes}
    assert len(hashes | {signed(FIRST).hash}) == len(changes) + 1


def test_the_hash_does_not_depend_on_the_signature() -> None:
    data = encode_signed(FIRST, KEY)
    end = len(signed(FIRST).header.data)
    assert decode_signed(data[: end - SIGNATURE_SIZE] + bytes(64) + data[end:]).hash == signed(FIRST).hash


def test_the_body_is_bound_to_the_header() -> None:
    ours, other = signed(FIRST), signed(replace(FIRST, writes=((b"key", b"VALUE"),)))
    swapped = ours.header.data + other.data[len(other.header.data) :]
    with pytest.raises(DecodeError, match="not the one that the header names"):
        decode_signed(swapped)


def test_overhead_of_an_update_is_small() -> None:
    deps = tuple(UpdateStamp(bytes([n]) * 16, 1 << 27, bytes(16)) for n in range(2))
    update = replace(FIRST, clock=1 << 27, prev_clock=1 << 20, prev=b"p" * 32, deps=deps)
    assert len(encode_signed(FIRST, KEY)) - len(b"keyvalue") == 215
    assert len(encode_signed(update, KEY)) - len(b"keyvalue") <= 300


def test_only_the_writer_signs() -> None:
    with pytest.raises(ValueError, match="its own writer only"):
        encode_signed(FIRST, STRANGER)


def test_size_limit() -> None:
    entries = tuple((b"%d" % n, bytes(MAX_VALUE)) for n in range(4))
    with pytest.raises(LimitError):
        encode_signed(replace(FIRST, writes=entries), KEY)
    with pytest.raises(DecodeError, match="at most"):
        decode_signed(bytes(MAX_UPDATE + 1))


def test_a_newer_format_says_so() -> None:
    data = encode_signed(FIRST, KEY)
    with pytest.raises(NewerFormatError):
        decode_signed(data[:4] + Writer().u16(2).getvalue() + data[6:])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"prev_clock": 1}, "first update"),
        ({"prev": b"p" * 32}, "first update"),
        ({"deps": (UpdateStamp(KEY.device_id, 0, bytes(16)),)}, "clock 0"),
        ({"deps": (UpdateStamp(KEY.device_id, 1, bytes(16)),) * 2}, "ascending"),
        ({"time_ns": 1 << 63}, "63 bits"),
        ({"clock": 0}, "clock 0"),
    ],
)
def test_contradictory_headers_are_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_signed(encode_signed(replace(FIRST, **changes), KEY))
