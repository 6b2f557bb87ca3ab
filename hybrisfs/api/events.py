"""Events of volumes."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from hybrisfs.api.request import LongRequest, Record, Seconds, Text, Waiting

__all__ = ["Events", "EventsRequest", "VolumeEvent"]


class VolumeEvent(Record):
    """Trouble that began or changed, trouble that is over, or news."""

    volume: str
    number: int
    """Events of a volume are numbered."""
    time: float
    """In seconds since the epoch."""
    kind: str
    """trouble, over or news."""
    topic: str
    """Its topic: one topic has one trouble at a time."""
    text: str


class Events(Record):
    """Events of one or all volumes, by time."""

    events: list[VolumeEvent]
    after: dict[str, int]
    """The number of the last one of each volume, for the next request."""


class EventsRequest(LongRequest[Events, Waiting]):
    """List events."""

    command: ClassVar = "events"

    name: Text | None = None
    """To all volumes when it is None."""
    after: Annotated[dict[str, int], Meta(description="numbers by volume")] | None = None
    """Only events with higher numbers; None: the last ones."""
    limit: int | None = None
    """How many."""
    wait: Seconds | None = None
    """When there is none yet, wait so long for one."""
