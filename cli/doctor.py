"""hybrisfs doctor"""

from __future__ import annotations

from collections.abc import Sequence

import click

from cli.output import columns, json_option, print_json, shown
from hybrisfs.client import Message, examine

_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


@click.command(epilog="\b\nExamples:\n  hybrisfs doctor\n  hybrisfs doctor --json")
@json_option
def doctor(as_json: bool) -> int:
    """Examine this machine: FUSE, disk, limits, clock, daemon, mounts and clouds; changes nothing.

    Needs no daemon. Each result is "ok", "warn" (it works, but look at it) or "bad"; the exit code is 1 when
    anything is bad.
    """
    findings = examine()
    if as_json:
        print_json({"checks": findings})
    else:
        _explain(findings)
    return 1 if any(finding["result"] == "bad" for finding in findings) else 0


def _explain(findings: Sequence[Message]) -> None:
    rows = [
        [click.style(one["result"], fg=_COLOURS[one["result"]]), one["check"], shown(one["what"])]
        for one in findings
    ]
    for line, finding in zip(columns(rows, indent=""), findings, strict=True):
        click.echo(line)
        if finding["advice"]:
            click.echo(f"      {shown(finding['advice'])}")
