"""How long versions are kept (Depot 5.5): all for a day, daily ones for a week, weekly for a month, monthly
for a year.

A *rung* is a midnight (UTC): each is one of days, those at which a Monday begins are ones of weeks, those at
which a month begins ones of months. A version is kept for as long as one of the rungs at which it was true is
wanted, and for a while after it was superseded anyhow. So what is kept of a rung is the whole tree as it was
then, of all its files. Until when that is follows from the version alone, so that nothing that was dropped is
ever wanted again, and the order in which versions are looked at does not matter.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from hybrisfs.errors import UsageError

__all__ = ["DAY_NS", "DEFAULT_RETENTION", "RetentionRule", "parse_retention"]

_SECOND_NS: Final = 1_000_000_000
DAY_NS: Final = 86400 * _SECOND_NS
_UNITS: Final = {"h": 3600 * _SECOND_NS, "d": DAY_NS, "w": 7 * DAY_NS, "m": 31 * DAY_NS, "y": 366 * DAY_NS}
_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_THURSDAY: Final = 3  # 1 January 1970, counted from Monday
_MOST_NS: Final = 100 * 366 * DAY_NS
_LAST_DAY: Final = 2_900_000  # of the calendar
_SPAN: Final = re.compile(r"(\d{1,6})([hdwmy])")
_ROOM: Final = re.compile(r"(\d{1,12})([kmgt]?)")


class RetentionRule(Struct, frozen=True):
    """How long versions are kept. Spans are nanoseconds; all 0: no versions are kept. *room*: bytes of chunks
    that nothing but versions needs, beyond which the oldest versions go sooner; None: as many as there
    are."""

    every: int = DAY_NS
    daily: int = 7 * DAY_NS
    weekly: int = 31 * DAY_NS
    monthly: int = 366 * DAY_NS
    room: int | None = None

    @property
    def is_off(self) -> bool:
        """Whether no versions are kept."""
        return not any((self.every, self.daily, self.weekly, self.monthly))

    def kept_until(self, since: int, until: int) -> int:
        """Until when a version is kept that was true from *since* until *until*, both ns since the epoch."""
        if self.is_off:
            return 0
        kept = until + self.every
        last = (until - 1) // DAY_NS  # the last midnight at which it was true, if there was one
        for day, span in (
            (last, self.daily),
            (last - (last + _THURSDAY) % 7, self.weekly),
            (_first_of_month(last), self.monthly),
        ):
            if day * DAY_NS >= since:
                kept = max(kept, day * DAY_NS + span)
        return kept

    def rungs(self, now: int) -> Iterator[int]:
        """The rungs that are wanted at the time *now*, the latest first."""
        day = now // DAY_NS
        while day > 0 and day * DAY_NS > now - max(self.daily, self.weekly, self.monthly):
            if self._is_wanted(day, now):
                yield day * DAY_NS
            day -= 1

    def _is_wanted(self, day: int, now: int) -> bool:
        age = now - day * DAY_NS
        return (
            age < self.daily
            or (age < self.weekly and (day + _THURSDAY) % 7 == 0)
            or (age < self.monthly and _first_of_month(day) == day)
        )

    def __str__(self) -> str:
        """As `parse_retention` reads it."""
        if self.is_off:
            return "off"
        spans = (
            ("all", self.every),
            ("daily", self.daily),
            ("weekly", self.weekly),
            ("monthly", self.monthly),
        )
        parts = [f"{name}:{_span(length)}" for name, length in spans]
        return ",".join([*parts, *([] if self.room is None else [f"room:{_room(self.room)}"])])


DEFAULT_RETENTION: Final = RetentionRule()


def _first_of_month(day: int) -> int:
    """The first day of the month in which a day is, both counted from the epoch."""
    date = datetime.date.fromordinal(datetime.date(1970, 1, 1).toordinal() + min(max(day, 0), _LAST_DAY))
    return min(max(day, 0), _LAST_DAY) - date.day + 1


def _span(length: int) -> str:
    return f"{length // DAY_NS}d" if length % DAY_NS == 0 else f"{length // _UNITS['h']}h"


def _room(size: int) -> str:
    unit, factor = max(
        ((unit, factor) for unit, factor in _SIZES.items() if size % factor == 0), key=lambda one: one[1]
    )
    return f"{size // factor}{unit.upper()}"


def parse_retention(text: str) -> RetentionRule:
    """Read "off", "default", or some of "all:1d,daily:7d,weekly:31d,monthly:1y,room:10G", the rest as usual.

    Raises UsageError.
    """
    if text == "off":
        return RetentionRule(0, 0, 0, 0)
    if text == "default":
        return DEFAULT_RETENTION
    chosen: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition(":")
        key = {"all": "every"}.get(name, name)
        if key in chosen:
            raise _wrong(text, f"{name} is there twice")
        if key not in ("every", "daily", "weekly", "monthly", "room"):
            raise _wrong(text, f"{name!r} is not one of all, daily, weekly, monthly and room")
        chosen[key] = _parse_room(text, value) if key == "room" else _parse_span(text, value)
    return RetentionRule(**chosen)


def _parse_span(text: str, value: str) -> int:
    found = _SPAN.fullmatch(value)
    if found is None or (length := int(found[1]) * _UNITS[found[2]]) > _MOST_NS:
        raise _wrong(
            text, f"{value!r} is not a span of time like 36h, 7d, 4w, 6m or 1y, of a hundred years at most"
        )
    return length


def _parse_room(text: str, value: str) -> int:
    found = _ROOM.fullmatch(value.lower())
    if found is None:
        raise _wrong(text, f"{value!r} is not a number of bytes like 500M or 20G")
    return int(found[1]) * _SIZES[found[2]]


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(
        f"{text!r} does not say which versions to keep",
        why,
        "For example: off, default, or all:2d,daily:14d,weekly:60d,monthly:2y,room:50G",
    )
