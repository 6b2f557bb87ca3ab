"""hybrisfs cloud list, login, test, price, add, rename, retain, adopt, drain, remove, replace"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click

from cli.arguments import complete_clouds, make_option
from cli.cost import price
from cli.output import (
    NOT_YET,
    columns,
    count,
    describe_retention,
    json_option,
    print_json,
    progress_bar,
    quoted,
    show,
    shown,
    size,
    warned,
)
from cli.secrets import ask_secrets, code_option, read_code, read_secrets
from cli.usage import Commands, volume_argument, volume_option
from hybrisfs.api.clouds import (
    AddedCloud,
    CloudAddRequest,
    CloudAdoptRequest,
    CloudDrainRequest,
    CloudListRequest,
    CloudRemoveRequest,
    CloudRenameRequest,
    CloudReplaceRequest,
    CloudRetainRequest,
    Clouds,
    CloudTestRequest,
    CloudWaitRequest,
    KeptCloud,
    NamedCloud,
    ReplacedCloud,
    Retention,
    TestedCloud,
    Waited,
)
from hybrisfs.api.request import message_of
from hybrisfs.api.volumes import PlaceSecretsRequest, PlaceTryRequest, TriedPlace, VolumeListRequest
from hybrisfs.client import Client

_Function = TypeVar("_Function", bound=Callable[..., Any])
_UNITS: Final = {"d": 1, "w": 7, "y": 365}  # days


def _days(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """A time in whole days, like 30d or 8w; 0 for "off"."""
    if value is None or value == "off":
        return None if value is None else 0
    number, unit = value[:-1], value[-1:]
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) and unit in _UNITS):
        raise click.BadParameter(f"{value[:80]!r} is not a time: write 30d, 8w, 1y or off", context, option)
    return int(number) * _UNITS[unit]


@click.group(cls=Commands)
def cloud() -> None:
    """List, log in to, test, price, add, rename, protect, adopt, drain, remove and replace clouds.

    A cloud is named by its name or its URL. What a cloud holds moves in the background, also when the
    daemon is stopped and started in between.
    """


cloud.add_command(price)

_cloud_argument: Final = click.argument("cloud_name", metavar="CLOUD", shell_complete=complete_clouds)


def _waits(command: _Function) -> _Function:
    for option in (
        click.option("--timeout", type=click.FloatRange(min=0), help="Wait no longer than so many seconds."),
        click.option("--wait", is_flag=True, help="Wait until nothing is there any more."),
    ):
        command = option(command)
    return command


@cloud.command("list", epilog="\b\nExample:\n  hybrisfs cloud list --json")
@volume_argument(required=False)
@json_option
def list_(name: str | None, as_json: bool) -> None:
    """List the clouds of the volume NAME: how they are, and what they hold.

    NAME can be left out when there is one volume.
    """
    with Client.connect() as client:
        facts = client.call(CloudListRequest(name=name))
    show(facts, as_json, _table)


def _table(facts: Clouds) -> Iterator[str]:
    tried = any(one.retention is not None for one in facts.clouds)
    rows = [["NAME", "USE", "STATE", "OBJECTS", "DATA", *(["KEEPS DELETED"] if tried else []), "URL"]]
    for one in facts.clouds:
        held = [f"{one.objects:,}", size(one.bytes)]
        held += [describe_retention(one.retention)] if tried else []
        rows.append([shown(one.name), one.use, one.state, *held, shown(one.url)])
    yield from columns(rows, indent="")
    for one in facts.clouds:
        for why in filter(None, (one.reason, one.trouble)):
            yield f"{shown(one.name)}: {shown(why)}"
    yield from _checks(facts)
    yield from warned(facts.warnings)


def _checks(facts: Clouds) -> Iterator[str]:
    """How far the background has come with checking what the clouds hold."""
    for one in facts.clouds:
        if one.checked.since is not None:
            earlier = "" if one.checked.before is None else ", and all of it in the round before"
            yield (
                f"{shown(one.name)}: {one.checked.share:.0%} of what it holds was checked since "
                f"{time.strftime('%Y-%m-%d', time.localtime(one.checked.since))}{earlier}"
            )
    if facts.clouds:
        requests = count(round(sum(one.checked.requests for one in facts.clouds)), "request")
        yield (
            f"This machine checks within {facts.clouds[0].checked.days} days that everything is there: "
            f"{requests} a month (hybrisfs volume set {shown(facts.name)} --check-days DAYS)."
        )


@cloud.command(
    epilog="\b\nExamples:\n  hybrisfs cloud test nas\n  hybrisfs cloud test s3://bucket/folder?region=eu-west-1"
)
@_cloud_argument
@make_option
@volume_option
@json_option
def test(cloud_name: str, make: bool, name: str | None, as_json: bool) -> None:
    """Put, get and delete a small object on CLOUD, which may be a URL that the volume does not use.

    A folder or bucket that is missing is made. For a cloud of a volume this also finds out two things: does
    the cloud keep what is deleted and overwritten, and could the credentials of this machine destroy that? If
    they could, a thief of this machine could, too. A URL can be tried before there is any volume.
    """
    with Client.connect() as client:
        facts: TestedCloud | TriedPlace
        if name is None and ":" in cloud_name and len(client.call(VolumeListRequest()).volumes) != 1:
            facts = client.call(PlaceTryRequest(cloud_name, make=make or None))
        else:
            facts = client.call(CloudTestRequest(name=name, cloud=cloud_name, make=make or None))
    show(facts, as_json, _describe_test)


@cloud.command(
    epilog="""\b
