"""hybrisfs kv: values by key, and the containers that they are in"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import click

from cli.arguments import complete_containers, complete_keys
from cli.kv_containers import COMMANDS
from cli.output import columns, count, json_option, moment, print_json, show, shown, size
from cli.usage import Commands, volume_argument
from hybrisfs.api.key_value import (
    KeyFacts,
    KeyNeed,
    KvAppendRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvListRequest,
    KvPutRequest,
    KvReplaceRequest,
    KvTputRequest,
    KvValuesRequest,
    Need,
    Value,
    Write,
)
from hybrisfs.client import Client, UsageError, scratch_folder

_SCRATCH: Final = ".hybrisfs-kv-"
_LARGEST: Final = 64 << 20  # bytes of a value
_BLOCK: Final = 1 << 20

_address = click.argument("address", metavar="CONTAINER/KEY", shell_complete=complete_keys)


@click.group(cls=Commands)
def kv() -> None:
    """Use the volume as a key-value store.

    Values are kept on the volume's clouds, sealed, so that any f of these may fail or lie. Values of less
    than 1 MiB are kept as f+1 whole copies, larger ones on f+k clouds, in pieces if k is above 1. What keys
    there are is known on this machine only, unless the container was made with --metadata. The folder does
    not show them.
    """


for _command in COMMANDS:
    kv.add_command(_command)


def _split(address: str) -> tuple[str, str]:
    container, slash, key = address.partition("/")
    if not (container and slash and key):
        raise click.UsageError(f"{shown(address)} is not CONTAINER/KEY")
    return container, key


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[IO[bytes]]:
    """An empty file that only this user can read, gone at the end unless it was moved away."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=_SCRATCH, delete=False) as file:
        try:
            yield file.file
        finally:
            Path(file.name).unlink(missing_ok=True)


@contextlib.contextmanager
def _as_file(source: str) -> Iterator[str]:
    """The path of a regular file with the content of *source*, a path or "-"."""
    if source != "-" and Path(source).is_file():
        yield os.path.realpath(source)
        return
    with _scratch(scratch_folder()) as copy:
        if source == "-":
            _spool(sys.stdin.buffer, "standard input", copy)
        else:
            with open(source, "rb") as origin:
                _spool(origin, source, copy)
        copy.flush()
        yield copy.name


def _spool(source: IO[bytes], name: str, copy: IO[bytes]) -> None:
    """Copy what is there. Raises UsageError when that is more than a value may have."""
    left = _LARGEST
    while part := source.read(_BLOCK):
        left -= len(part)
        if left < 0:
            raise UsageError(f"{name} is too large", f"a value has at most {_LARGEST:,} bytes")
        copy.write(part)


def _unreadable(error: OSError) -> click.ClickException:
    path = Path(str(error.filename))
    named = path.parent if path.name.startswith(_SCRATCH) else path
    return click.ClickException(f"{shown(str(named))}: {error.strerror}")


_source = click.argument("source", metavar="[FILE]", default="-", type=click.Path(allow_dash=True))
_if_match = click.option(
    "--if-match",
    metavar="TAG",
    help="Only when the key has the value with this tag, which kv put and kv list show.",
)
_if_version = click.option(
    "--if-version",
    metavar="N",
    type=click.IntRange(min=0),
    help="Only when the key's value has this version; 0: when there is none.",
)


def _need(*, absent: bool = False, tag: str | None, version: int | None) -> Need | None:
    """The condition that the options ask for."""
    if absent + (tag is not None) + (version is not None) > 1:
        raise click.UsageError("one condition is enough: a tag tells the version")
    if absent:
        return Need(version=0)
    return None if tag is None and version is None else Need(version, tag)


def _stored(address: str, value: Value) -> list[str]:
    return [f"Stored {shown(address)}, {size(value.size)}, version {value.version} (tag {value.tag})."]


@kv.command(
    epilog="""\b
Examples:
  hybrisfs kv put home notes/today today.txt
  date | hybrisfs kv put home notes/now
  hybrisfs kv put home locks/nightly owner.txt --if-absent"""
)
@volume_argument(metavar="VOLUME")
@_address
@_source
@click.option("--if-absent", is_flag=True, help="Write only if the key does not exist.")
@_if_match
@_if_version
@json_option
def put(
    name: str,
    address: str,
    source: str,
    if_absent: bool,
    if_match: str | None,
    if_version: int | None,
    as_json: bool,
) -> None:
    """Store the content of FILE, or of standard input, under a key.

    Returns when f+k clouds have it: with less than 1 MiB f+1 clouds, each a whole copy. In a container in the
    log it returns when this machine's disk has it.
    The exit code is 6 when a condition does not hold; the message says what is there instead.
    """
    container, key = _split(address)
    need = _need(absent=if_absent, tag=if_match, version=if_version)
    with _uploading(source) as (client, path):
        facts = client.call(KvPutRequest(name, container, key, path, need))
    show(facts, as_json, lambda stored: _stored(address, stored))


