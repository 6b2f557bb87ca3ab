"""Finding the inviter on the local network by multicast DNS (RFC 6762) and DNS-SD (RFC 6763).

The inviter is the service instance INVITE._hybrisfs-pair._tcp.local., INVITE being `code.invite_id` in hex:
a random name to all who do not have the code. Networks often block multicast, and machines may
lack permission for it; then the addresses in the code and the clouds have to do.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from hybrisfs.pairing.code import Address
from hybrisfs.pairing.lan import local_addresses

if TYPE_CHECKING:
    from zeroconf import Zeroconf

__all__ = ["SERVICE", "announce", "find"]

log = logging.getLogger(__name__)

SERVICE: Final = "_hybrisfs-pair._tcp.local."
_QUESTION: Final = 1000  # milliseconds that an answer may take before it is asked again
_MAX_ANSWERS: Final = 16  # addresses taken from one answer


def announce(invite: bytes, addresses: Sequence[Address], stop: threading.Event) -> None:
    """Tell the network that the inviter is at *addresses*, which have one port, until *stop* is set."""
    if not addresses:
        return
    hosts, port = [host for host, _ in addresses], addresses[0][1]
    with _multicast() as zeroconf:
        if zeroconf is None:
            return
        from zeroconf import Error, ServiceInfo

        name = invite.hex()
        info = ServiceInfo(
            SERVICE, f"{name}.{SERVICE}", port=port, server=f"{name}.local.", parsed_addresses=hosts
        )
        try:
            zeroconf.register_service(info)
        except (OSError, Error) as error:
            log.info("not announced by mDNS: %s", error)
        stop.wait()


def find(invite: bytes, found: Callable[[Address], None], stop: threading.Event) -> None:
    """Ask the network for the inviter, and hand every address it is said to have to *found*, until *stop*."""
    with _multicast() as zeroconf:
        if zeroconf is None:
            return
        from zeroconf import Error

        while not stop.is_set():
            try:
                info = zeroconf.get_service_info(SERVICE, f"{invite.hex()}.{SERVICE}", _QUESTION)
            except (OSError, Error) as error:
                log.info("cannot ask by mDNS: %s", error)
                info = None
            if info is not None and info.port:
                for host in info.parsed_scoped_addresses()[:_MAX_ANSWERS]:
                    found((host, info.port))
            stop.wait(_QUESTION / 1000)


@contextlib.contextmanager
def _multicast() -> Iterator[Zeroconf | None]:
    """The library's sockets and thread; None when this machine cannot do multicast."""
    from zeroconf import Error, Zeroconf

    hosts = local_addresses()
    if not hosts:
        yield None
        return
    try:
        zeroconf = Zeroconf(interfaces=hosts)
    except (OSError, Error, RuntimeError) as error:
        log.info("no mDNS on this machine: %s", error)
        yield None
        return
    try:
        yield zeroconf
    finally:
        zeroconf.close()
