"""How often rounds come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.follow import LONGEST_PAUSE, SHORTEST_PAUSE, Pace, poll_pause


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_pauses_grow_with_the_quiet_between_the_limits(one: float, other: float) -> None:
    assert SHORTEST_PAUSE <= poll_pause(one) <= LONGEST_PAUSE
    assert poll_pause(min(one, other)) <= poll_pause(max(one, other))


def test_the_ends_and_the_middle() -> None:
    assert [poll_pause(quiet) for quiet in (0, 19, 600, 3000, 1e6)] == [2, 2, 60, 300, 300]


def rounds(pace: Pace, until: float) -> list[float]:
    found = []
    while pace.due <= until:
        found.append(pace.due)
        pace.began(pace.due)
    return found


def test_an_idle_day_costs_few_rounds_and_a_busy_minute_many() -> None:
    pace = Pace(0.0)
    assert len(rounds(pace, 60.0)) > 20
    assert len(rounds(pace, 86400.0)) < 350


def test_a_change_quickens_the_pace() -> None:
    pace = Pace(0.0)
    rounds(pace, 7200.0)
    began = pace.due
    pace.active(began)
    pace.began(began)
    assert pace.due == pytest.approx(began + SHORTEST_PAUSE)


def test_hurry_does_not_wait_for_the_pause_but_asks_no_cloud_without_any() -> None:
    pace = Pace(0.0)
    rounds(pace, 7200.0)
    last = pace.due
    pace.began(last)
    pace.hurry()
    assert pace.due == pytest.approx(last + SHORTEST_PAUSE)
    pace.began(pace.due)
    assert pace.due > last + LONGEST_PAUSE / 2