@contextlib.contextmanager
def _uploading(source: str) -> Iterator[tuple[Client, str]]:
    """The daemon, and a file with the content of *source*."""
    with Client.connect() as client:
        try:
            with _as_file(source) as path:
                yield client, path
        except OSError as error:
            raise _unreadable(error) from error


@kv.command(epilog="\b\nExample:\n  date | hybrisfs kv append home notes/log")
@volume_argument(metavar="VOLUME")
@_address
@_source
@json_option
def append(name: str, address: str, source: str, as_json: bool) -> None:
    """Add the content of FILE, or of standard input, to the end of a value.

    What others write at the same time is kept. A key that is not there is made.
    """
    container, key = _split(address)
    with _uploading(source) as (client, path):
        facts = client.call(KvAppendRequest(name, container, key, path))
    show(facts, as_json, lambda stored: _stored(address, stored))


@kv.command(epilog="\b\nExample:\n  printf 42 | hybrisfs kv replace home counters/visits 0")
@volume_argument(metavar="VOLUME")
@_address
@click.argument("offset", type=click.IntRange(min=0))
@_source
@json_option
def replace(name: str, address: str, offset: int, source: str, as_json: bool) -> None:
    """Put the content of FILE, or of standard input, in the place of a part of a value.

    The part begins OFFSET bytes behind the beginning of the value, and is as long as the content; the value
    grows when that goes beyond its end. What others write to other parts at the same time is kept.
    """
    container, key = _split(address)
    with _uploading(source) as (client, path):
        facts = client.call(KvReplaceRequest(name, container, key, offset, path))
    show(facts, as_json, lambda stored: _stored(address, stored))


@kv.command(
    epilog="""\b
Examples:
  hybrisfs kv get home notes/today
  hybrisfs kv get home notes/today today.txt --max-age 60"""
)
@volume_argument(metavar="VOLUME")
@_address
@click.argument("target", metavar="[FILE]", default="-", type=click.Path(allow_dash=True))
@click.option(
    "--max-age",
    metavar="S",
    type=click.FloatRange(min=0),
    help="A cached value will do that was the newest at most S seconds ago.",
)
@click.option(
    "--max-versions",
    metavar="N",
    type=click.IntRange(min=0),
    help="A cached value will do that at most N newer ones follow.",
)
@click.option(
    "--at-least",
    metavar="TAG",
    help="A cached value will do that has this tag, or is newer: one that you have written yourself, say.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Show which values there are: several, when machines have written without knowing of each other.",
)
@click.option("--tag", metavar="TAG", help="Of several values, the one with this tag.")
def get(
    name: str,
    address: str,
    target: str,
    max_age: float | None,
    max_versions: int | None,
    at_least: str | None,
    every: bool,
    tag: str | None,
) -> None:
    """Write the value of a key, the newest one, to FILE or to standard output."""
    container, key = _split(address)
    if every:
        if target != "-" or tag is not None:
            raise click.UsageError("--all only shows which values there are: --tag TAG reads one")
        with Client.connect() as client:
            found = client.call(KvValuesRequest(name, container, key)).values
        rows = [
            ["TAG", "SIZE", "WRITTEN"],
            *([one.tag, size(one.size), moment(one.written, "?")] for one in found),
        ]
        click.echo("\n".join(columns(rows, indent="")))
        return
    folder = scratch_folder() if target == "-" else Path(target).absolute().parent
    with Client.connect() as client:
        try:
            with _scratch(folder) as file:
                client.call(
                    KvGetRequest(name, container, key, file.name, max_age, max_versions, at_least, tag=tag)
                )
                _deliver(file, target)
        except OSError as error:
            raise _unreadable(error) from error


