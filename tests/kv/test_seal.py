"""Sealing values: only the write that sealed them opens them, and names tell nothing."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.store import is_name
from hybrisfs.dispersal.errors import IntegrityError, NewerVersionError, UnreadableHereError
from hybrisfs.kv.record import MAX_VALUE
from hybrisfs.kv.seal import SEAL_OVERHEAD, ValueSealer
from sync import EPOCH_SIZE, EpochKey

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
    assert len(SEALER.seal(1, noise)) == len(noise) + SEAL_OVERHEAD - EPOCH_SIZE


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


class Epochs:
    """The keys of a volume that devices were removed from."""

    def __init__(self, *keys: EpochKey) -> None:
        self._keys = keys

    def newest(self) -> EpochKey:
        return self._keys[-1]

    def find(self, epoch: bytes) -> bytes | None:
        return next((one.key for one in self._keys if one.epoch == epoch), None)


def test_a_removed_device_does_not_open_what_is_sealed_later() -> None:
    first, second = EpochKey(b"1st.", b"1" * 32), EpochKey(b"2nd.", b"2" * 32)
    removed = ValueSealer(b"k" * 32, b"s" * 16, Epochs(first))
    member = ValueSealer(b"k" * 32, b"s" * 16, Epochs(first, second))
    before, after = removed.seal(7, b"before"), member.seal(8, b"after")
    assert (member.open(7, before, 6), member.open(8, after, 5)) == (b"before", b"after")
    with pytest.raises(UnreadableHereError):
        removed.open(8, after, 5)
    forged = after[:1] + first.epoch + after[5:]
    for sealer in (removed, member):
        with pytest.raises(IntegrityError):
            sealer.open(8, forged, 5)
    assert removed.name(8, True)(0) == member.name(8, True)(0)
    assert removed.checksum(after) == member.checksum(after)


def test_values_of_one_device_and_of_all_are_told_apart() -> None:
    shared = ValueSealer(b"k" * 32, b"s" * 16, Epochs(EpochKey(b"1st.", b"k" * 32)))
    for sealed, opener in ((SEALER.seal(7, b"value"), shared), (shared.seal(7, b"value"), SEALER)):
        with pytest.raises(IntegrityError):
            opener.open(7, sealed, 5)
