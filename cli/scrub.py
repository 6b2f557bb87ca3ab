"""hybrisfs scrub"""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.output import columns, count, json_option, show, shown
from cli.progress import progress_bar
from cli.volume_name import complete_volumes
from hybrisfs.api.maintenance import ScrubbedCloud, ScrubbedVolume, ScrubRequest, UnnamedValues, WrongObject
from hybrisfs.client import Client


@click.command(epilog="\b\nExamples:\n  hybrisfs scrub\n  hybrisfs scrub photos --sample 5")
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option(
    "--sample",
    metavar="P",
    type=click.FloatRange(min=0, max=100, min_open=True),
    default=100.0,
    help="Read a random P per cent of the data instead of all of it.",
)
@json_option
def scrub(name: str | None, sample: float, as_json: bool) -> int:
    """Verify what the clouds of the volume NAME hold; changes nothing.

    Says what is missing, stale or corrupt on which cloud, and whether that cloud keeps it as it was before;
    the exit code is 1 when anything is. It downloads what it verifies. NAME can be left out when there is one
    volume. hybrisfs repair puts things right.
    """
    with Client.connect() as client, progress_bar("things") as bar:
        facts = client.call(
            ScrubRequest(name, sample),
            lambda step: bar(shown(step.stage), step.done, step.total),
        )
    show(facts, as_json, _describe)
    return 1 if facts.wrong else 0


def _describe(facts: ScrubbedVolume) -> Iterator[str]:
    name, wrong = shown(facts.name), facts.wrong
    of = "" if facts.sample == 100 else f" in a sample of {facts.sample:g} %"
    found = f"{count(wrong, 'problem')} found{of}" if wrong else f"no problem found{of}"
    yield f"{name}: {found}{':' if wrong else '.'}"
    yield from columns([_cloud(cloud) for cloud in facts.clouds])
    if wrong:
        yield from columns([_problem(one) for one in facts.problems])
        if wrong > len(facts.problems):
            yield f"  and {wrong - len(facts.problems):,} more"
        kept = " and what clouds keep of earlier versions" if facts.older else ""
        yield f"hybrisfs repair puts them right from what the other clouds hold{kept}."
    if facts.values is not None:
        yield from _unnamed(facts.values, facts.name)


def _problem(one: WrongObject) -> list[str]:
    kept = "the cloud keeps it as it was" if one.older else ""
    return [click.style(one.kind, fg="red"), shown(one.cloud), shown(one.what), kept]


def _cloud(cloud: ScrubbedCloud) -> list[str]:
    kinds = {
        "missing": cloud.missing,
        "stale": cloud.stale,
        "corrupt": cloud.corrupt,
        "unreadable": cloud.unreadable,
    }
    bad = [f"{number:,} {kind}" for kind, number in kinds.items() if number]
    return [shown(cloud.name), f"{count(cloud.checked, 'object')} read", ", ".join(bad) or "all right"]


def _unnamed(values: UnnamedValues, volume: str) -> Iterator[str]:
    """What is on the clouds of values that no key names, which is no damage."""
    number = values.unnamed + values.former
    if number:
        option = " --former" if values.former else ""
        yield (
            f"{count(number, 'object')} of the key-value store on the clouds, named by no key: "
            f"hybrisfs kv clean{option} {shown(volume)} deletes them."
        )
