from __future__ import annotations

import random

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrisfs.dispersal.errors import IntegrityError, NewerVersionError
from hybrisfs.dispersal.seal import MAX_CHUNK, MAX_SEALED
from hybrisfs.dispersal.share import (
    INDEX_OFFSET,
    MAX_TABLE,
    PREFIX_SIZE,
    TableSealer,
    encode_header,
    pack_id_of,
    parse_header,
    parse_prefix,
    parse_share_name,
    sealed_table_size,
    share_name,
    verify_share,
)
from sync import OneKey
from tests.dispersal.fakes import TABLES, encode

CHUNKS = [random.Random(seed).randbytes(size) for seed, size in enumerate((1, 100, 3000, 77))]


@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 2), (2, 3), (3, 5)])
def test_every_share_proves_itself_and_tells_all(k: int, n: int) -> None:
    pack = encode(CHUNKS, k, n)
    for index, data in enumerate(pack.shares):
        assert verify_share(data, pack.pack_id, index, TABLES) == []
        prefix, table = parse_header(data, TABLES)
        assert prefix == (0 if k == 1 else index, k, n, prefix.table_size)
        assert (table.pack_id, table.k, table.n, table.share_size) == (pack.pack_id, k, n, len(data))
        found = [(e.chunk_id, e.length, e.offset, e.sealed_length) for e in table.entries]
        assert found == [tuple(entry) for entry in pack.entries]


def test_share_bytes_are_stable() -> None:
    """The format is on people's clouds: these values must never change."""
    pack = encode([b"hybris"], 2, 3)
    assert [blake3(data).hexdigest()[:16] for data in pack.shares] == [
        "2d5b7e82a139d7d4",
        "a642c3cbef67a80e",
        "63fd1052088673bc",
    ]


def test_headers_differ_in_the_index_only() -> None:
    pack = encode(CHUNKS, 2, 3)
    size = PREFIX_SIZE + parse_prefix(pack.shares[0]).table_size
    headers = {data[:INDEX_OFFSET] + data[INDEX_OFFSET + 1 : size] for data in pack.shares}
    assert len(headers) == 1
    assert [data[INDEX_OFFSET] for data in pack.shares] == [0, 1, 2]


def test_nothing_of_the_table_is_in_clear() -> None:
    pack = encode(CHUNKS, 2, 3)
    for entry in pack.entries:
        assert entry.chunk_id not in pack.shares[0]
    one, few = encode(CHUNKS[:1], 2, 3), encode(CHUNKS[:3], 2, 3)
    assert parse_prefix(one.shares[0]).table_size == parse_prefix(few.shares[0]).table_size


@settings(max_examples=300)
@given(st.sampled_from([(1, 2), (2, 3)]), st.data())
def test_every_altered_byte_is_found(code: tuple[int, int], data: st.DataObject) -> None:
    pack = encode(CHUNKS, *code)
    index = data.draw(st.integers(0, pack.n - 1))
    altered = bytearray(pack.shares[index])
    altered[data.draw(st.integers(0, len(altered) - 1))] ^= data.draw(st.integers(1, 255))
    assert verify_share(altered, pack.pack_id, index, TABLES)


@given(st.data())
def test_every_truncation_and_prolongation_is_found(data: st.DataObject) -> None:
    pack = encode(CHUNKS, 2, 3)
    whole = pack.shares[1]
    assert verify_share(whole[: data.draw(st.integers(0, len(whole) - 1))], pack.pack_id, 1, TABLES)
    assert verify_share(whole + data.draw(st.binary(min_size=1)), pack.pack_id, 1, TABLES)


@given(st.binary(max_size=2000))
def test_noise_never_raises_anything_else(noise: bytes) -> None:
    assert verify_share(noise, bytes(32), 0, TABLES)
    header = encode(CHUNKS[:1], 1, 1).shares[0][:PREFIX_SIZE]
    assert verify_share(header + noise, bytes(32), 0, TABLES)


def test_problems_name_the_fragments() -> None:
    pack = encode(CHUNKS, 2, 3)
    altered = bytearray(pack.shares[2])
    for number in (1, 3):
        altered[pack.entries[number].offset] ^= 1
    problems = verify_share(altered, pack.pack_id, 2, TABLES)
    assert [problem.split(" (")[0] for problem in problems] == ["fragment of chunk 1", "fragment of chunk 3"]


def test_another_share_another_pack_another_key_are_told() -> None:
    pack, other = encode(CHUNKS, 2, 3), encode(CHUNKS[1:], 2, 3)
    assert verify_share(pack.shares[1], pack.pack_id, 0, TABLES) == ["it is share 1, not share 0"]
    assert "belongs to pack" in verify_share(other.shares[0], pack.pack_id, 0, TABLES)[0]
    assert (
        "does not decrypt" in verify_share(pack.shares[0], pack.pack_id, 0, TableSealer(OneKey(b"o" * 32)))[0]
    )


def test_copies_are_interchangeable() -> None:
    pack = encode(CHUNKS, 1, 3)
    assert all(data is pack.shares[0] for data in pack.shares)
    assert verify_share(pack.shares[0], pack.pack_id, 2, TABLES) == []


