"""Metadata records: one form for each entry, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.kv.record import MAX_VALUE, KeyMetadata
from hybrisfs.kv.seal import SEAL_OVERHEAD
from sync.codec import DecodeError
from sync.errors import NewerFormatError

NUMBERS_END = (1 << 63) - 1
NUMBERS = st.integers(0, NUMBERS_END)


@st.composite
def entries(draw: st.DrawFn) -> KeyMetadata:
    sn, write = draw(NUMBERS), draw(NUMBERS)
    if draw(st.booleans()):
        return KeyMetadata(sn, write, conditional=draw(st.booleans()), written=draw(NUMBERS))
    size = draw(st.integers(0, MAX_VALUE))
    sealed = draw(st.integers(1, size + SEAL_OVERHEAD))
    placement = tuple(draw(st.lists(st.integers(0, 300), min_size=1, max_size=9, unique=True)))
    k = draw(st.integers(1, len(placement)))
    count = 1 if k == 1 else len(placement)
    checksums = tuple(draw(st.binary(min_size=16, max_size=16)) for _ in range(count))
    written_anew = write < NUMBERS_END and draw(st.booleans())
    moved = draw(st.integers(write + 1, NUMBERS_END)) if written_anew else 0
    return KeyMetadata(
        sn,
        write,
        size,
        sealed,
        k,
        placement,
        checksums,
        moved,
        draw(st.booleans()),
        draw(NUMBERS),
        draw(st.binary(max_size=50)),
    )


@given(entry=entries())
def test_what_is_encoded_is_decoded(entry: KeyMetadata) -> None:
    assert KeyMetadata.decode(entry.encode()) == entry


@given(entry=entries(), data=st.data())
def test_other_bytes_are_refused_or_another_entry(entry: KeyMetadata, data: st.DataObject) -> None:
    record = bytearray(entry.encode())
    place = data.draw(st.integers(0, len(record) - 1))
    record[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        other = KeyMetadata.decode(bytes(record))
    except (DecodeError, NewerFormatError):
        return
    assert other != entry
    assert KeyMetadata.decode(other.encode()) == other


@given(junk=st.binary(max_size=80))
def test_junk_is_refused_or_means_itself(junk: bytes) -> None:
    try:
        entry = KeyMetadata.decode(junk)
    except (DecodeError, NewerFormatError):
        return
    assert entry.encode() == junk or junk[0] >> 4 == 1


def test_records_of_format_1_are_read() -> None:
    record = bytes.fromhex("11 05 07 64 3a 02 00 01") + b"c" * 16
    assert KeyMetadata.decode(record) == KeyMetadata(5, 7, 100, 129, 1, (0, 1), (b"c" * 16,))
    assert KeyMetadata.decode(b"\x10\x03\x09") == KeyMetadata(3, 9)
    for refused in (b"\x18\x03\x09", b"\x19" + record[1:], record + b"\0"):
        with pytest.raises(DecodeError):
            KeyMetadata.decode(refused)


def test_a_later_format_is_refused_as_such() -> None:
    with pytest.raises(NewerFormatError):
        KeyMetadata.decode(b"\x31\x01\x01")


def test_an_entry_of_two_copies_is_small() -> None:
    assert (
        len(
            KeyMetadata(
                1000, 1_000_000, 1 << 20, 900_000, 1, (0, 2), (b"c" * 16,), 0, False, 1 << 41
            ).encode()
        )
        <= 40
    )
