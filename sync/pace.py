"""How often to ask whether there is news: often while a device writes, seldom while none does.

The pause between two rounds is a fixed share of the time since something happened last, within limits.
News is then found late by at most that share of the quiet before it, and the number of rounds
grows only with the logarithm of the quiet.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LONGEST_PAUSE", "SHORTEST_PAUSE", "Pace", "poll_pause"]

SHORTEST_PAUSE: Final = 2.0
"""Seconds between rounds during the first twenty seconds after a change, here or elsewhere."""
LONGEST_PAUSE: Final = 300.0
"""Seconds between rounds when nothing has happened for 50 minutes or more."""
_SHARE: Final = 10


def poll_pause(quiet: float, shortest: float = SHORTEST_PAUSE) -> float:
    """Seconds until the next round when nothing has happened for `quiet` seconds."""
    return min(max(quiet / _SHARE, shortest), LONGEST_PAUSE)


class Pace:
    """When the next round is due. All times are in seconds by one clock that never goes back. `shortest` is
    the shortest pause."""

    def __init__(self, now: float, shortest: float = SHORTEST_PAUSE) -> None:
        self._shortest = shortest
        self._active = now
        self._last: float | None = None
        self._hurried = False

    @property
    def due(self) -> float:
        """When the next round should begin: at once in the beginning."""
        if self._last is None:
            return self._active
        quiet = 0.0 if self._hurried else max(0.0, self._last - self._active)
        return self._last + poll_pause(quiet, self._shortest)

    def began(self, now: float) -> None:
        """A round begins."""
        self._last = now
        self._hurried = False

    def active(self, at: float) -> None:
        """A device wrote something at that time."""
        self._active = max(self._active, at)

    def hurry(self) -> None:
        """Let the next round begin as soon as the shortest pause is over."""
        self._hurried = True
