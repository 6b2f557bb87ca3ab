"""Connecting to others: lookups, several addresses behind one name, waking up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping

import pytest

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.peers.connector import Connector
from hybrisfs.peers.errors import ChannelError
from hybrisfs.peers.handshakes import Handshakes, Meeting
from hybrisfs.peers.tls import TlsIdentity
from tests.peers.support import LONG, Device, Local, identity, key, knows, running, settings


@pytest.fixture
def handshakes() -> Iterator[Handshakes]:
    """Those of device 1."""
    made = Handshakes(
        TlsIdentity(identity(1)),
        Local(1, 2, 3),
        settings(connect_timeout=1.0),
        SYSTEM,
    )
    yield made
    made.close(time.monotonic() + LONG)


@pytest.mark.parametrize("host", ["device.invalid", "a" * 70 + ".invalid", "192.0.2.300", "fe80::1%nothing"])
def test_a_name_that_leads_nowhere_is_told(handshakes: Handshakes, host: str) -> None:
    with pytest.raises(ChannelError, match="cannot be looked up"):
        handshakes.dial((host, 1))


def test_every_address_of_a_name_is_tried(handshakes: Handshakes, monkeypatch: pytest.MonkeyPatch) -> None:
    b = Device(2)
    with running(b), socket.create_server(("127.0.0.1", 0)) as taken:
        dead = taken.getsockname()[1]
        taken.close()
        kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        found = [(*kind, ("127.0.0.1", dead)), (*kind, ("127.0.0.1", b.service.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
        meeting = handshakes.dial(("a name", 1))
        assert meeting.device_id == b.id
        meeting.channel.close()


def test_nothing_is_dialled_after_the_end(handshakes: Handshakes) -> None:
    handshakes.close(time.monotonic() + LONG)
    with pytest.raises(ChannelError, match="being closed"):
        handshakes.dial(("127.0.0.1", 1))


def test_waking_up_gives_old_links_up_and_tries_all_again_at_once(handshakes: Handshakes) -> None:
    asleep = [0.0]
    slept, met, looked = threading.Event(), threading.Event(), threading.Event()
    never = settings(first_retry=1e6, last_retry=1e6)
    b = Device(2)

    class Watched(Local):
        def met(self, meeting: Meeting) -> None:
            meeting.channel.close()
            met.set()

        def linked(self) -> Mapping[bytes, bool]:
            looked.set()
            return {}

        def slept(self) -> None:
            slept.set()

    sleeper = Environment(boot_time=lambda: time.monotonic() + asleep[0])
    connector = Connector(handshakes, never, Watched(1, 2, 3), sleeper)
    with running(b):
        connector.start()
        assert looked.wait(LONG)
        connector.seen(b.id, [("127.0.0.1", b.service.port)], delay=1e6)
        assert not slept.is_set() and not met.is_set()
        asleep[0] = 60.0
        connector.keep_members(frozenset([b.id]))  # anything that makes it look
        assert slept.wait(LONG)
        assert met.wait(LONG)
        connector.close(time.monotonic() + LONG)


def test_after_sleep_a_link_is_made_anew() -> None:
    a, b = Device(1), Device(2)
    with running(a, b):
        knows(a, b)
        a.wait_linked(b)
        before = a.service._links.current()
        a.service.slept()
        a.wait(lambda: bool(a.service._links.current()) and a.service._links.current() != before)
        b.wait_linked(a)


def test_dialling_the_same_device_by_two_addresses_leaves_one_link() -> None:
    a, b = Device(1), Device(2)
    with running(a, b):
        a.service.set_addresses([("127.0.0.1", b.service.port), ("::1", b.service.port)])
        a.wait_linked(b)
        b.wait_linked(a)
        a.wait(lambda: len(a.service._links.all()) == 1)
        b.wait(lambda: len(b.service._links.all()) == 1)
        b.write(b"through")
        a.wait_for(b"through")
        assert [status.device_id for status in a.service.status()] == [key(2).device_id]
