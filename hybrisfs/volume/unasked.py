"""Texts that were changed in different places are merged without being asked (ADR 041).

A stage looks for conflicts. Versions of a text that have stayed as they are for a while, and that no program
has open, are compared and merged as by `hybrisfs conflicts merge` (`hybrisfs.volume.merging`). Where the
changes meet, where no version before is known, and where not all are text, the conflict waits for a person.

The devices take turns in an order that follows from the versions, so usually one device merges. When two do,
both find the same, as the result follows from the versions and the one before, and equal content is no
conflict. If they know different versions before and find different texts, these are a conflict without a
version before, which nobody merges unasked. So it always comes to rest.

All versions are signed before they are merged, so each stays as an earlier one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.shown import shown
from hybrisfs.stages import Pause
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.volume.merging import Merging, Waiting
from sync.codec import digest

__all__ = ["LARGEST_UNASKED", "Merged", "Unasked", "UnaskedLimits"]

log = logging.getLogger(__name__)

LARGEST_UNASKED: Final = 1 << 20
"""Bytes of a version that is merged unasked."""
_CONTEXT: Final = "hybrisfs.volume 2026-11 turns of devices"
_MOST_TOLD: Final = 100
_PAUSES: Final = 9  # times as long as a look took: a member may make many conflicts


class UnaskedLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`; all in seconds."""

    look: float = 10.0
    """Between two looks."""
    rest: float = 30.0
    """For which versions stay as they are before they are merged."""
    turn: float = 30.0
    """For which each device waits after the one whose turn was before."""


class Merged(NamedTuple):
    """A file whose versions were merged here, and when, in seconds since the epoch."""

    path: str
    at: float


class _Rest(Struct):
    """Since when versions are as they are; *done*: nothing is to be tried any more."""

    since: float
    done: bool = False


class Unasked:
    """A stage. It takes the volume's lock itself, and waits for clouds without it."""

    def __init__(self, fs: FileSystem, merging: Merging) -> None:
        self._fs = fs
        self._merging = merging
        self._monotonic = fs.environment.monotonic
        self._time = fs.environment.time
        self.limits = fs.environment.limits.of(UnaskedLimits)
        """They may be others at any moment."""
        self._rests: dict[tuple[str, str], _Rest] = {}  # by path and mark
        self._merged: deque[Merged] = deque(maxlen=_MOST_TOLD)

    @property
    def merged(self) -> Sequence[Merged]:
        """The files that were merged here since the start; the newest of them, if they are many."""
        return tuple(self._merged)

    def step(self) -> Pause:
        """Merge what has been at rest for long enough and is this device's turn."""
        began = self._monotonic()
        found = [] if self._fs.read_only else list(self._merging.waiting())
        now, rests = self._monotonic(), self._rests
        self._rests = {(one.path, one.mark): rests.get((one.path, one.mark), _Rest(now)) for one in found}
        for one in found:
            rest = self._rests[one.path, one.mark]
            if one.is_in_use:
                rest.since = now
            elif not rest.done and one.largest <= LARGEST_UNASKED and now >= self._due(one, rest):
                self._try(one, rest)
        least = _PAUSES * (now - began)
        return Pause(max(self.limits.look, least), least)

    def _due(self, one: Waiting, rest: _Rest) -> float:
        with self._fs.state.transaction() as tx:
            return rest.since + self.limits.rest + self.limits.turn * _turn(tx, one.mark)

    def _try(self, one: Waiting, rest: _Rest) -> None:
        rest.done = True
        try:
            is_merged = self._merging.merge_unasked(one)
        except UsageError:
            return  # it is settled, or not for a program
        except (ChunkUnavailable, HybrisError, OSError) as error:
            log.info("%s is not merged yet: %s", shown(one.path), error)
            rest.done, rest.since = False, self._monotonic()
            return
        if is_merged:
            log.info("merged the versions of %s", shown(one.path))
            self._merged.append(Merged(one.path, self._time()))


def _turn(tx: Transaction, mark: str) -> int:
    """How many devices may merge these versions before this one."""
    own = _lot(tx.updates.device, mark)
    return sum(_lot(device, mark) < own for device in tx.members.devices())


def _lot(device: bytes, mark: str) -> bytes:
    return digest(_CONTEXT, device + mark.encode(), 16)
