"""What a client says that its body must hash to. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from gateway.errors import S3Error

__all__ = ["Digests"]

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class _Hash(Protocol):
    def update(self, data: memoryview, /) -> object: ...
    def digest(self) -> bytes: ...


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: memoryview) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


# CRC-32C and CRC-64/NVME are missing: in Python they would take longer than everything else.
_CHECKSUMS: Final[Mapping[str, Callable[[], _Hash]]] = {
    "x-amz-checksum-crc32": _Crc32,
    "x-amz-checksum-sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "x-amz-checksum-sha256": hashlib.sha256,
}


class Digests:
    """Hashes a body in the ways for which its client says what must come out."""

    def __init__(self, headers: Mapping[str, str], payload: str) -> None:
        """*payload* is the signed SHA-256 in hexadecimal, or something else. Raises S3Error."""
        self._hashes: dict[str, _Hash] = {}
        self._wanted: dict[str, bytes] = {}
        if _SHA256.fullmatch(payload):
            self._hashes["payload"] = hashlib.sha256()
            self._wanted["payload"] = bytes.fromhex(payload)
        if "content-md5" in headers:
            self._hashes["content-md5"] = hashlib.md5(usedforsecurity=False)
            self._wanted["content-md5"] = _decoded(headers["content-md5"])
        announced = {one.strip().lower() for one in headers.get("x-amz-trailer", "").split(",")}
        for name, make in _CHECKSUMS.items():
            if name in headers:
                self._wanted[name] = _decoded(headers[name])
            if name in headers or name in announced:
                self._hashes[name] = make()

    def update(self, part: memoryview) -> None:
        """The next bytes of the body."""
        for one in self._hashes.values():
            one.update(part)

    def end(self, trailer: Mapping[str, str]) -> None:
        """Raises S3Error when the body is another one. *trailer* are the headers behind it."""
        for name in self._hashes.keys() - self._wanted.keys():
            if name not in trailer:
                raise S3Error("InvalidRequest", f"the announced trailer {name} is missing")
            self._wanted[name] = _decoded(trailer[name])
        for name, one in self._hashes.items():
            if not hmac.compare_digest(one.digest(), self._wanted[name]):
                if name == "payload":
                    raise S3Error("XAmzContentSHA256Mismatch", "the body is not the one that was signed")
                raise S3Error("BadDigest", f"the body is another one than {name} says")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise S3Error("InvalidDigest", "a checksum is not base64") from None
