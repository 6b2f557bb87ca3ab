"""The bandwidth of one volume, up and down, shared by all calls to its clouds."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from hybrisfs.dispersal.bucket import TokenBucket, Turn
from hybrisfs.environment import Environment

__all__ = ["StandingClock", "Throttle"]

_URGENT: Final = 64 << 10  # bytes; the beginning of each transfer, which is all of a small one


class StandingClock:
    """A clock in seconds that stands still while something is held back. Thread-safe.

    Calls and operations are timed by one of these, so that a cloud whose transfers are held back to keep
    within the bandwidth does not count as slow.
    """

    def __init__(self, environment: Environment) -> None:
        self._clock = environment.monotonic
        self._lock = threading.Lock()
        self._holds = 0
        self._since = 0.0
        self._lost = 0.0

    def __call__(self) -> float:
        """Return the time."""
        with self._lock:
            return (self._since if self._holds else self._clock()) - self._lost

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """Within the block it stands still."""
        with self._lock:
            if not self._holds:
                self._since = self._clock()
            self._holds += 1
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1
                if not self._holds:
                    self._lost += self._clock() - self._since


class Throttle:
    """Limits what moves to and from all clouds of one volume together. Thread-safe."""

    def __init__(self, environment: Environment) -> None:
        self._up = _Line(environment)
        self._down = _Line(environment)

    def set_rates(self, up: int | None, down: int | None) -> None:
        """From now on so many bytes per second may move each way; None is no limit."""
        self._up.set_rate(up)
        self._down.set_rate(down)

    def pacer(self, clocks: Sequence[StandingClock]) -> _CallPacer:
        """Return the `backends.pacing.Pacer` of one call; `clocks` stand still while it is held back."""
        return _CallPacer(self._up, self._down, clocks)

    def close(self) -> None:
        """Hold nothing back any more."""
        self._up.close()
        self._down.close()


class _CallPacer:
    def __init__(self, up: _Line, down: _Line, clocks: Sequence[StandingClock]) -> None:
        self._up = up
        self._down = down
        self._clocks = clocks
        self._moved = 0

    @property
    def limited(self) -> bool:
        return self._up.limited or self._down.limited

    def sending(self, count: int) -> float:
        return self._take(self._up, count)

    def received(self, count: int) -> float:
        return self._take(self._down, count)

    def _take(self, line: _Line, count: int) -> float:
        if not line.limited:
            return 0.0
        self._moved += count
        return line.take(Turn(count, urgent=self._moved <= _URGENT), self._clocks)


class _Line:
    """One direction."""

    def __init__(self, environment: Environment) -> None:
        self._clock = environment.monotonic
        self._wait = environment.wait
        self._changed = threading.Condition()
        self._bucket = TokenBucket()
        self._closed = False

    @property
    def limited(self) -> bool:
        return self._bucket.rate is not None

    def set_rate(self, rate: int | None) -> None:
        with self._changed:
            self._bucket.set_rate(None if self._closed else rate, self._clock())
            self._bucket.grant(self._clock())
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
        self.set_rate(None)

    def _may_go(self, turn: Turn, rate: int | None) -> bool:
        """Whether it is the turn, or it comes at another moment than at this rate."""
        return turn.granted or self._bucket.rate != rate

    def take(self, turn: Turn, clocks: Sequence[StandingClock]) -> float:
        """Wait for the turn; return for how many seconds."""
        began = self._clock()
        with contextlib.ExitStack() as held, self._changed:
            self._bucket.join(turn)
            if self._bucket.grant(began):
                self._changed.notify_all()
            if turn.granted:
                return 0.0
            for clock in clocks:
                held.enter_context(clock.standing())
            while not turn.granted:
                may_go = partial(self._may_go, turn, self._bucket.rate)
                self._wait(self._changed, may_go, self._bucket.due())
                if self._bucket.grant(self._clock()):
                    self._changed.notify_all()
        return self._clock() - began
