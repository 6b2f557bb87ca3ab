r"""Bodies that are sent in chunks with a signature each, or with a checksum behind them (aws-chunked). Pure.

    HEX-SIZE[;chunk-signature=SIGNATURE]\r\n  BYTES  \r\n      any number of these
    0[;chunk-signature=SIGNATURE]\r\n                          then this
    NAME:VALUE\r\n                                             and, when a trailer was announced, headers
    x-amz-trailer-signature:SIGNATURE\r\n                      with a signature if chunks have one
    \r\n

Lines of the trailer may end with \n alone. Bytes are handed on before their chunk is proven: nothing may come
of them until `end` has returned.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from typing import Final

from gateway.errors import S3Error
from gateway.signature import SIGNED_CHUNKS, UNSIGNED_CHUNKS_AND_TRAILER, Verified

__all__ = ["ChunkedBody"]

_MOST_LINE: Final = 1024  # bytes
_MOST_TRAILER: Final = 16 << 10  # bytes
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,16})(?:;chunk-signature=([0-9a-f]{64}))?")
_OWN_SIGNATURE: Final = "x-amz-trailer-signature"


class ChunkedBody:
    """Takes a body of *length* bytes out of its chunks. `trailer` is complete after `end`."""

    def __init__(self, verified: Verified, length: int) -> None:
        self._verified = verified
        self._is_signed = verified.payload != UNSIGNED_CHUNKS_AND_TRAILER
        self._has_trailer = verified.payload != SIGNED_CHUNKS
        self._signature = verified.signature
        self._left = length
        self._line = bytearray()
        self._state = "size"  # then "data", "after", and again; at last "trailer", "done"
        self._in_chunk = 0
        self._claimed = ""
        self._hash = hashlib.sha256()
        self._signed_trailer = b""
        self._trailer_bytes = 0
        self.trailer: dict[str, str] = {}

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """The bytes of the body in the next bytes of the stream. Raises S3Error."""
        view = memoryview(data)
        while view:
            if self._state == "data":
                part, view = view[: self._in_chunk], view[self._in_chunk :]
                self._take(part)
                yield part
            else:
                view = self._take_line(view)

    def end(self) -> None:
        """Raises S3Error unless the body was complete."""
        if self._state != "done" or self._left:
            raise S3Error("IncompleteBody", "the body ends too early")

    def _take(self, part: memoryview) -> None:
        if self._is_signed:
            self._hash.update(part)
        self._in_chunk -= len(part)
        if not self._in_chunk:
            self._prove_chunk()
            self._state = "after"

    def _take_line(self, view: memoryview) -> memoryview:
        """Take what belongs to a line; act on it when it is complete."""
        end = bytes(view[:_MOST_LINE]).find(b"\n") + 1
        self._line += view[: end or _MOST_LINE]
        if len(self._line) > _MOST_LINE or self._state == "done":
            raise _malformed()
        if end:
            line = bytes(self._line[:-1])
            self._line.clear()
            self._act_on(line.removesuffix(b"\r"))
        return view[end:] if end else view[_MOST_LINE:]

    def _act_on(self, line: bytes) -> None:
        if self._state == "size":
            self._begin_chunk(line)
        elif self._state == "after":
            if line:
                raise _malformed()
            self._state = "size"
        elif line:
            self._add_to_trailer(line)
        else:
            self._prove_trailer()
            self._state = "done"

    def _begin_chunk(self, line: bytes) -> None:
        found = _SIZE.fullmatch(line)
        if found is None or (found[2] is not None) != self._is_signed:
            raise _malformed()
        self._in_chunk, self._claimed = int(found[1], 16), (found[2] or b"").decode()
        if self._in_chunk > self._left:
            raise S3Error("IncompleteBody", "the body is longer than its header says")
        self._left -= self._in_chunk
        self._hash = hashlib.sha256()
        self._state = "data"
        if not self._in_chunk:
            self._prove_chunk()
            self._state = "trailer"

    def _prove_chunk(self) -> None:
        if self._is_signed:
            expected = self._verified.chunk_signature(self._signature, self._hash.hexdigest())
            self._check(self._claimed, expected)

    def _add_to_trailer(self, line: bytes) -> None:
        self._trailer_bytes += len(line)
        name, colon, value = line.decode("latin-1").partition(":")
        name = name.strip().lower()
        if not self._has_trailer or not colon or self._trailer_bytes > _MOST_TRAILER or name in self.trailer:
            raise _malformed()
        self.trailer[name] = value.strip()
        if name != _OWN_SIGNATURE:
            self._signed_trailer += line + b"\n"

    def _prove_trailer(self) -> None:
        if self._is_signed and self._has_trailer:
            content = hashlib.sha256(self._signed_trailer).hexdigest()
            expected = self._verified.trailer_signature(self._signature, content)
            self._check(self.trailer.pop(_OWN_SIGNATURE, ""), expected)

    def _check(self, claimed: str, expected: str) -> None:
        if not hmac.compare_digest(claimed.encode("latin-1"), expected.encode()):
            raise S3Error("SignatureDoesNotMatch", "a part of the body was signed with another secret")
        self._signature = expected


def _malformed() -> S3Error:
    return S3Error("InvalidRequest", "the chunks of the body are malformed")
