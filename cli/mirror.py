"""hybrisfs mirror, import"""

from __future__ import annotations

import os
from typing import Final

import click

from cli.arguments import complete_directories
from cli.output import columns, count, exact_moment, json_option, print_json, progress_bar, show, shown, size
from cli.usage import Commands, command, volume_argument, volume_option
from hybrisfs.api.mirrors import (
    Imported,
    ImportRequest,
    Mirror,
    MirrorAddRequest,
    MirrorDecideRequest,
    MirrorListRequest,
    MirrorRemoveRequest,
    Mirrors,
    VolumeMirror,
)
from hybrisfs.client import Client

_COLOURS: Final = {"watching": "green", "working": "green", "starting": "green"}
_NOTHING: Final = "Nothing is mirrored."
_SIDES: Final = {"local": "the folder", "volume": "the volume"}


@click.group(cls=Commands, epilog="\b\nExample:\n  hybrisfs mirror add ~/Projects --ignore node_modules/")
def mirror() -> None:
    """Keep ordinary folders in sync with folders of a volume, without a mount."""


@mirror.command(epilog="\b\nExample:\n  hybrisfs mirror add ~/Projects --at work/projects --ignore '*.o'")
@click.argument("directory", shell_complete=complete_directories, metavar="DIR")
@volume_option
@click.option("--at", metavar="PATH", help="The folder of the volume; by default called like DIR.")
@click.option("--ignore", metavar="PATTERN", multiple=True, help="What to leave out, as in .gitignore.")
@json_option
def add(directory: str, name: str | None, at: str | None, ignore: tuple[str, ...], as_json: bool) -> None:
    """Keep DIR in sync with a folder of the volume from now on, in both directions.

    If both sides already have files, both get all of them; where files of one name differ, the one in DIR
    gets a conflict name. What programs leave behind while they save (backups, swap and lock files) is left
    out.
    """
    place = os.path.abspath(directory)  # noqa: PTH100
    with Client.connect() as client:
        facts = client.call(MirrorAddRequest(name=name, directory=place, at=at, ignore=list(ignore)))
    show(
        facts,
        as_json,
        lambda made: [f"{shown(made.directory)} is kept equal to {shown(made.at)} in {shown(made.name)}."],
    )


@mirror.command(name="list", epilog="\b\nExample:\n  hybrisfs mirror list")
@volume_argument(required=False)
@json_option
def list_(name: str | None, as_json: bool) -> None:
    """List the mirrors of the volume NAME, or of all volumes."""
    show(_all(name), as_json, _table)


@mirror.command(epilog="\b\nExample:\n  hybrisfs mirror remove ~/Projects")
@click.argument("directory", shell_complete=complete_directories, metavar="DIR")
@json_option
def remove(directory: str, as_json: bool) -> None:
    """Stop keeping DIR in sync. All files stay where they are, on both sides."""
    with Client.connect() as client:
        facts = client.call(MirrorRemoveRequest(directory=os.path.abspath(directory)))  # noqa: PTH100
    show(
        facts,
        as_json,
        lambda gone: [f"{shown(gone.directory)} is an ordinary folder again; nothing was deleted."],
    )


@mirror.command(epilog="\b\nExample:\n  hybrisfs mirror status")
@volume_argument(required=False)
@json_option
def status(name: str | None, as_json: bool) -> int:
    """Show how each mirror is doing. The exit code is 1 when one needs somebody."""
    facts = _all(name)
    show(
        facts,
        as_json,
        lambda all_: [line for one in all_.mirrors for line in describe(one)] or [_NOTHING],
    )
    return 1 if any(one.state in ("paused", "waiting") or one.problems for one in facts.mirrors) else 0


@mirror.command(epilog="\b\nExample:\n  hybrisfs mirror accept ~/Projects")
@click.argument("directory", shell_complete=complete_directories, metavar="DIR")
def accept(directory: str) -> None:
    """Let a mass deletion that waits happen on the other side, too."""
    click.echo(f"{shown(_decide(directory, True).directory)}: it is deleted on the other side, too.")


@mirror.command(epilog="\b\nExample:\n  hybrisfs mirror undo ~/Projects")
@click.argument("directory", shell_complete=complete_directories, metavar="DIR")
def undo(directory: str) -> None:
    """Put back what a mass deletion that waits has deleted."""
    click.echo(f"{shown(_decide(directory, False).directory)}: what was deleted is put back.")


