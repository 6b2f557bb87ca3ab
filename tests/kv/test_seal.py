"""Sealing values: only the write that sealed them opens them, and names tell nothing."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.store import is_name
from hybrisfs.dispersal.errors import IntegrityError, NewerVersionError
from hybrisfs.kv.record import MAX_VALUE
from hybrisfs.kv.seal import SEAL_OVERHEAD, ValueSealer

SEALER = ValueSealer(b"k" * 32, b"s" * 16)


@given(
    value=st.binary(max_size=3000) | st.binary(max_size=9).map(lambda part: part * 300),
    write=st.integers(0, 1 << 60),
)
def test_what_is_sealed_is_opened(value: bytes, write: int) -> None:
    sealed = SEALER.seal(write, value)
    assert len(sealed) <= len(value) + SEAL_OVERHEAD
    assert SEALER.open(write, sealed, len(value)) == value


@given(value=st.binary(max_size=200), place=st.integers(0), bit=st.integers(0, 7))
def test_nothing_altered_is_opened(value: bytes, place: int, bit: int) -> None:
    sealed = bytearray(SEALER.seal(7, value))
    sealed[place % len(sealed)] ^= 1 << bit
    with pytest.raises(IntegrityError):
        SEALER.open(7, bytes(sealed), len(value))


def test_only_as_the_value_of_that_write_and_size() -> None:
    sealed = SEALER.seal(7, b"value" * 100)
    for write, size in ((8, 500), (7, 499), (7, 501), (7, -1), (7, MAX_VALUE + 1)):
        with pytest.raises(IntegrityError):
            SEALER.open(write, sealed, size)
    with pytest.raises(IntegrityError):
        ValueSealer(b"k" * 32, b"t" * 16).open(7, sealed, 500)
    with pytest.raises(IntegrityError):
        SEALER.open(7, b"", 0)
    with pytest.raises(NewerVersionError):
        SEALER.open(7, bytes((sealed[0] + 1,)) + sealed[1:], 500)


def test_values_that_compress_are_compressed() -> None:
    assert len(SEALER.seal(1, bytes(100_000))) < 1000
    noise = os.urandom(100_000)
    assert len(SEALER.seal(1, noise)) == len(noise) + SEAL_OVERHEAD


def test_a_number_used_twice_does_not_give_the_same_nonce() -> None:
    assert SEALER.seal(1, b"one" * 10)[1:13] != SEALER.seal(1, b"two" * 10)[1:13]


def test_names_are_legal_and_all_different() -> None:
    other = ValueSealer(b"k" * 32, b"t" * 16)
    names = [one.name(write, True)(0) for one in (SEALER, other) for write in range(50)]
    names += [SEALER.name(write, False)(index) for write in range(50) for index in range(3)]
    assert len(set(names)) == len(names)
    assert all(is_name(name) and name.startswith("kv/") for name in names)
    assert {SEALER.name(1, True)(index) for index in range(3)} == {SEALER.name(1, True)(0)}


def test_too_large_a_value() -> None:
    with pytest.raises(ValueError, match="at most"):
        SEALER.seal(1, bytes(MAX_VALUE + 1))
