"""Names that say nothing to strangers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.peers.tls import PeerIdentity
from tests.peers.support import SECRET, VOLUME, identity, key


def test_members_know_each_others_server_names() -> None:
    assert identity(1).knows(identity(2).server_name())


def test_nobody_else_does() -> None:
    name = identity(1).server_name()
    assert not identity(1, volume=bytes(16)).knows(name)
    assert not identity(1, secret=bytes(32)).knows(name)


def test_server_names_have_nothing_in_common_and_fit_a_label() -> None:
    names = [identity(1).server_name() for _ in range(100)]
    assert len({name[:8] for name in names}) == len(names)
    assert all(len(name) <= 63 and name.isalnum() and name == name.lower() for name in names)


@given(st.text(max_size=80))
def test_any_other_name_is_unknown(name: str) -> None:
    assert not identity(1).knows(name)


@given(st.integers(0, 27), st.integers(1, 255))
def test_no_bit_of_a_server_name_can_be_changed(position: int, change: int) -> None:
    from base64 import b32decode, b32encode

    raw = bytearray(b32decode(identity(1).server_name().upper() + "==="))
    raw[position] ^= change
    assert not identity(1).knows(b32encode(raw).decode().rstrip("=").lower())


def test_tags_differ_by_day_volume_secret_and_device() -> None:
    one, two = key(1).device_id, key(2).device_id
    others = [identity(1), identity(1, volume=bytes(16)), identity(1, secret=bytes(32))]
    assert len({i.volume_tag(day) for i in others for day in (0, 20_000, 20_001)}) == 9
    assert len({i.device_tag(d, day) for i in others for d in (one, two) for day in (7, 8)}) == 12
    assert identity(1).volume_tag(20_000) == identity(2).volume_tag(20_000)


def test_the_secret_is_not_shown() -> None:
    assert SECRET.hex() not in repr(identity(1)) and repr(SECRET) not in repr(identity(1))


@pytest.mark.parametrize(("volume", "secret"), [(VOLUME[1:], SECRET), (VOLUME, SECRET[1:])])
def test_wrong_sizes_are_refused(volume: bytes, secret: bytes) -> None:
    with pytest.raises(ValueError, match="length"):
        PeerIdentity(volume, key(1), secret)
