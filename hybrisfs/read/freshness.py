"""Whether a file may be opened while changes of another device may be missing here (Depot 5.3).

A device that is silent for longer than it promised is *suspect*: a device whose changes are withheld looks
like one that is merely off. A volume either only warns of that, or lets programs that open a file to read it
wait, while it asks all clouds again and devices that are in reach speak for themselves. When a device stays
silent, the program gets ETIMEDOUT; it never hangs for good. A program that only writes does not wait, nor
does one that has the file open already.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.errors import failure

__all__ = ["Freshness", "FreshnessLimits", "OtherDevices", "only_writes"]

_STEP: Final = 0.1
_LOOK_EVERY: Final = 2.0


class FreshnessLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    wait_seconds: float = 30.0
    """How long an open waits for a silent device."""


def only_writes(flags: int) -> bool:
    """Whether a program that opens a file with these flags sees nothing of its content."""
    return flags & os.O_ACCMODE == os.O_WRONLY


class _Held(Struct):
    ends: float
    is_gone: Callable[[], bool]
    go_on: Callable[[OSError | None], None]


class OtherDevices(Protocol):
    """What is known of the other devices."""

    def are_suspect(self) -> bool:
        """Whether one of them is suspect now."""

    def look_now(self) -> None:
        """Have all clouds asked for news."""


class Freshness:
    """Holds up what must wait. Its methods may be called from any thread, and return at once."""

    def __init__(self, others: OtherDevices, environment: Environment) -> None:
        self.blocks = False
        """Whether programs wait, or are only warned."""
        self._others = others
        self._monotonic = environment.monotonic
        self._wait = environment.wait
        self.limits = environment.limits.of(FreshnessLimits)
        """They may be others at any moment."""
        self._condition = threading.Condition()
        self._held: list[_Held] = []

    def must_wait(self) -> bool:
        return self.blocks and self._others.are_suspect()

    def hold(self, go_on: Callable[[OSError | None], None], is_gone: Callable[[], bool]) -> None:
        """Call *go_on* from another thread when everything is fresh, or with an error when that takes too
        long. *is_gone* says that no program waits any more."""
        with self._condition:
            first = not self._held
            self._held.append(_Held(self._monotonic() + self.limits.wait_seconds, is_gone, go_on))
            if first:
                threading.Thread(target=self._serve, name="fresh", daemon=True).start()

    def let_go(self) -> None:
        """What is held fails now."""
        with self._condition:
            for one in self._held:
                one.ends = 0.0
            self._condition.notify_all()

    def _serve(self) -> None:
        look_at = 0.0
        while True:
            now = self._monotonic()
            if now >= look_at:
                look_at = now + _LOOK_EVERY
                self._others.look_now()
            fresh = not self.must_wait()
            with self._condition:
                ended = [one for one in self._held if fresh or now >= one.ends or one.is_gone()]
                self._held = [one for one in self._held if one not in ended]
                last = not self._held
            for one in ended:
                one.go_on(None if fresh else failure(errno.ETIMEDOUT))
            if last:
                return
            with self._condition:
                self._wait(self._condition, lambda: any(not one.ends for one in self._held), _STEP)
