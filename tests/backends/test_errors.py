"""Errors say what failed, why and what to do, and sort by what the caller does about them."""

from __future__ import annotations

import pytest
from paramiko.ssh_exception import NoValidConnectionsError

from backends.errors import (
    AuthError,
    CorruptError,
    OversizeError,
    ThrottledError,
    TransientError,
    reason_of,
)


def test_the_message_says_what_why_and_what_to_do() -> None:
    error = AuthError("s3://bucket", "put", "packs/ab", "signature refused")
    assert str(error) == (
        "s3://bucket: put packs/ab: signature refused "
        "(give it other secrets with hybrisfs cloud login s3://bucket, or check its permissions)"
    )
    error = AuthError("s3://bucket/x?region=a&endpoint=b", "put", "packs/ab", "signature refused")
    assert "cloud login 's3://bucket/x?region=a&endpoint=b', or" in error.advice
    assert str(TransientError("s3://bucket", "list", "", "timed out")) == "s3://bucket: list: timed out"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (FileNotFoundError(2, "No such file or directory", "/key"), "No such file or directory: /key"),
        (NoValidConnectionsError({("127.0.0.1", 1): OSError()}), "Unable to connect to port 1 on 127.0.0.1"),
        (TimeoutError("timed out"), "timed out"),
        (ValueError("[Errno 1] is in it"), "[Errno 1] is in it"),
    ],
)
def test_numbers_of_errors_are_for_programs(error: Exception, words: str) -> None:
    assert reason_of(error) == words


def test_what_a_server_says_stays_in_its_line() -> None:
    error = TransientError("sftp://nas/a", "get", "a", "no\r\nhybrisfs: all is well\x1b[2K\u202e")
    assert error.reason == "no??hybrisfs: all is well?[2K?"
    assert str(error).isprintable()


def test_throttling_is_transient_and_says_when() -> None:
    with pytest.raises(TransientError) as caught:
        raise ThrottledError("s3://bucket", "get", "a", "503 Slow Down", retry_after=2.5)
    assert isinstance(caught.value, ThrottledError)
    assert caught.value.retry_after == 2.5


def test_an_oversize_object_is_corrupt() -> None:
    assert issubclass(OversizeError, CorruptError)
