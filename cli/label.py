"""hybrisfs label add, remove, list"""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.output import columns, json_option, show, shown
from cli.paths import absolute, complete_files
from hybrisfs.api.labels import (
    LabelAddRequest,
    LabelFindRequest,
    LabelledNodes,
    LabelledPaths,
    LabelListRequest,
    LabelRemoveRequest,
    Labels,
    LabelShowRequest,
)
from hybrisfs.client import Client

_word = click.argument("word")
_paths = click.argument("paths", shell_complete=complete_files, metavar="PATH...", nargs=-1, required=True)


@click.group()
def label() -> None:
    """Put words on files and folders, and find these by them.

    All machines see the labels. Programs read and set them as the extended attribute
    user.hybrisfs.labels, with commas between them.
    """


@label.command(epilog="\b\nExample:\n  hybrisfs label add taxes ~/HybrisFS/Documents/2026")
@_word
@_paths
@json_option
def add(word: str, paths: tuple[str, ...], as_json: bool) -> None:
    """Put the label WORD on files and folders. With commas in it, it is several."""
    with Client.connect() as client:
        facts = client.call(LabelAddRequest(labels=word.split(","), paths=absolute(paths)))
    show(facts, as_json, _describe)


@label.command(epilog="\b\nExample:\n  hybrisfs label remove taxes ~/HybrisFS/Documents/2026")
@_word
@_paths
@json_option
def remove(word: str, paths: tuple[str, ...], as_json: bool) -> None:
    """Take the label WORD from files and folders. With commas in it, it is several."""
    with Client.connect() as client:
        facts = client.call(LabelRemoveRequest(labels=word.split(","), paths=absolute(paths)))
    show(facts, as_json, _describe)


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
            show(client.call(LabelShowRequest(absolute(paths))), as_json, _describe)
        else:
            show(client.call(LabelListRequest()), as_json, _table)


def _describe(facts: LabelledPaths) -> Iterator[str]:
    for one in facts.paths:
        labels = ", ".join(shown(word) for word in one.labels)
        yield f"{shown(one.path)}: {labels or 'no labels'}"


def _describe_found(facts: LabelledNodes) -> Iterator[str]:
    for one in facts.found:
        yield shown(one.path or f"{one.inside} in {one.volume}")
    if not facts.found:
        yield f"Nothing has the label {shown(facts.label)}."


def _table(facts: Labels) -> list[str]:
    if not facts.labels:
        return ["There are no labels."]
    rows = [["LABEL", "COUNT", "VOLUME"]]
    rows += [[shown(one.label), f"{one.count:,}", shown(one.volume)] for one in facts.labels]
    return columns(rows, indent="")
