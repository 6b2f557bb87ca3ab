"""hybrisfs serve s3"""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Final

import click

from cli.arguments import complete_volumes
from cli.output import json_option, print_json
from hybrisfs.api.key_value import KvContainersRequest
from hybrisfs.client import Client

if TYPE_CHECKING:
    from gateway.server import Endpoint

_USUAL: Final = "127.0.0.1:8014"
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.group()
def serve() -> None:
    """Serve a volume to programs that speak S3."""


@serve.command(
    "s3",
    epilog="\b\nExamples:\n  hybrisfs serve s3 home\n  hybrisfs serve s3 home --show-keys"
    "\n  hybrisfs serve s3 home --listen 127.0.0.1:9000",
)
@click.argument("name", metavar="VOLUME", shell_complete=complete_volumes)
@click.option("--listen", metavar="HOST:PORT", default=_USUAL, show_default=True, help="Where to listen.")
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
    from gateway.server import key_of, parse_address
    from gateway.server import serve as serve_s3

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

    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    try:
        serve_s3(name, address, show)
    except KeyboardInterrupt:
        click.echo(err=True)
    return 0
