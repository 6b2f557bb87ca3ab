from __future__ import annotations

import pytest

from hybrisfs.dispersal.erasure import join
from hybrisfs.dispersal.pack import ERASURE_THRESHOLD, PackBuilder, choose_code
from hybrisfs.dispersal.seal import SEAL_OVERHEAD
from hybrisfs.dispersal.share import MAX_PACK, MAX_TABLE
from tests.dispersal.fakes import SEALER, TABLES, encode, locate

CHUNKS = [bytes([number]) * (number + 1) * 100 for number in range(20)]


@pytest.mark.parametrize(("k", "n"), [(1, 2), (2, 3), (3, 4)])
def test_each_chunk_is_where_its_entry_says(k: int, n: int) -> None:
    pack = encode(CHUNKS, k, n)
    for location, chunk in zip(locate(pack, tuple(range(n))), CHUNKS, strict=True):
        size = -(-location.sealed_length // k)
        fragments = {i: pack.shares[i][location.offset : location.offset + size] for i in range(n - k, n)}
        sealed = join(k, n, fragments, location.sealed_length)
        assert SEALER.open(location.chunk_id, sealed, location.length) == chunk


def test_pack_depends_on_content_only() -> None:
    assert encode(CHUNKS, 2, 3).pack_id == encode(CHUNKS, 2, 3).pack_id
    different = {
        encode(CHUNKS, 2, 3).pack_id,
        encode(CHUNKS, 2, 4).pack_id,
        encode(CHUNKS[::-1], 2, 3).pack_id,
    }
    assert len(different) == 3


def test_small_packs_are_replicated() -> None:
    assert choose_code(ERASURE_THRESHOLD - 1, f=2, k=3) == (1, 3)
    assert choose_code(ERASURE_THRESHOLD, f=2, k=3) == (3, 5)
    assert choose_code(1, f=1, k=1) == (1, 2)


def test_builder_refuses_what_does_not_belong() -> None:
    builder = PackBuilder(TABLES)
    chunk_id = SEALER.chunk_id(b"x")
    sealed = SEALER.seal(chunk_id, b"x")
    with pytest.raises(ValueError, match="without chunks"):
        builder.finish(1, 2)
    builder.add(chunk_id, 1, sealed)
    assert chunk_id in builder
    assert (builder.count, builder.sealed_size) == (1, len(sealed))
    with pytest.raises(ValueError, match="already"):
        builder.add(chunk_id, 1, sealed)
    with pytest.raises(ValueError, match="not a chunk"):
        builder.add(b"short", 1, sealed)
    with pytest.raises(ValueError, match="not a chunk"):
        builder.add(bytes(32), 0, sealed)
    with pytest.raises(ValueError, match="does not fit"):
        builder.add(bytes(32), 1, bytes(SEAL_OVERHEAD))


def test_builder_keeps_to_the_size_of_the_format() -> None:
    builder = PackBuilder(TABLES)
    sealed = bytes(1 << 20)
    for number in range(MAX_PACK >> 20):
        assert builder.fits(len(sealed), 2)
        builder.add(number.to_bytes(32, "big"), 1, sealed)
    assert not builder.fits(SEAL_OVERHEAD + 1, 2)
    with pytest.raises(ValueError, match="does not fit"):
        builder.add(bytes(31) + b"\xff", 1, bytes(SEAL_OVERHEAD + 1))


def test_builder_keeps_to_the_table_of_the_format() -> None:
    builder = PackBuilder(TABLES)
    while builder.fits(40, 255):
        builder.add(builder.count.to_bytes(32, "big"), 1, bytes(40))
    assert builder.count == (MAX_TABLE - 52 - 4) // 1024 * 1024 // (40 + 255 * 32) == 2045
    assert builder.fits(40, 1)
