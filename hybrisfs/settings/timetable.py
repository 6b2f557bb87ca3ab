"""Bandwidth limits by the time of day, in the notation of rclone's --bwlimit.

"512k" always; "08:00,512k 19:00,10M 23:00,off" every day, from one time to the next and over midnight;
"Mon-08:00,1M Fri-18:00,off" through the week. Rates are bytes per second, with B, K, M or G for powers of
1024; a bare number is KiB per second. Times are local.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hybrisfs.errors import UsageError

__all__ = ["UNLIMITED", "Timetable", "parse_timetable"]

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = 24 * 60  # minutes
_STEP: Final = re.compile(r"(?:([a-z]+)-)?(\d{1,2}):(\d{2}),(\S+)")
_RATE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([bkmg]?)")
_UNITS: Final = {"b": 1, "": 1 << 10, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_LEAST: Final = 8 << 10  # bytes/s; with less, servers take transfers for dead
_MOST_STEPS: Final = 200
_HELP: Final = 'Write one rate as 512k or 10M, "off", or a timetable as "08:00,512k 19:00,10M 23:00,off".'


@dataclass(frozen=True, slots=True)
class Timetable:
    """`steps` are minutes of the week from Monday on, ascending, and the bytes/s from then on or None."""

    text: str
    steps: tuple[tuple[int, int | None], ...]

    def rate(self, now: datetime) -> int | None:
        """Return how many bytes per second may move at a local time; None is no limit."""
        minute = _minute(now)
        past = [rate for start, rate in self.steps if start <= minute]
        return past[-1] if past else self.steps[-1][1]  # which began last week

    def next_change(self, now: datetime) -> datetime | None:
        """Return when there will be another rate, None when there never will."""
        minute, rate = _minute(now), self.rate(now)
        ahead = sorted(((start - minute - 1) % (7 * _DAY), other) for start, other in self.steps)
        wait = next((wait for wait, other in ahead if other != rate), None)
        if wait is None:
            return None
        return now.replace(second=0, microsecond=0) + timedelta(minutes=wait + 1)


def parse_timetable(text: str) -> Timetable:
    """Raises UsageError."""
    words = text.split()
    if len(words) == 1 and "," not in words[0]:
        return Timetable(words[0], ((0, _parse_rate(words[0])),))
    steps: dict[int, int | None] = {}
    for word in words:
        match = _STEP.fullmatch(word.lower())
        if match is None or int(match[2]) > 23 or int(match[3]) > 59:
            raise UsageError(f"{word!r} is no step of a timetable", "", _HELP)
        days = range(7) if match[1] is None else [_parse_day(match[1])]
        for day in days:
            minute = day * _DAY + int(match[2]) * 60 + int(match[3])
            if minute in steps:
                raise UsageError(f"two steps of the timetable begin at {word.partition(',')[0]}", "", _HELP)
            steps[minute] = _parse_rate(match[4])
    if not steps or len(steps) > _MOST_STEPS:
        raise UsageError(f"a timetable has 1 to {_MOST_STEPS} steps in a week", "", _HELP)
    return Timetable(" ".join(words), tuple(sorted(steps.items())))


def _minute(now: datetime) -> int:
    return now.weekday() * _DAY + now.hour * 60 + now.minute


def _parse_day(name: str) -> int:
    if name[:3] not in _DAYS:
        raise UsageError(f"{name!r} is no day of the week", "", "They are Mon, Tue, Wed, Thu, Fri, Sat, Sun.")
    return _DAYS.index(name[:3])


def _parse_rate(text: str) -> int | None:
    if text.lower() == "off":
        return None
    match = _RATE.fullmatch(text.lower())
    if match is None:
        raise UsageError(f"{text!r} is no rate", "", _HELP)
    rate = int(float(match[1]) * _UNITS[match[2]])
    if rate < _LEAST:
        raise UsageError(f"{text!r} is less than {_LEAST >> 10}k", "", "hybrisfs pause stops all transfers.")
    return rate


UNLIMITED: Final = parse_timetable("off")
