"""A token bucket that several transfers share, in turns (sans-IO: times are passed in, in seconds).

A turn is one piece of one transfer. Turns of one kind are granted in the order in which they joined, so that
transfers side by side get equal shares. Urgent turns, the beginnings of transfers, go first, but never twice
in a row while others wait: small objects do not stand behind packs, and packs do not starve.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

__all__ = ["TokenBucket", "Turn"]

_ROUNDING: Final = 1.0  # bytes that may be lacking, so that no wait is too short to be waited
_BURST: Final = 0.2  # seconds of the rate that may have been saved up


class Turn(Struct, eq=False):
    """A wish to move so many bytes; `granted` when it may be done."""

    size: int
    urgent: bool = False
    granted: bool = False


class TokenBucket:
    """Grants turns so that at most `rate` bytes per second move; None is no limit."""

    def __init__(self) -> None:
        self.rate: int | None = None
        self._level = 0.0  # bytes; negative after a turn that was larger than what there was
        self._filled = 0.0
        self._urgent: deque[Turn] = deque()
        self._others: deque[Turn] = deque()
        self._last_urgent = False

    def set_rate(self, rate: int | None, now: float) -> None:
        """From now on so many bytes per second may move."""
        self._fill(now)
        if self.rate is None:
            self._level = 0.0
        self.rate = rate
        self._filled = now

    def join(self, turn: Turn) -> None:
        """Let the turn wait to be granted."""
        (self._urgent if turn.urgent else self._others).append(turn)

    def grant(self, now: float) -> bool:
        """Grant all turns that may be had now; return whether there were any."""
        self._fill(now)
        granted = False
        while (self._urgent or self._others) and (self.rate is None or self._level >= -_ROUNDING):
            first = self._urgent and not (self._last_urgent and self._others)
            turn = (self._urgent if first else self._others).popleft()
            self._last_urgent = turn.urgent
            self._level -= turn.size
            turn.granted = granted = True
        return granted

    def due(self) -> float:
        """Return the seconds, after the last `grant`, until the next turn may be had."""
        return 0.0 if self.rate is None else max(0.0, -self._level / self.rate)

    def _fill(self, now: float) -> None:
        if self.rate is not None:
            saved = self._level + max(0.0, now - self._filled) * self.rate
            self._level = min(saved, _BURST * self.rate)
        self._filled = now
