"""When a daemon that died is started again: always, but later and later while it dies quickly."""

from __future__ import annotations

from typing import Final

__all__ = ["Revival"]

_QUICK: Final = 60.0  # seconds; a daemon that lived longer than that had started well
# Seconds, after the first, second ... quick death in a row; the last for all that follow.
_DELAYS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Revival:
    """Counts quick deaths in a row. Knows no clock."""

    def __init__(self, quick_deaths: int = 0) -> None:
        self._quick_deaths = quick_deaths

    @property
    def quick_deaths(self) -> int:
        """How many there have been in a row."""
        return self._quick_deaths

    def delay_after(self, lived: float) -> float:
        """The daemon has died, *lived* seconds after its start: the seconds to wait before the next start."""
        self._quick_deaths = self._quick_deaths + 1 if lived < _QUICK else 1
        return _DELAYS[min(self._quick_deaths, len(_DELAYS)) - 1]
