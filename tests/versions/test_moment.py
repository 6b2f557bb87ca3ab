"""Moments as people write them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from hybrisfs.versions.tree import format_moment, parse_moment

SECOND = 10**9


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02T00:00Z", 86400),
        ("1970-01-02T00:00:05Z", 86405),
        ("1970-01-02T01:00", 86400),
        ("1970-01-02 01:00", 86400),
        ("1970-01-02", 82800),
        ("1970-01-02Z", 86400),
    ],
)
def test_moments_are_read(text: str, seconds: int) -> None:
    assert parse_moment(text) == seconds * SECOND


@pytest.mark.parametrize(
    "text", ["", "yesterday", "1970-13-01", "1970-01-01T25:00", "1970-1-1", "0000-01-01", "x" * 999]
)
def test_what_is_no_moment(text: str) -> None:
    assert parse_moment(text) is None


@pytest.mark.parametrize("seconds", [0, 86400, 86405, 1_800_000_000])
def test_moments_are_written_as_they_are_read(seconds: int) -> None:
    assert parse_moment(format_moment(seconds * SECOND)) == seconds * SECOND
