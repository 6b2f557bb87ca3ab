"""Moments as people write them: `2026-11-20`, `2026-11-20T18:00`, `2026-11-20T18:00:30Z`.

Without a Z it is this machine's time. A day alone means its beginning.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

__all__ = ["format_moment", "parse_moment"]

_FORM: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?)?(Z?)")
_SECOND_NS: Final = 1_000_000_000


def parse_moment(text: str) -> int | None:
    """Nanoseconds since the epoch; None when it is no moment."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(one or 0) for one in found.groups()[:6])
    zone = datetime.UTC if found[7] else None
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=zone)
        return int(moment.timestamp()) * _SECOND_NS
    except (ValueError, OverflowError, OSError):
        return None


def format_moment(moment: int) -> str:
    """In UTC, to the second, or to the minute when that is exact; `parse_moment` reads it."""
    time = datetime.datetime.fromtimestamp(moment // _SECOND_NS, datetime.UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ" if time.second else "%Y-%m-%dT%H:%MZ")
