"""hybrisfs pin, unpin, evict, cache, label: what of files is kept on this machine, and words on them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.arguments import absolute, complete_files
from cli.output import NOT_YET, columns, count, json_option, progress_bar, show, shown, size
from cli.usage import Commands, command, volume_argument
from hybrisfs.api.files import (
    EvictedPath,
    EvictedPaths,
    EvictRequest,
    LabelAddRequest,
    LabelFindRequest,
    LabelledNodes,
    LabelledPaths,
    LabelListRequest,
    LabelRemoveRequest,
    Labels,
    LabelShowRequest,
    PinListRequest,
    PinnedPath,
    PinnedPaths,
    PinRequest,
    Pins,
    UnpinRequest,
)
from hybrisfs.api.maintenance import CacheDropRequest, Dropped
from hybrisfs.client import Client


@command(epilog="\b\nExample:\n  hybrisfs pin --wait ~/HybrisFS/Music")
@click.argument("paths", shell_complete=complete_files, metavar="[PATH]...", nargs=-1)
@click.option("--wait", is_flag=True, help="Wait until all of it is on this machine.")
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0),
    help="With --wait: give up after S seconds, exit code 3; the rest still comes.",
)
@json_option
def pin(paths: tuple[str, ...], wait: bool, timeout: float | None, as_json: bool) -> int:
    """Keep files and folders on this machine, with all that is in them and comes into them later.

    What is not here yet is fetched in the background, and nothing of it is evicted until it is unpinned.
    Without PATH, lists what is pinned.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    if not paths:
        _list(as_json)
        return 0
    asked = PinRequest(absolute(paths), wait, timeout)
    with Client.connect() as client, progress_bar("bytes") as bar:
        facts = client.call(asked, lambda step: bar("fetching", step.done, step.total))
    show(facts, as_json, _pinned)
    if wait and not facts.done and not as_json:
        why = f": {shown(facts.problem)}" if facts.problem else ""
        click.echo(f"Not all of it is here yet{why}; it still comes in the background.", err=True)
    return NOT_YET if wait and not facts.done else 0


def _pinned(facts: PinnedPaths) -> Iterator[str]:
    for one in facts.paths:
        what = f"{count(one.files, 'file')}, {size(one.bytes)}"
        yield f"{shown(one.path)} is pinned: {what}{_missing(one, facts.done)}."


def _missing(one: PinnedPath, done: bool) -> str:
    if done or not one.missing_bytes:
        return ""
    return f", of which {size(one.missing_bytes)} are being fetched"


def _list(as_json: bool) -> None:
    with Client.connect() as client:
        facts = client.call(PinListRequest())
    show(facts, as_json, _pins)


def _pins(facts: Pins) -> list[str]:
    if not facts.pins:
        return ["Nothing is pinned."]
    rows = [["PATH", "FILES", "SIZE", "MISSING"]]
    for one in facts.pins:
        where = one.path or f"{one.inside} in {one.volume}"
        rows.append([shown(where), f"{one.files:,}", size(one.bytes), size(one.missing_bytes)])
    return columns(rows, indent="")


# -- hybrisfs unpin -------------------------------------------------------------------------------------


@command(epilog="\b\nExample:\n  hybrisfs unpin ~/HybrisFS/Music")
@click.argument("paths", shell_complete=complete_files, metavar="PATH...", nargs=-1, required=True)
@json_option
def unpin(paths: tuple[str, ...], as_json: bool) -> None:
    """Let pinned files and folders be evicted again when room is needed.

    Nothing is evicted by that: see hybrisfs evict.
    """
    with Client.connect() as client:
        facts = client.call(UnpinRequest(absolute(paths)))
    show(facts, as_json, lambda done: [f"{shown(one.path)} is not pinned any more." for one in done.paths])


# -- hybrisfs evict -------------------------------------------------------------------------------------


@command(epilog="\b\nExample:\n  hybrisfs evict ~/HybrisFS/Videos")
@click.argument("paths", shell_complete=complete_files, metavar="PATH...", nargs=-1, required=True)
@json_option
def evict(paths: tuple[str, ...], as_json: bool) -> None:
    """Free the disk space of files and folders whose content the clouds hold.

    They stay visible, and are fetched again when they are read. What is pinned or not on the clouds
    yet is kept, and what is to be on this machine by hybrisfs copies.
    """
    with Client.connect() as client:
        facts = client.call(EvictRequest(absolute(paths)))
    show(facts, as_json, _evicted)


def _evicted(facts: EvictedPaths) -> Iterator[str]:
    for one in facts.paths:
        yield f"{shown(one.path)}: freed {size(one.freed_bytes)}.{_kept(one)}"


