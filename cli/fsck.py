"""hybrisfs fsck"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import click

from cli.output import columns, count, json_option, show, shown
from cli.progress import progress_bar
from cli.volume_name import complete_volumes
from hybrisfs.api.maintenance import CheckedVolume, FsckRequest
from hybrisfs.client import Client


@click.command(epilog="\b\nExamples:\n  hybrisfs fsck\n  hybrisfs fsck photos --clouds")
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option(
    "--clouds", is_flag=True, help="Read and verify every object on every cloud, too: takes time and traffic."
)
@json_option
def fsck(name: str | None, clouds: bool, as_json: bool) -> int:
    """Verify the database, the log and the cache of the volume NAME; changes nothing.

    Says what is wrong where; the exit code is 1 when anything is. NAME can be left out when there is one
    volume. Programs can go on using the volume meanwhile.
    """
    with Client.connect() as client, progress_bar("things") as bar:
        facts = client.call(
            FsckRequest(name, clouds),
            lambda step: bar(shown(step.stage), step.done, step.total),
        )
    show(facts, as_json, partial(_describe, clouds=clouds))
    return 1 if facts.problems else 0


def _describe(facts: CheckedVolume, clouds: bool) -> Iterator[str]:
    name, problems = shown(facts.name), facts.problems
    checked = ", ".join(f"{what}: {number:,}" for what, number in facts.checked.items())
    if not problems:
        rest = "" if clouds else " --clouds checks the clouds, too."
        yield f"{name}: no problem found ({checked}).{rest}"
        return
    yield f"{name}: {count(len(problems), 'problem')} found ({checked}):"
    yield from columns(
        [
            [
                click.style(problem.severity, fg="red" if problem.severity == "error" else "yellow"),
                shown(problem.where),
                shown(problem.what),
            ]
            for problem in problems
        ]
    )
