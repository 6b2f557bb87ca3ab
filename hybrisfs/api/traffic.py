"""What moves between a device and the clouds: figures, limits and pauses."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from hybrisfs.api.request import Record, Request, Seconds, Text

__all__ = [
    "METRICS_TYPE",
    "CloudSeries",
    "CloudTraffic",
    "Direction",
    "HistoryRequest",
    "LimitRequest",
    "Metrics",
    "MetricsRequest",
    "PauseRequest",
    "ResumeRequest",
    "Series",
    "Traffic",
    "TrafficRequest",
    "Transfer",
    "Transfers",
    "VolumeSeries",
    "VolumeTransfers",
]


class Transfer(Record):
    """A call to a cloud that is under way."""

    operation: str
    """put or get."""
    size: int
    """How many bytes it is about."""
    moved: int
    """How many of these have moved."""
    seconds: float
    """For how long it has run."""


class CloudTraffic(Record):
    """The traffic between this device and a cloud."""

    name: str
    state: str
    """As in `CloudStatus`."""
    up: int
    """Bytes that were sent since the volume was opened."""
    down: int
    """Bytes that were received since."""
    transfers: list[Transfer]


class Traffic(Record):
    """The traffic with all clouds."""

    name: str
    """Of the volume."""
    now: float
    """In seconds, of a clock that only goes on: rates come of two answers."""
    clouds: list[CloudTraffic]


class TrafficRequest(Request[Traffic]):
    """Tell the traffic."""

    command: ClassVar = "traffic"

    name: Text | None = None


class CloudSeries(Record):
    """The plots of a cloud: one number for each interval, None where nothing is known."""

    number: int
    name: str
    up: list[int | None]
    """Bytes/s."""
    down: list[int | None]
    """Bytes/s."""
    read: list[float | None]
    """Seconds that a small request took."""
    write: list[float | None]
    """Seconds that a small request took."""
    failed: list[int | float | None]
    """Requests."""
    state: list[int | float | None]
    """An index into `hybrisfs.history.STATES`."""


class Series(Record):
    """The plots of all clouds."""

    step: int
    """Seconds of an interval."""
    end: float
    """Of the last interval, in seconds since the epoch."""
    clouds: list[CloudSeries]


class VolumeSeries(Series):
    """The same of a volume."""

    name: str
    span: str
    """hour or day."""


class HistoryRequest(Request[VolumeSeries], kw_only=True):
    """How the clouds did."""

    command: ClassVar = "history"

    name: Text | None = None
    span: Text
    """The last hour or day."""


METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of `Metrics.text`."""


class Metrics(Record):
    """Figures of all volumes."""

    text: str
    """See `hybrisfs.exposition`."""


class MetricsRequest(Request[Metrics]):
    """Figures for a monitoring system."""

    command: ClassVar = "metrics"


# -- limits and pauses of the transfers between a device and the clouds ---------------------------------


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
