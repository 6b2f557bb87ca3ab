"""Intervals are found again by when they were, whatever the clock does."""

from __future__ import annotations

from hybrisfs.history import Ring, Row


def test_intervals_add_up_and_the_worst_state_stays() -> None:
    ring = Ring(10, 3)
    ring.add(100.0, Row(up=1, reads=2, read_seconds=0.5, state=5))
    ring.add(109.9, Row(up=4, down=7, state=0))
    ring.add(110.0, Row(up=9))
    assert list(ring.rows(115.0)) == [
        None,
        None,
        Row(up=5, down=7, reads=2, read_seconds=0.5, state=5),
    ]
    assert list(ring.rows(125.0))[-2:] == [
        Row(up=5, down=7, reads=2, read_seconds=0.5, state=5),
        Row(up=9),
    ]


def test_what_is_older_than_the_ring_is_forgotten() -> None:
    ring = Ring(10, 3)
    for when in range(0, 100, 10):
        ring.add(float(when), Row(up=when))
    assert [row.up if row else None for row in ring.rows(100.0)] == [70, 80, 90]
    assert len(list(ring.known())) == 3


def test_gaps_are_gaps() -> None:
    ring = Ring(10, 4)
    ring.add(100.0, Row(up=1))
    ring.add(120.0, Row(up=3))
    assert [row.up if row else None for row in ring.rows(130.0)] == [None, 1, None, 3]
    assert list(ring.rows(10_000.0)) == [None] * 4


def test_a_clock_that_goes_back_makes_no_nonsense() -> None:
    ring = Ring(10, 4)
    ring.add(1000.0, Row(up=1))
    ring.add(500.0, Row(up=2))
    assert [row.up if row else None for row in ring.rows(510.0)] == [None, None, None, 2]
