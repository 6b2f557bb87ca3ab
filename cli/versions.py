"""hybrisfs versions list, show, restore, and hybrisfs log; `cli.citing` has the rest of the group"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator

import click

from cli import output
from cli.arguments import absolute, complete_files, complete_volumes, moment, named_place
from cli.citing import diff, id_, verify
from cli.output import columns, count, exact_moment, json_option, shown, size
from cli.usage import Commands, command
from hybrisfs.api.versions import (
    Changes,
    LogRequest,
    Preview,
    RemovedFiles,
    Restored,
    Versions,
    VersionsListRequest,
    VersionsPreviewRequest,
    VersionsReadRequest,
    VersionsRemovedRequest,
    VersionsRestoreRequest,
)
from hybrisfs.client import Client

_volume = click.option(
    "--volume",
    "name",
    metavar="NAME",
    help="PATH is relative to the folder of this volume, mounted or not.",
    shell_complete=complete_volumes,
)


_at = click.option(
    "--at",
    metavar="TIME",
    callback=moment,
    help="As it was then: 2h or 3d ago, 2026-11-20, 2026-11-20T18:00, 2026-11-20T17:00Z.",
)
_number = click.option(
    "--version", "number", metavar="N", type=click.IntRange(0), help="The one with this number in the list."
)


@click.group(cls=Commands)
def versions() -> None:
    """List, show and restore what files and folders were before.

    The whole volume as it was at some time is also a folder in it: .hybrisfs/at/2026-11-20T18:00, to be read
    with any program. hybrisfs volume set NAME --keep-versions says what is kept.
    """


for _command in (id_, verify, diff):
    versions.add_command(_command)


@versions.command(
    "list",
    epilog="\b\nExamples:\n  hybrisfs versions list ~/HybrisFS/notes.txt\n"
    "  hybrisfs versions list --removed ~/HybrisFS/Documents",
)
@click.argument("path", shell_complete=complete_files)
@click.option("--removed", is_flag=True, help="What was removed from the folder PATH, or emptied there.")
@_volume
@json_option
def list_(path: str, removed: bool, name: str | None, as_json: bool) -> None:
    """List the versions of the file PATH, the latest first. It need not be there any more.

    Versions are marked that cannot be read now, as only another machine has their bytes.
    """
    with Client.connect() as client:
        if removed:
            gone = client.call(VersionsRemovedRequest(name=name, path=_path(path, name)))
            output.show(gone, as_json, _describe_removed)
        else:
            kept = client.call(VersionsListRequest(name=name, path=_path(path, name)))
            output.show(kept, as_json, _describe_versions)


def _describe_versions(facts: Versions) -> Iterator[str]:
    absent = [one for one in facts.versions if not one.readable]
    rows = [["NO", "SINCE", "SIZE", "MACHINE", "KEPT UNTIL", "AS"]]
    for one in facts.versions:
        kept = "it is there now" if one.kept_until is None else exact_moment(one.kept_until)
        rows.append(
            [
                str(one.version),
                exact_moment(one.since),
                size(one.size),
                shown(one.device),
                kept,
                shown(one.path),
                *(["cannot be read now" if one in absent else ""] if absent else []),
            ]
        )
    if absent:
        rows[0].append("")
    yield from columns(rows, indent="")
    for device in dict.fromkeys(one.device for one in absent):
        yield f"What cannot be read now is on no cloud that this machine knows of: {shown(device)} has it."
    if facts.known_since is not None:
        yield f"What was before {exact_moment(facts.known_since)}, this machine does not know."


def _describe_removed(facts: RemovedFiles) -> list[str]:
    if not facts.removed:
        return ["Nothing that was removed or emptied there is kept."]
    rows = [["REMOVED", "BY", "SIZE", "KEPT UNTIL", "NAME"]]
    for one in facts.removed:
        what = one.kind if one.kind == "folder" else size(one.size)
        what += " (emptied)" if one.kind == "emptied" else ""
        rows.append(
            [
                exact_moment(one.removed),
                shown(one.device),
                what,
                exact_moment(one.kept_until),
                shown(one.path),
            ]
        )
    return columns(rows, indent="")


@versions.command(
    epilog="\b\nExamples:\n  hybrisfs versions show ~/HybrisFS/notes.txt\n"
    "  hybrisfs versions show ~/HybrisFS/notes.txt --at 2h > old.txt"
)
@click.argument("path", shell_complete=complete_files)
@_at
@_number
@_volume
def show(path: str, at: str | None, number: int | None, name: str | None) -> None:
    """Write a version of the file PATH to the standard output.

    Unless you say which, it is the latest one before what is there now that can be read.
    """
    _exclude(at, number)
    with Client.connect() as client, tempfile.NamedTemporaryFile(prefix="hybrisfs-version-") as file:
        where = _path(path, name)
        client.call(VersionsReadRequest(name=name, path=where, at=at, version=number, to=file.name))
        shutil.copyfileobj(file, sys.stdout.buffer)


@versions.command(
    epilog="\b\nExamples:\n  hybrisfs versions restore ~/HybrisFS/notes.txt\n"
    "  hybrisfs versions restore ~/HybrisFS/src --at 3d --as ~/HybrisFS/old\n"
    "  hybrisfs versions restore ~/HybrisFS --at 3d --dry-run"
)
@click.argument("path", shell_complete=complete_files)
@_at
@_number
@click.option("--as", "target", metavar="OTHER", help="Restore it there, and leave PATH as it is.")
@click.option("--dry-run", is_flag=True, help="With --at: only show what would change.")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal nobody is asked.")
@_volume
@json_option
def restore(
    path: str,
    at: str | None,
    number: int | None,
    target: str | None,
    dry_run: bool,
    yes: bool,
    name: str | None,
    as_json: bool,
) -> int:
    """Put a version of the file PATH back: unless you say which, the latest before what is there now.

    With --at, PATH may be a folder, or the folder of the volume: all that was in it then is put back, and
    what has come since stays. Of the whole volume you are shown first what would change, and asked for its
    name.

    Nothing is lost by it: what is there now is a version afterwards, and an ignored file, which cannot be
    one, is left. Nothing is uploaded. The exit code is 1 when something in the folder cannot be put back.
    """
    _exclude(at, number)
    where, put = _path(path, name), None if target is None else _path(target, name)
    with Client.connect() as client:
        if dry_run:
            if at is None:
                raise click.UsageError("--dry-run needs --at")
            preview = client.call(VersionsPreviewRequest(name=name, path=where, at=at, target=put))
            output.show(preview, as_json, _describe_preview)
            return 1 if preview.left else 0
        if at is not None and put is None and sys.stdin.isatty() and not yes:
            _ask_for_whole(client, path, at, name)
        facts = client.call(VersionsRestoreRequest(name=name, path=where, at=at, version=number, target=put))
    output.show(facts, as_json, _describe_restored)
    return 1 if facts.left_files else 0


def _ask_for_whole(client: Client, path: str, at: str, name: str | None) -> None:
    """If a path is the folder of a volume: show what would change, and have its name typed."""
    volume, place = named_place(client, path, name)
    if volume is None or {*place.split("/")} - {"", "."}:
        return
    preview = client.call(VersionsPreviewRequest(name=volume, path="", at=at))
    click.echo("\n".join(_describe_preview(preview)), err=True)
    typed = click.prompt("Type the name of the volume to restore all of it", err=True)
    if typed != preview.name:
        raise click.UsageError(f"the volume is called {shown(preview.name)}: nothing was changed")


def _describe_preview(facts: Preview) -> Iterator[str]:
    words = {"made": "make", "changed": "change", "left": "cannot be restored"}
    rows = [
        [words[one.what], size(one.size) if one.kind == "file" else one.kind, shown(one.path)]
        for one in facts.changes
    ]
    yield from columns([["WHAT", "SIZE", "NAME"], *rows], indent="") if rows else []
    more = facts.made + facts.changed + facts.left - sum(one.kind != "folder" for one in facts.changes)
    if more > 0:
        yield f"and {count(more, 'other')}"
    yield (
        f"Restoring would make {count(facts.made, 'file')}, change {facts.changed}, and leave {facts.same} "
        "as they are. What has come since stays."
    )
    for one in facts.changes:
        if one.why:
            yield f"{shown(one.why)}."


def _describe_restored(facts: Restored) -> Iterator[str]:
    where = f" at {shown(facts.path)}" if facts.path.strip("./") else ""
    yield f"Restored {count(facts.files, 'file')}{where}."
    for one in facts.left:
        yield f"{shown(one.why)}."
    if facts.left_files > len(facts.left):
        yield f"Nor can {count(facts.left_files - len(facts.left), 'other')}."


def _path(path: str, name: str | None) -> str:
    return path.strip("/") if name is not None else absolute([path])[0]


def _exclude(at: str | None, number: int | None) -> None:
    if at is not None and number is not None:
        raise click.UsageError("--at and --version exclude each other.")


# -- hybrisfs log ---------------------------------------------------------------------------------------


_LIMIT = 50
_MOST = 1000


@command(epilog="\b\nExamples:\n  hybrisfs log ~/HybrisFS/notes.txt\n  hybrisfs log Documents --volume home")
@click.argument("path", shell_complete=complete_files)
@click.option(
    "--volume",
    "name",
    metavar="NAME",
    help="PATH is relative to the folder of this volume, mounted or not.",
    shell_complete=complete_volumes,
)
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=_LIMIT, show_default=True, help="The last ones."
)
@json_option
def log(path: str, name: str | None, limit: int, as_json: bool) -> None:
    """Show who changed the file or folder PATH, and when: made, named, content, mode, owner, removed.

    It need not be there any more. What versions are no longer kept of is not shown.
    """
    where = path if name is not None else absolute((path,))[0]
    with Client.connect() as client:
        facts = client.call(LogRequest(name=name, path=where, limit=limit))
    output.show(facts, as_json, _describe)


def _describe(facts: Changes) -> Iterator[str]:
    rows = [
        [exact_moment(one.time), shown(one.device), "; ".join(map(shown, one.what))] for one in facts.changes
    ]
    yield from columns(rows, indent="")
    if facts.more:
        yield "There is more: --limit shows it."
    if facts.known_since is not None:
        yield f"What was before {exact_moment(facts.known_since)}, this machine does not know."
