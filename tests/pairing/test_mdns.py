"""Finding the inviter by multicast, where the machine can do it; where not, nothing breaks."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from hybrisfs.pairing import mdns
from hybrisfs.pairing.lan import local_addresses

INVITE = bytes(range(16))
WAIT = 30.0  # seconds after which a test fails


def multicast_works() -> bool:
    """Whether a packet to a group comes back to this machine."""
    hosts = [host for host in local_addresses() if ":" not in host]
    if not hosts:
        return False
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
        try:
            sock.bind(("", 0))
            group = struct.pack("4s4s", socket.inet_aton("239.255.77.77"), socket.inet_aton(hosts[0]))
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(hosts[0]))
            sock.settimeout(2.0)
            sock.sendto(b"anybody?", ("239.255.77.77", sock.getsockname()[1]))
            return sock.recv(100) == b"anybody?"
        except OSError:
            return False


def test_the_inviter_is_found() -> None:
    if not multicast_works():
        pytest.skip("this machine cannot do multicast")
    addresses = [(host, 40001) for host in local_addresses()]
    stop, met = threading.Event(), threading.Event()
    found: set[tuple[str, int]] = set()

    def take(address: tuple[str, int]) -> None:
        found.add(address)
        met.set()

    threads = [
        threading.Thread(target=mdns.announce, args=(INVITE, addresses, stop)),
        threading.Thread(target=mdns.find, args=(INVITE, take, stop)),
    ]
    for thread in threads:
        thread.start()
    assert met.wait(WAIT)
    stop.set()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert found <= set(addresses)


def test_without_multicast_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    import zeroconf

    def blocked(**_: object) -> Iterator[None]:
        raise OSError("Address already in use")

    monkeypatch.setattr(zeroconf, "Zeroconf", blocked)
    mdns.announce(INVITE, [("192.0.2.7", 1)], threading.Event())
    mdns.find(INVITE, lambda address: pytest.fail(str(address)), threading.Event())


def test_without_a_network_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mdns, "local_addresses", list)
    mdns.announce(INVITE, [], threading.Event())
    mdns.find(INVITE, lambda address: pytest.fail(str(address)), threading.Event())


def test_the_announcement_tells_nothing() -> None:
    assert mdns.SERVICE == "_hybrisfs-pair._tcp.local."
    assert len("hybrisfs-pair") <= 15  # RFC 6763, 7.2
