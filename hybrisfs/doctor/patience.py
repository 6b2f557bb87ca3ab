"""Asking several that may not answer, side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["side_by_side"]

T = TypeVar("T")


def side_by_side(calls: Sequence[Callable[[], T]], seconds: float) -> list[T | None]:
    """What each call returned, which is never None; None for one that did not within *seconds*.

    Such a call is left behind in its thread, which keeps no process from ending.
    """
    results: list[T | None] = [None] * len(calls)

    def run(place: int) -> None:
        results[place] = calls[place]()

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return list(results)
