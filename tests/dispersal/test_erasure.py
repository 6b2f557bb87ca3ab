from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.dispersal.erasure import MAX_FRAGMENTS, fragment_length, join, split


@st.composite
def codes(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, MAX_FRAGMENTS))
    return draw(st.integers(1, n)), n


@given(codes(), st.binary(min_size=1, max_size=300), st.randoms())
def test_any_k_fragments_rebuild(code: tuple[int, int], sealed: bytes, rnd: object) -> None:
    k, n = code
    fragments = split(k, n, sealed)
    assert [len(fragment) for fragment in fragments] == [fragment_length(k, len(sealed))] * n
    chosen = rnd.sample(range(n), k)  # type: ignore[attr-defined]
    assert bytes(join(k, n, {i: fragments[i] for i in chosen}, len(sealed))) == sealed


@given(codes(), st.binary(min_size=1, max_size=100))
def test_code_is_systematic(code: tuple[int, int], sealed: bytes) -> None:
    k, n = code
    data = b"".join(bytes(fragment) for fragment in split(k, n, sealed)[:k])
    assert data[: len(sealed)] == sealed
    assert k == 1 or not any(data[len(sealed) :])


def test_replication_copies_nothing() -> None:
    sealed = bytes(1000)
    assert all(fragment is sealed for fragment in split(1, 3, sealed))
    assert join(1, 3, {2: sealed}, 1000) is sealed


def test_wrong_fragments_are_refused() -> None:
    fragments = split(2, 3, b"abcdef")
    with pytest.raises(ValueError, match="2 fragments of 3 bytes"):
        join(2, 3, {0: fragments[0]}, 6)
    with pytest.raises(ValueError, match="2 fragments of 3 bytes"):
        join(2, 3, {0: fragments[0], 1: b"ab"}, 6)
    with pytest.raises(ValueError, match="index below 3"):
        join(2, 3, {0: fragments[0], 3: fragments[1]}, 6)
    for k, n in ((0, 1), (3, 2), (1, MAX_FRAGMENTS + 1)):
        with pytest.raises(ValueError, match="code"):
            split(k, n, b"x")
