"""What is known about each cloud: its state in words for `status`, and how readily to ask it.

A circuit breaker: a cloud that fails is asked only when the others are too few, and by probes, which come
less and less often. Pure apart from the clock passed in. Not thread-safe: the engine's lock guards it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hybrisfs.dispersal.ranking import Operation

__all__ = ["MAX_OFFENCES", "CloudHealth", "CloudState", "FailureKind", "Offence"]

CloudState: TypeAlias = Literal["ok", "slow", "down", "lying", "full", "auth"]
FailureKind: TypeAlias = Literal["down", "full", "auth"]

MAX_OFFENCES = 64  # objects remembered per cloud; fsck finds the others
_DOWN_AFTER = 3  # failures in a row that may pass; one that will not pass is enough
_SLOW_AFTER = 3  # requests in a row that another cloud had to stand in for
_PROBE_PAUSE = (1.0, 60.0)  # seconds, first and longest
_RECHECK_PAUSE = (5.0, 600.0)
_RECHECKS = 4  # objects looked at again at a time: they may be large


@dataclass(frozen=True, slots=True)
class Offence:
    """An object that a cloud acknowledged and then lost or returned wrong.

    `recheck` gets the object as it is now (at most `limit` bytes) and raises ValueError or IntegrityError
    when it is still wrong.
    """

    reason: str
    limit: int
    recheck: Callable[[bytes], object]


@dataclass(slots=True)
class CloudHealth:
    """One cloud. Times are those of `clock`, in seconds."""

    clock: Callable[[], float]
    _offences: dict[str, Offence] = field(default_factory=dict)  # by object name, the latest last
    _recheck_at: float = 0.0
    _recheck_pause: float = _RECHECK_PAUSE[0]
    _failures: int = 0  # in a row
    _failure: tuple[FailureKind, str] = ("down", "")
    _full: str = ""
    _probe_at: float = 0.0
    _probe_pause: float = _PROBE_PAUSE[0]
    _throttled_until: float = 0.0
    _late: int = 0  # in a row
    _since: float = 0.0
    _shown: CloudState = "ok"

    def __post_init__(self) -> None:
        self._since = self._probe_at = self._throttled_until = self.clock()

    def succeeded(self, operation: Operation) -> None:
        """A request was answered as it should be."""
        self._failures = 0
        self._probe_pause = _PROBE_PAUSE[0]
        if operation == "put":
            self._full = ""
        self._note()

    def in_time(self) -> None:
        """A request was answered before another cloud had to stand in."""
        self._late = 0
        self._note()

    def late(self) -> None:
        """A request took so long that another cloud was asked."""
        self._late += 1
        self._note()

    def throttled(self, seconds: float) -> None:
        """The cloud wants no requests for a while."""
        self._throttled_until = max(self._throttled_until, self.clock() + seconds)
        self._note()

    def failed(self, kind: FailureKind, reason: str, *, lasting: bool = False) -> None:
        """A request failed; `lasting` when it will until a person mends it. Reads may go on when full."""
        if kind == "full":
            self._full = reason
        else:
            self._failures = max(self._failures + 1, _DOWN_AFTER if lasting else 0)
            self._failure = (kind, reason)
        self._probe_at = self.clock() + self._probe_pause
        self._probe_pause = min(self._probe_pause * 2, _PROBE_PAUSE[1])
        self._note()

    def lied(self, name: str, offence: Offence) -> bool:
        """An acknowledged object is missing or is not what was written. Returns whether that is news."""
        known = self._offences.pop(name, None) is not None
        if len(self._offences) < MAX_OFFENCES:
            self._offences[name] = offence
        self._note()
        return not known

    def cleared(self, name: str) -> None:
        """The object was looked at again and is right."""
        if self._offences.pop(name, None) is not None:
            self._recheck_pause = _RECHECK_PAUSE[0]
            self._recheck_at = self.clock()
        self._note()

    def offences(self) -> list[str]:
        """Return the names of the objects that are known to be wrong, the longest known first."""
        return list(self._offences)

    def take_rechecks(self) -> dict[str, Offence]:
        """Return the objects to look at again now, the longest known first; none while it is too early."""
        if not self._offences or self.clock() < self._recheck_at:
            return {}
        self._recheck_at = self.clock() + self._recheck_pause
        self._recheck_pause = min(self._recheck_pause * 2, _RECHECK_PAUSE[1])
        return dict(list(self._offences.items())[:_RECHECKS])

    def probe_due(self) -> bool:
        """Whether it should be found out now if the cloud works again."""
        return bool(self._failures or self._full) and self.clock() >= self._probe_at

    @property
    def full(self) -> bool:
        """Whether the cloud had no room for the last object."""
        return bool(self._full)

    def state(self) -> tuple[CloudState, str]:
        """Return the state and the reason for it in a sentence; the reason is empty when it is ok."""
        kind, failure = self._failure
        if self._failures >= _DOWN_AFTER or (self._failures and kind == "auth"):
            return kind, failure
        if self._offences:
            reason = next(reversed(self._offences.values())).reason
            others = len(self._offences) - 1
            return "lying", f"{reason} (and {others} more)" if others else reason
        if self._full:
            return "full", self._full
        if self._failures:
            return "slow", f"last request failed: {failure}"
        if self.clock() < self._throttled_until:
            return "slow", "asks for fewer requests"
        if self._late >= _SLOW_AFTER:
            return "slow", f"did not answer the last {self._late} requests in its usual time"
        return "ok", ""

    @property
    def since(self) -> float:
        """When the state became what it is."""
        return self._since

    def penalty(self, operation: Operation) -> int:
        """Return 0 when the cloud is as good as any for this operation, more the less it should be asked."""
        state, _ = self.state()
        if state in ("down", "auth"):
            return 3
        if state == "lying" or (state == "full" and operation == "put"):
            return 2
        return 1 if self._failures or self.clock() < self._throttled_until else 0

    def _note(self) -> None:
        state, _ = self.state()
        if state != self._shown:
            self._shown = state
            self._since = self.clock()
