"""Is everything safe? The judgement behind the first sentence of `hybrisfs status` and of the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from hybrisfs.api.clouds import CloudStatus
from hybrisfs.api.status import MachinesOnly, VolumeStatus

__all__ = ["Level", "Verdict", "judge", "machines_only"]

Level: TypeAlias = Literal["safe", "pending", "held", "short", "degraded", "danger", "removed"]
"""safe      everything is on enough clouds, and all of these work
pending   something is on the way to the clouds, or on machines of the person's only
held      something waits because transfers are paused or the network is metered
short     something waits because too few clouds work
degraded  everything is on the clouds, and can be read, though not all of these work
danger    more clouds cannot be read than may fail: what is not cached here may be unreadable
removed   this device belongs to the volume no longer, so that nobody gets what changes here"""

_UNREADABLE: Final = frozenset({"down", "refusing", "lying"})
_UNWRITABLE: Final = frozenset({*_UNREADABLE, "full"})


class Verdict(Struct, frozen=True):
    """`unreadable` and `unwritable` are the clouds, as `status` describes them, that do not work for that;
    `needed` is on how many clouds everything is kept, `working` how many take something new."""

    level: Level
    unreadable: Sequence[CloudStatus]
    unwritable: Sequence[CloudStatus]
    needed: int
    working: int
    pending: bool
    """Whether the clouds lack something that is shown here, by whichever device it was written."""


def machines_only(found: MachinesOnly | None) -> MachinesOnly | None:
    """What other devices wrote and no cloud is known to have, as `status` tells it; None when that is
    nothing."""
    return found if found is not None and (found.files or found.devices) else None


def judge(volume: VolumeStatus) -> Verdict:
    """Judge a volume by what `status` says of it."""
    clouds = volume.clouds
    unreadable = [cloud for cloud in clouds if cloud.state in _UNREADABLE]
    unwritable = [cloud for cloud in clouds if cloud.state in _UNWRITABLE]
    needed, working = volume.f + volume.k, len(clouds) - len(unwritable)
    pending = bool(volume.pending_files or volume.pending_bytes or machines_only(volume.machines_only))
    held = volume.transfers.held is not None
    level: Level
    if volume.removed:
        level = "removed"
    elif len(unreadable) > volume.f:
        level = "danger"
    elif pending:
        level = "held" if held else "short" if working < needed else "pending"
    else:
        level = "degraded" if unwritable else "safe"
    return Verdict(level, unreadable, unwritable, needed, working, pending)
