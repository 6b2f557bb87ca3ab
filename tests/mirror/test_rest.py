from __future__ import annotations

from typing import Final

from hybrisfs.mirror.watch import Rest

QUIET: Final = 1.0


def test_what_changed_long_ago_is_at_rest() -> None:
    rest = Rest(QUIET)
    assert rest.is_at_rest(b"f", b"1", 100.0, writing=False, now=0.0)
    assert not rest.is_at_rest(b"f", b"1", 100.0, writing=True, now=0.0), "somebody has it open"


def test_what_changes_is_waited_for() -> None:
    rest = Rest(QUIET)
    assert not rest.is_at_rest(b"f", b"1", 0.1, writing=False, now=0.0)
    assert not rest.is_at_rest(b"f", b"2", 0.1, writing=False, now=QUIET), "it has changed again"
    assert not rest.is_at_rest(b"f", b"2", 0.1, writing=False, now=1.5 * QUIET)
    assert rest.is_at_rest(b"f", b"2", 0.1, writing=False, now=2 * QUIET)
    assert rest.is_at_rest(b"f", b"2", 0.1, writing=False, now=2 * QUIET), "it still is"
    assert not rest.is_at_rest(b"f", b"3", 0.1, writing=False, now=3 * QUIET)


def test_a_clock_that_is_wrong_keeps_nothing_for_ever() -> None:
    rest = Rest(QUIET)
    assert not rest.is_at_rest(b"f", b"1", -1e6, writing=False, now=0.0)
    assert rest.is_at_rest(b"f", b"1", -1e6, writing=False, now=QUIET)


def test_what_never_rests_is_taken_now_and_then() -> None:
    rest, taken = Rest(QUIET), 0
    for second in range(100):
        taken += rest.is_at_rest(b"f", b"%d" % second, 0.1, writing=True, now=float(second))
    assert 2 <= taken <= 4


def test_each_file_counts_for_itself() -> None:
    rest = Rest(QUIET)
    rest.is_at_rest(b"f", b"1", 0.1, writing=False, now=0.0)
    assert not rest.is_at_rest(b"g", b"1", 0.1, writing=False, now=QUIET)
    rest.forget()
    assert not rest.is_at_rest(b"f", b"1", 0.1, writing=False, now=QUIET)
