"""What is remembered of one cloud: the last hour, the last day, this month and the one before."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from hybrisfs.api.figures import CloudSeries
from hybrisfs.dispersal.counting import Use
from hybrisfs.dispersal.traffic import Counters
from hybrisfs.history.ring import COLUMNS, Ring, Row

__all__ = ["SPANS", "STATES", "CloudHistory", "Month"]

SPANS: Final = {"hour": (10, 360), "day": (300, 288)}
"""Length of an interval in seconds, and how many there are."""

STATES: Final = ("ok", "slow", "full", "lying", "auth", "down")
"""From good to bad."""

_MOST: Final = 1e18  # of anything that was counted
_MAX_NAME: Final = 256


@dataclass(frozen=True, slots=True)
class Month:
    """What this device did at a cloud in a calendar month of its own time zone, "2026-11"."""

    name: str
    use: Use = Use()  # noqa: RUF009 - it is frozen


class CloudHistory:
    """One cloud. `name` is what it was called when something was last counted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.months: list[Month] = []  # at most two, the latest last
        self._rings = {span: Ring(*shape) for span, shape in SPANS.items()}
        self._last: Counters | None = None

    def count(self, now: float, counters: Counters, state: str) -> None:
        """Count what has come to `counters` since the last time; they may have begun again at 0."""
        last = self._last if self._last is not None else Counters()
        if any(getattr(counters, one.name) < getattr(last, one.name) for one in fields(Counters)):
            last = Counters()
        self._last = counters
        new = {one.name: getattr(counters, one.name) - getattr(last, one.name) for one in fields(Counters)}
        row = Row(
            **{name: float(new[name]) for name in Row._fields if name in new},
            state=float(STATES.index(state)) if state in STATES else 0.0,
        )
        for ring in self._rings.values():
            ring.add(now, row)
        self._count_month(now, Use(**{one.name: new[one.name] for one in fields(Use)}))

    def _count_month(self, now: float, use: Use) -> None:
        name = time.strftime("%Y-%m", time.localtime(now))
        if not self.months or self.months[-1].name != name:
            self.months = [*self.months[-1:], Month(name)]
        before = self.months[-1].use
        sums = {one.name: getattr(before, one.name) + getattr(use, one.name) for one in fields(Use)}
        self.months[-1] = Month(name, Use(**sums))

    def series(self, span: str, now: float, number: int) -> CloudSeries:
        """What plots show of the cloud with this number, oldest first."""
        ring = self._rings[span]
        rows = list(ring.rows(now))
        return CloudSeries(
            number=number,
            name=self.name,
            up=[None if row is None else round(row.up / ring.step) for row in rows],
            down=[None if row is None else round(row.down / ring.step) for row in rows],
            read=[_mean(row.read_seconds, row.reads) if row else None for row in rows],
            write=[_mean(row.write_seconds, row.writes) if row else None for row in rows],
            failed=[None if row is None else row.failed for row in rows],
            state=[None if row is None else row.state for row in rows],
        )

    # -- on the disk -----------------------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """For the file: see `volume.HealthRecord`."""
        return {
            "name": self.name,
            "months": [{"name": one.name, **asdict(one.use)} for one in self.months],
            "rings": {
                span: [[number, *row] for number, row in ring.known()] for span, ring in self._rings.items()
            },
        }

    @staticmethod
    def from_record(record: object) -> CloudHistory:
        """Raises ValueError for anything that `record` would not return."""
        if not isinstance(record, dict):
            raise ValueError("no record of a cloud")
        name, months, rings = record.get("name"), record.get("months"), record.get("rings")
        if not isinstance(name, str) or len(name) > _MAX_NAME:
            raise ValueError("a cloud without a name")
        if not isinstance(months, list) or len(months) > 2 or not isinstance(rings, dict):
            raise ValueError(f"malformed record of the cloud {name!r}")
        history = CloudHistory(name)
        history.months = [_month(one) for one in months]
        for span, ring in history._rings.items():
            rows = rings.get(span)
            if not isinstance(rows, list) or len(rows) > ring.length:
                raise ValueError(f"malformed {span} of the cloud {name!r}")
            for row in rows:
                ring.put(*_row(row))
        return history


def _mean(total: float, count: float) -> float | None:
    return round(total / count, 4) if count else None


def _row(values: object) -> tuple[int, Row]:
    if not isinstance(values, list) or len(values) != COLUMNS + 1:
        raise ValueError("malformed row")
    number = values[0]
    if not isinstance(number, int) or not 0 <= number < _MOST:
        raise ValueError("malformed number of a row")
    row = Row(*(_figure(one) for one in values[1:]))
    if row.state >= len(STATES):
        raise ValueError("unknown state")
    return number, row


def _figure(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a figure")
    if not 0 <= value <= _MOST:
        raise ValueError("figure out of bounds")
    return float(value)


def _month(record: object) -> Month:
    if not isinstance(record, dict):
        raise ValueError("no record of a month")
    return Month(_month_name(record.get("name")), Use(**_counts(record)))


def _month_name(name: object) -> str:
    if not isinstance(name, str) or len(name) != len("2026-11"):
        raise ValueError("malformed name of a month")
    time.strptime(name, "%Y-%m")
    return name


def _counts(record: Mapping[str, object]) -> dict[str, int]:
    return {one.name: int(_figure(record.get(one.name))) for one in fields(Use)}
