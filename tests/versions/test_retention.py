"""Which versions are kept, and for how long."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.errors import UsageError
from hybrisfs.versions.retention import DAY_NS, DEFAULT_RETENTION, RetentionRule, parse_retention

HOUR = 3600 * 10**9
moments = st.integers(1, 60_000 * DAY_NS)
spans = st.integers(0, 500 * DAY_NS)
rules = st.builds(RetentionRule, spans, spans, spans, spans) | st.just(DEFAULT_RETENTION)


def at(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp()) * 10**9


NOW = at("2026-11-22T12:00")


def kept(since: str, until: str, now: int = NOW) -> bool:
    return DEFAULT_RETENTION.kept_until(at(since), at(until)) > now


def test_everything_of_the_last_day() -> None:
    assert kept("2026-11-21T12:10", "2026-11-21T12:11")
    assert not kept("2026-11-21T11:10", "2026-11-21T11:11")


def test_what_was_there_at_a_midnight_for_a_week() -> None:
    assert kept("2026-11-16T23:59", "2026-11-17T00:01")
    assert not kept("2026-11-17T00:01", "2026-11-17T23:59")
    assert not kept("2026-11-13T23:59", "2026-11-14T00:01")  # a Saturday, eight days ago


def test_what_was_there_when_a_week_began_for_a_month() -> None:
    assert kept("2026-11-08T23:59", "2026-11-09T00:01")  # a Monday, two weeks ago
    assert not kept("2026-11-09T23:59", "2026-11-10T00:01")
    assert not kept("2026-10-18T23:59", "2026-10-19T00:01")  # a Monday, five weeks ago


def test_what_was_there_when_a_month_began_for_a_year() -> None:
    assert kept("2025-12-31T23:59", "2026-01-01T00:01")
    assert not kept("2026-01-01T23:59", "2026-01-02T00:01")
    assert not kept("2025-10-31T23:59", "2025-11-01T00:01")


def test_what_was_there_for_long_is_kept_for_as_long_as_any_of_its_rungs() -> None:
    assert kept("2020-01-01T00:00", "2026-01-05T00:00")
    assert kept("2020-01-01T00:00", "2026-11-15T12:00")
    assert not kept("2020-01-01T00:00", "2025-11-15T12:00")


@given(rules, moments, moments, moments)
def test_rungs_are_kept_whole(rule: RetentionRule, now: int, before: int, after: int) -> None:
    """Whatever was true at a rung that is wanted is kept: the whole tree of that moment."""
    for rung in list(rule.rungs(now))[:3]:
        since, until = max(rung - before, 0), rung + after
        assert rule.kept_until(since, until) > now


@given(rules, moments, st.integers(0, 400 * DAY_NS), moments, moments)
def test_what_was_dropped_is_never_wanted_again(
    rule: RetentionRule, since: int, length: int, now: int, later: int
) -> None:
    """Until when it is kept depends on nothing but the version: neither on the time nor on any order."""
    until = rule.kept_until(since, since + length)
    assert not (until <= now < until <= now + later)
    rungs = set(rule.rungs(now + later))
    assert {rung for rung in rungs if rung <= now} <= set(rule.rungs(now))


@given(rules, moments, st.integers(1, 400 * DAY_NS), st.integers(0, 400 * DAY_NS))
def test_what_was_true_for_longer_is_kept_at_least_as_long(
    rule: RetentionRule, since: int, length: int, more: int
) -> None:
    shorter = rule.kept_until(since + min(more, length - 1), since + length)
    assert rule.kept_until(since, since + length) >= shorter


@given(moments, moments)
def test_off_keeps_nothing(since: int, length: int) -> None:
    assert parse_retention("off").kept_until(since, since + length) == 0
    assert list(parse_retention("off").rungs(since)) == []


def test_rules_are_read_as_they_are_written() -> None:
    rule = parse_retention("all:36h,daily:14d,weekly:8w,monthly:2y,room:50G")
    assert rule == RetentionRule(36 * HOUR, 14 * DAY_NS, 56 * DAY_NS, 732 * DAY_NS, 50 << 30)
    for text in ("off", "default", "all:0d", "room:100", "monthly:6m"):
        assert parse_retention(str(parse_retention(text))) == parse_retention(text)


@pytest.mark.parametrize(
    "text", ["", "all", "all:1", "all:-1d", "all:1d,all:2d", "yearly:1y", "room:x", "all:9999y", "room:1P"]
)
def test_other_rules_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="which versions to keep"):
        parse_retention(text)
