"""hybrisfs ignore: which files stay on the machine that makes them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.output import columns, count, describe_ignored, json_option, show, shown
from cli.usage import Commands, volume_argument, volume_option
from hybrisfs.api.ignoring import IgnoreAddRequest, IgnoreListRequest, IgnoreRemoveRequest, IgnoreRules
from hybrisfs.client import Client

_patterns = click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)


@click.group(cls=Commands)
def ignore() -> None:
    """Choose files and folders that stay on the machine that makes them.

    Rules hold on all machines of the volume. What they match is on no cloud, on no other machine, and
    safe nowhere else. What was synced before a rule came stays synced.
    """


@ignore.command(
    epilog="\b\nExamples:\n  hybrisfs ignore add node_modules/\n  hybrisfs ignore add '*.o' /build/"
)
@_patterns
@volume_option
@json_option
def add(patterns: tuple[str, ...], name: str | None, as_json: bool) -> None:
    """Keep new files and folders that match PATTERN on the machine that makes them.

    A PATTERN is one of .gitignore, from the root of the volume. Of those that match, the last one counts:
    one with ! in front lets files be synced.
    """
    with Client.connect() as client:
        facts = client.call(IgnoreAddRequest(list(patterns), name))
    show(facts, as_json, lambda done: _added(done, patterns))


def _added(facts: IgnoreRules, patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        if pattern.strip().startswith("!"):
            yield f"{shown(pattern)}: what matches is synced."
        else:
            yield f"{shown(pattern)}: what matches stays on the machine that makes it."
    rules = count(len(facts.rules), "ignore rule")
    yield f"{shown(facts.name)} has {rules} now; what is synced already stays synced."


@ignore.command(epilog="\b\nExample:\n  hybrisfs ignore remove node_modules/")
@_patterns
@volume_option
@json_option
def remove(patterns: tuple[str, ...], name: str | None, as_json: bool) -> None:
    """Remove the rule PATTERN: what it kept on a machine goes to the clouds and to all machines."""
    with Client.connect() as client:
        facts = client.call(IgnoreRemoveRequest(list(patterns), name))
    show(facts, as_json, lambda _: (f"{shown(pattern)} is no longer an ignore rule." for pattern in patterns))


@ignore.command("list", epilog="\b\nExamples:\n  hybrisfs ignore list\n  hybrisfs ignore list --limit 1000")
@click.option(
    "--limit", type=click.IntRange(0, 1000), default=20, show_default=True, help="How many paths to list."
)
@volume_argument(required=False)
@json_option
def list_(limit: int, name: str | None, as_json: bool) -> None:
    """List the rules, and what they keep on this machine: files, and folders with all that is in them."""
    with Client.connect() as client:
        facts = client.call(IgnoreListRequest(name, limit))
    show(facts, as_json, _listed)


def _listed(facts: IgnoreRules) -> Iterator[str]:
    if not facts.rules:
        yield "There are no ignore rules."
    else:
        rows = [["RULE", "BY"], *([shown(one.pattern), shown(one.by or "?")] for one in facts.rules)]
        yield from columns(rows, indent="")
    kept = describe_ignored(facts)
    if kept:
        yield f"On this machine only: {kept}."
        yield from (f"  {shown(one.path)}{'/' if one.folder else ''}" for one in facts.paths)
