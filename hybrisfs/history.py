"""What is remembered of all clouds of a volume, and the file that keeps it over a restart.

STATE/volumes/NAME/history.json, replaced atomically: {"version": 1, "clouds": {NUMBER: {"name": ...,
"months": [{"name": "2026-11", "put": ..., "get": ..., "list": ..., "delete": ..., "up": ..., "down": ...}],
"rings": {"hour": [[NUMBER OF THE INTERVAL, the columns of `ring.Row`...]], "day": [...]}}}}.
Nothing depends on it: one that is damaged is begun again.
"""

from __future__ import annotations

import json
import math
import time
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from hybrisfs.api.traffic import CloudSeries
from hybrisfs.dispersal.counting import Use
from hybrisfs.dispersal.traffic import Counters
from hybrisfs.environment import Environment, replace_file

__all__ = [
    "FILE",
    "SPANS",
    "STATES",
    "CloudHistory",
    "HealthRecord",
    "Month",
    "Ring",
    "Row",
]

FILE: Final = "history.json"
_VERSION: Final = 1
_MAX_FILE: Final = 64 << 20  # bytes
_MAX_CLOUDS: Final = 256


class HealthRecord:
    """One volume. Not thread-safe."""

    def __init__(self) -> None:
        self.clouds: dict[int, CloudHistory] = {}

    def count(self, now: float, number: int, name: str, counters: Counters, state: str) -> None:
        """See `CloudHistory.count`."""
        history = self.clouds.setdefault(number, CloudHistory(name))
        history.name = name
        history.count(now, counters, state)

    def keep_only(self, numbers: Mapping[int, object]) -> None:
        """Forget the clouds that the volume does not have any more."""
        for number in [one for one in self.clouds if one not in numbers]:
            del self.clouds[number]

    def save(self, path: Path, environment: Environment) -> None:
        """Raises OSError."""
        clouds = {str(number): one.record() for number, one in self.clouds.items()}
        replace_file(path, json.dumps({"version": _VERSION, "clouds": clouds}).encode("ascii"), environment)

    @staticmethod
    def load(path: Path) -> HealthRecord:
        """An empty one when there is no file. Raises OSError, and ValueError for a malformed one."""
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_FILE + 1)
        except FileNotFoundError:
            return HealthRecord()
        if len(data) > _MAX_FILE:
            raise ValueError("it is too long")
        try:
            record = json.loads(data)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if not isinstance(record, dict) or record.get("version") != _VERSION:
            raise ValueError("it is not a history, or of another version")
        clouds = record.get("clouds")
        if not isinstance(clouds, dict) or len(clouds) > _MAX_CLOUDS:
            raise ValueError("it names no clouds, or too many")
        history = HealthRecord()
        history.clouds = {int(number): CloudHistory.from_record(one) for number, one in clouds.items()}
        return history


# -- what is remembered of one cloud: the last hour, the last day, this month and the one before --------


SPANS: Final = {"hour": (10, 360), "day": (300, 288)}
"""Length of an interval in seconds, and how many there are."""

STATES: Final = ("ok", "slow", "full", "lying", "refusing", "down")
"""From good to bad."""

_MOST: Final = 1e18  # of anything that was counted
_MAX_NAME: Final = 256


class Month(Struct, frozen=True):
    """What this device did at a cloud in a calendar month of its own time zone, "2026-11"."""

    name: str
    use: Use = Use()


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
        if any(getattr(counters, name) < getattr(last, name) for name in Counters.__struct_fields__):
            last = Counters()
        self._last = counters
        new = {name: getattr(counters, name) - getattr(last, name) for name in Counters.__struct_fields__}
        row = Row(
            **{name: float(new[name]) for name in Row._fields if name in new},
            state=float(STATES.index(state)) if state in STATES else 0.0,
        )
        for ring in self._rings.values():
            ring.add(now, row)
        self._count_month(now, Use(**{name: new[name] for name in Use.__struct_fields__}))

    def _count_month(self, now: float, use: Use) -> None:
        name = time.strftime("%Y-%m", time.localtime(now))
        if not self.months or self.months[-1].name != name:
            self.months = [*self.months[-1:], Month(name)]
        before = self.months[-1].use
        sums = {name: getattr(before, name) + getattr(use, name) for name in Use.__struct_fields__}
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
        """For the file: see `HealthRecord`."""
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
    return {name: int(_figure(record.get(name))) for name in Use.__struct_fields__}


# -- a ring of intervals of equal length: what was counted in each of the last so many ------------------


_NEVER: Final = -1


class Row(NamedTuple):
    """What was counted of one cloud in an interval.

    Bytes up and down, requests that failed, small reads and writes that were answered and the seconds that
    these took, and the worst state, as `cloud.STATES` orders them.
    """

    up: float = 0.0
    down: float = 0.0
    failed: float = 0.0
    reads: float = 0.0
    read_seconds: float = 0.0
    writes: float = 0.0
    write_seconds: float = 0.0
    state: float = 0.0

    def plus(self, other: Row) -> Row:
        """Both together."""
        sums = Row(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))
        return sums._replace(state=max(self.state, other.state))


COLUMNS: Final = len(Row._fields)


class Ring:
    """The last `length` intervals of `step` seconds. Times are seconds since the epoch.

    An interval is numbered by how many there were since the epoch, and a slot knows which one it holds, so
    that gaps are known as such whatever the clock does.
    """

    def __init__(self, step: int, length: int) -> None:
        self.step = step
        self.length = length
        self._numbers = array("q", [_NEVER]) * length
        self._values = array("d", [0.0]) * (length * COLUMNS)

    def add(self, when: float, row: Row) -> None:
        """Count `row` in the interval that `when` lies in."""
        self.put(int(when // self.step), row)

    def put(self, number: int, row: Row) -> None:
        """Count `row` in an interval."""
        slot = number % self.length
        if self._numbers[slot] == number:
            row = self._row(slot).plus(row)
        self._numbers[slot] = number
        self._values[slot * COLUMNS : (slot + 1) * COLUMNS] = array("d", row)

    def rows(self, now: float) -> Iterator[Row | None]:
        """The whole intervals up to `now`, oldest first; None where nothing is known."""
        last = int(now // self.step)
        for number in range(last - self.length, last):
            slot = number % self.length
            yield self._row(slot) if self._numbers[slot] == number else None

    def known(self) -> Iterator[tuple[int, Row]]:
        """All intervals that something is known of, with their numbers."""
        for slot, number in enumerate(self._numbers):
            if number != _NEVER:
                yield number, self._row(slot)

    def _row(self, slot: int) -> Row:
        return Row(*self._values[slot * COLUMNS : (slot + 1) * COLUMNS])
