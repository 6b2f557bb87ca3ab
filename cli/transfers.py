"""hybrisfs limit, pause, resume: what may move between this machine and the clouds."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Final

import click

from cli.output import json_option, show, shown
from cli.usage import command, volume_argument
from hybrisfs.api.traffic import (
    Direction,
    LimitRequest,
    PauseRequest,
    ResumeRequest,
    Transfers,
    VolumeTransfers,
)
from hybrisfs.client import Client

__all__ = ["describe_hold", "moment"]


@command(
    epilog="""\b
Examples:
  hybrisfs limit --up 512k --down off
  hybrisfs limit photos --up "08:00,512k 19:00,10M 23:00,off"
  hybrisfs limit --up "Mon-08:00,1M Fri-18:00,off"
  hybrisfs limit"""
)
@volume_argument(required=False)
@click.option("--up", metavar="TIMETABLE", help="What may be sent to all clouds together.")
@click.option("--down", metavar="TIMETABLE", help="What may be received from all clouds together.")
@click.option(
    "--on-metered",
    type=click.Choice(["pause", "ignore"]),
    help="Whether transfers pause on networks that NetworkManager marks as metered.  [at first: pause]",
)
@json_option
def limit(name: str | None, up: str | None, down: str | None, on_metered: str | None, as_json: bool) -> None:
    """Limit the bandwidth that the volume NAME uses between this machine and its clouds.

    A TIMETABLE is one rate, "off" for no limit, or rates from a time of the day on. Rates are bytes
    per second with the suffix B, K, M or G (powers of 1024; a bare number is KiB/s), as for rclone's
    --bwlimit. It holds at once and until it is changed. Direct links between machines are not
    limited. Without options, shows what holds now and what comes next. NAME can be left out when there
    is one volume.
    """
    with Client.connect() as client:
        facts = client.call(LimitRequest(name=name, up=up, down=down, on_metered=on_metered))
    show(facts, as_json, _describe)


def _describe(facts: VolumeTransfers) -> Iterator[str]:
    yield shown(facts.name)
    yield from describe_limits(facts)
    hold = describe_hold(facts)
    if hold is not None:
        yield click.style(f"  {hold}", fg="yellow")


# -- hybrisfs pause -------------------------------------------------------------------------------------


_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(?:\d{1,6}[smhd])+")


def _duration(value: str) -> int:
    """ "90m", "2h" or "1h30m" in seconds."""
    if not _DURATION.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not a duration; write 90m, 2h or 1d12h")
    return sum(int(part[:-1]) * _UNITS[part[-1]] for part in re.findall(r"\d+[smhd]", value))


@command(epilog="\b\nExamples:\n  hybrisfs pause --for 2h\n  hybrisfs pause photos")
@volume_argument(required=False)
@click.option("--for", "seconds", metavar="TIME", type=_duration, help="Resume after TIME.")
@json_option
def pause(name: str | None, seconds: int | None, as_json: bool) -> None:
    """Stop transfers between this machine and the clouds of the volume NAME.

    What is under way ends, and nothing else begins until hybrisfs resume, also after a restart.
    Reading and writing go on, and what programs read is still fetched. Machines that are linked
    directly go on exchanging changes. NAME can be left out when there is one volume.
    """
    with Client.connect() as client:
        facts = client.call(PauseRequest(name=name, seconds=seconds))
    show(facts, as_json, lambda facts: [f"{shown(facts.name)}: {describe_hold(facts)}"])


# -- hybrisfs resume ------------------------------------------------------------------------------------


@command(epilog="\b\nExample:\n  hybrisfs resume photos")
@volume_argument(required=False)
@json_option
def resume(name: str | None, as_json: bool) -> None:
    """Let transfers between this machine and the clouds of the volume NAME go on after a pause.

    NAME can be left out when there is one volume.
    """
    with Client.connect() as client:
        facts = client.call(ResumeRequest(name=name))
    show(facts, as_json, lambda facts: [f"{shown(facts.name)}: {describe_hold(facts) or 'Transfers go on.'}"])


# -- limits and pauses, in words for people -------------------------------------------------------------


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
