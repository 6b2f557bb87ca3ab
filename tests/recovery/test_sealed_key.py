from __future__ import annotations

import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hybrisfs.recovery.sealed_key import Cost, RecoveryError, SealedKey
from sync import DecodeError, Reader, Writer
from tests.recovery.support import PASSPHRASE, RECORD, SECRET

SIZE = 145  # bytes, as docs/formats.md has it


def encoded(key: SealedKey) -> bytes:
    out = Writer()
    key.write_to(out)
    return out.getvalue()


def decoded(data: bytes) -> SealedKey:
    reader = Reader(data)
    key = SealedKey.read_from(reader)
    reader.end()
    return key


def test_it_comes_back_and_opens_with_the_passphrase_alone() -> None:
    data = encoded(RECORD.key)
    assert len(data) == SIZE
    key = decoded(data)
    assert key == RECORD.key
    opened = key.open(f"  {PASSPHRASE.replace(' ', '  ')}\n", SECRET.kit)
    assert opened is not None
    assert (opened.reserve.seed, opened.voucher, opened.volume) == (
        SECRET.reserve.seed,
        SECRET.voucher,
        SECRET.volume,
    )
    assert key.open(PASSPHRASE.title(), SECRET.kit) is None
    assert key.open(PASSPHRASE, bytes(16)) is None, "it opened as the key of another kit"


def test_nothing_secret_is_in_its_clear_bytes_or_in_what_is_shown() -> None:
    for secret in (SECRET.reserve.seed, SECRET.voucher, PASSPHRASE.encode()):
        assert secret not in encoded(RECORD.key)
    assert str(SECRET.voucher) not in repr(SECRET)


@given(st.integers(9, SIZE - 1), st.integers(1, 255))
def test_whatever_is_altered_it_does_not_open(at: int, by: int) -> None:
    data = bytearray(encoded(RECORD.key))
    data[at] ^= by
    assert decoded(bytes(data)).open(PASSPHRASE, SECRET.kit) is None


@pytest.mark.parametrize(
    "cost",
    [
        Cost(0, 8),
        Cost(1, 7),
        Cost(17, 8),
        Cost((1 << 32) - 1, 8),
        Cost(1, (1 << 20) + 1),
        Cost(1, (1 << 32) - 1),
    ],
)
def test_costs_that_a_hostile_cloud_might_ask_for_are_refused_before_they_are_paid(cost: Cost) -> None:
    key = SealedKey(cost, RECORD.key.salt, RECORD.key.nonce, RECORD.key.box)
    with pytest.raises(DecodeError, match="bounds"):  # without a passphrase there is nothing to pay for
        decoded(encoded(key))


@given(st.binary(max_size=2 * SIZE))
def test_no_bytes_do_worse_than_being_refused(data: bytes) -> None:
    try:
        decoded(data)
    except DecodeError:
        return
    assert data[0] == 1 and len(data) == SIZE


def test_too_little_memory_is_said() -> None:
    key = replace(RECORD.key, cost=Cost(1, 1 << 20))
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    usual = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (512 << 20), usual[1]))
    try:
        with pytest.raises(RecoveryError, match=r"takes 1024 MiB of memory"):
            key.open(PASSPHRASE, SECRET.kit)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, usual)
