"""The process that serves S3: from `hybrisfs serve s3` until Ctrl-C."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from gateway.app import Gateway
from gateway.keys import access_key
from gateway.objects import Objects
from gateway.signature import AccessKey, Verifier
from hybrisfs import http_server
from hybrisfs.client import Client, gateway_key_file, scratch_folder
from hybrisfs.listening import Address, listening, only_one

__all__ = ["Endpoint", "key_of", "serve"]

_CONNECTIONS: Final = 256
_IDLE: Final = 60  # seconds that a connection is kept


class Endpoint(NamedTuple):
    """Where it listens, whether only programs of this machine reach that, and what they have to know."""

    url: str
    is_local: bool
    key: AccessKey


def key_of(volume: str) -> AccessKey:
    """The access key of a volume, one that there is. Raises HybrisError, OSError."""
    return access_key(gateway_key_file(volume))


def serve(volume: str, address: Address, show: Callable[[Endpoint], None]) -> None:
    """Serve a volume, one that there is; *show* is called when clients can connect.

    Ends with KeyboardInterrupt at Ctrl-C. Raises HybrisError when it is served already, or the address cannot
    be used; OSError.
    """
    key = key_of(volume)
    scratch = scratch_folder() / f"s3-{volume}"
    scratch.mkdir(mode=0o700, exist_ok=True)
    # A gateway knows who reads what, of its own readers only.
    with only_one(scratch / "lock", volume), listening(address) as listener:
        objects = Objects(volume, partial(Client.connect, start=False), scratch)
        gateway = Gateway(objects, Verifier(key))
        objects.start()
        try:
            http_server.serve(
                gateway, listener, _CONNECTIONS, lambda: show(_endpoint(listener, key)), idle=_IDLE
            )
        finally:
            objects.close()
            gateway.close()


def _endpoint(listener: socket.socket, key: AccessKey) -> Endpoint:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return Endpoint(f"http://{shown}:{port}", ipaddress.ip_address(host).is_loopback, key)
