"""Bodies in chunks: the example of AWS's documentation, in whatever pieces, and what is no such body."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chunked import ChunkedBody
from gateway.errors import S3Error
from gateway.signature import (
    SIGNED_CHUNKS_AND_TRAILER,
    UNSIGNED_CHUNKS_AND_TRAILER,
    Verified,
)
from tests.gateway.test_signature import seed

KEY = Verified("", "0" * 64, "20130524T000000Z", "20130524/us-east-1/s3/aws4_request", b"k" * 32)
EXAMPLE = (
    b"10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n"
    + b"a" * 65536
    + b"\r\n400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n"
    + b"a" * 1024
    + b"\r\n0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n"
)


def body(verified: Verified, length: int, stream: bytes, size: int = 1 << 20) -> tuple[bytes, dict[str, str]]:
    chunks = ChunkedBody(verified, length)
    found = bytearray()
    for start in range(0, len(stream), size):
        for part in chunks.feed(stream[start : start + size]):
            found += part
    chunks.end()
    return bytes(found), chunks.trailer


@given(st.integers(1, 70_000))
def test_the_example_in_whatever_pieces(size: int) -> None:
    assert body(seed(), 66560, EXAMPLE, max(size, 50)) == (b"a" * 66560, {})


@pytest.mark.parametrize("place", [200, 65700, 65640, len(EXAMPLE) - 20])
def test_no_byte_can_be_changed(place: int) -> None:
    changed = bytearray(EXAMPLE)
    changed[place] ^= 1
    with pytest.raises(S3Error):
        body(seed(), 66560, bytes(changed))


def with_trailer(payload: str, parts: list[bytes], trailer: dict[str, str]) -> tuple[Verified, bytes]:
    """A body as clients make it."""
    verified = Verified(payload, KEY.signature, KEY.date, KEY.scope, KEY.key)
    stream, before = b"", verified.signature
    for part in [*parts, b""]:
        stream += f"{len(part):x}".encode()
        if payload == SIGNED_CHUNKS_AND_TRAILER:
            before = verified.chunk_signature(before, sha256(part).hexdigest())
            stream += f";chunk-signature={before}".encode()
        stream += b"\r\n" + part + (b"\r\n" if part else b"")
    lines = "".join(f"{name}:{value}\n" for name, value in trailer.items())
    stream += lines.replace("\n", "\r\n").encode()
    if payload == SIGNED_CHUNKS_AND_TRAILER:
        signature = verified.trailer_signature(before, sha256(lines.encode()).hexdigest())
        stream += f"x-amz-trailer-signature:{signature}\r\n".encode()
    return verified, stream + b"\r\n"


PARTS = st.lists(st.binary(min_size=1, max_size=300), max_size=5)
TRAILERS = st.dictionaries(
    st.sampled_from(["x-amz-checksum-crc32", "x-other"]), st.text("abc=/+", min_size=1), max_size=2
)


@given(
    st.sampled_from([SIGNED_CHUNKS_AND_TRAILER, UNSIGNED_CHUNKS_AND_TRAILER]),
    PARTS,
    TRAILERS,
    st.integers(1, 400),
)
def test_bodies_with_trailers(payload: str, parts: list[bytes], trailer: dict[str, str], size: int) -> None:
    verified, stream = with_trailer(payload, parts, trailer)
    whole = b"".join(parts)
    assert body(verified, len(whole), stream, size) == (whole, trailer)
    for length in (len(whole) - 1, len(whole) + 1):
        with pytest.raises(S3Error):
            body(verified, length, stream, size)
    with pytest.raises(S3Error):
        body(verified, len(whole), stream[:-2], size)
    with pytest.raises(S3Error):
        body(verified, len(whole), stream + b"x", size)


@given(PARTS, TRAILERS, st.integers(0), st.integers(0, 7))
def test_no_bit_of_a_signed_body_can_be_flipped(
    parts: list[bytes], trailer: dict[str, str], place: int, bit: int
) -> None:
    verified, stream = with_trailer(SIGNED_CHUNKS_AND_TRAILER, parts, trailer)
    changed = bytearray(stream)
    changed[place % len(stream)] ^= 1 << bit
    whole = b"".join(parts)
    try:
        found = body(verified, len(whole), bytes(changed))
    except S3Error:
        return
    # Names of headers are compared in lower case; sizes may be written otherwise, too.
    assert found == (whole, trailer)


@pytest.mark.parametrize(
    "stream",
    [
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5;chunk-signature=x\r\nhello",
        b"-5\r\n",
        b"x" * 2000,
        b"ffffffffffffffff;chunk-signature=" + b"0" * 64 + b"\r\n",
        b"\r\n",
    ],
)
def test_what_is_no_signed_body_is_refused(stream: bytes) -> None:
    with pytest.raises(S3Error):
        body(seed(), 5, stream)


def test_a_trailer_is_bounded() -> None:
    verified = Verified(UNSIGNED_CHUNKS_AND_TRAILER, KEY.signature, KEY.date, KEY.scope, KEY.key)
    long = b"".join(b"x-%d:%s\r\n" % (number, b"v" * 900) for number in range(30))
    with pytest.raises(S3Error):
        body(verified, 0, b"0\r\n" + long + b"\r\n")
    with pytest.raises(S3Error):
        body(verified, 0, b"0\r\nx:1\r\nX:2\r\n\r\n")
