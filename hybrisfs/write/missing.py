"""Evidence that a segment named by its author's head is missing from the clouds.

The evidence are devices that reach the clouds and lack the updates for long. Heads are renewed only now and
then, so a vector that lacks an update may be out of date. A second head that lacks it, written after the
first one had lacked it for a while, shows that the device searched in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field

__all__ = ["Known", "MissingEvidence"]


class Known(NamedTuple):
    """The word of a device's head on one branch: the clock of the newest update that the device has, and the
    time of the head, in ns since the epoch by that device's clock."""

    clock: int
    written: int


class _Missing(Struct):
    """An update with that clock has been lacking *since* then. *heads*: by device, the time of the head that
    was there after a while."""

    clock: int
    since: float
    heads: dict[bytes, int] = field(default_factory=dict)


class MissingEvidence:
    """By branch. No thread, no clock."""

    def __init__(self, patience: float) -> None:
        """*patience*: seconds after which a head that still lacks something is remembered."""
        self._patience = patience
        self._noted: dict[bytes, _Missing] = {}

    def forget_others(self, branches: Iterable[bytes]) -> None:
        """Only these branches are asked for from now on."""
        self._noted = {one: self._noted[one] for one in branches if one in self._noted}

    def note(self, branch: bytes, newest: int, known: Mapping[bytes, Known], now: float) -> int | None:
        """The highest clock of the branch that every device that searched in vain has; None if none searched.
        *newest*: the clock of its newest update; *known*: by device; *now*: never goes back."""
        missing = self._noted.get(branch)
        if missing is None or all(one.clock >= missing.clock for one in known.values()):
            missing = self._noted[branch] = _Missing(newest, now)
        if now - missing.since < self._patience:
            return None
        for device, one in known.items():
            missing.heads.setdefault(device, one.written)
        return min(_in_vain(missing, known), default=None)


def _in_vain(missing: _Missing, known: Mapping[bytes, Known]) -> Collection[int]:
    return [
        one.clock
        for device, one in known.items()
        if one.clock < missing.clock and one.written != missing.heads[device]
    ]