def _kept(one: EvictedPath) -> str:
    parts = []
    if one.pinned_bytes:
        parts.append(f"{size(one.pinned_bytes)} that are pinned")
    if one.pending_bytes:
        parts.append(f"{size(one.pending_bytes)} that are not on the clouds yet")
    if one.copies_bytes:
        parts.append(f"{size(one.copies_bytes)} that are to be on this machine (hybrisfs copies list)")
    return f" Kept {' and '.join(parts)}." if parts else ""


# -- hybrisfs cache drop --------------------------------------------------------------------------------


@click.group(cls=Commands)
def cache() -> None:
    """Manage the local copies of what the clouds hold."""


@cache.command(epilog="\b\nExample:\n  hybrisfs cache drop photos")
@volume_argument(required=False)
@json_option
def drop(name: str | None, as_json: bool) -> None:
    """Forget every cached byte of the volume NAME that the clouds hold.

    What is pinned or not on the clouds yet is kept. NAME can be left out when there is one volume.
    """
    with Client.connect() as client:
        facts = client.call(CacheDropRequest(name))
    show(facts, as_json, _dropped)


def _dropped(facts: Dropped) -> list[str]:
    kept = facts.kept_bytes
    rest = f" Kept {size(kept)} that are in use, pinned, or not on the clouds yet." if kept else ""
    return [f"{shown(facts.name)}: freed {size(facts.freed_bytes)}.{rest}"]


# -- hybrisfs label add, remove, list -------------------------------------------------------------------


_word = click.argument("word")
_paths = click.argument("paths", shell_complete=complete_files, metavar="PATH...", nargs=-1, required=True)


@click.group(cls=Commands)
def label() -> None:
    """Put words on files and folders, and find these by them.

    All machines see the labels. Programs read and set them as the extended attribute
    user.hybrisfs.labels, with commas between them.
    """


@label.command(epilog="\b\nExample:\n  hybrisfs label add taxes ~/HybrisFS/Documents/bills")
@_word
@_paths
@json_option
def add(word: str, paths: tuple[str, ...], as_json: bool) -> None:
    """Put the label WORD on files and folders. With commas in it, it is several."""
    with Client.connect() as client:
        facts = client.call(LabelAddRequest(labels=word.split(","), paths=absolute(paths)))
    show(facts, as_json, _labelled)


@label.command(epilog="\b\nExample:\n  hybrisfs label remove taxes ~/HybrisFS/Documents/bills")
@_word
@_paths
@json_option
def remove(word: str, paths: tuple[str, ...], as_json: bool) -> None:
    """Take the label WORD from files and folders. With commas in it, it is several."""
    with Client.connect() as client:
        facts = client.call(LabelRemoveRequest(labels=word.split(","), paths=absolute(paths)))
    show(facts, as_json, _labelled)


@label.command(
    "list",
    epilog="\b\nExamples:\n  hybrisfs label list ~/HybrisFS/Documents\n  hybrisfs label list --with taxes",
)
@click.argument("paths", shell_complete=complete_files, metavar="[PATH]...", nargs=-1)
@click.option("--with", "word", metavar="WORD", help="List the files and folders that have this label.")
@json_option
def list_(paths: tuple[str, ...], word: str | None, as_json: bool) -> None:
    """List the labels of files and folders. Without PATH, lists all labels, and how much has each."""
    if paths and word is not None:
        raise click.UsageError("--with takes no PATH")
    with Client.connect() as client:
        if word is not None:
            show(client.call(LabelFindRequest(label=word)), as_json, _describe_found)
        elif paths:
            show(client.call(LabelShowRequest(absolute(paths))), as_json, _labelled)
        else:
            show(client.call(LabelListRequest()), as_json, _labels)


def _labelled(facts: LabelledPaths) -> Iterator[str]:
    for one in facts.paths:
        labels = ", ".join(shown(word) for word in one.labels)
        yield f"{shown(one.path)}: {labels or 'no labels'}"


def _describe_found(facts: LabelledNodes) -> Iterator[str]:
    for one in facts.found:
        yield shown(one.path or f"{one.inside} in {one.volume}")
    if not facts.found:
        yield f"Nothing has the label {shown(facts.label)}."


def _labels(facts: Labels) -> list[str]:
    if not facts.labels:
        return ["There are no labels."]
    rows = [["LABEL", "COUNT", "VOLUME"]]
    rows += [[shown(one.label), f"{one.count:,}", shown(one.volume)] for one in facts.labels]
    return columns(rows, indent="")
