"""Is everything safe? The judgement behind the first sentence of `hybrisfs status` and of the dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

__all__ = ["Level", "Verdict", "judge"]

Level: TypeAlias = Literal["safe", "pending", "held", "short", "degraded", "danger"]
"""safe      everything is on enough clouds, and all of these work
pending   something is on the way to the clouds
held      something waits because transfers are paused or the network is metered
short     something waits because too few clouds work
degraded  everything is on the clouds, and can be read, though not all of these work
danger    more clouds cannot be read than may fail: what is not cached here may be unreadable"""

_UNREADABLE: Final = frozenset({"down", "auth", "lying"})
_UNWRITABLE: Final = frozenset({*_UNREADABLE, "full"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """`unreadable` and `unwritable` are the clouds, as `status` describes them, that do not work for that;
    `needed` is on how many clouds everything is kept, `working` how many take something new."""

    level: Level
    unreadable: Sequence[Mapping[str, Any]]
    unwritable: Sequence[Mapping[str, Any]]
    needed: int
    working: int
    pending: bool


def judge(volume: Mapping[str, Any]) -> Verdict:
    """Judge a volume that can be used by what `status` says of it."""
    clouds = volume["clouds"]
    unreadable = [cloud for cloud in clouds if cloud["state"] in _UNREADABLE]
    unwritable = [cloud for cloud in clouds if cloud["state"] in _UNWRITABLE]
    needed, working = volume["f"] + volume["k"], len(clouds) - len(unwritable)
    pending = bool(volume["pending_files"] or volume["pending_bytes"])
    held = bool(volume.get("transfers") and volume["transfers"]["held"])
    level: Level
    if len(unreadable) > volume["f"]:
        level = "danger"
    elif pending:
        level = "held" if held else "short" if working < needed else "pending"
    else:
        level = "degraded" if unwritable else "safe"
    return Verdict(level, unreadable, unwritable, needed, working, pending)
