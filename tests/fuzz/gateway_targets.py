"""Targets of the S3 gateway: what clients send, and what it keeps beside values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from gateway.chunked import ChunkedBody
from gateway.documents import read_complete_upload, read_deletions
from gateway.errors import S3Error
from gateway.signature import UNSIGNED_CHUNKS_AND_TRAILER, AccessKey, Verified, Verifier
from hybrisfs.api.objects import (
    ObjectAttributes,
    Part,
    Upload,
    attributes_of,
    decode_parts,
    encode,
    encode_parts,
    part_of,
    upload_of,
)
from tests.fuzz.target import Target, decoder

__all__ = ["TARGETS"]

_VERIFIED: Final = Verified(UNSIGNED_CHUNKS_AND_TRAILER, "0" * 64, "", "", b"")
_VERIFIER: Final = Verifier(AccessKey("HFSKEY", "secret"), lambda: datetime(2026, 1, 1, tzinfo=UTC))
_PARTS: Final = [Part(1, b"m" * 16, 10, 4, "0" * 16), Part(7, b"n" * 16, 0, 4, "1" * 16)]
_LINK: Final = (
    b"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=HFSKEY%2F20260101%2Fx%2Fs3%2Faws4_request"
    b"&X-Amz-Date=20260101T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=" + b"0" * 64
)


def _chunks(data: bytes) -> object:
    chunks = ChunkedBody(_VERIFIED, 5)
    found = b"".join(map(bytes, chunks.feed(data)))
    chunks.end()
    assert len(found) == 5
    return found


def _attributes(data: bytes) -> object:
    """At most one of the records, which has one meaning."""
    found = [one for one in (attributes_of(data), upload_of(data), part_of(data)) if one is not None]
    assert len(found) <= 1
    for one in found:
        assert one in (attributes_of(encode(one)), upload_of(encode(one)), part_of(encode(one)))
    return found


def _link(query: bytes) -> object:
    """Nobody guesses a signature."""
    try:
        _VERIFIER.check("GET", b"/", query, {"host": "x"})
    except S3Error as error:
        return error
    raise AssertionError("a request passes for one that is signed")


def _header(data: bytes) -> object:
    headers = {"host": "x", "x-amz-date": "20260101T000000Z", "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    try:
        _VERIFIER.check("GET", b"/", b"", {**headers, "authorization": data.decode("latin-1")})
    except S3Error as error:
        return error
    raise AssertionError("a request passes for one that is signed")


TARGETS: Final[dict[str, Target]] = {
    "batch of deletions": decoder(
        read_deletions,
        [b"<Delete><Quiet>true</Quiet><Object><Key>a&amp;b</Key><ETag>x</ETag></Object></Delete>"],
        errors=(S3Error,),
        nonsense=[b'<!DOCTYPE d [<!ENTITY e "x">]><Delete><Object><Key>&e;</Key></Object></Delete>'],
    ),
    "end of an upload": decoder(
        read_complete_upload,
        [
            b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part>"
            b"</CompleteMultipartUpload>"
        ],
        errors=(S3Error,),
    ),
    "chunks of a body": Target(_chunks, [b"5\r\nhello\r\n0\r\nx-a:b\r\n\r\n"], (S3Error,)),
    "signed link": Target(_link, [_LINK]),
    "signed request": Target(
        _header,
        [
            b"AWS4-HMAC-SHA256 Credential=HFSKEY/20260101/x/s3/aws4_request,"
            b"SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=" + b"0" * 64
        ],
    ),
    "attributes of a value": Target(
        _attributes,
        [
            encode(ObjectAttributes("0" * 32 + "-2", {"content-type": "x"}, {"a": "b"}, "1" * 32, 10)),
            encode(Upload("key", "open", True, {}, {"a": "b"})),
            encode(_PARTS[0]),
        ],
    ),
    "parts of an object": decoder(decode_parts, [encode_parts(_PARTS)], errors=(ValueError,)),
}
