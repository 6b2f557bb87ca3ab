"""The containers of hybrisfs kv: where they are, and what nobody needs of them any more"""

from __future__ import annotations

from typing import Final

import click

from cli.arguments import complete_containers
from cli.output import columns, count, json_option, print_json, progress_bar, show, shown
from cli.usage import command, volume_argument
from hybrisfs.api.key_value import (
    IN_CLOUDS,
    IN_LOG,
    ON_DEVICE,
    Cleaned,
    KvCleanRequest,
    KvContainersRequest,
    KvCreateRequest,
    KvDropRequest,
    KvForgetRequest,
    KvMigrateRequest,
    KvRebuildRequest,
    KvSessionRequest,
)
from hybrisfs.api.request import message_of
from hybrisfs.client import Client

__all__ = ["COMMANDS"]


@command(
    epilog="""\b
Examples:
  hybrisfs kv create home notes
  hybrisfs kv create home bank --metadata clouds
  hybrisfs kv create home bank --metadata etcd://db1,db2,db3
  hybrisfs kv create home bank --metadata 'etcds://db1.org?names=sealed'
  hybrisfs kv create home notes --metadata zookeeper://zk1,zk2,zk3/notes"""
)
@volume_argument(metavar="VOLUME")
@click.argument("container")
@click.option(
    "--metadata",
    metavar="device|log|clouds|URL",
    help="Where the list of keys is: on this machine alone (device); in the log of the volume, on all its "
    "machines; on the clouds themselves, or in an etcd or a ZooKeeper, for all of them. Without this option "
    "it is in the log when the volume has several machines, and else on this one.",
)
def create(name: str, container: str, metadata: str | None) -> None:
    """Make a container: keys live in containers.

    One in the log is on every machine of the volume, with its values, of up to 256 KiB each, and works
    offline. When machines write a key without knowing of each other, all values are kept: kv get --all shows
    them, kv get --tag TAG reads one, and the next kv put takes their place.

    One on the clouds needs no server, and 3f+1 clouds: four when one may fail. All machines see every write
    at once, whatever f clouds do, but a transaction has one key only. A write asks the clouds three times, a
    read twice. The container stays on these very clouds. clouds:pasis is another protocol, for 4f+1 clouds.

    The URL of an etcd (3.5 or newer) is etcd://[USER@]HOST[:PORT][,HOST ...][/PREFIX], or etcds:// with TLS.
    That of a ZooKeeper (3.5 or newer) begins with zookeeper:// or zookeepers://. The operator of the service,
    and everybody who can read there, sees the names of containers and keys, sizes, times and attributes. If
    that is not you alone, add ?names=sealed to the URL, in quotes: then none of these can be read there.
    hybrisfs cloud login URL gives this machine the password. The other machines of the volume learn of it by
    themselves.
    """
    with Client.connect() as client:
        made = client.call(KvCreateRequest(name, container, metadata)).metadata
    where = {
        ON_DEVICE: "for this machine alone",
        IN_LOG: "in the log of the volume, for all its machines",
        IN_CLOUDS: "on the clouds, for all machines of the volume",
    }
    what = where.get(made.partition(":")[0], f"with its keys in {shown(made)}")
    click.echo(f"Made the container {shown(container)}, {what}.")


@command(
    epilog="""\b
Examples:
  hybrisfs kv session home
  hybrisfs kv session home "$SESSION" && hybrisfs kv get home notes/today"""
)
@volume_argument(metavar="VOLUME")
@click.argument("seen", metavar="[SESSION]", required=False)
@click.option(
    "--wait",
    "patience",
    metavar="S",
    type=click.FloatRange(0, 60),
    default=30.0,
    show_default=True,
    help="Wait for SESSION at most S seconds.",
)
def session(name: str, seen: str | None, patience: float) -> None:
    """Show what this machine has seen of the containers in the log, as a text.

    Give that text to a program on another machine, which waits with it until that machine has seen as much:
    then it reads what the first one has written, and nothing older than the first one has read.
    """
    with Client.connect() as client:
        click.echo(client.call(KvSessionRequest(name, seen, patience)).session)


@command(epilog="\b\nExample:\n  hybrisfs kv drop home notes")
@volume_argument(metavar="VOLUME")
@click.argument("container", shell_complete=complete_containers)
def drop(name: str, container: str) -> None:
    """Remove a container that holds no keys any more."""
    with Client.connect() as client:
        client.call(KvDropRequest(name, container))
    click.echo(f"Removed the container {shown(container)}.")


@command(epilog="\b\nExample:\n  hybrisfs kv containers home --json")
@volume_argument(metavar="VOLUME")
@json_option
def containers(name: str, as_json: bool) -> int:
    """List the containers, and where the metadata of each are.

    The exit code is 1 when a service does not answer.
    """
    with Client.connect() as client:
        facts = client.call(KvContainersRequest(name))
    silent = [one for one in facts.places if one.trouble]
    if as_json:
        print_json({"name": name, **message_of(facts)})
    else:
        rows = [[shown(one), shown(place.shown)] for place in facts.places for one in place.containers]
        if rows:
            click.echo("\n".join(columns([["CONTAINER", "METADATA"], *sorted(rows)], indent="")))
        elif not silent:
            click.echo("There are no containers.")
        for one in silent:
            click.echo(f"hybrisfs: {shown(one.trouble)}", err=True)
    return 1 if silent else 0


