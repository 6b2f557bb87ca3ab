"""The shared codec: what is written is read, and nothing but the canonical form is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.codec import DecodeError, Reader, Writer
from sync.errors import NewerFormatError
from tests.sync.support import decodes

U64 = (1 << 64) - 1


@given(st.integers(0, U64), st.binary(max_size=300), st.integers(0, U64))
def test_round_trip(number: int, blob: bytes, fixed: int) -> None:
    data = Writer().varint(number).blob(blob).u64(fixed).getvalue()
    reader = Reader(data)
    assert (reader.varint(), reader.blob(300), reader.u64()) == (number, blob, fixed)
    reader.end()


@given(st.binary(max_size=12))
def test_a_varint_has_one_form(data: bytes) -> None:
    reader = Reader(data)
    try:
        number = reader.varint()
    except DecodeError:
        return
    assert Writer().varint(number).getvalue() == data[: reader.position]


def test_varint_refuses_long_and_large_forms() -> None:
    assert not decodes(lambda data: Reader(data).varint(), b"\x80" * 10 + b"\x01")
    assert not decodes(lambda data: Reader(data).varint(), b"\x80\x00")
    assert not decodes(lambda data: Reader(data).varint(), b"\xff" * 9 + b"\x02")
    assert not decodes(lambda data: Reader(data).varint(127), b"\x80\x01")
    with pytest.raises(ValueError, match="out of range"):
        Writer().varint(U64 + 1)


def test_a_blob_is_bounded_before_it_is_read() -> None:
    data = Writer().blob(b"four").getvalue()
    assert Reader(data).blob(4) == b"four"
    assert not decodes(lambda data: Reader(data).blob(3), data)
    assert not decodes(lambda data: Reader(data).blob(4), data[:-1])


def test_format_tells_foreign_from_newer() -> None:
    data = Writer().format(b"HFXX", 2).getvalue()
    reader = Reader(data)
    reader.format(b"HFXX", 2)
    reader.end()
    with pytest.raises(NewerFormatError, match="upgrade"):
        Reader(data).format(b"HFXX", 1)
    for magic, version in ((b"HFXY", 2), (b"HFXX", 3)):
        with pytest.raises(DecodeError) as refusal:
            Reader(data).format(magic, version)
        assert not isinstance(refusal.value, NewerFormatError)


def test_end_refuses_what_follows() -> None:
    reader = Reader(b"ab")
    reader.u8()
    with pytest.raises(DecodeError, match="1 bytes after the end"):
        reader.end()
