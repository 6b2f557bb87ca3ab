"""Limits and pauses of the transfers between a device and the clouds."""

from __future__ import annotations

from typing import ClassVar, Literal

from hybrisfs.api.request import Record, Request, Seconds, Text

__all__ = ["Direction", "LimitRequest", "PauseRequest", "ResumeRequest", "Transfers", "VolumeTransfers"]


class Direction(Record):
    """How much may move one way."""

    timetable: str
    """As people write it: see `hybrisfs limit --help`."""
    rate: int | None
    """The limit now, in bytes/s; None when there is none."""
    changes_at: float | None
    """Until when that holds, in seconds since the epoch; None for ever."""
    then: int | None
    """The limit after that, in bytes/s; None when there is none."""


class Transfers(Record):
    """The limits now, and the time until they change."""

    up: Direction
    down: Direction
    on_metered: str
    """The reaction to a metered network: pause or ignore."""
    held: Literal["paused", "metered"] | None
    """The reason why nothing moves but content that programs read; None when there is none."""
    paused_until: float | None
    """In seconds since the epoch; None when nothing is paused, or until it is resumed."""


class VolumeTransfers(Transfers):
    """The same of a volume."""

    name: str


class LimitRequest(Request[VolumeTransfers]):
    """Change the given limits, and tell all."""

    command: ClassVar = "limit"

    name: Text | None = None
    up: Text | None = None
    """A timetable."""
    down: Text | None = None
    """A timetable."""
    on_metered: Text | None = None
    """pause or ignore."""


class PauseRequest(Request[VolumeTransfers]):
    """Let nothing move but content that programs read."""

    command: ClassVar = "pause"

    name: Text | None = None
    seconds: Seconds | None = None
    """Resume after that; None: not by itself."""


class ResumeRequest(Request[VolumeTransfers]):
    """End a pause."""

    command: ClassVar = "resume"

    name: Text | None = None
