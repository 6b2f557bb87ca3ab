"""Asking those that may not answer."""

from __future__ import annotations

import threading

from hybrisfs.doctor.check import side_by_side


def test_who_does_not_answer_is_left_behind() -> None:
    never = threading.Event()
    asked: list[int] = []

    def hang() -> int:
        asked.append(1)
        never.wait(60)
        return 1

    assert side_by_side([lambda: 7, hang], 0.5) == [7, None]
    assert asked == [1]
    never.set()


def test_those_that_answer_are_waited_for() -> None:
    barrier = threading.Barrier(3)
    assert len(side_by_side([lambda: barrier.wait(60)] * 3, 60.0)) == 3
    assert not barrier.broken
