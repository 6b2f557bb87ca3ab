"""hybrisfs relay serve, add, code, list, remove"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cli.arguments import SizeType
from cli.output import columns, json_option, print_json, shown, size
from cli.usage import Commands
from hybrisfs.client import relay_folder

if TYPE_CHECKING:
    from hybrisfs.listening import Address
    from relay.server import Endpoint
    from relay.spaces import Space

_USUAL: Final = "0.0.0.0:8017"
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.group(cls=Commands)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the relay keeps everything. Default: ~/.local/share/hybrisfs/relay.",
)
@click.pass_context
def relay(context: click.Context, folder: Path | None) -> None:
    """Be a relay: keep sealed objects for your machines, and connect those that cannot reach each other.

    For a NAS or a rented server that is always on. It gets no key: to a volume it is one more cloud, which
    is believed as little as the others. Give each volume a space of its own.
    """
    context.obj = folder


def _folder(context: click.Context) -> Path:
    return (context.obj or relay_folder()).absolute()


@relay.command(epilog="\b\nExample:\n  hybrisfs relay serve --listen 0.0.0.0:8017")
@click.option("--listen", metavar="HOST:PORT", default=_USUAL, show_default=True, help="Where to listen.")
@json_option
@click.pass_context
def serve(context: click.Context, listen: str, as_json: bool) -> int:
    """Be the relay, until Ctrl-C.

    Machines connect by TLS, and know the relay by its certificate, which is made here once. Forward the port
    from the internet if they are to reach it from everywhere. Without a code, a machine gets nothing.

    The package has a unit that begins with the machine: systemctl enable --now hybrisfs-relay@USER, as root.
    """
    from hybrisfs.listening import parse_address
    from relay.server import serve as serve_relay

    def show(endpoint: Endpoint) -> None:
        if as_json:
            click.echo(json.dumps({"host": endpoint.host, "port": endpoint.port, "pin": endpoint.pin.hex()}))
            return
        click.echo(f"Relay at {endpoint.host}:{endpoint.port}. Ctrl-C ends it.")
        click.echo(f"SHA-256 of its certificate: {endpoint.pin.hex()}")
        if endpoint.is_local:
            click.echo("hybrisfs: only programs of this machine can connect", err=True)

    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    try:
        serve_relay(_folder(context), parse_address(listen), show)
    except KeyboardInterrupt:
        click.echo(err=True)
    return 0


@relay.command(
    epilog="\b\nExamples:\n  hybrisfs relay add home nas.example"
    "\n  hybrisfs relay add photos 192.0.2.7:8017 --quota 500G"
)
@click.argument("space")
@click.argument("address", metavar="HOST[:PORT]")
@click.option("--quota", type=SizeType(), default=0, metavar="SIZE", help="It holds no more than this.")
@json_option
@click.pass_context
def add(context: click.Context, space: str, address: str, quota: int, as_json: bool) -> None:
    """Make SPACE, for one volume, and print its code.

    HOST is how your machines reach the relay: its name or address in the internet, or in your network.
    """
    from relay.spaces import Spaces

    host, port = _address(address)
    made = Spaces(_folder(context)).add(space, host, port, quota, time.time())
    _show_code(_folder(context), made, as_json)


@relay.command(epilog="\b\nExamples:\n  hybrisfs relay code home\n  hybrisfs relay code home --new")
@click.argument("space")
@click.option("--new", is_flag=True, help="Make another one: the one before opens the space no longer.")
@json_option
@click.pass_context
def code(context: click.Context, space: str, new: bool, as_json: bool) -> None:
    """Print the code of SPACE.

    With it, a machine can add and delete objects. To read them takes a key of the volume.
    """
    from relay.spaces import Spaces

    spaces = Spaces(_folder(context))
    found = spaces.renew(space) if new else spaces.get(space)
    _show_code(_folder(context), found, as_json)


@relay.command("list", epilog="\b\nExample:\n  hybrisfs relay list")
@json_option
@click.pass_context
def list_(context: click.Context, as_json: bool) -> None:
    """List the spaces, and how much they hold."""
    from relay.rooms import objects_of, size_of
    from relay.spaces import Spaces

    folder = _folder(context)
    found = [(one, size_of(objects_of(folder, one.name))) for one in Spaces(folder).all()]
    if as_json:
        print_json({"spaces": [_facts(space, used) for space, used in found]})
        return
    if not found:
        click.echo("There are no spaces: hybrisfs relay add SPACE HOST makes one.")
        return
    rows = [["SPACE", "DATA", "AT MOST", "ADDRESS", "ADDED"]]
    for one, used in found:
        most = size(one.quota) if one.quota else "the disk"
        added = time.strftime("%Y-%m-%d", time.localtime(one.added))
        rows.append([one.name, size(used), most, f"{one.host}:{one.port}", added])
    click.echo("\n".join(columns(rows, indent="")))


def _facts(space: Space, used: int) -> dict[str, object]:
    return {
        "space": space.name,
        "bytes": used,
        "quota": space.quota or None,
        "host": space.host,
        "port": space.port,
        "added": space.added,
    }


@relay.command(epilog="\b\nExample:\n  hybrisfs relay remove home")
@click.argument("space")
@click.option("--with-objects", is_flag=True, help="Delete what it holds, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def remove(context: click.Context, space: str, with_objects: bool, yes: bool) -> None:
    """Let nobody use SPACE any more.

    Drain it first on a machine of the volume: hybrisfs cloud drain. What it holds stays on this disk,
    unless --with-objects is given.
    """
    import shutil

    from relay.rooms import objects_of
    from relay.spaces import Spaces

    folder = _folder(context)
    spaces = Spaces(folder)
    spaces.get(space)
    if with_objects and not yes:
        click.confirm(f"Delete all that {shown(space)} holds?", abort=True)
    spaces.remove(space)
    if with_objects:
        shutil.rmtree(objects_of(folder, space), ignore_errors=True)
        click.echo(f"{shown(space)} and what it held are gone.")
    else:
        kept = objects_of(folder, space)
        click.echo(f"Nobody may use {shown(space)} any more. Its objects stay in {kept}.")


def _address(text: str) -> Address:
    """HOST or HOST:PORT. Raises UsageError."""
    from hybrisfs.listening import parse_address
    from relay.code import USUAL_PORT

    is_ipv6 = text.count(":") > 1 and not text.startswith("[")
    if is_ipv6 or ":" not in text.rpartition("]")[2]:
        text = f"{f'[{text}]' if is_ipv6 else text}:{USUAL_PORT}"
    return parse_address(text)


def _show_code(folder: Path, space: Space, as_json: bool) -> None:
    from hybrisfs.qr import qr_lines
    from relay.code import RelayCode
    from relay.files import certificate

    made = RelayCode(space.host, space.port, space.name, certificate(folder).pin, space.token)
    text = made.encode()
    if as_json:
        print_json({"code": text, "url": made.url, "token": space.token})
        return
    click.echo(f"The code of {shown(space.name)}. It is a secret, like a password:\n\n{text}\n")
    for line in qr_lines(text):
        click.echo(line)
    click.echo("On a machine of the volume:  hybrisfs cloud add --code -")
    click.echo("On each of the others:       hybrisfs cloud login --code -")
    click.echo(f"Where there is a page only:  {made.url}\n                             token {space.token}")
