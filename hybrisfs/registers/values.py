"""The values of registers, each with the update that wrote it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Stamp", "Value"]


class Stamp(NamedTuple):
    """The update that wrote a value: its clock and branch; the greatest wins. The branch is one of a
    device's log."""

    clock: int
    branch: bytes


class Value(NamedTuple):
    """One of the latest values of a register; None is a tombstone."""

    stamp: Stamp
    value: bytes | None