@command(
    epilog="\b\nExamples:\n  hybrisfs kv migrate home notes --metadata etcd://db1,db2,db3"
    "\n  hybrisfs kv migrate home/notes --metadata device"
)
@volume_argument(metavar="VOLUME")
@click.argument("container", required=False, shell_complete=complete_containers)
@click.option(
    "--metadata", metavar="device|log|clouds|URL", required=True, help="Where the list of keys is to be."
)
@json_option
def migrate(name: str, container: str | None, metadata: str, as_json: bool) -> None:
    """Move a container to another place of its metadata.

    Programs can go on using it; only at the end they get an error for a moment, and for two minutes when it
    was on the clouds. With --metadata clouds it goes from there to the clouds of now. Values, versions and
    attributes stay, tags are new. A move that was cut short goes on when the command is given again.

    In the log, keys have up to 512 bytes and values up to 256 KiB. Before a container leaves the log, each of
    its keys must have one value. A machine that does not know of the move may write to the container in the
    log. These values are kept: conflicts list names the container, and the same command brings them over.
    When a key has changed in both places, the late value gets a key of its own, 'KEY (late TAG)'.
    """
    if container is None:
        name, _, container = name.partition("/")
    if not container:
        raise click.UsageError("name the container, as VOLUME CONTAINER or VOLUME/CONTAINER")
    with Client.connect() as client, progress_bar("keys") as bar:
        facts = client.call(
            KvMigrateRequest(name, container, metadata),
            lambda step: bar(shown(step.stage), step.done, step.total),
        )
    show(
        facts,
        as_json,
        lambda moved: [
            f"Moved the container {shown(container)}: {count(moved.keys, 'key')} copied.",
            *(f"Written late, beside another value: {shown(f'{container}/{key}')}" for key in moved.beside),
        ],
    )


@command(epilog="\b\nExample:\n  hybrisfs kv forget home etcd://db1,db2,db3")
@volume_argument(metavar="VOLUME")
@click.argument("url")
def forget(name: str, url: str) -> None:
    """Stop using an etcd or a ZooKeeper, on all machines of the volume.

    What is in it stays there, and its values stay on the clouds: kv create with the URL brings them back.
    """
    with Client.connect() as client:
        client.call(KvForgetRequest(name, url))
    click.echo(f"{shown(url)} is not used any more.")


@command(epilog="\b\nExamples:\n  hybrisfs kv clean home --dry-run\n  hybrisfs kv clean home --former")
@volume_argument(metavar="VOLUME")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option(
    "--former",
    is_flag=True,
    help="Delete also the values of stores that this machine had before. Backups of them are useless then.",
)
@json_option
def clean(name: str, dry_run: bool, former: bool, as_json: bool) -> int:
    """Delete from the clouds values that no key names.

    There are some after kv.db was restored from a backup, rebuilt or lost, or when a cloud has carried out a
    request days late. Do not use it while a copy of
    this machine is at work elsewhere: what that one has stored would be deleted. The exit code is 1 when some
    cloud could not be cleaned.
    """
    with Client.connect() as client:
        facts = client.call(KvCleanRequest(name, dry_run, former))
    if as_json:
        print_json({"name": name, **message_of(facts)})
    else:
        _explain_cleaning(facts, dry_run=dry_run)
    return 1 if facts.failed else 0


def _explain_cleaning(facts: Cleaned, *, dry_run: bool) -> None:
    click.echo("Nothing was changed." if dry_run else f"Deleted {count(facts.deleted, 'object')}.")
    click.echo(f"  that no key names: {facts.unnamed:,}")
    click.echo(f"  of stores that this machine had before: {facts.former:,}")
    click.echo(f"  of other machines, or of unknown ones (left alone): {facts.of_others:,}")
    for one in facts.failed:
        click.echo(f"  not on {shown(one.cloud)}: {shown(one.why)}")


@command(epilog="\b\nExample:\n  hybrisfs kv rebuild home")
@volume_argument(metavar="VOLUME")
@json_option
def rebuild(name: str, as_json: bool) -> int:
    """Make the list of keys (kv.db) again, when it is damaged.

    The damaged file is set aside, and the keys that can be read are saved. Values of the others stay on
    the clouds until kv clean. The exit code is 1 when something was lost.
    """
    with Client.connect() as client:
        facts = client.call(KvRebuildRequest(name))
    if as_json:
        print_json({"name": name, **message_of(facts)})
    else:
        click.echo(f"Set aside: {shown(facts.set_aside)}. Remove it when all is well.")
        if facts.same_store:
            click.echo(f"Taken over: {count(facts.keys, 'key')}; damaged: {facts.damaged:,}.")
        else:
            click.echo("Nothing of it can be read: the store is empty.")
    return 1 if facts.damaged or not facts.same_store else 0


COMMANDS: Final = (create, drop, containers, session, migrate, forget, clean, rebuild)
