"""The brake on mass deletion: a person that removes much of one side within a while has to say so.

What it comes of may be a slip, a sick program, or a disk that shows nothing. Pure, but for what it remembers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from hybrisfs.mirror.model import Side
from hybrisfs.mirror.plan import Action, Remove

__all__ = ["Brake", "removals"]

_WINDOW: Final = 600.0  # seconds: removing bit by bit counts together
_FEW: Final = 50  # names; fewer removals are not held up, unless nothing is left
_SOME: Final = 10  # names; removing the last of fewer is not held up


def removals(steps: Iterable[Action]) -> dict[Side, list[bytes]]:
    """What would be removed from each side, by path."""
    found: dict[Side, list[bytes]] = {side: [] for side in Side}
    for step in steps:
        if isinstance(step, Remove):
            found[step.to].append(step.path)
    return found


class Brake:
    """*share*: from which part of all names on removing waits; 1 and more: only when nothing would be
    left."""

    def __init__(self, share: float) -> None:
        self.share = share
        self._recent: deque[tuple[float, Side, int]] = deque()

    def holds(self, side: Side, count: int, names: int, now: float) -> bool:
        """Whether removing *count* of *names* from a side has to wait. *now*: seconds, monotonic."""
        while self._recent and now - self._recent[0][0] > _WINDOW:
            self._recent.popleft()
        before = sum(number for _, where, number in self._recent if where is side)
        removed, of = before + count, before + names
        return count > 0 and (
            (removed > _FEW and removed > self.share * of) or (removed >= of and of >= _SOME)
        )

    def note(self, side: Side, count: int, now: float) -> None:
        """So much was removed."""
        if count:
            self._recent.append((now, side, count))

    def release(self) -> None:
        """A person has said yes: what was removed before does not count any more."""
        self._recent.clear()
