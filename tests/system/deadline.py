"""Waiting for observable state instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

T = TypeVar("T")

_POLL_SECONDS = 0.02


def until(look: Callable[[], T], what: str, seconds: float = 60.0) -> T:
    """Call `look` until it returns something true, and return that.

    Raises:
        AssertionError: it stayed false for `seconds`; says `what` was awaited and what was seen last.
    """
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"still waiting after {seconds:.0f} s for {what}; last seen: {seen!r}")
        time.sleep(_POLL_SECONDS)
