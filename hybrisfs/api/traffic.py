"""What moves between a device and the clouds: figures, costs, limits and pauses."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from hybrisfs.api.request import Record, Request, Seconds, Text

__all__ = [
    "METRICS_TYPE",
    "Bill",
    "CloudCost",
    "CloudSeries",
    "CloudTraffic",
    "Cost",
    "CostRequest",
    "Direction",
    "HistoryRequest",
    "LimitRequest",
    "Metrics",
    "MetricsRequest",
    "Month",
    "PauseRequest",
    "ResumeRequest",
    "Series",
    "Traffic",
    "TrafficRequest",
    "Transfer",
    "Transfers",
    "Use",
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


class Use(Record):
    """The use of a cloud: requests as they are billed, and bytes."""

    put: int
    get: int
    list: int
    delete: int
    up: int
    """Bytes sent."""
    down: int
    """Bytes received."""


class Bill(Record):
    """The cost of a month, in the currency of the answer."""

    put: float
    get: float
    """With the cost of the bytes that leave the cloud."""
    storage: float
    total: float


class Month(Record):
    """The use of a cloud in a month."""

    month: str
    """2026-11"""
    use: Use


class CloudCost(Record):
    """The cost of a cloud: storage is that of the whole volume for a whole month, as it is now; requests and
    bytes are those of this device so far."""

    name: str
    provider: str | None
    """None when nobody is paid."""
    stored: int
    """Bytes."""
    use: Use
    bill: Bill | None
    before: list[Month]


class Cost(Record):
    """The cost of all clouds of a volume."""

    name: str
    """Of the volume."""
    month: str
    """2026-11"""
    currency: str
    looked_up: str
    """When the prices were looked up."""
    clouds: list[CloudCost]
    total: float
    archived: int = 0
    """Bytes that the archive takes on all clouds together."""
    saved: float = 0.0
    """What these would cost more in a month if they were not archived, at the mean price of the clouds."""


class CostRequest(Request[Cost]):
    """Tell the costs of this month."""

    command: ClassVar = "cost"

    name: Text | None = None


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
