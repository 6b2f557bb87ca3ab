"""hybrisfs limit"""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.output import json_option, show, shown
from cli.transfers import describe_hold, describe_limits
from cli.volume_name import complete_volumes
from hybrisfs.api.transfers import LimitRequest, VolumeTransfers
from hybrisfs.client import Client


@click.command(
    epilog="""\b
Examples:
  hybrisfs limit --up 512k --down off
  hybrisfs limit photos --up "08:00,512k 19:00,10M 23:00,off"
  hybrisfs limit --up "Mon-08:00,1M Fri-18:00,off"
  hybrisfs limit"""
)
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option("--up", metavar="TIMETABLE", help="What may be sent to all clouds together.")
@click.option("--down", metavar="TIMETABLE", help="What may be received from all clouds together.")
@click.option(
    "--on-metered",
    type=click.Choice(["pause", "ignore"]),
    help="Whether a metered network, as NetworkManager knows it, pauses transfers.  [at first: pause]",
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
