"""hybrisfs conflicts, deletions: what waits for a person."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.arguments import complete_conflicts, named_place
from cli.merge_tool import beside, changed_by_tool, difference, kept
from cli.output import columns, count, json_option, moment, show, shown, size
from cli.usage import Commands, volume_argument, volume_option
from hybrisfs.api.decisions import (
    Conflicts,
    ConflictsCompareRequest,
    ConflictsKeepAllRequest,
    ConflictsKeepRequest,
    ConflictsListRequest,
    ConflictsSettleRequest,
    Deletions,
    DeletionsAcceptRequest,
    DeletionsListRequest,
    DeletionsShowRequest,
    DeletionsUndoRequest,
    HeldFiles,
)
from hybrisfs.client import Client


@click.group(cls=Commands)
def conflicts() -> None:
    """See and settle what several machines have changed at the same time."""


@conflicts.command("list", epilog="\b\nExample:\n  hybrisfs conflicts list --json")
@volume_argument(required=False)
@json_option
def list_conflicts(name: str | None, as_json: bool) -> None:
    """List what stands under a conflict name, keys with several values, and containers that were moved while
    others wrote to them. Nothing is lost: all versions are there."""
    with Client.connect() as client:
        facts = client.call(ConflictsListRequest(name))
    show(facts, as_json, _listed_conflicts)


def _listed_conflicts(facts: Conflicts) -> Iterator[str]:
    found = facts.conflicts
    if not found and not facts.keys and not facts.moved:
        yield "There are no conflicts."
    if found:
        yield f"{count(len(found), 'conflict')}; hybrisfs conflicts merge PATH or keep PATH settles one."
        rows = [["VERSION", "OF", "MODIFIED", "SIZE"]]
        rows += [[shown(one.path), shown(one.of), one.modified, size(one.size)] for one in found]
        yield from columns(rows, indent="")
    if facts.keys:
        yield f"{count(len(facts.keys), 'key')} with several values; hybrisfs kv get --all shows them."
        keys = [[f"{shown(one.container)}/{shown(one.key)}", f"{one.values}"] for one in facts.keys]
        yield from columns([["KEY", "VALUES"], *keys], indent="")
    for moved in facts.moved:
        if moved.late:
            yield (
                f"{shown(moved.container)} has left the log. Since then machines that did not know of the "
                f"move have written {count(moved.late, 'key')}. hybrisfs kv migrate to its new place brings "
                "them there."
            )
        if moved.twice:
            yield (
                f"{shown(moved.container)} was moved to two places at the same time, and is in both. Copy "
                "the keys that you need from one to the other, and drop the first one. hybrisfs kv "
                "containers lists the containers that a machine can use."
            )


@conflicts.command(
    epilog="\b\nExample:\n  hybrisfs conflicts keep 'notes (conflict, laptop, 2026-11-21).txt'"
)
@click.argument("path", shell_complete=complete_conflicts)
@volume_option
def keep(path: str, name: str | None) -> None:
    """Let the version at PATH be the only one; the others are deleted.

    PATH is the file itself, or one of the versions beside it: where it is on this machine, or as
    conflicts list names it, relative to the volume's folder.
    """
    with Client.connect() as client:
        volume, place = named_place(client, path, name)
        client.call(ConflictsKeepRequest(name=volume, path=place))
    click.echo(f"Kept {shown(path)}.")


@conflicts.command("keep-all", epilog="\b\nExample:\n  hybrisfs conflicts keep-all notes.txt")
@click.argument("path", shell_complete=complete_conflicts)
@volume_option
def keep_all(path: str, name: str | None) -> None:
    """Let every version of PATH be a file of its own, under the name that it has now."""
    with Client.connect() as client:
        volume, place = named_place(client, path, name)
        client.call(ConflictsKeepAllRequest(name=volume, path=place))
    click.echo(f"All versions of {shown(path)} are files of their own now.")


@conflicts.command(
    epilog="\b\nExamples:\n  hybrisfs conflicts merge notes.txt --dry-run\n"
    "  hybrisfs conflicts merge notes.txt --tool meld\n"
    "  hybrisfs conflicts merge a.txt --tool 'diffuse $LOCAL $MERGED $REMOTE'"
)
@click.argument("path", shell_complete=complete_conflicts)
@click.option("--tool", metavar="COMMAND", help="The program for what you have to decide.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@volume_option
def merge(path: str, tool: str | None, dry_run: bool, name: str | None) -> None:
    """Make one file of the versions of PATH, with the changes of all.

    Texts whose changes are in different places are merged at once, and lists that got something at their
    end. Else a program opens, where you decide: COMMAND, or that of $HYBRISFS_MERGE_TOOL, or meld, kdiff3 or
    vimdiff. It gets the files LOCAL BASE REMOTE MERGED, or those of $LOCAL and so on that COMMAND names. What
    it leaves in MERGED is taken when it ends without an error.

    Nothing is lost: each version is in versions list afterwards.
    """
    with beside() as folder:
        with Client.connect() as client:
            volume, place = named_place(client, path, name)
            found = client.call(ConflictsCompareRequest(name=volume, path=place, into=str(folder)))
        merged = folder / "merged"
        if dry_run and found.merged:
            for line in difference(folder / "0", merged, found.path):
                click.echo(line)
            return
        if dry_run:
            raise click.ClickException(f"{shown(found.path)} is not merged without you: {found.why}")
        if not found.merged:
            merged = changed_by_tool(folder, found, tool)
        settled = False
        try:
            with Client.connect() as client:
                client.call(
                    ConflictsSettleRequest(
                        name=found.name, path=found.path, mark=found.mark, source=str(merged)
                    )
                )
            settled = True
        finally:
            if not (settled or found.merged):
                click.echo(f"What you have merged is in {shown(str(kept(merged)))}.", err=True)
    click.echo(
        f"Merged {count(len(found.versions), 'version')} of {shown(found.path)}. "
        "hybrisfs versions list shows what each of them was."
    )


# -- hybrisfs deletions list, show, accept, undo --------------------------------------------------------


@click.group(cls=Commands)
def deletions() -> None:
    """Decide on what other machines deleted or overwrote in mass."""


@deletions.command("list", epilog="\b\nExample:\n  hybrisfs deletions list --json")
@volume_argument(required=False)
@json_option
def list_deletions(name: str | None, as_json: bool) -> None:
    """List what waits. This machine goes on showing what was there, and shows all else that is new."""
    with Client.connect() as client:
        facts = client.call(DeletionsListRequest(name))
    show(facts, as_json, _listed_deletions)


def _listed_deletions(facts: Deletions) -> Iterator[str]:
    if not facts.deletions:
        yield "No deletion waits."
        return
    rows = [["ID", "MACHINE", "WHEN", "WHAT"]]
    for one in facts.deletions:
        when = moment(one.time)
        what = f"deletes {one.names} of {one.of} files and folders"
        if one.overwrites:
            what = f"overwrites {one.names} of {one.of} files"
        if not one.examined:
            what += "; samples are looked at first"
        rows.append([one.id, shown(one.device), when, what])
    yield from columns(rows, indent="")
    yield "hybrisfs deletions show ID lists the files. accept ID lets it happen here, too;"
    yield "undo ID brings the files back everywhere, as they were."


@deletions.command("show", epilog="\b\nExample:\n  hybrisfs deletions show 3fa85f64a1b2")
@click.argument("deletion", metavar="ID")
@volume_option
@json_option
def show_deletion(deletion: str, name: str | None, as_json: bool) -> None:
    """List the files that are held: their size here, and what the other machine made of them.

    Of more than 1,000 files some are listed.
    """
    with Client.connect() as client:
        facts = client.call(DeletionsShowRequest(name=name, id=deletion))
    show(facts, as_json, _listed_files)


def _listed_files(facts: HeldFiles) -> Iterator[str]:
    rows = [["CHANGE", "HERE", "THERE", "PATH"]]
    for one in facts.files:
        there = "-" if one.now is None else size(one.now)
        rows.append([one.change, size(one.before), there, shown(one.path)])
    yield from columns(rows, indent="")
    if facts.count > len(facts.files):
        yield f"and {facts.count - len(facts.files)} more"


@deletions.command(epilog="\b\nExample:\n  hybrisfs deletions accept 3fa85f64a1b2")
@click.argument("deletion", metavar="ID")
@volume_option
def accept(deletion: str, name: str | None) -> None:
    """Delete or overwrite here, too, what another machine did."""
    with Client.connect() as client:
        client.call(DeletionsAcceptRequest(name=name, id=deletion))
    click.echo("Done here, too.")


@deletions.command(epilog="\b\nExample:\n  hybrisfs deletions undo 3fa85f64a1b2")
@click.argument("deletion", metavar="ID")
@volume_option
def undo(deletion: str, name: str | None) -> None:
    """Bring back on all machines what another machine deleted or overwrote."""
    with Client.connect() as client:
        client.call(DeletionsUndoRequest(name=name, id=deletion))
    click.echo("Brought back, on all machines.")
