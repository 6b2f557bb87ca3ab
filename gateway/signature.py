"""Signatures of requests, AWS Signature Version 4 as S3 uses it. Pure.

A client signs the method, the path, the query, some headers and the hash of the body with a key that it
derives from its secret, a day, a region and a service. The signature comes in the header Authorization, or
in the query of a presigned link. Any region will do: it is part of the key, and means nothing here.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct

from gateway.errors import S3Error

__all__ = [
    "SIGNED_CHUNKS",
    "SIGNED_CHUNKS_AND_TRAILER",
    "UNSIGNED",
    "UNSIGNED_CHUNKS_AND_TRAILER",
    "AccessKey",
    "Verified",
    "Verifier",
    "parse_query",
]

UNSIGNED: Final = "UNSIGNED-PAYLOAD"
SIGNED_CHUNKS: Final = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_CHUNKS_AND_TRAILER: Final = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_CHUNKS_AND_TRAILER: Final = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_PAYLOADS: Final = (UNSIGNED, SIGNED_CHUNKS, SIGNED_CHUNKS_AND_TRAILER, UNSIGNED_CHUNKS_AND_TRAILER)
_SKEW: Final = timedelta(minutes=15)
_LONGEST: Final = 604_800  # seconds for which a link is valid
_MOST_BYTES: Final = 16 << 10  # of Authorization
_EMPTY_HASH: Final = hashlib.sha256(b"").hexdigest()
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_DATE: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


class AccessKey(Struct, frozen=True):
    """What a client has to know."""

    id: str
    secret: str


class Verified(Struct, frozen=True):
    """A request that was signed with the secret. `payload` is the SHA-256 of its body in hexadecimal, or says
    how the body is signed; the rest is what signatures of its chunks are made from."""

    payload: str
    signature: str
    date: str
    scope: str
    key: bytes

    def chunk_signature(self, before: str, content_hash: str) -> str:
        """The signature of a chunk; *before* is that of the chunk before it, or of the request."""
        text = "\n".join((f"{_ALGORITHM}-PAYLOAD", self.date, self.scope, before, _EMPTY_HASH, content_hash))
        return _hmac(self.key, text).hex()

    def trailer_signature(self, before: str, content_hash: str) -> str:
        """Likewise, of what follows the last chunk."""
        text = "\n".join((f"{_ALGORITHM}-TRAILER", self.date, self.scope, before, content_hash))
        return _hmac(self.key, text).hex()


class _Claim(Struct, frozen=True):
    """What a request says of its signature."""

    access_key: str
    scope: Sequence[str]
    """Day, region, service, and "aws4_request"."""
    signed_headers: Sequence[str]
    signature: str
    date: str
    payload: str
    expires: timedelta | None
    """A link's; None for a header."""


