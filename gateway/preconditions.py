"""Ranges and conditional headers (RFC 9110, 13 and 14) as S3 reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Final, NamedTuple

from gateway.errors import S3Error

__all__ = ["Preconditions", "Span", "http_date", "matches", "moment_of", "read_range"]

_LAST: Final = 253_402_300_799  # seconds since the epoch: the end of the year 9999
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class Span(NamedTuple):
    """The bytes from `start` up to `end`, which is not one of them."""

    start: int
    end: int


def read_range(header: str | None, size: int) -> Span | None:
    """The part that is wanted of an object of *size* bytes; None for all of it.

    As everywhere, a header that makes no sense, or asks for several parts, is ignored. Raises S3Error when
    there is nothing of the object where it points.
    """
    found = _RANGE.fullmatch((header or "").strip())
    if found is None or found[1] == found[2] == "":
        return None
    first, last = found[1], found[2]
    if first == "":
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size or start == end:
        raise S3Error("InvalidRange", f"the object has {size:,} bytes", {"content-range": f"bytes */{size}"})
    return Span(start, end)


def matches(etags: str, etag: str) -> bool:
    """Whether a list of ETags, with or without quotes, names this one. "*" names any."""
    return any(
        one == "*" or one.removeprefix("W/").strip('"') == etag for one in map(str.strip, etags.split(","))
    )


def moment_of(seconds: float) -> datetime:
    """Seconds since the epoch as a date, the last one for what is behind it: a member of the volume may have
    written any number, and one object must not keep its bucket from being listed."""
    return datetime.fromtimestamp(min(seconds, _LAST), UTC)


def http_date(seconds: float | None) -> str:
    """A moment, in seconds since the epoch; 1970 for one that nobody knows."""
    return format_datetime(moment_of(int(seconds or 0)), usegmt=True)


class Preconditions(NamedTuple):
    """The conditional headers of a request."""

    match: str | None
    none_match: str | None
    modified_since: str | None
    unmodified_since: str | None

    @staticmethod
    def of(headers: Mapping[str, str], prefix: str = "") -> Preconditions:
        """From headers by lower-case names; *prefix* is what precedes their usual names."""
        return Preconditions(
            headers.get(f"{prefix}if-match"),
            headers.get(f"{prefix}if-none-match"),
            headers.get(f"{prefix}if-modified-since"),
            headers.get(f"{prefix}if-unmodified-since"),
        )

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return any(one is not None for one in self)

    def check(self, etag: str, written: float | None) -> None:
        """Raises S3Error, NotModified or PreconditionFailed, unless an object may be read that has this ETag
        and was written then."""
        if self.match is not None:
            if not matches(self.match, etag):
                raise _failed()
        elif (since := _moment(self.unmodified_since)) is not None and _is_later(written, since):
            raise _failed()
        if self.none_match is not None:
            if matches(self.none_match, etag):
                raise _not_modified(etag)
        elif (since := _moment(self.modified_since)) is not None and not _is_later(written, since):
            raise _not_modified(etag)


def _not_modified(etag: str) -> S3Error:
    return S3Error("NotModified", headers={"etag": f'"{etag}"'})


def _failed() -> S3Error:
    return S3Error("PreconditionFailed", "a condition of the request does not hold")


def _moment(header: str | None) -> float | None:
    """Seconds since the epoch; None for what is not a date, which is ignored."""
    try:
        return parsedate_to_datetime(header or "").timestamp()
    except (ValueError, OverflowError):
        return None


def _is_later(written: float | None, since: float) -> bool:
    """Dates in headers have whole seconds."""
    return int(written or 0) > since
