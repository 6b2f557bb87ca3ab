"""Device keys, ids and members."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.identity import DeviceKey, Members, device_id_of, verify
from tests.sync.support import KEYS, STRANGER, flip


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100), st.integers(min_value=0))
def test_only_the_exact_message_verifies(seed: bytes, message: bytes, bit: int) -> None:
    key = DeviceKey.from_seed(seed)
    signature = key.sign(message)
    assert verify(key.public, message, signature)
    assert not verify(key.public, message + b"\0", signature)
    assert not verify(key.public, message, flip(signature, bit))
    assert not verify(STRANGER.public, message, signature)


@pytest.mark.parametrize("signature", [b"", b"x" * 63, b"x" * 65])
def test_a_signature_of_another_size_is_just_wrong(signature: bytes) -> None:
    assert not verify(KEYS[0].public, b"message", signature)
    assert not verify(b"short key", b"message", KEYS[0].sign(b"message"))


def test_seed_restores_the_key() -> None:
    key = DeviceKey.generate()
    again = DeviceKey.from_seed(key.seed)
    assert (again.public, again.device_id, again.sign(b"m")) == (key.public, key.device_id, key.sign(b"m"))
    assert DeviceKey.generate().device_id != key.device_id
    assert key.seed.hex() not in repr(key)
    with pytest.raises(ValueError, match="32 bytes"):
        DeviceKey.from_seed(b"short")


def test_the_id_of_a_device_follows_from_its_key() -> None:
    assert device_id_of(KEYS[0].public) == KEYS[0].device_id
    with pytest.raises(ValueError, match="32 bytes"):
        device_id_of(b"short")


def test_members_know_their_keys() -> None:
    members = Members(key.public for key in KEYS)
    assert members.public_key(KEYS[1].device_id) == KEYS[1].public
    assert members.public_key(STRANGER.device_id) is None
    assert KEYS[0].device_id in members and STRANGER.device_id not in members
    assert set(members) == {key.device_id for key in KEYS} and len(members) == len(KEYS)