class Verifier:
    """Decides whether requests are signed with the access key. *now* tells the time of day."""

    def __init__(
        self, access_key: AccessKey, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._access_key = access_key
        self._now = now

    def check(self, method: str, path: bytes, query: bytes, headers: Mapping[str, str]) -> Verified:
        """*path* and *query* are as they came, *headers* by lower-case names. Raises S3Error."""
        pairs = parse_query(query)
        claim = _from_query(pairs, headers) if _is_presigned(pairs) else _from_header(headers)
        day, region, service, end = claim.scope
        if service != "s3" or end != "aws4_request" or day != claim.date[:8]:
            raise S3Error("AuthorizationHeaderMalformed", "the scope is not DAY/REGION/s3/aws4_request")
        self._check_time(claim)
        unsigned = {name for name in headers if name.startswith("x-amz-")} - set(claim.signed_headers)
        if "host" not in claim.signed_headers or unsigned:
            raise S3Error("AccessDenied", f"headers are not signed: {', '.join(sorted(unsigned)) or 'host'}")
        key = _signing_key(self._access_key.secret, day, region, service)
        canonical = _canonical_request(method, path, pairs, headers, claim)
        scope = "/".join(claim.scope)
        text = "\n".join(
            (_ALGORITHM, claim.date, scope, hashlib.sha256(canonical.encode("latin-1")).hexdigest())
        )
        expected = _hmac(key, text).hex()
        if not _same(claim.access_key, self._access_key.id):
            raise S3Error("InvalidAccessKeyId", "there is no such access key")
        if not _same(claim.signature, expected):
            raise S3Error("SignatureDoesNotMatch", "the request was signed with another secret, or changed")
        return Verified(claim.payload, claim.signature, claim.date, scope, key)

    def _check_time(self, claim: _Claim) -> None:
        now = self._now()
        try:
            signed = datetime.strptime(claim.date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise S3Error("AccessDenied", "the date of the request is none") from None
        if claim.expires is not None and now - signed > claim.expires:  # no date is behind the last one
            raise S3Error("AccessDenied", "the link has expired")
        if signed > now + _SKEW or (claim.expires is None and signed < now - _SKEW):
            raise S3Error(
                "RequestTimeTooSkewed", f"the clocks differ by more than {_SKEW.seconds // 60} minutes"
            )


def parse_query(query: bytes) -> list[tuple[str, str]]:
    """The parameters, decoded, in their order. Raises S3Error when they are no UTF-8."""
    pairs = []
    for part in query.split(b"&"):
        if part:
            name, _, value = part.replace(b"+", b" ").partition(b"=")
            try:
                pairs.append(
                    (unquote_to_bytes(name).decode("utf-8"), unquote_to_bytes(value).decode("utf-8"))
                )
            except UnicodeDecodeError:
                raise S3Error("InvalidURI", "the query is no UTF-8") from None
    return pairs


def _is_presigned(pairs: Sequence[tuple[str, str]]) -> bool:
    return any(name == "X-Amz-Signature" for name, _ in pairs)


def _from_header(headers: Mapping[str, str]) -> _Claim:
    text = headers.get("authorization", "")
    algorithm, _, rest = text.partition(" ")
    if not text:
        raise S3Error("AccessDenied", "the request is not signed")
    if algorithm != _ALGORITHM or len(text) > _MOST_BYTES:
        raise S3Error("InvalidRequest", f"only {_ALGORITHM} is supported")
    fields = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    if fields.keys() != {"Credential", "SignedHeaders", "Signature"}:
        raise S3Error("AuthorizationHeaderMalformed", "Credential, SignedHeaders and Signature are needed")
    payload = headers.get("x-amz-content-sha256")
    if payload is None:
        raise S3Error("InvalidRequest", "the header x-amz-content-sha256 is missing")
    return _claim(
        "AuthorizationHeaderMalformed", fields, date=_date_of(headers), payload=payload, expires=None
    )


def _from_query(pairs: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> _Claim:
    malformed = "AuthorizationQueryParametersError"
    given = {name: value for name, value in pairs if name.startswith("X-Amz-")}
    if given.get("X-Amz-Algorithm") != _ALGORITHM:
        raise S3Error(malformed, f"X-Amz-Algorithm must be {_ALGORITHM}")
    seconds = given.get("X-Amz-Expires", "")
    if not re.fullmatch(r"[0-9]{1,6}", seconds) or not 0 < int(seconds) <= _LONGEST:
        raise S3Error(malformed, f"X-Amz-Expires must be a number of seconds from 1 to {_LONGEST:,}")
    return _claim(
        malformed,
        {name: given.get(f"X-Amz-{name}", "") for name in ("Credential", "SignedHeaders", "Signature")},
        date=given.get("X-Amz-Date", ""),
        payload=headers.get("x-amz-content-sha256", UNSIGNED),
        expires=timedelta(seconds=int(seconds)),
    )


def _claim(
    malformed: str, fields: Mapping[str, str], *, date: str, payload: str, expires: timedelta | None
) -> _Claim:
    access_key, *scope = fields["Credential"].rsplit("/", 4)
    names = fields["SignedHeaders"].split(";")
    if (
        len(scope) != 4
        or not _HASH.fullmatch(fields["Signature"])
        or not all(map(_HEADER.fullmatch, names))
        or not _DATE.fullmatch(date)
        or not (payload in _PAYLOADS or _HASH.fullmatch(payload))
    ):
        raise S3Error(malformed, "a part of the signature, or the hash of the body, is malformed")
    return _Claim(access_key, scope, names, fields["Signature"], date, payload, expires)


def _date_of(headers: Mapping[str, str]) -> str:
    """x-amz-date, or Date in its form. Raises S3Error."""
    date = headers.get("x-amz-date")
    if date is not None:
        return date
    try:
        return parsedate_to_datetime(headers.get("date", "")).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    except (ValueError, OverflowError):
        raise S3Error("AccessDenied", "the request has no date") from None


def _canonical_request(
    method: str, path: bytes, pairs: Sequence[tuple[str, str]], headers: Mapping[str, str], claim: _Claim
) -> str:
    encoded = sorted((_encode(name), _encode(value)) for name, value in pairs if name != "X-Amz-Signature")
    lines = [f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in claim.signed_headers]
    return "\n".join(
        (
            method,
            quote(unquote_to_bytes(path), safe="/~"),
            "&".join(f"{name}={value}" for name, value in encoded),
            "".join(lines),
            ";".join(claim.signed_headers),
            claim.payload,
        )
    )


def _encode(text: str) -> str:
    return quote(text, safe="~")


def _signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256")


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
