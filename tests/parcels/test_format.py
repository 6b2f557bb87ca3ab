"""Records, names and pieces of parcels."""

from __future__ import annotations

import json
import os

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from backends.store import is_name
from hybrisfs.clouds.emptying import is_own_name
from hybrisfs.parcels.format import (
    LARGEST,
    PIECE,
    Record,
    Seal,
    decode_record,
    encode_record,
    id_in,
    page_name,
    piece_names,
    record_name,
)
from sync import NONCE_SIZE, DecodeError
from sync.seal import OneKey

_ID = bytes(range(16))
_VOLUME = b"v" * 16
_KEYS = OneKey(b"k" * 32)
_RECORD = Record(1_800_000_000, 1_800_600_000, 3 * PIECE + 1, b"m" * 16, b"a/b", "https://host/x?y#key")


def encoded(record: Record = _RECORD, parcel: bytes = _ID) -> bytes:
    return encode_record(parcel, record, _VOLUME, _KEYS, bytes(NONCE_SIZE))


@given(
    st.builds(
        Record,
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 40),
        st.integers(0, LARGEST),
        st.binary(min_size=16, max_size=16),
        st.binary(max_size=4096),
        st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=8192),
    )
)
def test_a_record_comes_back(record: Record) -> None:
    assert decode_record(encoded(record), _ID, _VOLUME, _KEYS) == record


@given(st.binary(max_size=200))
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(data, _ID, _VOLUME, _KEYS)


def test_a_record_is_good_for_its_parcel_volume_and_key_only() -> None:
    for data, parcel, volume, keys in (
        (encoded(), b"other parcel ID.", _VOLUME, _KEYS),
        (encoded(), _ID, b"w" * 16, _KEYS),
        (encoded(), _ID, _VOLUME, OneKey(b"l" * 32)),
        (encoded() + b"x", _ID, _VOLUME, _KEYS),
        (encoded()[:-1], _ID, _VOLUME, _KEYS),
        (encoded(_RECORD._replace(link="https://a b")), _ID, _VOLUME, _KEYS),
    ):
        with pytest.raises(DecodeError):
            decode_record(data, parcel, volume, keys)


def test_names() -> None:
    assert piece_names(_ID, 0) == []
    assert len(piece_names(_ID, PIECE)) == 1 and len(piece_names(_ID, PIECE + 1)) == 2
    names = [record_name(_ID), page_name(_ID), *piece_names(_ID, LARGEST)]
    assert len(set(names)) == 514
    assert all(is_name(name) and is_own_name(name) and id_in(name) == _ID for name in names)
    for other in (
        "parcels/x/page",
        f"{page_name(_ID)}s",
        f"packs/{_ID.hex()}/page",
        record_name(_ID).upper(),
    ):
        assert id_in(other) is None


def test_pieces_open_at_their_place_only() -> None:
    key = os.urandom(32)
    sealing = Seal(key)
    cipher, data = AESGCM(key), b"hybrisfs parcel 1"
    piece = sealing.piece(7, b"content")
    assert cipher.decrypt((7).to_bytes(12, "big"), piece, data) == b"content"
    with pytest.raises(InvalidTag):
        cipher.decrypt((8).to_bytes(12, "big"), piece, data)
    head = cipher.decrypt(((1 << 64) - 1).to_bytes(12, "big"), sealing.head("é.txt", PIECE + 1), data)
    assert json.loads(head) == {"name": "é.txt", "size": PIECE + 1, "pieces": 2}