def describe(one: Mirror) -> list[str]:
    """How a mirror is doing, as lines for a terminal."""
    state = click.style(one.state, fg=_COLOURS.get(one.state, "yellow"))
    reason = f": {shown(one.reason)}" if one.reason else ""
    lines = [f"{shown(one.directory)} = {shown(one.at)}  {state}{reason}"]
    if one.total:
        lines.append(f"  {one.done:,} of {count(one.total, 'step')} done")
    elif one.equal_at and one.state != "paused":
        lines.append(f"  {count(one.names, 'name')}, compared at {exact_moment(one.equal_at)}")
    for side, number in one.held_back.items():
        lines.append(
            f"  deleting {count(number, 'name')} from {_SIDES[side]} waits for you: "
            f"hybrisfs mirror accept or undo {shown(one.directory)}"
        )
    if one.watching:
        lines.append(f"  {shown(one.watching)}")
    lines += [f"  {shown(problem.path)}: {shown(problem.why)}" for problem in one.problems]
    if one.problem_count > len(one.problems):
        lines.append(f"  and {one.problem_count - len(one.problems):,} more")
    return lines


def _table(found: Mirrors) -> list[str]:
    if not found.mirrors:
        return [_NOTHING]
    rows = [["DIR", "VOLUME", "FOLDER", "NAMES", "STATE"]]
    rows += [
        [shown(one.directory), shown(one.volume), shown(one.at), f"{one.names:,}", one.state]
        for one in found.mirrors
    ]
    return columns(rows, indent="")


def _all(name: str | None) -> Mirrors:
    with Client.connect() as client:
        return client.call(MirrorListRequest(name=name))


def _decide(directory: str, accepted: bool) -> VolumeMirror:
    place = os.path.abspath(directory)  # noqa: PTH100
    with Client.connect() as client:
        return client.call(MirrorDecideRequest(directory=place, accept=accepted))


# -- hybrisfs import ------------------------------------------------------------------------------------


@command(
    name="import",
    epilog="\b\nExamples:\n  hybrisfs import ~/Pictures --dry-run\n  hybrisfs import /mnt/home --into old",
)
@click.argument("directory", shell_complete=complete_directories, metavar="DIR")
@volume_option
@click.option("--into", metavar="PATH", help="The folder of the volume; by default called like DIR.")
@click.option("--dry-run", is_flag=True, help="Only say what would be copied.")
@click.option("--replace", is_flag=True, help="Replace files of the volume that differ.")
@json_option
def import_folder(
    directory: str, name: str | None, into: str | None, dry_run: bool, replace: bool, as_json: bool
) -> int:
    """Copy DIR into a volume, with permissions, times, extended attributes, links and holes.

    What is there already and equal is not copied again, so that an import that was interrupted goes on when
    it is run again. What was stored is compared with what was read. The exit code is 1 when something could
    not be copied.
    """
    asked = ImportRequest(
        name=name,
        directory=os.path.abspath(directory),  # noqa: PTH100
        into=into,
        dry_run=dry_run,
        replace=replace,
    )
    with Client.connect() as client, progress_bar("bytes") as show:
        facts = client.call(asked, lambda step: show(step.what, step.done, step.total))
    if as_json:
        print_json(facts)
    else:
        _explain(facts)
    return 1 if facts.problem_count else 0


def _explain(facts: Imported) -> None:
    verb = "would be copied" if facts.dry_run else "copied"
    what = f"{count(facts.files, 'file')} ({size(facts.bytes)}) and {count(facts.folders, 'folder')}"
    click.echo(f"{shown(facts.name)}: {what} {verb} into {shown(facts.into)}.")
    if facts.present:
        click.echo(
            f"  {count(facts.present, 'name')} {'was' if facts.present == 1 else 'were'} there already"
        )
    if facts.replaced:
        click.echo(f"  {facts.replaced:,} of them in place of others")
    for one in facts.problems:
        click.echo(f"  {shown(one.path)}: {shown(one.why)}", err=True)
    if facts.problem_count > len(facts.problems):
        click.echo(f"  and {facts.problem_count - len(facts.problems):,} more", err=True)
