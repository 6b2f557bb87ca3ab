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
        return KeyMetadata(sn, write, conditional=draw(st.booleans()))
    size = draw(st.integers(0, MAX_VALUE))
    sealed = draw(st.integers(1, size + SEAL_OVERHEAD))
    placement = tuple(draw(st.lists(st.integers(0, 300), min_size=1, max_size=9, unique=True)))
    k = draw(st.integers(1, len(placement)))
    count = 1 if k == 1 else len(placement)
    checksums = tuple(draw(st.binary(min_size=16, max_size=16)) for _ in range(count))
    written_anew = write < NUMBERS_END and draw(st.booleans())
    moved = draw(st.integers(write + 1, NUMBERS_END)) if written_anew else 0
    return KeyMetadata(sn, write, size, sealed, k, placement, checksums, moved, draw(st.booleans()))


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
    assert other.encode() == bytes(record)


@given(junk=st.binary(max_size=80))
def test_junk_is_refused_or_means_itself(junk: bytes) -> None:
    try:
        entry = KeyMetadata.decode(junk)
    except (DecodeError, NewerFormatError):
        return
    assert entry.encode() == junk


def test_a_later_format_is_refused_as_such() -> None:
    with pytest.raises(NewerFormatError):
        KeyMetadata.decode(b"\x21\x01\x01")


def test_an_entry_of_two_copies_is_small() -> None:
    assert len(KeyMetadata(1000, 1_000_000, 1 << 20, 900_000, 1, (0, 2), (b"c" * 16,)).encode()) <= 32
