"""Timetables, in the notation of rclone."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.errors import UsageError
from hybrisfs.settings.transfers import UNLIMITED, parse_timetable

KIB, MIB = 1 << 10, 1 << 20
MONDAY = datetime(2026, 11, 16)  # midnight


def at(day: int, time: str) -> datetime:
    hour, minute = map(int, time.split(":"))
    return MONDAY + timedelta(days=day, hours=hour, minutes=minute)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("512k", 512 * KIB),
        ("512", 512 * KIB),
        ("10M", 10 * MIB),
        ("1.5G", 3 << 29),
        ("9000B", 9000),
        ("off", None),
    ],
)
def test_one_rate_for_ever(text: str, rate: int | None) -> None:
    table = parse_timetable(text)
    assert table.rate(at(3, "12:34")) == rate
    assert table.next_change(at(3, "12:34")) is None


def test_rates_by_the_time_of_day() -> None:
    table = parse_timetable("08:00,512k  19:00,10M 23:00,off")
    assert table.text == "08:00,512k 19:00,10M 23:00,off"
    expected = {"00:00": None, "07:59": None, "08:00": 512 * KIB, "18:59": 512 * KIB, "22:00": 10 * MIB}
    for day in (0, 3, 6):
        assert {time: table.rate(at(day, time)) for time in expected} == expected
    assert table.next_change(at(6, "23:30")) == at(7, "08:00")
    assert table.next_change(at(2, "08:00") + timedelta(seconds=30)) == at(2, "19:00")


def test_rates_by_the_day_of_the_week() -> None:
    table = parse_timetable("Mon-08:00,1M Friday-18:00,off")
    assert [table.rate(at(day, "12:00")) for day in range(7)] == [MIB] * 5 + [None] * 2
    assert table.rate(at(0, "07:00")) is None  # still last week's
    assert table.next_change(at(5, "00:00")) == at(7, "08:00")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "-5M",
        "0",
        "1k",
        "24:00,1M",
        "08:60,1M",
        "8,1M",
        "08:00",
        "08:00,1M 8:00,2M",
        "Foo-08:00,1M",
        "1e9",
        "512k 1M",
        "08:00,1M,2M",
        " ".join(f"{minute // 60}:{minute % 60:02},1M" for minute in range(30)),
    ],
)
def test_what_is_no_timetable(text: str) -> None:
    with pytest.raises(UsageError):
        parse_timetable(text)


@given(
    st.lists(st.tuples(st.integers(0, 23), st.integers(0, 59), st.integers(8, 9)), min_size=1, max_size=5),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
)
def test_the_rate_stays_until_the_next_change(steps: list[tuple[int, int, int]], now: datetime) -> None:
    unique = {(hour, minute): rate for hour, minute, rate in steps}
    table = parse_timetable(" ".join(f"{h:02}:{m:02},{rate}k" for (h, m), rate in unique.items()))
    change = table.next_change(now)
    if change is None:
        assert len(set(unique.values())) == 1
        return
    assert now < change <= now + timedelta(days=7)
    assert table.rate(change) != table.rate(now) == table.rate(change - timedelta(minutes=1))


def test_unlimited() -> None:
    assert UNLIMITED.rate(MONDAY) is None
