"""hybrisfs fsck, scrub, repair, gc: looking after a volume."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import click

from cli.output import columns, count, json_option, moment, progress_bar, quoted, show, shown, size
from cli.usage import command, volume_argument
from hybrisfs.api.maintenance import (
    CheckedVolume,
    Collected,
    FsckRequest,
    GcRequest,
    Packs,
    RepairedCloud,
    RepairedVolume,
    RepairRequest,
    ScrubbedCloud,
    ScrubbedVolume,
    ScrubRequest,
    UnnamedValues,
    WrongObject,
)
from hybrisfs.client import Client

_UNREAD: Final = "unreadable"  # of what is wrong with an object


@command(epilog="\b\nExamples:\n  hybrisfs fsck\n  hybrisfs fsck photos --clouds")
@volume_argument(required=False)
@click.option("--clouds", is_flag=True, help="Also do what hybrisfs scrub does: it takes time and traffic.")
@click.option("-v", "--verbose", is_flag=True, help="Say how much of what was checked.")
@json_option
def fsck(name: str | None, clouds: bool, verbose: bool, as_json: bool) -> int:
    """Verify what this machine has of the volume NAME: database, log and cache. Changes nothing.

    Says what is wrong where; the exit code is 1 when anything is. NAME can be left out when there is one
    volume. Programs can go on using the volume.
    """
    with Client.connect() as client, progress_bar("things") as bar:
        facts = client.call(
            FsckRequest(name, clouds),
            lambda step: bar(shown(step.stage), step.done, step.total),
        )
    show(facts, as_json, partial(_checked, clouds=clouds, verbose=verbose))
    return 1 if facts.problems else 0


def _checked(facts: CheckedVolume, clouds: bool, verbose: bool) -> Iterator[str]:
    name, problems = shown(facts.name), facts.problems
    if problems:
        yield f"{name}: {count(len(problems), 'problem')} found:"
    else:
        yield f"{name}: no problem found.{'' if clouds else ' hybrisfs scrub checks the clouds.'}"
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
    if verbose:
        yield from columns([[what, f"{number:,}"] for what, number in facts.checked.items()])


# -- hybrisfs scrub -------------------------------------------------------------------------------------


@command(epilog="\b\nExamples:\n  hybrisfs scrub\n  hybrisfs scrub photos --sample 5")
@volume_argument(required=False)
@click.option(
    "--sample",
    metavar="P",
    type=click.FloatRange(min=0, max=100, min_open=True),
    default=100.0,
    help="Read a random P percent of the data instead of all of it.",
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
    show(facts, as_json, _scrubbed)
    return 1 if facts.wrong else 0


def _scrubbed(facts: ScrubbedVolume) -> Iterator[str]:
    unread = sum(cloud.unreadable for cloud in facts.clouds)
    wrong = facts.wrong - unread
    found = [f"{count(wrong, 'problem')} found"] if wrong else []
    found += [f"{count(unread, 'object')} could not be read"] if unread else []
    of = "" if facts.sample == 100 else f" in a sample of {facts.sample:g} %"
    yield f"{shown(facts.name)}: {', and '.join(found) or 'no problem found'}{of}{':' if found else '.'}"
    yield from columns([_scrubbed_cloud(cloud) for cloud in facts.clouds])
    told = [one for one in facts.problems if one.kind != _UNREAD]
    rows = [_problem(one, "the cloud keeps it as it was" if one.older else "") for one in told]
    silent = [cloud for cloud in facts.clouds if cloud.unreadable]
    for cloud in silent:
        first = next((one for one in facts.problems if (one.cloud, one.kind) == (cloud.name, _UNREAD)), None)
        more = f"and {cloud.unreadable - 1:,} more" if cloud.unreadable > 1 else ""
        rows += [_problem(first, more)] if first is not None else []
    yield from columns(rows)
    if wrong > len(told):
        yield f"  and {wrong - len(told):,} more problem{'s' if wrong - len(told) > 1 else ''}"
    if wrong:
        kept = " and what clouds keep of earlier versions" if facts.older else ""
        yield f"hybrisfs repair puts them right from what the other clouds hold{kept}."
    if silent:
        names = ", ".join(shown(cloud.name) for cloud in silent)
        again, back = ("answers", "it does") if len(silent) == 1 else ("answer", "one does")
        yield (
            f"Run it again when {names} {again}. If {back} not come back, hybrisfs repair brings to other "
            "clouds what it should have."
        )
    if facts.values is not None:
        yield from _unnamed(facts.values, facts.name)


def _problem(one: WrongObject, more: str) -> list[str]:
    return [click.style(one.kind, fg="red"), shown(one.cloud), shown(one.what), more]


def _scrubbed_cloud(cloud: ScrubbedCloud) -> list[str]:
    kinds = {
        "missing": cloud.missing,
        "stale": cloud.stale,
        "corrupt": cloud.corrupt,
        "unreadable": cloud.unreadable,
    }
    bad = [f"{number:,} {kind}" for kind, number in kinds.items() if number]
    read = count(cloud.checked - cloud.unreadable, "object")
    return [shown(cloud.name), f"{read} read", ", ".join(bad) or "all right"]


def _unnamed(values: UnnamedValues, volume: str) -> Iterator[str]:
    """Values on the clouds that no key names."""
    number = values.unnamed + values.former
    if number:
        option = " --former" if values.former else ""
        yield (
            f"{count(number, 'object')} of the key-value store on the clouds, named by no key: "
            f"hybrisfs kv clean{option} {shown(volume)} deletes them."
        )


# -- hybrisfs repair ------------------------------------------------------------------------------------


@command(epilog="\b\nExample:\n  hybrisfs scrub photos || hybrisfs repair photos")
@volume_argument(required=False)
@json_option
def repair(name: str | None, as_json: bool) -> int:
    """Rebuild what the clouds of the volume NAME have lost or damaged.

    Everything is read and verified; what is wrong is rebuilt from the other clouds and put back, or onto
    another cloud when its own is down or full. It may be interrupted and run again. The exit code is 1 when
    something could not be repaired. NAME can be left out when there is one volume.
    """
    with Client.connect() as client, progress_bar("things") as bar:
        facts = client.call(
            RepairRequest(name),
            lambda step: bar(shown(step.stage), step.done, step.total),
        )
    show(facts, as_json, _repaired)
    return 1 if facts.failed else 0


def _repaired(facts: RepairedVolume) -> Iterator[str]:
    name, repaired, failed = shown(facts.name), facts.repaired, facts.failed
    if not repaired and not failed:
        yield f"{name}: nothing was wrong."
        return
    yield f"{name}: {count(repaired, 'object')} repaired, {failed:,} not:"
    yield from columns([[shown(cloud.name), _repaired_cloud(cloud)] for cloud in facts.clouds])
    rows = [[shown(one.cloud), shown(one.what), shown(one.why)] for one in facts.problems]
    if rows:
        yield "Not repaired:"
        yield from columns(rows)
        if failed > len(rows):
            yield f"  and {failed - len(rows):,} more"


def _repaired_cloud(cloud: RepairedCloud) -> str:
    parts = [f"{cloud.repaired:,} repaired"] if cloud.repaired else []
    parts += [f"{cloud.moved:,} moved to other clouds"] if cloud.moved else []
    parts += [f"{cloud.failed:,} not repaired"] if cloud.failed else []
    return ", ".join(parts) or "nothing was wrong"


# -- hybrisfs gc ----------------------------------------------------------------------------------------


@command(epilog="\b\nExamples:\n  hybrisfs gc --dry-run\n  hybrisfs gc photos")
@volume_argument(required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@json_option
def gc(name: str | None, dry_run: bool, as_json: bool) -> int:
    """Delete from the clouds of the volume NAME what no file needs any more.

    That goes on in the background anyway. What has been deleted or overwritten stays on the clouds for some
    days (hybrisfs volume set --discard-hours), and until all machines of the volume have agreed that they
    need nothing of it. NAME can be left out when there is one volume. The exit code is 1 when something
    cannot be done now.
    """
    with Client.connect() as client, progress_bar("steps") as bar:
        facts = client.call(
            GcRequest(name, dry_run),
            lambda step: bar(shown(step.stage), step.done, step.total),
        )
    show(facts, as_json, _collected)
    return 1 if facts.trouble else 0


def _collected(facts: Collected) -> Iterator[str]:
    yield f"{shown(facts.name)}: {_deleted(facts)}"
    for line in (*_found(facts), *_values(facts.values), *_left(facts)):
        yield f"  {line}"
    for one in facts.waiting_for:
        seen = one.last_seen
        when = "" if seen is None else f", last seen {moment(seen)}"
        yield f"  waiting for {shown(one.device)} to agree{when}"
    if facts.trouble:
        yield f"  it could not be finished: {shown(facts.trouble)}"


def _deleted(facts: Collected) -> str:
    if facts.dry_run:
        return _deletable(facts)
    return f"{_packs(facts.deleted)} deleted." if facts.deleted.packs else "nothing was deleted."


def _deletable(facts: Collected) -> str:
    """What it would mean to delete now."""
    spare = facts.empty.bytes + facts.sparse.bytes
    if spare:
        command = f"hybrisfs gc {quoted(facts.name)}"
        return f"up to {size(spare)} on the clouds are not needed: {command} frees them."
    if facts.young.packs:
        return (
            f"nothing can be deleted yet: {size(facts.young.bytes)} are kept for some days in case of need."
        )
    return "nothing is to be deleted: everything on the clouds is needed."


def _found(facts: Collected) -> Iterator[str]:
    """What the clouds hold in vain."""
    if facts.empty.packs:
        yield f"not needed at all: {_packs(facts.empty)}"
    if facts.sparse.packs:
        done = f"; {count(facts.rewritten, 'pack')} packed again" if facts.rewritten else ""
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
    """What waits to be deleted, and what became of the log."""
    if facts.undeletable:
        what = count(facts.undeletable, "object")
        yield f"{what} wait for a machine that may delete: the credentials of this one may not"
    elif facts.due.packs:
        yield f"to be deleted when the clouds can be reached: {_packs(facts.due)}"
    log = facts.log
    if log.dropped:
        yield (
            f"the log: {count(log.dropped, 'change')} summed up in a checkpoint "
            f"({size(log.freed_bytes)} freed on this machine), {log.kept:,} kept one by one"
        )


def _packs(packs: Packs) -> str:
    return f"{count(packs.packs, 'pack')} ({size(packs.bytes)})"
