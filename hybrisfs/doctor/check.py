"""What a check found, and asking several that may not answer, side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from hybrisfs.wire import Message

__all__ = ["Finding", "Level", "bad", "ok", "side_by_side", "warn"]

Level: TypeAlias = Literal["ok", "warn", "bad"]
"""Fine; works, but something may go wrong later; something does not work."""


class Finding(Struct, frozen=True):
    """The `result` of one `check`, in a sentence (`what`), and what to do (`advice`, "" when nothing)."""

    check: str
    result: Level
    what: str
    advice: str = ""

    def as_dict(self) -> Message:
        return asdict(self)


def ok(check: str, what: str) -> Finding:
    return Finding(check, "ok", what)


def warn(check: str, what: str, advice: str) -> Finding:
    return Finding(check, "warn", what, advice)


def bad(check: str, what: str, advice: str) -> Finding:
    return Finding(check, "bad", what, advice)


# -- asking several that may not answer, side by side ---------------------------------------------------


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
