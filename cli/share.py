"""hybrisfs share: a file for somebody without the program, behind a link that ends."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.arguments import absolute, complete_clouds, complete_files, named_place
from cli.output import columns, json_option, moment, progress_bar, show, shown, size
from cli.usage import Commands, volume_argument, volume_option
from hybrisfs.api.parcels import (
    MOST_DAYS,
    ParcelList,
    ShareAddRequest,
    SharedParcel,
    ShareListRequest,
    ShareRevokeRequest,
)
from hybrisfs.client import Client


class _Shares(Commands):
    """Takes what is not a command for a file: `share FILE` is `share add FILE`."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        words = [one for one in arguments if not one.startswith("-")]
        is_about_itself = not words and not {"-h", "--help"}.isdisjoint(arguments)
        if arguments and not is_about_itself and (not words or words[0] not in self.commands):
            arguments = ["add", *arguments]
        return super().parse_args(context, arguments)


@click.group(
    cls=_Shares,
    epilog="\b\nExamples:\n  hybrisfs share ~/HybrisFS/holiday.mp4\n  hybrisfs share list"
    "\n  hybrisfs share revoke holiday.mp4",
)
def share() -> None:
    """Make a link that opens one file in any browser, for some days.

    The file is encrypted under a key of its own and put on one cloud. The link opens it without the program
    and without an account. The link shows the file as it was when the link was made.

    hybrisfs share FILE is the same as hybrisfs share add FILE; write ./list for a file of that name.
    """


@share.command(
    epilog="\b\nExamples:\n  hybrisfs share add ~/HybrisFS/holiday.mp4 --days 2"
    "\n  hybrisfs share ~/HybrisFS/holiday.mp4 --cloud hetzner"
)
@click.argument("file", shell_complete=complete_files)
@click.option(
    "--days",
    type=click.IntRange(1, MOST_DAYS),
    default=MOST_DAYS,
    show_default=True,
    help="For how long the link works. No cloud grants more.",
)
@click.option(
    "--cloud",
    metavar="CLOUD",
    shell_complete=complete_clouds,
    help="Where to put it. Default: the best that can make links.",
)
@json_option
def add(file: str, days: int, cloud: str | None, as_json: bool) -> None:
    """Share a file, and print the link.

    Send the whole link: what stands behind its # is the key. The cloud learns how large the file is, and from
    which addresses it is opened; it never gets the key, unless it hands out a page of its own.
    """
    [path] = absolute([file])
    with Client.connect() as client, progress_bar("bytes") as bar:
        facts = client.call(
            ShareAddRequest(path=path, days=days, cloud=cloud),
            lambda step: bar("uploading", step.done, step.total),
        )
    show(facts, as_json, _added)


def _added(facts: SharedParcel) -> Iterator[str]:
    yield facts.link
    yield ""
    until = moment(facts.expires)
    yield f"Who has this link can open {shown(facts.path)} ({size(facts.size)}) until {until}."
    yield f"It is on {shown(facts.cloud)}; hybrisfs share revoke {facts.id[:8]} ends it earlier."


@share.command("list", epilog="\b\nExample:\n  hybrisfs share list home")
@volume_argument(required=False)
@json_option
def list_(name: str | None, as_json: bool) -> None:
    """List what your machines share, with the links."""
    with Client.connect() as client:
        facts = client.call(ShareListRequest(name=name))
    show(facts, as_json, _listed)


def _listed(facts: ParcelList) -> Iterator[str]:
    if not facts.parcels:
        yield "Nothing is shared."
    else:
        rows = [["ID", "FILE", "SIZE", "UNTIL", "BY", "CLOUD"]]
        for one in facts.parcels:
            until = moment(one.expires) if one.whole else "being uploaded, or broken off"
            rows.append(
                [one.id[:8], shown(one.path), size(one.size), until, shown(one.device), shown(one.cloud)]
            )
        yield from columns(rows, indent="")
    if facts.silent:
        yield f"Not asked, as it does not answer: {', '.join(map(shown, facts.silent))}."


@share.command(epilog="\b\nExamples:\n  hybrisfs share revoke holiday.mp4\n  hybrisfs share revoke 3f2a90c1")
@click.argument("which", metavar="ID|FILE")
@volume_option
@json_option
def revoke(which: str, name: str | None, as_json: bool) -> None:
    """Delete what is shared from the cloud: the link leads nowhere then.

    Who has opened it before has the file.
    """
    with Client.connect() as client:
        volume, place = named_place(client, which, name)
        facts = client.call(ShareRevokeRequest(name=volume, which=place))
    show(facts, as_json, lambda one: [f"{shown(one.path or one.id)} is shared no more."])
