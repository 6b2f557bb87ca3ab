"""When a daemon that died is started again."""

from __future__ import annotations

from hybrisfs.daemon.supervisor import Revival


def test_the_first_death_is_answered_at_once_and_more_of_them_ever_later() -> None:
    revival = Revival()
    delays = [revival.delay_after(1.0) for _ in range(5)]
    assert delays[0] == 0.0
    assert delays == sorted(set(delays))


def test_it_never_gives_up_and_never_waits_for_longer_than_a_minute() -> None:
    revival = Revival()
    delays = [revival.delay_after(59.0) for _ in range(100)]
    assert delays == sorted(delays)
    assert delays[-1] == 60.0
    assert revival.quick_deaths == 100


def test_it_goes_on_where_another_process_left_off() -> None:
    assert Revival(3).delay_after(1.0) > Revival().delay_after(1.0)


def test_who_lived_long_begins_anew() -> None:
    revival = Revival()
    for _ in range(5):
        revival.delay_after(1.0)
    assert revival.delay_after(61.0) == 0.0
    assert revival.quick_deaths == 1
