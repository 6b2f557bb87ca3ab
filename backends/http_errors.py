"""What an HTTP status, and the code that a cloud gives with it, means for the caller."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from msgspec import Struct, field

from backends.errors import (
    AuthError,
    FullError,
    PermanentError,
    StoreError,
    ThrottledError,
    TransientError,
    reason_of,
)

__all__ = ["REDIRECTS", "HttpFailure", "RedirectedError", "connection_error", "http_error", "retry_after"]

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_LONGEST_WAIT: Final = 3600.0  # seconds; a service that asks for more is asked again after that
_USUAL_WAIT: Final = 1.0  # seconds, when the cloud does not say how long
_CLOCK_TOLERANCE: Final = 300.0  # seconds that signatures may be off, at most providers
_MAX_REASON: Final = 300  # characters of a server's message that are shown

_MAX_CHAIN: Final = 20
_PLAIN: Final = frozenset({"builtins", "socket", "ssl"})  # modules whose errors quote no URL

_AUTH: Final = frozenset(
    {
        "AccessDenied",
        "AccountProblem",
        "AllAccessDisabled",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "NotSignedUp",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "XAdminUserNotFound",  # versitygw
    }
)
_CLOCK: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_THROTTLED: Final = frozenset({"SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"})
_FULL: Final = frozenset(
    {
        "InsufficientStorage",
        "QuotaExceeded",
        "XMinioAdminBucketQuotaExceeded",
        "XMinioStorageFull",
        "cap_exceeded",
        "storage_cap_exceeded",
        "storageQuotaExceeded",
    }
)
_TRANSIENT: Final = frozenset(
    {"BadDigest", "ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "ServiceUnavailable"}
)


_PHRASES: Final = {int(status): status.phrase for status in HTTPStatus}


class HttpFailure(Struct, frozen=True):
    """A refusal: HTTP status, the provider's error code and message ("" where there is none), headers."""

    status: int
    code: str = ""
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str | None:
        """The value of a header, whatever the case of its name."""
        wanted = name.lower()
        return next((value for key, value in self.headers.items() if key.lower() == wanted), None)

    @property
    def reason(self) -> str:
        """What the server says, on one line and not too long."""
        code = "" if self.code == str(self.status) else self.code  # a body without one, in words of an SDK
        said = " ".join(f"{code} {self.message}".split()) or _PHRASES.get(self.status, "")
        text = f"HTTP {self.status} {said}".strip()
        return "".join(character if character.isprintable() else "?" for character in text)[:_MAX_REASON]


def http_error(url: str, operation: str, name: str, failure: HttpFailure) -> StoreError:
    """Return the error for a refusal that the driver itself has no better explanation for."""
    status, code, reason = failure.status, failure.code, failure.reason
    off = _clock_error(failure)
    if code in _CLOCK or (off is not None and status in (400, 401, 403)):
        amount = "" if off is None else f": it differs by {abs(off):.0f} s from the cloud's"
        return AuthError(url, operation, name, reason, f"check the clock of this machine{amount}")
    if code in _FULL or status == 507:
        return FullError(url, operation, name, reason)
    if code in _AUTH or status in (401, 403, 407):
        return AuthError(url, operation, name, reason)
    wait = retry_after(failure.header("Retry-After"))
    if status == 429 or code in _THROTTLED or (status == 503 and wait is not None):
        delay = _USUAL_WAIT if wait is None else wait
        return ThrottledError(url, operation, name, reason, retry_after=delay)
    if code in _TRANSIENT or status in (408, 409, 423, 425) or (status >= 500 and status not in (501, 505)):
        return TransientError(url, operation, name, reason)
    if 300 <= status < 400:
        return PermanentError(url, operation, name, reason, "check region, endpoint and host of this cloud")
    return PermanentError(url, operation, name, reason)


class RedirectedError(Exception):
    """The service sends us elsewhere. Not followed: a fake service could send us anywhere."""

    def __init__(self, where: str = "") -> None:
        super().__init__(f"the service says that this is elsewhere {where}".rstrip())


def connection_error(url: str, operation: str, name: str, error: BaseException) -> StoreError:
    """Return the error for a request that got no answer.

    Says what the operating system says, and nothing of the layers between, whose texts quote whole URLs with
    whatever signature they carry.
    """
    import ssl  # whatever fails here has loaded it; a volume over folders need not

    if isinstance(error, RedirectedError):
        return PermanentError(url, operation, name, str(error), "check region, endpoint and host in the URL")
    chain = [error]
    while (below := chain[-1].__cause__ or chain[-1].__context__) is not None and len(chain) < _MAX_CHAIN:
        chain.append(below)
    for one in chain:
        if isinstance(one, ssl.SSLCertVerificationError):
            reason = f"its certificate is not accepted: {one.verify_message}"
            return PermanentError(
                url, operation, name, reason, "check the host, and the clock of this machine"
            )
    reasons = [reason_of(one) for one in chain if type(one).__module__ in _PLAIN and str(one)]
    reason = reasons[-1] if reasons else f"no answer ({type(error).__name__})"
    return TransientError(url, operation, name, reason)


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header (RFC 9110, 10.2.3) asks for, within reason, or None."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_WAIT)
    moment = _timestamp(text)
    return None if moment is None else min(max(moment - time.time(), 0.0), _LONGEST_WAIT)


def _clock_error(failure: HttpFailure) -> float | None:
    """How far this machine's clock is from the server's, when that is too far."""
    there = _timestamp(failure.header("Date") or "")
    if there is None:
        return None
    off = time.time() - there
    return off if abs(off) > _CLOCK_TOLERANCE else None


def _timestamp(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
