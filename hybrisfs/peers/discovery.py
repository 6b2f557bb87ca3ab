"""Finding the other devices on the local network: multicast DNS and DNS service discovery (RFC 6762, 6763).

Announced is one service of type `_hybrisfs._tcp`, under the name

    VOLUME-DEVICE-NONCE     16, 16 and 8 hexadecimal digits

VOLUME and DEVICE are the tags of the day (`hybrisfs.peers.tls`), NONCE is random, so that no name is
ever taken already. There is nothing else in it but addresses and port. Names with yesterday's and tomorrow's
tags are known, too, as clocks differ. What is found is a hint where to connect to; who answers there proves
it by TLS.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable
from typing import Final

import ifaddr
from zeroconf import (
    Error,
    ServiceInfo,
    ServiceListener,
    Zeroconf,
)

from hybrisfs.environment import Environment
from hybrisfs.peers.handshakes import LocalPeer
from hybrisfs.peers.settings import PeerSettings
from hybrisfs.peers.tls import TAG_SIZE, PeerIdentity

__all__ = ["SERVICE_TYPE", "Discovery", "parse_name"]

log = logging.getLogger(__name__)

SERVICE_TYPE: Final = "_hybrisfs._tcp.local."
_DAY: Final = 86400
_RESOLVE_MS: Final = 3000
_MAX_ADDRESSES: Final = 16
_TAG_DIGITS: Final = 2 * TAG_SIZE


class Discovery(ServiceListener):
    """Announces this device and has it see others, from `start` to `close`.

    When multicast DNS cannot be had, or interfaces come and go, it is tried again until it works.
    """

    def __init__(
        self,
        identity: PeerIdentity,
        port: int,
        local: LocalPeer,
        settings: PeerSettings,
        environment: Environment,
        responder: Callable[[list[str]], Zeroconf] = Zeroconf,
    ) -> None:
        """*port* is where this device listens, *responder* makes what speaks multicast DNS
        on the interfaces that have these addresses."""
        self._identity = identity
        self._port = port
        self._local = local
        self._settings = settings
        self._clock = environment.time
        self._random_bytes = environment.random_bytes
        self._new_responder = responder
        self._responder: Zeroconf | None = None
        self._name = ""
        self._announced: tuple[int, frozenset[str]] | None = None
        self._complained = False
        self._wake = threading.Event()
        self._again = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="peers-discovery", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Take the announcement back. Idempotent."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    @property
    def announced(self) -> bool:
        """Whether others can have seen this device: not in its first second, for names are probed first."""
        return self._announced is not None

    def look_again(self) -> None:
        """The members have changed: those that were strangers are to be seen now."""
        self._again = True
        self._wake.set()

    def look_at_network(self) -> None:
        """Interfaces may have come or gone: look now."""
        self._wake.set()

    def _run(self) -> None:
        while not self._closing:
            self._wake.clear()
            current = (self._today(), self._local_addresses())
            if self._again or current != self._announced:
                self._again = False
                self._withdraw()
                self._announced = current if self._announce(*current) else None
            if not self._closing:
                self._wake.wait(self._settings.look_every)
        self._withdraw()

    def _today(self) -> int:
        return int(self._clock() // _DAY)

    def _local_addresses(self) -> frozenset[str]:
        found = set()
        for adapter in ifaddr.get_adapters():
            for ip in adapter.ips:
                text = ip.ip if isinstance(ip.ip, str) else ip.ip[0]
                wanted = self._settings.interfaces
                if text in wanted or not (wanted or ipaddress.ip_address(text).is_loopback):
                    found.add(text)
        return frozenset(found)

    def _announce(self, today: int, addresses: frozenset[str]) -> bool:
        if not addresses:
            return True  # no network; one that comes is a change
        try:
            self._responder = responder = self._new_responder(sorted(addresses))
            service = self._service(today, addresses)
            responder.add_service_listener(SERVICE_TYPE, self)
            responder.register_service(service)
        except (OSError, Error, RuntimeError, TimeoutError) as error:  # RuntimeError: an address that is gone
            if not self._complained:
                log.warning(
                    "this machine cannot be found on the local network, nor find others there: %s. "
                    "It is tried again; addresses that were configured work nevertheless.",
                    error,
                )
            self._complained = True
            self._withdraw()
            return False
        self._complained = False
        return True

    def _service(self, today: int, addresses: frozenset[str]) -> ServiceInfo:
        volume = self._identity.volume_tag(today)
        device = self._identity.device_tag(self._identity.device.device_id, today)
        instance = f"{volume}-{device}-{self._random_bytes(4).hex()}"
        self._name = f"{instance}.{SERVICE_TYPE}"
        packed = [
            socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
            for address in sorted(addresses)[:_MAX_ADDRESSES]
        ]
        return ServiceInfo(
            SERVICE_TYPE,
            self._name,
            self._port,
            properties={},
            server=f"{instance}.local.",
            addresses=packed,
        )

    def _withdraw(self) -> None:
        responder, self._responder = self._responder, None
        if responder is not None:
            with contextlib.suppress(OSError, Error, TimeoutError):
                responder.close()

    # Called by the browser's thread

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """A service appeared: tell its addresses if it is a member's."""
        device = self._member_of(name)
        if device is None or name == self._name:
            return
        try:
            info = zc.get_service_info(type_, name, timeout=_RESOLVE_MS)
        except (OSError, Error, TimeoutError) as error:
            log.debug("machine %s cannot be resolved: %s", device.hex(), error)
            return
        if info is None or not info.port:
            return
        hosts = info.parsed_scoped_addresses()[:_MAX_ADDRESSES]
        self._local.seen(device, tuple((host, info.port) for host in hosts))

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """A service changed."""
        self.add_service(zc, type_, name)

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """A service left. Its addresses are kept: it may be another's word for it."""

    def _member_of(self, name: str) -> bytes | None:
        tags = parse_name(name)
        if tags is None:
            return None
        today = self._today()
        for day in (today, today - 1, today + 1):
            if tags[0] == self._identity.volume_tag(day):
                for device in self._local.members():
                    if tags[1] == self._identity.device_tag(device, day):
                        return device
        return None


def parse_name(name: str) -> tuple[str, str] | None:
    """The tags of volume and device in a service's full name; None when it is not one of ours."""
    parts = name.removesuffix(f".{SERVICE_TYPE}").split("-")
    if len(parts) != 3 or len(parts[0]) != _TAG_DIGITS or len(parts[1]) != _TAG_DIGITS:
        return None
    return parts[0], parts[1]
