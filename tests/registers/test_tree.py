"""The values of registers: round trips, and bytes of every origin."""

from __future__ import annotations

import stat
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hybrisfs.registers.tree import (
    MAX_XATTRS_SIZE,
    Attr,
    Content,
    PackedChunk,
    PackRecord,
    Place,
    Run,
    decode_runs,
    encode_runs,
    place_key,
    slot_of,
)
from sync.codec import DecodeError, Writer

KINDS = (
    stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK
)  # fmt: skip
ids = st.binary(min_size=32, max_size=32)
names = st.binary(min_size=1, max_size=255).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
nodes = st.binary(min_size=16, max_size=16)
places = st.builds(Place, nodes, names, st.booleans(), st.just(b"") | nodes, st.booleans())
attrs = st.builds(
    Attr,
    st.builds(int.__or__, st.sampled_from([*KINDS]), st.integers(0, 0o7777)),
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFFFFFFFF),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.binary(max_size=300),
    st.dictionaries(st.binary(min_size=1, max_size=20), st.binary(max_size=300), max_size=4).map(
        lambda found: tuple(sorted(found.items()))
    ),
)
whole = st.builds(Run, st.integers(1, 1 << 40), st.none() | ids, st.just(0))
parts_of_chunks = st.builds(Run, st.integers(1, 1 << 40), ids, st.integers(0, 1 << 24))
runs = st.lists(whole | parts_of_chunks, max_size=6)
contents = st.builds(
    lambda parts, depth: Content(sum(run.length for run in parts), depth, parts), runs, st.just(0)
) | st.builds(lambda parts: Content(sum(run.length for run in parts), 1, parts), st.lists(whole, max_size=6))
packs = st.integers(1, 32).flatmap(
    lambda n: st.builds(
        PackRecord,
        st.integers(1, n),
        st.just(n),
        st.binary(min_size=n, max_size=n),
        st.lists(
            st.builds(
                PackedChunk, ids, st.integers(0, 1 << 40), st.integers(0, 1 << 24), st.integers(0, 1 << 24)
            ),
            max_size=4,
        ),
    )
)
Value = Place | Attr | Content | PackRecord
values: st.SearchStrategy[Value] = st.one_of(places, attrs, contents, packs)


@given(values)
def test_round_trip(value: Value) -> None:
    assert type(value).decode(value.encode()) == value


@given(values, st.data())
def test_mutations_are_refused_or_canonical(value: Value, data: st.DataObject) -> None:
    encoded = bytearray(value.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded)))
        match data.draw(st.integers(0, 2)):
            case 0 if at < len(encoded):
                encoded[at] ^= 1 << data.draw(st.integers(0, 7))
            case 1:
                del encoded[at:]
            case _:
                encoded[at:at] = data.draw(st.binary(max_size=3))
    _refused_or_canonical(type(value), bytes(encoded))


@given(st.sampled_from([Place, Attr, Content, PackRecord]), st.binary(max_size=200))
@example(Content, b"\x02\x00\x05")
@example(Content, Writer().varint(1 << 40).u8(0).varint(1 << 41 | 1).getvalue())
def test_any_bytes_are_refused_or_canonical(kind: type[Value], data: bytes) -> None:
    _refused_or_canonical(kind, data)


def _refused_or_canonical(kind: type[Value], data: bytes) -> None:
    try:
        decoded = kind.decode(data)
    except DecodeError:
        return
    assert decoded.encode() == data


@given(runs)
def test_pages_of_runs(parts: list[Run]) -> None:
    assert decode_runs(encode_runs(parts)) == parts


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"a\0b", b"x" * 256])
def test_what_is_no_name(name: bytes) -> None:
    with pytest.raises(DecodeError):
        Place.decode(bytes(16) + Writer().blob(name).getvalue())


def test_content_must_add_up() -> None:
    with pytest.raises(DecodeError, match="add up"):
        Content.decode(Content(7, 0, [Run(3, None), Run(5, bytes(32))]).encode())
    with pytest.raises(DecodeError, match="no bytes"):
        decode_runs(b"\x01")


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\2" + bytes(32),  # from byte 0 on: that is a whole chunk
        b"\0\1\3",  # of a hole
        b"\0\1\0" + bytes(32),  # of no bytes
        b"\0" + Writer().varint((1 << 24) + 1).getvalue() + b"\2" + bytes(32),
    ],
)
def test_what_is_no_part_of_a_chunk(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_runs(data)


def test_a_list_of_chunks_is_named_whole() -> None:
    with pytest.raises(DecodeError, match="list"):
        Content.decode(Content(5, 1, [Run(5, bytes(32), 1)]).encode())


def test_extended_attributes_are_bounded_and_in_order() -> None:
    swapped = Attr(0o100644, 0, 0, 0, 0, b"", ((b"user.b", b""), (b"user.a", b"")))
    twice = Attr(0o100644, 0, 0, 0, 0, b"", ((b"user.a", b"1"), (b"user.a", b"2")))
    many = tuple((b"user.%03d" % number, bytes(60_000)) for number in range(MAX_XATTRS_SIZE // 60_000 + 1))
    for attr in (swapped, twice, Attr(0o100644, 0, 0, 0, 0, b"", many)):
        with pytest.raises(DecodeError):
            Attr.decode(attr.encode())


@pytest.mark.parametrize("k, n", [(0, 3), (4, 3), (1, 33)])
def test_impossible_codes(k: int, n: int) -> None:
    with pytest.raises(DecodeError):
        PackRecord.decode(bytes((k, n)) + bytes(n) + b"\0")


@given(st.binary(min_size=16, max_size=16), st.integers(0, (1 << 56) - 1))
def test_a_place_key_holds_its_slot(node: bytes, slot: int) -> None:
    key = place_key(node, slot)
    assert (key[1:17], slot_of(key)) == (node, slot)


def test_attributes_that_end_in_zeros_are_read_as_such() -> None:
    for attr in (
        Attr(0o100644, 1000, 1000, 0, -5, b"", ((b"user.a", bytes(12)),)),
        Attr(0o100644, 1000, 1000, 0, 1 << 62),
        Attr(0o120777, 0, 0, 0, 0, b"target"),
        Attr(0o020666, 0, 0, 259, 0),
    ):
        assert Attr.decode(attr.encode()) == attr
    with pytest.raises(DecodeError):
        Attr.decode(Attr(0o644, 0, 0, 0, 0).encode())  # no kind of file


def test_attributes_that_are_nonsense_are_not_remembered() -> None:
    """What is remembered of attributes is short, whatever a member signs."""
    tracemalloc.start()
    try:
        for number in range(100):
            with pytest.raises(DecodeError):
                Attr.decode(b"\x01" * 65536 + number.to_bytes(2) + bytes(10))
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
