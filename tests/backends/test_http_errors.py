"""What an HTTP refusal means."""

from __future__ import annotations

import ssl
import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import (
    AuthError,
    FullError,
    PermanentError,
    StoreError,
    ThrottledError,
    TransientError,
)
from backends.http_errors import HttpFailure, connection_error, http_error, retry_after


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (HttpFailure(403, "RequestTimeTooSkewed"), AuthError),
        (HttpFailure(404, "XAdminUserNotFound"), AuthError),
        (HttpFailure(400, "ExpiredToken"), AuthError),
        (HttpFailure(403, "QuotaExceeded"), FullError),
        (HttpFailure(507), FullError),
        (HttpFailure(503, "SlowDown"), ThrottledError),
        (HttpFailure(503), TransientError),
        (HttpFailure(400, "BadDigest"), TransientError),
        (HttpFailure(409, "ConditionalRequestConflict"), TransientError),
        (HttpFailure(423), TransientError),
        (HttpFailure(501), PermanentError),
        (HttpFailure(400, "InvalidBucketName"), PermanentError),
    ],
)
def test_codes_come_before_statuses(failure: HttpFailure, expected: type[StoreError]) -> None:
    assert type(http_error("s3://b", "put", "n", failure)) is expected


def test_a_clock_that_is_off_is_blamed_for_a_refused_signature() -> None:
    there = {"date": formatdate(time.time() - 3600, usegmt=True)}
    for status in (400, 401, 403):
        error = http_error("s3://b", "put", "n", HttpFailure(status, headers=there))
        assert isinstance(error, AuthError)
        assert "clock" in error.advice
    assert "clock" not in http_error("s3://b", "put", "n", HttpFailure(500, headers=there)).advice
    here = {"Date": formatdate(usegmt=True)}
    assert "clock" not in http_error("s3://b", "put", "n", HttpFailure(403, headers=here)).advice


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 12 ", 12),
        ("99999999999999999999", 3600),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after(value) == seconds


def test_retry_after_a_moment() -> None:
    assert retry_after(formatdate(time.time() - 100, usegmt=True)) == 0
    wait = retry_after(formatdate(time.time() + 1000, usegmt=True))
    assert wait is not None
    assert 0 < wait <= 1000


@given(st.text(max_size=40))
def test_any_header_is_understood_or_ignored(text: str) -> None:
    wait = retry_after(text)
    assert wait is None or 0 <= wait <= 3600
    reason = HttpFailure(400, text, text * 100, {"Date": text}).reason
    assert len(reason) <= 300
    assert reason.isprintable()


def test_a_broken_connection_quotes_no_url() -> None:
    try:
        try:
            raise ConnectionResetError(104, "reset by peer")
        except OSError as low:
            raise type("Wrapper", (Exception,), {"__module__": "sdk"})("GET /x?sig=SECRET") from low
    except Exception as error:  # noqa: BLE001
        told = connection_error("az://c", "get", "n", error)
    assert isinstance(told, TransientError)
    assert "reset by peer" in str(told)
    assert "SECRET" not in str(told)


def test_a_bad_certificate_will_not_get_better() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed"
    assert isinstance(connection_error("s3://b", "get", "n", error), PermanentError)
    assert isinstance(connection_error("s3://b", "get", "n", ssl.SSLEOFError(8, "EOF")), TransientError)


def test_a_status_without_a_code_is_told_once() -> None:
    assert HttpFailure(403, "403", "Forbidden").reason == "HTTP 403 Forbidden"
    assert HttpFailure(403, "AccessDenied", "").reason == "HTTP 403 AccessDenied"


def test_a_status_without_words_gets_those_of_the_standard() -> None:
    assert HttpFailure(401).reason == "HTTP 401 Unauthorized"
    assert HttpFailure(507, "507").reason == "HTTP 507 Insufficient Storage"
    assert HttpFailure(799).reason == "HTTP 799"
