"""Putting an object back onto a cloud that has lost or altered it, or onto another one in its stead."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from hybrisfs.dispersal.finding import Finding
from hybrisfs.dispersal.upkeep import Upkeep

__all__ = ["Repair", "candidates", "restore"]


@dataclass(frozen=True, slots=True)
class Repair:
    """An object that was wrong on a cloud: where it is now, or why it could not be repaired."""

    cloud: int
    finding: Finding
    now_at: int | None
    failure: str = ""


def candidates(
    upkeep: Upkeep, cloud: int, holders: Container[int], size: int, *, writable: Container[int], move: bool
) -> list[int]:
    """The clouds that may take an object of *cloud*: itself first, others only with *move*.

    *holders* have a part of the same thing already; only *writable* clouds are known to be ours.
    """
    found = [cloud] if upkeep.takes_objects(cloud) and cloud in writable else []
    if move:
        found += [one for one in upkeep.order(size) if one not in holders and one in writable]
    return found


def restore(
    upkeep: Upkeep,
    name: str,
    data: bytes,
    targets: Sequence[int],
    check: Callable[[int], Finding | None],
) -> int | str:
    """Put an object on the first of *targets* that takes it and then gives it back; which, or why none."""
    reason = "no cloud can take it now"
    for target in targets:
        refusal = upkeep.put(target, name, data)
        if refusal is None:
            found = check(target)
            if found is None:
                return target
            refusal = found.what
        reason = refusal
    return reason
