"""What people are told of limits and pauses."""

from __future__ import annotations

import time

from cli.output import shown
from hybrisfs.api.transfers import Direction, Transfers

__all__ = ["describe_hold", "describe_limits", "moment"]


def describe_limits(facts: Transfers) -> list[str]:
    """A line for each direction, and one on metered networks."""
    metered = "pause transfers" if facts.on_metered == "pause" else "change nothing"
    return [
        f"  up    {_direction(facts.up)}",
        f"  down  {_direction(facts.down)}",
        f"  metered networks {metered}",
    ]


def describe_hold(facts: Transfers) -> str | None:
    """A sentence on why nothing moves now and what to do about it; None when it does."""
    if facts.held == "metered":
        return (
            "The network is metered: only what programs read is fetched. "
            "hybrisfs limit --on-metered ignore changes that."
        )
    if facts.held == "paused":
        until = facts.paused_until
        when = "" if until is None else f" until {moment(until)}"
        return f"Transfers are paused{when}: only what programs read is fetched. hybrisfs resume ends that."
    return None


def moment(seconds: float) -> str:
    """A time to come: "19:00", or with the day when it is not today."""
    when = time.localtime(seconds)
    today = time.localtime()[:3] == when[:3]
    return time.strftime("%H:%M" if today else "%a %Y-%m-%d %H:%M", when)


def _direction(facts: Direction) -> str:
    line = _rate(facts.rate)
    if facts.changes_at is not None:
        line += f" until {moment(facts.changes_at)}, then {_rate(facts.then)}"
        line += f"  ({shown(facts.timetable)})"
    return line


def _rate(rate: int | None) -> str:
    """Bytes/s in the units in which people enter them."""
    if rate is None:
        return "unlimited"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if rate >= size:
            return f"{rate / size:.4g} {unit}/s"
    return f"{rate} bytes/s"
