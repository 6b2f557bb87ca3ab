"""What the heads of other devices show: do all make the same of the same log, and are clocks right?

A device's heads say what it made of its log, over links and on the clouds. Whose log is the same must have
made the same of it: else one of the two programs, disks or memories is wrong.

Reading all registers takes a while in a large volume, so it is done when things are quiet, and seldom.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from hybrisfs.merge.state_hash import state_hash
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from sync import Head, StateClaim

__all__ = ["Agreement", "AgreementLimits", "clock_doubts"]

log = logging.getLogger(__name__)

_SHARE: Final = 100  # it takes at most one part in so many of the time


class AgreementLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    quiet_seconds: float = 30.0
    """Without a change, before it is worth while."""


class Agreement:
    """The state hash at the history for which it was computed last. Thread-safe."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._quiet = fs.environment.limits.of(AgreementLimits).quiet_seconds
        self._guard = threading.Lock()
        self._history = b""
        self._hash: bytes | None = None
        self._not_before = 0.0
        self._claims: dict[bytes, Head] = {}  # by device: the newest head that said so
        self._disagreeing = frozenset[bytes]()

    @property
    def disagreeing(self) -> frozenset[bytes]:
        """The devices that have made something else of the very log that is here."""
        return self._disagreeing

    def hear(self, head: Head) -> None:
        """Another device says where it stands; called without the volume's lock."""
        if head.state is None:
            return
        with self._fs.state.transaction():
            known = self._claims.get(head.writer)
            if known is not None and known.serial >= head.serial:
                return
            self._claims[head.writer] = head
        self._compare()

    def _compare(self) -> None:
        with self._fs.state.transaction() as tx:
            own = self.claim(tx)
            found = set(self._disagreeing)
            for device, head in self._claims.items():
                if own is not None and head.state is not None and head.state.history == own.history:
                    (found.discard if head.state == own else found.add)(device)
            for device in found - self._disagreeing:
                log.error("machine %s has made another state of the same log", device.hex())
            self._disagreeing = frozenset(found)

    def claim(self, tx: Transaction) -> StateClaim | None:
        """What heads are to say of this device's state, None while it is not known."""
        state = self.current(tx)
        return None if state is None else StateClaim(self._history, state)

    def current(self, tx: Transaction) -> bytes | None:
        """The hash of the state as it is, None while it is not known."""
        return self._hash if tx.updates.history() == self._history else None

    def refresh(self, last_change: float) -> None:
        """Compute it if that is worth while; *last_change* is when the view changed last (monotonic)."""
        now = self._monotonic()
        if now < self._not_before or now - last_change < self._quiet:
            return
        self.compute()
        self._not_before = now + (self._monotonic() - now) * _SHARE

    def compute(self) -> None:
        """Compute it unless it is known. Called without the volume's lock; raises OSError."""
        with self._guard:
            with self._fs.state.transaction() as tx:
                if self.current(tx) is not None:
                    return
            with self._fs.committed(lambda tx: tx.updates.history()) as (history, database):
                computed = state_hash(database)
            with self._fs.state.transaction():
                self._history, self._hash = history, computed
        self._compare()


# -- recognising clocks that are set wrong, by the times that devices state in their heads --------------
# Nothing depends on clocks being right: what happened before what follows from the updates themselves. But
# times of files and ages of versions come from them, so people should know. A head cannot have been written
# in the future: if it says so, its writer's clock is ahead or this one's is behind. The head of a device
# whose clock is behind looks old, as that of a silent device does; there the other device notices that it is
# behind.


_TOLERANCE_NS: Final = 10 * 60 * 10**9
_UNITS: Final = ((365 * 86400, "years"), (86400, "days"), (3600, "hours"), (60, "minutes"))


def clock_doubts(
    heads: Mapping[bytes, Head], own: bytes, now_ns: int, name_of: Callable[[bytes], str]
) -> list[str]:
    """What the newest *heads* of devices tell about clocks, in sentences; *now_ns* is this machine's time,
    *own* its device."""
    doubts: list[str] = []
    for device, head in heads.items():
        ahead = head.time_ns - now_ns
        if ahead <= _TOLERANCE_NS:
            continue
        if device == own:
            doubts.append(f"this machine's clock has gone back by {_described(ahead)}: is it set right?")
        else:
            doubts.append(
                f"the clock of {name_of(device)} is {_described(ahead)} ahead of this machine's: "
                "one of the two is set wrong"
            )
    return doubts


def _described(nanoseconds: int) -> str:
    seconds = nanoseconds // 10**9
    for size, name in _UNITS:
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {name}"
    return f"{seconds} seconds"