def test_newer_version_is_refused_by_name() -> None:
    data = bytearray(encode(CHUNKS, 1, 2).shares[0])
    data[9] = 3
    with pytest.raises(NewerVersionError, match=r"format version 3.*update"):
        parse_header(data, TABLES)


def prefix(index: int, k: int, n: int, table_size: int) -> bytes:
    return b"hfsshare" + bytes([0, 1, index, k, n]) + table_size.to_bytes(4, "big")


@pytest.mark.parametrize(
    "clear",
    [
        prefix(0, 0, 3, 1072),
        prefix(0, 4, 3, 1072),
        prefix(3, 2, 3, 1072),
        prefix(1, 1, 3, 1072),
        prefix(0, 2, 33, 1072),
        prefix(0, 2, 3, 0),
        prefix(0, 2, 3, 1071),
        prefix(0, 2, 3, MAX_TABLE + 1),
        prefix(0, 2, 3, 0xFFFFFFFF),
        b"HFSSHARE" + prefix(0, 2, 3, 1072)[8:],
        prefix(0, 2, 3, 1072)[:-1],
    ],
)
def test_impossible_prefixes_are_refused_before_anything_is_read(clear: bytes) -> None:
    with pytest.raises(IntegrityError):
        parse_prefix(clear)


def sealed_share(table: bytes, k: int = 1, n: int = 2) -> tuple[bytes, bytes]:
    """Return (share header, pack id) around an arbitrary table, as a device with the key could make it."""
    sealed = TABLES.seal(table)
    return prefix(0, k, n, len(sealed)) + sealed, pack_id_of(k, n, sealed)


def entry(length: int, sealed_length: int) -> bytes:
    return bytes(32) + length.to_bytes(4, "big") + sealed_length.to_bytes(4, "big") + bytes(32)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(bytes(4), id="no chunk"),
        pytest.param(bytes(4).ljust(1024, b"\0"), id="no chunk, padded"),
        pytest.param(b"\0\0\0\1" + entry(1, 30), id="not padded"),
        pytest.param((b"\0\0\0\1" + entry(1, 30)).ljust(2048, b"\0"), id="padded too far"),
        pytest.param((b"\0\0\0\1" + entry(1, 30)).ljust(1024, b"\1"), id="padded with ones"),
        pytest.param((b"\0\0\0\2" + entry(1, 30)).ljust(1024, b"\0"), id="second entry empty"),
        pytest.param((b"\0\0\0\1" + entry(0, 30)).ljust(1024, b"\0"), id="empty chunk"),
        pytest.param((b"\0\0\0\1" + entry(MAX_CHUNK + 1, 30)).ljust(1024, b"\0"), id="chunk too long"),
        pytest.param((b"\0\0\0\1" + entry(1, 29)).ljust(1024, b"\0"), id="sealed too short"),
        pytest.param((b"\0\0\0\1" + entry(1, MAX_SEALED + 1)).ljust(1024, b"\0"), id="sealed too long"),
        pytest.param(b"\0\1\0\1".ljust(1024, b"\0"), id="more chunks than fit"),
        pytest.param(
            (b"\0\0\0\x11" + entry(MAX_CHUNK, MAX_CHUNK) * 17).ljust(2048, b"\0"), id="pack too large"
        ),
    ],
)
def test_hostile_tables_of_a_key_holder_are_refused(table: bytes) -> None:
    header, pack_id = sealed_share(table.ljust(1024, b"\0") if len(table) < 5 else table)
    with pytest.raises(IntegrityError):
        parse_header(header, TABLES, pack_id)


def test_tables_above_the_limit_cannot_be_written() -> None:
    rows = [(bytes(32), 1, 30, bytes(255 * 32))] * (MAX_TABLE // (255 * 32))
    with pytest.raises(ValueError, match="above the limit"):
        encode_header(TABLES, 2, 255, rows)


def test_sealed_table_size_is_exact() -> None:
    for count in (1, 13, 14, 15, 200):
        rows = [(bytes([number]) * 32, 1, 30, bytes(96)) for number in range(count)]
        header = encode_header(TABLES, 2, 3, rows)[1]
        assert len(header) == PREFIX_SIZE + sealed_table_size(count, 2, 3)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 31))
def test_names_round_trip(pack_id: bytes, index: int) -> None:
    name = share_name(pack_id, index)
    assert parse_share_name(name) == (pack_id, index)
    assert name.startswith(f"packs/{pack_id.hex()[:2]}/{pack_id.hex()}")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "packs/ab",
        f"packs/ab/{'ab' * 32}",
        f"packs/ac/{'ab' * 32}.0",
        f"packs/ab/{'ab' * 32}.32",
        f"packs/ab/{'ab' * 32}.01",
        f"packs/ab/{'AB' * 32}.0",
        f"x/packs/ab/{'ab' * 32}.0",
        f"packs/ab/{'ab' * 32}.0/x",
    ],
)
def test_other_names_are_no_shares(name: str) -> None:
    assert parse_share_name(name) is None
