"""The port on which other devices are expected, for IPv4 and IPv6."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable
from typing import Final

from hybrisfs.peers.errors import ListenError
from hybrisfs.peers.settings import Address

__all__ = ["Listener", "host_of", "plain_address"]

log = logging.getLogger(__name__)

_BACKLOG: Final = 64
_PAUSE: Final = 0.5  # seconds to wait when there are too few file descriptors, say


class Listener:
    """Hands every connection to *accept* from `start` to `close`. One thread."""

    def __init__(self, port: int, accept: Callable[[socket.socket, Address], None]) -> None:
        """Opens the port, any free one when *port* is 0. Raises `ListenError`."""
        try:
            self._socket = _listen(port)
        except OSError as error:
            raise ListenError(
                f"other machines cannot be expected on port {port}",
                error.strerror or str(error),
                "Choose another port for this volume, or 0 for any free one.",
            ) from error
        self.port: Final[int] = self._socket.getsockname()[1]
        self._accept = accept
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peers-accept", daemon=True)

    def start(self) -> None:
        """Begin to accept."""
        self._thread.start()

    def close(self) -> None:
        """Close the port. Idempotent."""
        self._closing.set()
        with contextlib.suppress(OSError):  # not connected, says Linux, and wakes the thread nevertheless
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                connection, where = self._socket.accept()
            except OSError as error:
                if not self._closing.is_set():
                    log.error("cannot accept a machine: %s", error.strerror)
                    self._closing.wait(_PAUSE)
            else:
                self._accept(connection, plain_address(*where))


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # no IPv6 on this machine, or the port is taken: try without
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
    return socket.create_server(("0.0.0.0", port), backlog=_BACKLOG)


def plain_address(host: str, port: int, flow: int = 0, scope: int = 0) -> Address:
    """The address of a peer of a socket: IPv4 in its own form, link-local IPv6 with its scope."""
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped), port
        if scope and address.scope_id is None:
            return f"{host}%{scope}", port
    return host, port


def host_of(address: Address) -> str:
    """Who is counted as one host: a plain IPv4 address, or the IPv6 network that a host has to itself."""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    return str(ipaddress.ip_network((host, 64), strict=False)) if host.version == 6 else str(host)
