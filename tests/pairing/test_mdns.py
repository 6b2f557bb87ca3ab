"""Finding the inviter by multicast, where the machine can do it; where not, nothing breaks."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading

import pytest

from hybrisfs.pairing import lan
from hybrisfs.pairing.code import Address
from hybrisfs.pairing.lan import local_addresses
from tests.network import alone, ip, needs_networks

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
        threading.Thread(target=lan.announce, args=(INVITE, addresses, stop)),
        threading.Thread(target=lan.find, args=(INVITE, take, stop)),
    ]
    for thread in threads:
        thread.start()
    assert met.wait(WAIT)
    stop.set()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert found <= set(addresses)


@needs_networks
def test_without_multicast_nothing_breaks(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> None:
        ip("link", "set", "lo", "up")
        ip("link", "add", "one", "type", "veth", "peer", "name", "other")
        ip("address", "add", "192.0.2.7/24", "dev", "one")
        ip("link", "set", "one", "up")
        assert local_addresses() == ["192.0.2.7"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as selfish:
            selfish.bind(("", 5353))  # a program that shares the port of mDNS with nobody
            announce_and_find([("192.0.2.7", 1)])

    caplog.set_level(logging.INFO)
    alone(work)
    assert caplog.text.count("no mDNS on this machine") == 2
    assert "in use" in caplog.text


@needs_networks
def test_without_a_network_nothing_breaks() -> None:
    def work() -> None:
        assert local_addresses() == []
        announce_and_find([])

    alone(work)


def announce_and_find(addresses: list[Address]) -> None:
    """Both return, though nobody tells them to stop."""
    lan.announce(INVITE, addresses, threading.Event())
    lan.find(INVITE, lambda address: pytest.fail(str(address)), threading.Event())


def test_the_announcement_tells_nothing() -> None:
    assert lan.SERVICE == "_hybrisfs-pair._tcp.local."
    assert len("hybrisfs-pair") <= 15  # RFC 6763, 7.2
