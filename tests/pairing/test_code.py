"""The one-time code: whole, strict, and a mistyped one is told as such."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.pairing.code import MAX_ADDRESSES, PairingCode, invite_id, new_code
from hybrisfs.pairing.errors import CodeError
from sync.codec import Writer, digest
from tests.pairing.support import CODE, NOW, URLS
from tests.surroundings import at

TEXT = CODE.encode()
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"

printable = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=40)
codes = st.builds(
    PairingCode,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 1 << 40),
    st.lists(printable.map(lambda text: f"file:///{text}"), max_size=5).map(tuple),
    st.lists(
        st.tuples(st.from_regex(r"[a-z0-9.:]{1,40}", fullmatch=True), st.integers(1, 65535)), max_size=4
    ).map(tuple),
)


def crafted(body: bytes) -> str:
    """A code with this body and the right checksum, whatever the body says."""
    whole = body + digest("hybrisfs.pairing 2026-11 code checksum", body, 4)
    return "hfs1-" + base64.b32encode(whole).decode().rstrip("=").lower()


def deflated(places: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(places) + packer.flush()


@given(codes)
def test_round_trip(code: PairingCode) -> None:
    text = code.encode()
    assert PairingCode.decode(text) == code
    assert set(text) <= set(ALPHABET + "01-hfs")


def test_a_code_is_short_and_survives_copying() -> None:
    assert len(TEXT) < 240
    assert PairingCode.decode(f"  {TEXT[:70].upper()}\n   {TEXT[70:]}\r\n") == CODE


@given(st.integers(5, len(TEXT) - 1), st.sampled_from(ALPHABET))
def test_a_wrong_character_is_told(place: int, character: str) -> None:
    wrong = TEXT[:place] + character + TEXT[place + 1 :]
    if wrong != TEXT:
        with pytest.raises(CodeError, match="mistyped"):
            PairingCode.decode(wrong)


@given(st.integers(0, len(TEXT) - 1))
def test_an_incomplete_code_is_refused(length: int) -> None:
    with pytest.raises(CodeError):
        PairingCode.decode(TEXT[:length])


@given(st.text(max_size=60) | st.text(ALPHABET, max_size=60).map("hfs1-".__add__))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(CodeError):
        PairingCode.decode(text)


@given(st.binary(max_size=80))
def test_any_body_with_a_right_checksum_is_a_code_or_refused(places: bytes) -> None:
    for rest in (places, deflated(places)):
        try:
            PairingCode.decode(crafted(bytes(16) + b"\x01" + rest))
        except CodeError:
            continue


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hfs2-abcdefgh", "another version"),
        ("https://example.org", "begins with hfs1-"),
        ("hfs1-" + "a" * 5000, "longer than"),
        ("x" * 100_000, "far too long"),
        ("hfs1-", "mistyped"),
        ("hfs1-äöü", "mistyped"),
    ],
)
def test_what_is_no_code_is_told(text: str, message: str) -> None:
    with pytest.raises(CodeError, match=message):
        PairingCode.decode(text)


@pytest.mark.parametrize(
    "rest",
    [
        deflated(b"\0\0") + b"more",
        deflated(b"\0\0more"),
        deflated(b"\0\0")[:-1],
        deflated(Writer().varint(33).getvalue()),
        deflated(Writer().varint(0).varint(1).blob(b"host").u16(0).getvalue()),
        deflated(Writer().varint(1).blob(b"\x1b[2Jfile:///").varint(0).getvalue()),
        deflated(Writer().varint(1).blob(b"\xff").varint(0).getvalue()),
    ],
)
def test_hostile_places_are_refused(rest: bytes) -> None:
    with pytest.raises(CodeError, match="not a pairing code"):
        PairingCode.decode(crafted(bytes(16) + b"\x01" + rest))


def test_what_inflates_without_end_is_cut_off() -> None:
    with pytest.raises(CodeError, match="list of places"):
        PairingCode.decode(crafted(bytes(16) + b"\x01" + deflated(bytes(1 << 20))))


@pytest.mark.parametrize("length", range(5))
def test_a_code_has_one_spelling(length: int) -> None:
    text = PairingCode(bytes(16), 1, ("file:///" + "x9q7z"[:length],)).encode()
    for character in set(ALPHABET) - {text[-1]}:
        with pytest.raises(CodeError, match="mistyped"):
            PairingCode.decode(text[:-1] + character)


def test_no_code_holds_a_password() -> None:
    with pytest.raises(CodeError, match="password"):
        PairingCode(bytes(16), 1, ("webdav://ann:secret@example.org",)).encode()


def test_what_would_not_decode_is_not_made() -> None:
    with pytest.raises(CodeError):
        PairingCode(bytes(16), 1, ("file:///" + "a" * 1025,)).encode()


def test_a_new_code_is_secret_and_expires() -> None:
    one, two = (new_code(URLS, [("192.0.2.7", 1)] * 40, at(NOW), 60.0) for _ in range(2))
    assert one.secret != two.secret
    assert one.expires == NOW + 60
    assert len(one.addresses) == MAX_ADDRESSES
    assert one.secret.hex() not in repr(one)
    assert repr(one.secret) not in repr(one)
    assert invite_id(one.secret) != invite_id(two.secret)


def test_a_code_is_as_short_as_it_can_be() -> None:
    """Addresses of IPv6 are long, and a home that has them has several for each machine."""
    six = [(f"2001:db8:1:2:{number:04x}:11ff:fe22:3344", 40001) for number in range(4)]
    four = [("192.168.1.23", 40001)]
    assert new_code(URLS, [*six, *four], at(NOW), 60.0).addresses == tuple(four)
    assert new_code(URLS, six, at(NOW), 60.0).addresses == tuple(six)
    assert len(new_code((), (), at(NOW), 60.0).encode()) == 52, "docs/internals/recovery.md says so"
    assert len(new_code((), four, at(NOW), 60.0).encode()) <= 80