Examples:
  hybrisfs cloud login s3://bucket/folder?region=eu-west-1
  hybrisfs cloud login webdavs://me@nas.example/backup --secrets secrets.json
  hybrisfs cloud login --code -"""
)
@click.argument("url", required=False)
@click.option(
    "--secrets",
    "source",
    metavar="FILE",
    help='A JSON object like {"password": "..."} instead of questions; - is standard input.',
)
@code_option
@json_option
def login(url: str | None, source: str | None, source_of_code: str | None, as_json: bool) -> None:
    """Give this machine the secrets of the cloud at URL.

    They are tried out, and kept in credentials.json, which only you may read, if the cloud accepts them. They
    count for all folders below URL, too. No volume needs to use the cloud yet.
    """
    given = _given(url, source_of_code)
    with Client.connect() as client:
        if isinstance(given, PlaceTryRequest):
            show(client.call(given), as_json, _describe_test)
            return
        url = given
        place = client.call(PlaceSecretsRequest(url))
        wanted = place.secrets
        if not wanted:
            why = f": {place.logins}" if place.logins else ""
            raise click.UsageError(f"{shown(url)} takes no secrets{why}")
        if source is not None:
            secrets = read_secrets(source)
        elif sys.stdin.isatty():
            secrets = ask_secrets(wanted)
        else:
            raise click.UsageError("there is no terminal: give --secrets")
        if not secrets:
            raise click.UsageError("nothing was given")
        facts = client.call(PlaceTryRequest(url, secrets))
    show(facts, as_json, _describe_test)


def _given(url: str | None, source_of_code: str | None) -> str | PlaceTryRequest:
    """The URL, or what the code of a relay asks for. Raises UsageError unless one of them is given."""
    if (url is None) == (source_of_code is None):
        raise click.UsageError("give either a URL or --code")
    if source_of_code is None:
        return str(url)
    code = read_code(source_of_code)
    return PlaceTryRequest(code.url, {"token": code.token})


def _describe_test(facts: TestedCloud | TriedPlace) -> Iterator[str]:
    yield f"{shown(facts.cloud)} works:"
    yield from columns([[what, f"{seconds * 1000:.1f} ms"] for what, seconds in facts.seconds.items()])
    yield from warned(facts.warnings if isinstance(facts, TestedCloud) else [])
    if isinstance(facts, TriedPlace) or facts.retention is None:
        return
    found = facts.retention
    yield from _describe_kept(found)
    if found.keeps is False and not found.note and ":" not in facts.cloud:
        command = f"hybrisfs cloud retain {quoted(facts.cloud)} 30d"
        yield f"{command} has it keep them, where the service can"


def _describe_kept(found: Retention, note: str = "") -> Iterator[str]:
    """*note*: what to know of it beside what the try has found."""
    yield f"keeps deleted objects: {describe_retention(found)}"
    if found.keeps is not False:
        harm = {True: "yes, and so could a thief of it", False: "no", None: "unknown"}[found.destructible]
        yield f"this machine could destroy them: {harm}"
    if not found.deletes:
        yield "this machine may not delete: what is not needed any more is left to another that may"
    for each in filter(None, dict.fromkeys((found.note, note))):
        yield f"note: {shown(each)}"


@cloud.command(
    epilog="""\b
