"""Where a server of this machine listens: an address that a person names, and one server for a volume."""

from __future__ import annotations

import fcntl
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hybrisfs.errors import HybrisError, UsageError

__all__ = ["Address", "listening", "only_one", "parse_address"]

_ADDRESS: Final = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]+)):([0-9]{1,5})")


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """HOST:PORT, with brackets around a host of IPv6. Raises UsageError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > 65535:
        raise UsageError(f"{text[:80]!r} is not an address", "it is HOST:PORT, as 127.0.0.1:8014")
    return Address(found[1] or found[2], int(found[3]))


@contextmanager
def only_one(path: Path, volume: str) -> Iterator[None]:
    """No other server of this kind serves the volume in this context. Raises HybrisError, OSError."""
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HybrisError(
                f"{volume} is served already", "one server is enough", "All clients can use the same one."
            ) from None
        yield


@contextmanager
def listening(address: Address) -> Iterator[socket.socket]:
    """A socket that listens. Raises HybrisError when the address cannot be used."""
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
