"""The process that serves S3: from `hybrisfs serve s3` until Ctrl-C."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from gateway.app import Gateway
from gateway.keys import access_key
from gateway.objects import Objects
from gateway.signature import AccessKey, Verifier
from hybrisfs import http_server
from hybrisfs.client import Client, HybrisError, UsageError, gateway_key_file, scratch_folder

__all__ = ["Address", "Endpoint", "key_of", "parse_address", "serve"]

_CONNECTIONS: Final = 256
_IDLE: Final = 60  # seconds that a connection is kept
_ADDRESS: Final = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]+)):([0-9]{1,5})")


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int


class Endpoint(NamedTuple):
    """Where it listens, whether only programs of this machine reach that, and what they have to know."""

    url: str
    is_local: bool
    key: AccessKey


def parse_address(text: str) -> Address:
    """HOST:PORT, with brackets around a host of IPv6. Raises UsageError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > 65535:
        raise UsageError(f"{text[:80]!r} is no address", "it is HOST:PORT, as 127.0.0.1:8014")
    return Address(found[1] or found[2], int(found[3]))


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
    with _the_only_one(scratch / "lock", volume), _listening(address) as listener:
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


@contextmanager
def _the_only_one(path: Path, volume: str) -> Iterator[None]:
    """No other gateway serves the volume in this context: each knows who reads what, of its own readers."""
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HybrisError(
                f"{volume} is served already", "one gateway is enough", "All clients can use the same one."
            ) from None
        yield


@contextmanager
def _listening(address: Address) -> Iterator[socket.socket]:
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server(address, family=family)
    except OSError as error:
        raise HybrisError(
            f"cannot listen on {address.host}:{address.port}",
            error.strerror or str(error),
            "--listen names another address.",
        ) from error
    with listener:
        # Answers are sent in several pieces. asyncio sets this only on sockets that say that they are TCP's.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener


def _endpoint(listener: socket.socket, key: AccessKey) -> Endpoint:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return Endpoint(f"http://{shown}:{port}", ipaddress.ip_address(host).is_loopback, key)
