"""What somebody who reaches the clouds lacks for long, though its author names it: then it is not there.

Heads are renewed now and then only, so a vector that lacks something may be of before. It takes a second
head, written after the first one had lacked it for a while, to tell that it was looked for in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Known", "Lacks"]


class Known(NamedTuple):
    """What the head of a device says of one branch: the clock of the newest update that the device has, and
    when the head was written, ns since the epoch by that device's clock."""

    clock: int
    written: int


@dataclass(slots=True)
class _Lack:
    """Somebody lacks the update with that clock, *since* then. *heads*: when those were written, by device,
    that were there after a while."""

    clock: int
    since: float
    heads: dict[bytes, int] = field(default_factory=dict)


class Lacks:
    """By branch. No thread, no clock."""

    def __init__(self, patience: float) -> None:
        """*patience*: seconds after which a head that still lacks something is remembered."""
        self._patience = patience
        self._noted: dict[bytes, _Lack] = {}

    def forget_others(self, branches: Iterable[bytes]) -> None:
        """Only these branches are asked for from now on."""
        self._noted = {one: self._noted[one] for one in branches if one in self._noted}

    def note(self, branch: bytes, newest: int, known: Mapping[bytes, Known], now: float) -> int | None:
        """Up to which clock all of those have the branch who have looked for the rest in vain; None when
        nobody has. *newest*: the clock of its newest update; *known*: by device; *now*: never goes back."""
        lack = self._noted.get(branch)
        if lack is None or all(one.clock >= lack.clock for one in known.values()):
            lack = self._noted[branch] = _Lack(newest, now)
        if now - lack.since < self._patience:
            return None
        for device, one in known.items():
            lack.heads.setdefault(device, one.written)
        return min(_in_vain(lack, known), default=None)


def _in_vain(lack: _Lack, known: Mapping[bytes, Known]) -> Collection[int]:
    return [
        one.clock
        for device, one in known.items()
        if one.clock < lack.clock and one.written != lack.heads[device]
    ]
