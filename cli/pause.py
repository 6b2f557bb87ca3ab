"""hybrisfs pause"""

from __future__ import annotations

import re
from typing import Final

import click

from cli.output import json_option, show, shown
from cli.transfers import describe_hold
from cli.volume_name import complete_volumes
from hybrisfs.api.transfers import PauseRequest
from hybrisfs.client import Client

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(?:\d{1,6}[smhd])+")


def _duration(value: str) -> int:
    """ "90m", "2h" or "1h30m" in seconds."""
    if not _DURATION.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no duration; write 90m, 2h or 1d12h")
    return sum(int(part[:-1]) * _UNITS[part[-1]] for part in re.findall(r"\d+[smhd]", value))


@click.command(epilog="\b\nExamples:\n  hybrisfs pause --for 2h\n  hybrisfs pause photos")
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option("--for", "seconds", metavar="TIME", type=_duration, help="Resume by itself after TIME.")
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
