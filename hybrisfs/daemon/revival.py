"""When a daemon that died is started again, and when it is given up."""

from __future__ import annotations

from typing import Final

__all__ = ["Revival"]

_QUICK: Final = 60.0  # seconds; who lived longer than that had started well
_DELAYS: Final = (0.0, 1.0, 2.0, 5.0, 10.0)  # seconds, after the first, second ... quick death in a row


class Revival:
    """Counts quick deaths in a row. Knows no clock."""

    def __init__(self) -> None:
        self._quick_deaths = 0

    @property
    def quick_deaths(self) -> int:
        """How many there have been in a row."""
        return self._quick_deaths

    def delay_after(self, lived: float) -> float | None:
        """The daemon has died, *lived* seconds after its start: the seconds to wait before the next start.

        None when there have been too many quick deaths: the next would die as well.
        """
        self._quick_deaths = self._quick_deaths + 1 if lived < _QUICK else 1
        return _DELAYS[self._quick_deaths - 1] if self._quick_deaths <= len(_DELAYS) else None