def _deliver(file: IO[bytes], target: str) -> None:
    file.seek(0)
    if target == "-" and _is_terminal():
        _show(file.read())
    elif target == "-":
        shutil.copyfileobj(file, sys.stdout.buffer)
    elif Path(target).exists() and not Path(target).is_file():  # a pipe, a terminal
        with open(target, "wb") as out:
            shutil.copyfileobj(file, out)
    else:
        mask = os.umask(0)
        os.umask(mask)
        Path(file.name).chmod(0o666 & ~mask)
        Path(file.name).replace(os.path.realpath(target))


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _show(value: bytes) -> None:
    """Print text; other values could do anything to the terminal."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not all(one.isprintable() or one in "\n\r\t" for one in text):
        raise UsageError(
            "the value is not plain text, and was not shown", "", "Name a FILE, or send it on: | cat -v"
        )
    sys.stdout.buffer.write(value)


@kv.command(epilog="\b\nExample:\n  hybrisfs kv delete home notes/today")
@volume_argument(metavar="VOLUME")
@_address
@_if_match
@_if_version
def delete(name: str, address: str, if_match: str | None, if_version: int | None) -> int:
    """Delete a key. The daemon deletes its value from the clouds in the background.

    The exit code is 1 when there is no such key, 6 when a condition does not hold.
    """
    need = _need(tag=if_match, version=if_version)
    with Client.connect() as client:
        facts = client.call(KvDeleteRequest(name, *_split(address), need))
    if facts.existed:
        click.echo(f"Deleted {shown(address)}.")
        return 0
    click.echo(f"hybrisfs: there is no key {shown(address)}", err=True)
    return 1


@kv.command(
    "list",
    epilog="""\b
Examples:
  hybrisfs kv list home notes
  hybrisfs kv list home notes/2026- --json""",
)
@volume_argument(metavar="VOLUME")
@click.argument("address", metavar="CONTAINER[/PREFIX]", shell_complete=complete_containers)
@json_option
def list_(name: str, address: str, as_json: bool) -> None:
    """List the keys of a container, those that begin with PREFIX, as they are at one moment.

    Asks no cloud.
    """
    container, _, prefix = address.partition("/")
    found: list[KeyFacts] = []
    with Client.connect() as client:
        client.call(KvListRequest(name, container, prefix), lambda part: found.extend(part.keys))
    if as_json:
        print_json({"name": name, "container": container, "keys": found})
    elif not found:
        click.echo("There are no such keys.")
    else:
        rows = [["KEY", "SIZE", "WRITTEN", "TAG"]]
        rows += [[shown(one.key), size(one.size), moment(one.written, "?"), one.tag] for one in found]
        click.echo("\n".join(columns(rows, indent="")))


@kv.command(
    epilog="""\b
Examples:
  hybrisfs kv tput home --put bank/anna a.json --delete bank/old
  hybrisfs kv tput home --put bank/anna a.json --if-match bank/bert 8-41"""
)
@volume_argument(metavar="VOLUME")
@click.option(
    "--put",
    "puts",
    nargs=2,
    multiple=True,
    metavar="CONTAINER/KEY FILE",
    help="Store the content of FILE, - for standard input. May be given again.",
)
@click.option(
    "--delete", "deletes", multiple=True, metavar="CONTAINER/KEY", help="Delete a key. May be given again."
)
@click.option(
    "--if-absent",
    "absent",
    multiple=True,
    metavar="CONTAINER/KEY",
    help="Write only if this key does not exist. Can be repeated, also for keys that are not written.",
)
@click.option(
    "--if-match",
    "tags",
    nargs=2,
    multiple=True,
    metavar="CONTAINER/KEY TAG",
    help="Only when the key has the value with this tag. May be given again.",
)
@click.option(
    "--if-version",
    "wanted",
    nargs=2,
    multiple=True,
    type=(str, click.IntRange(min=0)),
    metavar="CONTAINER/KEY N",
    help="Only when the key's value has this version; 0: when there is none. May be given again.",
)
@json_option
def tput(
    name: str,
    puts: tuple[tuple[str, str], ...],
    deletes: tuple[str, ...],
    absent: tuple[str, ...],
    tags: tuple[tuple[str, str], ...],
    wanted: tuple[tuple[str, int], ...],
    as_json: bool,
) -> None:
    """Write several keys in one transaction: everybody sees all of it or nothing.

    Conditions are checked at the moment at which it takes place. The exit code is 6 when one does not hold.
    """
    if not puts and not deletes:
        raise click.UsageError("there is nothing to be written: use --put or --delete")
    if [source for _, source in puts].count("-") > 1:
        raise click.UsageError("standard input can be one value only")
    needs = [_key_need(address, version=0) for address in absent]
    needs += [_key_need(address, tag=tag) for address, tag in tags]
    needs += [_key_need(address, version=version) for address, version in wanted]
    with Client.connect() as client, contextlib.ExitStack() as files:
        try:
            writes = [
                Write(*_split(address), files.enter_context(_as_file(source))) for address, source in puts
            ]
            writes += [Write(*_split(address)) for address in deletes]
            facts = client.call(KvTputRequest(name, writes, needs))
        except OSError as error:
            raise _unreadable(error) from error
    show(facts, as_json, lambda written: [f"Wrote {count(len(written.tags), 'key')}."])


def _key_need(address: str, version: int | None = None, tag: str | None = None) -> KeyNeed:
    container, key = _split(address)
    return KeyNeed(version, tag, container=container, key=key)
