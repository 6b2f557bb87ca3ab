"""Packs are rebuilt from whatever is good in their shares, and from nothing else."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.dispersal.errors import IntegrityError
from hybrisfs.dispersal.pack import EncodedPack
from hybrisfs.dispersal.share import parse_header
from hybrisfs.dispersal.upkeep import PackRebuild
from tests.dispersal.fakes import TABLES, encode

CODES = [(1, 2), (1, 3), (2, 3), (2, 4), (3, 5)]
CHUNKS = [bytes([number]) * (number * 100 + 1) for number in range(1, 6)]


def wrong(pack: EncodedPack, index: int, numbers: set[int]) -> bytes:
    """A share with the fragments of these chunks altered."""
    _, table = parse_header(pack.shares[index], TABLES)
    data = bytearray(pack.shares[index])
    for number in numbers:
        data[table.entries[number].offset] ^= 1
    return bytes(data)


@pytest.mark.parametrize(("k", "n"), CODES)
def test_any_k_shares_give_all_others(k: int, n: int) -> None:
    pack = encode(CHUNKS, k, n)
    for chosen in combinations(range(n), k):
        rebuild = PackRebuild(pack.pack_id, TABLES)
        for index in chosen:
            assert not rebuild.complete
            rebuild.take(index, pack.shares[index])
        assert rebuild.complete
        assert [rebuild.share(index) for index in range(n)] == list(pack.shares)
        with pytest.raises(IntegrityError, match="too little"):
            rebuild.share(n)


@given(st.sampled_from(CODES), st.data())
def test_chunk_by_chunk(code: tuple[int, int], data: st.DataObject) -> None:
    """It is complete exactly when each chunk has k good fragments, and then every share is right."""
    k, n = code
    pack = encode(CHUNKS, k, n)
    damage = [data.draw(st.sets(st.integers(0, len(CHUNKS) - 1), max_size=2)) for _ in range(n)]
    present = data.draw(st.sets(st.integers(0, n - 1)))
    rebuild = PackRebuild(pack.pack_id, TABLES)
    for index in present:
        share = wrong(pack, index, damage[index])
        if damage[index]:
            with pytest.raises(IntegrityError, match="is altered"):
                rebuild.take(index, share)
        else:
            rebuild.take(index, share)
    good = [sum(number not in damage[index] for index in present) for number in range(len(CHUNKS))]
    # Copies are all equal: one is as good as many.
    assert rebuild.complete == (bool(present) and all(count >= k for count in good))
    if rebuild.complete:
        assert [rebuild.share(index) for index in range(n)] == list(pack.shares)


@given(st.sampled_from(CODES), st.integers(0, 4), st.binary(max_size=300), st.integers(0, 5000))
def test_whatever_a_cloud_returns_is_refused(
    code: tuple[int, int], index: int, rubbish: bytes, at: int
) -> None:
    k, n = code
    pack = encode(CHUNKS, k, n)
    share = pack.shares[index % n]
    other = encode(CHUNKS[::-1], k, n).shares[index % n]
    lies = [rubbish, share[:at], share + rubbish, share[:at] + rubbish + share[at + len(rubbish) :], other]
    for lie in lies:
        if lie == share:
            continue
        rebuild = PackRebuild(pack.pack_id, TABLES)
        with pytest.raises(IntegrityError):
            rebuild.take(index % n, lie)
        if rebuild.complete:
            assert rebuild.share(index % n) == share


def test_a_share_in_the_place_of_another_is_refused() -> None:
    pack = encode(CHUNKS, 2, 4)
    rebuild = PackRebuild(pack.pack_id, TABLES)
    with pytest.raises(IntegrityError, match="share 1, not share 0"):
        rebuild.take(0, pack.shares[1])
    assert not rebuild.complete
    with pytest.raises(IntegrityError, match="has no share 4"):
        PackRebuild(encode(CHUNKS, 1, 2).pack_id, TABLES).take(4, encode(CHUNKS, 1, 2).shares[0])
