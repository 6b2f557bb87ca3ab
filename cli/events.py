"""hybrisfs events"""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from typing import Final

import click

from cli.output import json_option, shown
from cli.volume_name import complete_volumes
from hybrisfs.api.events import EventsRequest, VolumeEvent
from hybrisfs.api.request import message_of
from hybrisfs.client import Client

_WAIT: Final = 30.0  # seconds
_LIMIT: Final = 50
_MOST: Final = 1000
_COLOURS: Final = {"trouble": "yellow", "over": "green"}
_SPAN: Final = re.compile(r"(\d+)([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@click.command(
    epilog="\b\nExamples:\n  hybrisfs events\n  hybrisfs events --since 2d\n  hybrisfs events --follow --json"
)
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option("--since", metavar="TIME", help="Only what has happened since: 2h, 3d, or 2026-11-20T18:00.")
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=_LIMIT, show_default=True, help="The last ones."
)
@click.option("--follow", is_flag=True, help="Go on with what happens from now on, until Ctrl-C.")
@json_option
def events(name: str | None, since: str | None, limit: int, follow: bool, as_json: bool) -> None:
    """Show what has happened: clouds that failed and came back, conflicts, machines, errors.

    With --json, each event is one line: "volume", "number", "time" (seconds since 1970), "kind" (trouble,
    over, news), "topic" and "text". Trouble of a topic lasts until it is over. NAME can be left out.
    """
    earliest = _moment(since) if since is not None else 0.0
    limit = _MOST if since is not None else limit
    with Client.connect() as client:
        found = client.call(EventsRequest(name, limit=limit))
        past = [one for one in found.events if one.time >= earliest]
        _show(past, as_json)
        if not past and not follow and not as_json:
            click.echo("No events.")
        while follow:
            found = client.call(EventsRequest(name, after=found.after, wait=_WAIT))
            _show(found.events, as_json)


def _show(found: list[VolumeEvent], as_json: bool) -> None:
    for event in found:
        click.echo(json.dumps(message_of(event)) if as_json else _line(event))


def _line(event: VolumeEvent) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
    kind = click.style(f"{event.kind:7}", fg=_COLOURS.get(event.kind))
    return f"{when}  {kind}  {shown(event.volume)}: {shown(event.text)}"


def _moment(text: str) -> float:
    span = _SPAN.fullmatch(text)
    if span is not None:
        return time.time() - int(span[1]) * _SECONDS[span[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{text!r} is neither a span like 2h or 3d nor a date") from None
