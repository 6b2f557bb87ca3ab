"""What is said to a relay: what it decodes, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.peers.lines import (
    MAGIC,
    MAX_REQUEST,
    TAG_SIZE,
    LineRequest,
    RequestDecoder,
    Role,
    encode_request,
)
from sync import DecodeError, NewerFormatError

REQUEST = LineRequest(Role.CALL, bytes(range(TAG_SIZE)), "home", "secret")
ASCII = st.text(st.characters(codec="ascii"), max_size=200)


@given(
    st.builds(
        LineRequest, st.sampled_from(Role), st.binary(min_size=TAG_SIZE, max_size=TAG_SIZE), ASCII, ASCII
    ),
    st.integers(1, 40),
)
def test_a_request_comes_back_however_it_is_cut(request: LineRequest, size: int) -> None:
    data, decoder = encode_request(request), RequestDecoder()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert [decoder.feed(piece) for piece in pieces] == [None] * (len(pieces) - 1) + [request]


def test_the_bytes_are_those_of_the_specification() -> None:
    body = b"\x02" + bytes(range(16)) + b"\x04home" + b"\x06secret"
    assert encode_request(REQUEST) == b"HFRL\x00\x01" + len(body).to_bytes(2, "big") + body


@given(st.binary(max_size=600), st.integers(1, 600))
def test_what_is_no_request_is_refused_or_awaited(data: bytes, size: int) -> None:
    decoder = RequestDecoder()
    try:
        for start in range(0, len(data), size):
            found = decoder.feed(data[start : start + size])
            if found is not None:
                assert encode_request(found) == data[: start + size]
                return
    except DecodeError:
        return
    assert data[: len(MAGIC)] == MAGIC[: len(data)]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"GET / HTTP/1.1", "not a HFRL record"),
        (b"H", None),
        (b"HFRX", "not a request"),
        (MAGIC + b"\x00\x01" + (MAX_REQUEST + 1).to_bytes(2, "big"), "at most"),
        (encode_request(REQUEST) + b"x", "follows"),
        (encode_request(REQUEST).replace(b"\x02\x00\x01", b"\x03\x00\x01"), "role 3"),
        (encode_request(REQUEST).replace(b"home", b"h\xc3\xb6e"), "ASCII"),
    ],
)
def test_each_rule_is_kept(data: bytes, error: str | None) -> None:
    if error is None:
        assert RequestDecoder().feed(data) is None
        return
    with pytest.raises(DecodeError, match=error):
        RequestDecoder().feed(data)


def test_a_later_version_is_told_from_nonsense() -> None:
    with pytest.raises(NewerFormatError):
        RequestDecoder().feed(MAGIC + b"\x00\x02\x00\x00")
