"""hybrisfs gc"""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from cli.output import count, json_option, show, shown, size
from cli.progress import progress_bar
from cli.volume_name import complete_volumes
from hybrisfs.api.maintenance import Collected, GcRequest, Packs, UnnamedValues
from hybrisfs.client import Client


@click.command(epilog="\b\nExamples:\n  hybrisfs gc --dry-run\n  hybrisfs gc photos")
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option("--dry-run", is_flag=True, help="Only say what there is to be deleted.")
@json_option
def gc(name: str | None, dry_run: bool, as_json: bool) -> int:
    """Delete from the clouds of the volume NAME what no file needs any more.

    That goes on in the background anyway. What has been deleted or overwritten stays on the clouds for some
    days (discard_hours in volume.json), and until all machines of the volume have agreed that they need
    nothing of it. NAME can be left out when there is one volume. The exit code is 1 when something cannot be
    done now.
    """
    with Client.connect() as client, progress_bar("steps") as bar:
        facts = client.call(
            GcRequest(name, dry_run),
            lambda step: bar(shown(step.stage), step.done, step.total),
        )
    show(facts, as_json, _describe)
    return 1 if facts.trouble else 0


def _describe(facts: Collected) -> Iterator[str]:
    yield f"{shown(facts.name)}: {_deleted(facts)}"
    for line in (*_found(facts), *_values(facts.values), *_left(facts)):
        yield f"  {line}"
    for one in facts.waiting_for:
        seen = one.last_seen
        when = "" if seen is None else f", last seen {time.strftime('%Y-%m-%d %H:%M', time.localtime(seen))}"
        yield f"  waiting for {shown(one.device)} to agree{when}"
    if facts.trouble:
        yield f"  it could not be finished: {shown(facts.trouble)}"


def _deleted(facts: Collected) -> str:
    if facts.dry_run:
        return "nothing was changed."
    return f"{_packs(facts.deleted)} deleted." if facts.deleted.packs else "nothing was deleted."


def _found(facts: Collected) -> Iterator[str]:
    """What the clouds hold in vain."""
    if facts.empty.packs:
        yield f"not needed at all: {_packs(facts.empty)}"
    if facts.sparse.packs:
        done = f"; {count(facts.rewritten, 'pack')} packed anew" if facts.rewritten else ""
        yield f"hardly needed: {_packs(facts.sparse)}{done}"
    if facts.young.packs:
        yield f"kept for some time yet: {_packs(facts.young)}"
    unnamed = facts.unnamed
    shares = unnamed.strays + unnamed.leftovers
    if unnamed.orphans or shares:
        yield f"named by nothing: {count(unnamed.orphans, 'pack')}, {count(shares, 'single share')}"
    if unnamed.young:
        yield f"perhaps on the way still: {count(unnamed.young, 'share')} that nothing names"


def _values(values: UnnamedValues | None) -> Iterator[str]:
    if values is not None and values.unnamed:
        of_this = count(values.unnamed, "object")
        yield f"of the key-value store, named by no key: {of_this} (hybrisfs kv clean)"
    if values is not None and values.former:
        former = count(values.former, "object")
        yield f"of key-value stores that this machine had: {former} (hybrisfs kv clean --former)"


def _left(facts: Collected) -> Iterator[str]:
    """What is still to be deleted, and what became of the log."""
    if facts.undeletable:
        what = count(facts.undeletable, "object")
        yield f"{what} wait for a device that may delete: the credentials of this one may not"
    elif facts.due.packs:
        yield f"to be deleted when the clouds can be reached: {_packs(facts.due)}"
    log = facts.log
    if log.dropped:
        yield (
            f"the log: {count(log.dropped, 'change')} summed up in a checkpoint "
            f"({size(log.freed_bytes)} freed on this device), {log.kept:,} kept one by one"
        )


def _packs(packs: Packs) -> str:
    return f"{count(packs.packs, 'pack')} ({size(packs.bytes)})"
