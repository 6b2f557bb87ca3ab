"""When a daemon that died is started again."""

from __future__ import annotations

from hybrisfs.daemon.revival import Revival


def test_the_first_death_is_answered_at_once_and_more_of_them_ever_later() -> None:
    revival = Revival()
    delays = [revival.delay_after(1.0) for _ in range(5)]
    assert delays[0] == 0.0
    assert delays == sorted(delays, key=lambda delay: delay or 0.0)
    assert None not in delays


def test_too_many_quick_deaths_in_a_row_are_the_end() -> None:
    revival = Revival()
    assert [revival.delay_after(59.0) for _ in range(6)][-1] is None
    assert revival.quick_deaths == 6


def test_who_lived_long_begins_anew() -> None:
    revival = Revival()
    for _ in range(5):
        revival.delay_after(1.0)
    assert revival.delay_after(61.0) == 0.0
    assert revival.quick_deaths == 1
