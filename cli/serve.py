"""hybrisfs serve webdav, sftp, s3, user"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cli.output import columns, json_option, moment, print_json, shown
from cli.usage import Commands, volume_argument
from hybrisfs.api.key_value import KvContainersRequest
from hybrisfs.api.volumes import VolumeListRequest
from hybrisfs.client import Client, UnknownVolumeError, quoted

if TYPE_CHECKING:
    from gateway.server import Endpoint
    from serving.server import Endpoint as Served
    from serving.sftp_server import SftpEndpoint

_USUAL_S3: Final = "127.0.0.1:8014"
_USUAL_WEBDAV: Final = "127.0.0.1:8015"
_USUAL_SFTP: Final = "127.0.0.1:8016"
_Function = TypeVar("_Function", bound=Callable[..., Any])
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.group(cls=Commands)
def serve() -> None:
    """Serve a volume to others: its files by WebDAV or SFTP, its key-value store by S3."""


def _folder_options(usual: str) -> Callable[[_Function], _Function]:
    """What all servers of files take. *usual* is where one listens by default."""
    options = (
        volume_argument(metavar="VOLUME"),
        click.option("--folder", metavar="PATH", default="", help="Serve this folder of the volume only."),
        click.option(
            "--listen", metavar="HOST:PORT", default=usual, show_default=True, help="Where to listen."
        ),
        click.option("--read-only", is_flag=True, help="Let nobody change anything."),
    )

    def add(command: _Function) -> _Function:
        for one in reversed(options):
            command = one(command)
        return command

    return add


def _require_daemon() -> None:
    """One that cannot be started is better reported before the server starts."""
    with Client.connect():
        pass


def _until_ctrl_c(work: Callable[[], None]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    try:
        work()
    except KeyboardInterrupt:
        click.echo(err=True)


def _announce(endpoint: Served | SftpEndpoint, what: str, protocol: str) -> None:
    """Where it is served."""
    click.echo(f"Serving {shown(what)} by {protocol} at {endpoint.urls[0]}. Ctrl-C ends it.")
    if len(endpoint.urls) > 1:
        click.echo(f"Also at {', '.join(endpoint.urls[1:])}.")
    for line in endpoint.code():
        click.echo(line)


def _warn(endpoint: Served | SftpEndpoint) -> None:
    if not endpoint.is_local:
        click.echo("hybrisfs: others on the network can connect; they need a password", err=True)


@serve.command(
    epilog="\b\nExamples:\n  hybrisfs serve webdav home"
    "\n  hybrisfs serve webdav home --folder Films --read-only --listen 0.0.0.0:8015",
)
@_folder_options(_USUAL_WEBDAV)
@click.option("--plain", is_flag=True, help="Without TLS; only programs of this machine can connect then.")
@json_option
def webdav(name: str, folder: str, listen: str, read_only: bool, plain: bool, as_json: bool) -> int:
    """Serve the files of a mounted volume by WebDAV, until Ctrl-C.

    Phones, televisions, Windows and macOS can open them so. Each needs a user and a password, which
    hybrisfs serve user add makes. What is written counts as written by this machine.

    By default only programs of this machine can connect. The certificate is made here, so clients ask whether
    to trust it: compare the fingerprint. Do not forward the port from the internet.
    """
    from hybrisfs.listening import parse_address
    from serving.server import Wanted
    from serving.server import serve as serve_webdav

    _require_daemon()
    wanted = Wanted(name, folder, parse_address(listen), read_only, plain)

    def show(endpoint: Served) -> None:
        _warn(endpoint)
        made = endpoint.certificate
        if as_json:
            said = {"urls": endpoint.urls, "fingerprint": None if made is None else made.fingerprint}
            click.echo(json.dumps(said | {"certificate": None if made is None else str(made.chain)}))
            return
        _announce(endpoint, f"{name}/{folder}" if folder else name, "WebDAV")
        if made is not None:
            click.echo(f"{'New certificate' if made.is_new else 'Certificate'}: {made.chain}")
            click.echo(f"Its SHA-256 fingerprint, also in the code:\n  {made.fingerprint}")

    _until_ctrl_c(lambda: serve_webdav(wanted, show))
    return 0


# -- hybrisfs serve sftp --------------------------------------------------------------------------------


@serve.command(
    epilog="\b\nExamples:\n  hybrisfs serve sftp home"
    "\n  hybrisfs serve sftp home --folder Scans --listen 0.0.0.0:8016",
)
@_folder_options(_USUAL_SFTP)
@json_option
def sftp(name: str, folder: str, listen: str, read_only: bool, as_json: bool) -> int:
    """Serve the files of a mounted volume by SFTP, until Ctrl-C.

    Programs that know SSH can open them so: sftp, rclone, sshfs, and many apps of phones. Each needs a user
    and a password, which hybrisfs serve user add makes. Nobody gets a shell. What is written counts as
    written by this machine; files are changed in place.

    By default only programs of this machine can connect. The key is made here, so clients ask whether to
    trust it: compare the fingerprint. Do not forward the port from the internet.
    """
    from hybrisfs.listening import parse_address
    from serving.sftp_server import SftpWanted, serve_sftp

    _require_daemon()
    wanted = SftpWanted(name, folder, parse_address(listen), read_only)

    def show(endpoint: SftpEndpoint) -> None:
        _warn(endpoint)
        if as_json:
            click.echo(json.dumps({"urls": endpoint.urls, "fingerprint": endpoint.fingerprint}))
            return
        _announce(endpoint, f"{name}/{folder}" if folder else name, "SFTP")
        kind = "New key" if endpoint.key_is_new else "Key"
        click.echo(f"{kind} of this server (ED25519), also in the code:\n  {endpoint.fingerprint}")

    _until_ctrl_c(lambda: serve_sftp(wanted, show))
    return 0


# -- hybrisfs serve user --------------------------------------------------------------------------------


@serve.group()
def user() -> None:
    """Say who may use what is served by WebDAV and SFTP.

    Give each device a user of its own: one that is lost is then removed alone.
    """


@user.command("add", epilog="\b\nExample:\n  hybrisfs serve user add home phone")
@volume_argument(metavar="VOLUME")
@click.argument("user_name", metavar="USER")
@json_option
def add_user(name: str, user_name: str, as_json: bool) -> None:
    """Add a user, and print its password.

    It is shown this once: what is kept is a hash of it.
    """
    from serving.start import users_of

    _check_volume(name)
    password = users_of(name).add(user_name)
    if as_json:
        print_json({"user": user_name, "password": password})
        return
    click.echo(f"User:     {user_name}\nPassword: {password}")
    click.echo("It is shown this once. A lost one is replaced: remove the user, and add it again.")


@user.command("list", epilog="\b\nExample:\n  hybrisfs serve user list home")
@volume_argument(metavar="VOLUME")
@json_option
def list_users(name: str, as_json: bool) -> None:
    """List the users."""
    from serving.start import users_of

    _check_volume(name)
    found = users_of(name).all()
    if as_json:
        print_json({"users": [{"user": one.name, "added": one.added} for one in found]})
    elif found:
        rows = [["USER", "ADDED"], *([one.name, moment(one.added)] for one in found)]
        click.echo("\n".join(columns(rows, indent="")))
    else:
        click.echo(f"Nobody may use {shown(name)}: hybrisfs serve user add {shown(name)} USER adds somebody.")


@user.command("remove", epilog="\b\nExample:\n  hybrisfs serve user remove home phone")
@volume_argument(metavar="VOLUME")
@click.argument("user_name", metavar="USER")
def remove_user(name: str, user_name: str) -> None:
    """Remove a user. A server that runs lets them in no more."""
    from serving.start import users_of

    _check_volume(name)
    users_of(name).remove(user_name)
    click.echo(f"{shown(user_name)} may not use {shown(name)} any more.")


def _check_volume(name: str) -> None:
    """Raises UnknownVolumeError."""
    with Client.connect() as client:
        if not any(one.name == name for one in client.call(VolumeListRequest()).volumes):
            raise UnknownVolumeError(f"there is no volume {quoted(name)}")


# -- hybrisfs serve s3 ----------------------------------------------------------------------------------


@serve.command(
    "s3",
    epilog="\b\nExamples:\n  hybrisfs serve s3 home\n  hybrisfs serve s3 home --show-keys"
    "\n  hybrisfs serve s3 home --listen 127.0.0.1:9000",
)
@volume_argument(metavar="VOLUME")
@click.option("--listen", metavar="HOST:PORT", default=_USUAL_S3, show_default=True, help="Where to listen.")
@click.option("--show-keys", is_flag=True, help="Print the access key that clients need, and end.")
@json_option
def s3(name: str, listen: str, show_keys: bool, as_json: bool) -> int:
    """Serve the key-value store of a volume as S3, until Ctrl-C.

    Its containers are buckets, and its values objects: what rclone, restic or any other program that speaks
    S3 stores here goes to all clouds of the volume at once, sealed. Address buckets in the path. The
    access key is made when it is first used.

    By default only programs of this machine can connect. There is no TLS: others on
    the same network can read all that is transferred.
    """
    from gateway.server import key_of
    from gateway.server import serve as serve_s3
    from hybrisfs.listening import parse_address

    address = parse_address(listen)
    with Client.connect() as client:
        client.call(KvContainersRequest(name))  # there is such a volume, and it can be used
    if show_keys:
        key = key_of(name)
        if as_json:
            print_json({"access_key_id": key.id, "secret_access_key": key.secret})
        else:
            click.echo(f"Access key: {key.id}\nSecret:     {key.secret}")
        return 0

    def show(endpoint: Endpoint) -> None:
        if not endpoint.is_local:
            click.echo("hybrisfs: others on the network can connect, and there is no TLS", err=True)
        if as_json:
            click.echo(json.dumps({"url": endpoint.url}))
            return
        click.echo(f"Serving {name} as S3 at {endpoint.url}. Ctrl-C ends it.")
        click.echo(f"Clients need path-style addresses, and a key: hybrisfs serve s3 {name} --show-keys")

    _until_ctrl_c(lambda: serve_s3(name, address, show))
    return 0
