"""Recognising clocks that are set wrong, by the times that devices state in their heads.

Nothing depends on clocks being right: what happened before what follows from the updates themselves. But
times of files and ages of versions come from them, so people should know. A head cannot have been written in
the future: if it says so, its writer's clock is ahead or this one's is behind. The head of a device whose
clock is behind looks old, as that of a silent device does; there the other device notices that it is behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sync import Head

__all__ = ["clock_doubts"]

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
