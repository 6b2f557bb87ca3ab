"""What may move between a device and the clouds, as the control socket describes it."""

from __future__ import annotations

from typing import ClassVar, Literal

from hybrisfs.api.request import Record, Request, Seconds, Text

__all__ = ["Direction", "LimitRequest", "PauseRequest", "ResumeRequest", "Transfers", "VolumeTransfers"]


class Direction(Record):
    """How much may move one way."""

    timetable: str
    """As people write it: see `hybrisfs limit --help`."""
    rate: int | None
    """What may move now, in bytes/s; None when there is no limit."""
    changes_at: float | None
    """Until when that holds, in seconds since the epoch; None for ever."""
    then: int | None
    """What may move after that, in bytes/s; None when there is no limit."""


class Transfers(Record):
    """What may move now, and until when."""

    up: Direction
    down: Direction
    on_metered: str
    """What is done on a metered network: pause or ignore."""
    held: Literal["paused", "metered"] | None
    """Why nothing moves but what programs read."""
    paused_until: float | None
    """In seconds since the epoch; None when nothing is paused, or until it is resumed."""


class VolumeTransfers(Transfers):
    """The same of a volume."""

    name: str


class LimitRequest(Request[VolumeTransfers]):
    """Change what is given; tell what holds then."""

    command: ClassVar = "limit"

    name: Text | None = None
    up: Text | None = None
    """A timetable."""
    down: Text | None = None
    """A timetable."""
    on_metered: Text | None = None
    """pause or ignore."""


class PauseRequest(Request[VolumeTransfers]):
    """Let nothing move but what programs read."""

    command: ClassVar = "pause"

    name: Text | None = None
    seconds: Seconds | None = None
    """Resume after that; None: not by itself."""


class ResumeRequest(Request[VolumeTransfers]):
    """End a pause."""

    command: ClassVar = "resume"

    name: Text | None = None
