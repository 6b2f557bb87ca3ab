"""The open port among strangers: half-open connections, floods, limits."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import Any

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.peers.handshakes import Handshakes
from hybrisfs.peers.listener import Listener, plain_address
from hybrisfs.peers.settings import Address
from hybrisfs.peers.tls import TlsIdentity
from tests.peers.support import LONG, Device, Local, identity, knows, running, settings, tcp_pair


def ended(connection: socket.socket) -> bool:
    """Wait until the other side closes; what it says before does not matter."""
    connection.settimeout(LONG)
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


def connect(device: Device) -> socket.socket:
    return socket.create_connection(("127.0.0.1", device.service.port), LONG)


def test_who_says_nothing_is_closed_after_the_deadline() -> None:
    a = Device(1, settings=settings(handshake_timeout=0.1))
    with running(a), connect(a) as silent:
        assert ended(silent)
    assert a.service.status() == []


def test_a_host_gets_no_more_than_a_few_connections_at_a_time() -> None:
    a = Device(1, settings=settings(max_handshakes_per_host=2, handshake_timeout=600.0))
    with running(a), connect(a) as first, connect(a) as second, connect(a) as third:
        assert ended(third)
        first.close()
        second.close()


def test_those_who_say_nothing_keep_no_member_out() -> None:
    a = Device(1, settings=settings(max_handshakes=4, max_handshakes_per_host=99, handshake_timeout=600.0))
    b = Device(2)
    with running(a, b), contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(a)) for _ in range(20)]
        knows(b, a)
        a.wait_linked(b)
        b.wait_linked(a)
        assert ended(silent[0])


def test_a_flood_of_garbage_disturbs_no_link() -> None:
    a, b = Device(1), Device(2)
    with running(a, b):
        knows(a, b)
        b.wait_linked(a)
        for _ in range(50):
            with connect(a) as stranger, contextlib.suppress(OSError):
                stranger.sendall(os.urandom(100_000))
        a.write(b"still here")
        b.wait_for(b"still here")
        assert [s.device_id for s in a.service.status()] == [b.id]


def test_hosts_are_told_apart_by_address_and_ipv6_networks() -> None:
    """An IPv6 host has a whole network of addresses to come from."""
    local = Local(1, 2)
    strangers = Handshakes(
        TlsIdentity(identity(1)),
        local,
        settings(max_handshakes_per_host=1, handshake_timeout=600.0),
        SYSTEM,
    )
    hosts = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.2", "fe80::1%lo"]
    with contextlib.ExitStack() as stack:
        near, far = zip(*[stack.enter_context(tcp_pair()) for _ in hosts], strict=True)
        for host, connection in zip(hosts, far, strict=True):
            strangers.accept(connection, (host, 1))
        assert ended(near[1])
        assert {thread.name for thread in threading.enumerate()} >= {"peer-handshake"}
        alive = [t for t in threading.enumerate() if t.name == "peer-handshake"]
        assert len(alive) == 5
        strangers.close(time.monotonic() + LONG)
        assert all(ended(connection) for connection in near)
        with tcp_pair() as (late, connection):
            strangers.accept(connection, ("192.0.2.9", 1))
            assert ended(late)
    assert local.meetings == []


@pytest.mark.parametrize(
    ("where", "address"),
    [
        (("192.0.2.1", 7), ("192.0.2.1", 7)),
        (("::ffff:192.0.2.1", 7, 0, 0), ("192.0.2.1", 7)),
        (("2001:db8::1", 7, 0, 0), ("2001:db8::1", 7)),
        (("fe80::1", 7, 0, 3), ("fe80::1%3", 7)),
        (("fe80::1%lo", 7, 0, 1), ("fe80::1%lo", 7)),
    ],
)
def test_addresses_are_such_as_one_can_connect_to(where: Any, address: Address) -> None:
    assert plain_address(*where) == address


def test_the_port_serves_both_families_and_tells_plain_addresses() -> None:
    came: list[Address] = []
    arrived = threading.Semaphore(0)

    def accept(connection: socket.socket, address: Address) -> None:
        came.append(address)
        connection.close()
        arrived.release()

    listener = Listener(0, accept)
    listener.start()
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, listener.port), LONG) as connection:
            assert arrived.acquire(timeout=LONG)
            assert came[-1] == (host, connection.getsockname()[1])
    listener.close()
    listener.close()