Examples:
  hybrisfs cloud add file:///mnt/disk/photos --name disk
  hybrisfs cloud add s3://bucket/photos?region=eu-west-1 --retain 30d
  hybrisfs cloud add --code -"""
)
@click.argument("url", required=False)
@click.option("--name", "cloud_name", help="Name of the cloud. Default: the end of its URL.")
@click.option(
    "--retain",
    "days",
    callback=_days,
    metavar="TIME",
    help="Have it keep what is deleted for so long: see cloud retain.",
)
@code_option
@make_option
@volume_option
@json_option
def add(
    url: str | None,
    cloud_name: str | None,
    days: int | None,
    source_of_code: str | None,
    make: bool,
    name: str | None,
    as_json: bool,
) -> None:
    """Let the volume use one more cloud, on all machines.

    It is tested first, and must not hold another volume. What is written from now on may go there. Other
    machines need credentials of their own for it.

    A relay is added by its code: see hybrisfs relay add. It also connects the machines of the volume that
    cannot reach each other.
    """
    given = _given(url, source_of_code)
    with Client.connect() as client:
        if isinstance(given, PlaceTryRequest):
            client.call(given)
            given = given.url
        asked = CloudAddRequest(name=name, url=given, cloud_name=cloud_name, days=days, make=make or None)
        facts = client.call(asked)
    show(facts, as_json, _describe_added)


def _describe_added(facts: AddedCloud) -> Iterator[str]:
    yield f"{shown(facts.name)} uses the cloud {shown(facts.cloud)} now."
    if facts.retention:
        yield from _describe_kept(facts.retention, facts.note or "")
    yield from warned(facts.warnings)


@cloud.command(epilog="\b\nExample:\n  hybrisfs cloud rename hy-2 hetzner")
@_cloud_argument
@click.argument("new_name", metavar="NEW")
@volume_option
@json_option
def rename(cloud_name: str, new_name: str, name: str | None, as_json: bool) -> None:
    """Rename CLOUD, on all machines."""
    with Client.connect() as client:
        facts = client.call(CloudRenameRequest(name=name, cloud=cloud_name, new_name=new_name))
    show(facts, as_json, lambda facts: [f"{shown(facts.name)} calls it {shown(facts.cloud)} now."])


@cloud.command(
    epilog="""\b
