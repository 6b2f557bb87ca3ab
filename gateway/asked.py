"""A request as S3 reads it: which bucket and key, which parameters, and its body once it is proven."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from starlette.requests import Request

from gateway.chunked import ChunkedBody
from gateway.digests import Digests
from gateway.errors import S3Error
from gateway.signature import Verified, Verifier, parse_query
from gateway.uploads import Description
from gateway.values import WriteConditions

__all__ = ["DEFAULT_TYPE", "REPRESENTATION", "Asked", "read_request"]

DEFAULT_TYPE: Final = "application/octet-stream"
# Headers that are kept with an object, and that a query can override in an answer.
REPRESENTATION: Final = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
)
_METADATA: Final = "x-amz-meta-"
_MOST_DOCUMENT: Final = 4 << 20  # bytes
# What an object would not get although the client believes it does.
_REFUSED: Final = (
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write-acp",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-tagging",
    "x-amz-website-redirect-location",
)
_OWN_ACL: Final = ("private", "bucket-owner-full-control", "bucket-owner-read")


class Asked(Struct, frozen=True):
    """A request whose signature is right. Names of headers are in lower case."""

    http: Request
    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    verified: Verified

    def number(self, name: str, default: int, most: int) -> int:
        """A parameter that is a number, at most *most*. Raises S3Error."""
        text = self.query.get(name)
        if text is None or text == "":
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 10:
            raise S3Error("InvalidArgument", f"{name} must be a number")
        return min(int(text), most)

    def description(self) -> Description:
        """What the headers say of an object. Raises S3Error for what cannot be."""
        for name in _REFUSED:
            if name in self.headers:
                raise S3Error("NotImplemented", f"{name} is not supported")
        if self.headers.get("x-amz-acl", _OWN_ACL[0]) not in _OWN_ACL:
            raise S3Error("NotImplemented", "objects are private")
        kept = {name: self.headers[name] for name in REPRESENTATION if self.headers.get(name)}
        encodings = [one.strip() for one in kept.pop("content-encoding", "").split(",")]
        encoding = ", ".join(one for one in encodings if one not in ("", "aws-chunked"))
        if encoding:
            kept["content-encoding"] = encoding
        metadata = {
            name.removeprefix(_METADATA): value
            for name, value in self.headers.items()
            if name.startswith(_METADATA)
        }
        return Description(kept, metadata)

    def write_conditions(self) -> WriteConditions:
        """Of a write."""
        return WriteConditions(self.headers.get("if-match"), self.headers.get("if-none-match"))

    async def body(self) -> AsyncIterator[memoryview]:
        """The bytes of the body. A reader that gets to the end without an error has what was signed.

        Raises S3Error, ClientDisconnect.
        """
        digests = Digests(self.headers, self.verified.payload)
        chunks = None
        if self.verified.payload.startswith("STREAMING-"):
            length = self.headers.get("x-amz-decoded-content-length", "")
            if not length.isascii() or not length.isdigit() or len(length) > 15:
                raise S3Error("MissingContentLength", "x-amz-decoded-content-length is missing")
            chunks = ChunkedBody(self.verified, int(length))
        async for data in self.http.stream():
            for part in [memoryview(data)] if chunks is None else chunks.feed(data):
                digests.update(part)
                yield part
        if chunks is not None:
            chunks.end()
        digests.end({} if chunks is None else chunks.trailer)

    async def document(self) -> bytes:
        """A body that is XML. Raises S3Error."""
        data = bytearray()
        async for part in self.body():
            data += part
            if len(data) > _MOST_DOCUMENT:
                raise S3Error("MalformedXML", "the document is too long")
        return bytes(data)


def read_request(http: Request, verifier: Verifier) -> Asked:
    """Read a request, and see whether it is signed. Raises S3Error."""
    path, query = http.scope["raw_path"], http.scope["query_string"]
    headers: dict[str, str] = {}
    for name, value in http.headers.items():
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    verified = verifier.check(http.method, path, query, headers)
    bucket, _, key = path.removeprefix(b"/").partition(b"/")
    return Asked(
        http, http.method, decoded(bucket), decoded(key), dict(parse_query(query)), headers, verified
    )


def decoded(text: bytes) -> str:
    """What is percent-encoded. Raises S3Error."""
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise S3Error("InvalidURI", "the name is no UTF-8") from None