Examples:
  hybrisfs cloud retain s3 30d
  hybrisfs cloud retain s3 off"""
)
@_cloud_argument
@click.argument("days", callback=_days, metavar="TIME")
@volume_option
@json_option
def retain(cloud_name: str, days: int, name: str | None, as_json: bool) -> None:
    """Have CLOUD keep for TIME, like 30d or 8w, what is deleted or overwritten; off ends that.

    It takes credentials of an administrator: when those of this machine will not do, the command says what
    somebody else has to run. Then it is tried whether the cloud does so. What is kept costs what it takes to
    store it. hybrisfs repair brings back what somebody has deleted.
    """
    with Client.connect() as client:
        facts = client.call(CloudRetainRequest(name=name, cloud=cloud_name, days=days))
    show(facts, as_json, _describe_retained)


def _describe_retained(facts: KeptCloud) -> Iterator[str]:
    yield f"{shown(facts.cloud)}:"
    if facts.retention is not None:
        yield from _describe_kept(facts.retention, facts.note)


@cloud.command(epilog="\b\nExample:\n  hybrisfs cloud adopt disk && hybrisfs repair photos")
@_cloud_argument
@volume_option
@json_option
def adopt(cloud_name: str, name: str | None, as_json: bool) -> None:
    """Use CLOUD as it is now, though it was emptied or its bucket was made again.

    Its folder or bucket is made if it is not there, and marked as this volume's; it must not hold another
    volume. What it held is put there again in the background, or at once by hybrisfs repair. If a disk is
    just not mounted, mount it instead: then all is there.
    """
    with Client.connect() as client:
        facts = client.call(CloudAdoptRequest(name=name, cloud=cloud_name))
    show(facts, as_json, _describe_adopted)


def _describe_adopted(facts: NamedCloud) -> Iterator[str]:
    volume = shown(facts.name)
    yield f"{volume} uses the cloud {shown(facts.cloud)} as it is now."
    yield f"It is filled again in the background; hybrisfs repair {volume} does that at once."


@cloud.command(epilog="\b\nExample:\n  hybrisfs cloud drain old-disk --wait")
@_cloud_argument
@_waits
@volume_option
@json_option
def drain(cloud_name: str, wait: bool, timeout: float | None, name: str | None, as_json: bool) -> int:
    """Move all that CLOUD holds to the other clouds, then use it no more.

    It gets nothing new from now on. What is there is removed when the others have it; a few small objects
    stay, which lead machines that are off now to the other clouds. The exit code is 3 when that is not
    done in time.
    """
    return _leave(CloudDrainRequest(name=name, cloud=cloud_name), wait, timeout, as_json)


@cloud.command(epilog="\b\nExample:\n  hybrisfs cloud remove stolen-disk --wait")
@_cloud_argument
@_waits
@volume_option
@json_option
def remove(cloud_name: str, wait: bool, timeout: float | None, name: str | None, as_json: bool) -> int:
    """Remove CLOUD, which is lost or not to be trusted: nothing is asked of it any more.

    What it held is rebuilt from the other clouds. Nothing is removed there. The exit code is 3 when that is
    not done in time.
    """
    return _leave(CloudRemoveRequest(name=name, cloud=cloud_name), wait, timeout, as_json)


@cloud.command(epilog="\b\nExample:\n  hybrisfs cloud replace old-disk file:///mnt/new/photos --wait")
@click.argument("cloud_name", metavar="OLD", shell_complete=complete_clouds)
@click.argument("url", metavar="NEW_URL")
@click.option("--name", "new_name", help="Name of the new cloud. Default: the end of its URL.")
@make_option
@_waits
@volume_option
@json_option
def replace(
    cloud_name: str,
    url: str,
    new_name: str | None,
    make: bool,
    wait: bool,
    timeout: float | None,
    name: str | None,
    as_json: bool,
) -> int:
    """Use the cloud at NEW_URL instead of OLD: hybrisfs cloud add, then hybrisfs cloud drain.

    The exit code is 3 when that is not done in time.
    """
    asked = CloudReplaceRequest(name=name, cloud=cloud_name, url=url, cloud_name=new_name, make=make or None)
    return _leave(asked, wait, timeout, as_json)


def _leave(
    request: CloudDrainRequest | CloudRemoveRequest | CloudReplaceRequest,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> int:
    with Client.connect() as client:
        facts: NamedCloud = client.call(request)
    waited = Waited(facts.name, done=False, trouble="")
    if wait:
        asked = CloudWaitRequest(name=request.name, cloud=facts.cloud, timeout=timeout)
        with Client.connect() as client, progress_bar("objects") as bar:
            waited = client.call(asked, lambda step: bar("moved", step.done, step.total))
    if as_json:
        print_json({**message_of(facts), **message_of(waited)})
    else:
        _explain(facts, waited, wait)
    return NOT_YET if wait and not waited.done else 0


def _explain(facts: NamedCloud, waited: Waited, wait: bool) -> None:
    cloud_name = shown(facts.cloud)
    if isinstance(facts, ReplacedCloud):
        click.echo(f"{shown(facts.name)} uses the cloud {shown(facts.added)} now.")
        for line in warned(facts.warnings):
            click.echo(line)
    if waited.done:
        click.echo(f"{shown(facts.name)} does not need the cloud {cloud_name} any more.")
    elif waited.trouble:
        click.echo(f"{cloud_name} cannot go yet: {shown(waited.trouble)}")
    else:
        still = "is still being" if wait else "is being"
        click.echo(f"{cloud_name} {still} emptied in the background: hybrisfs status shows how far it is.")
