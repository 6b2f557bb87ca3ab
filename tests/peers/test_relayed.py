"""Links through a relay: a real one, and ones that lie."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from backends.relay import RelayStore, pin_of, port_of
from hybrisfs.environment import SYSTEM
from hybrisfs.peers.handshakes import Handshakes
from hybrisfs.peers.lines import LineRequest, RequestDecoder, Role, Said
from hybrisfs.peers.relay_watch import RelayWatch
from hybrisfs.peers.settings import PeerSettings, Relay, Through
from hybrisfs.peers.tls import TlsIdentity
from relay.files import Certificate, certificate
from tests.backends import servers
from tests.backends.servers import Server
from tests.peers.support import (
    LONG,
    QUICK,
    SECRET,
    Device,
    Local,
    identity,
    knows,
    members,
    running,
    settings,
)

SLOW = settings(first_retry=1e6, last_retry=1e6)
"""Nothing is tried again by itself."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.relay(tmp_path_factory.mktemp("relay")) as server:
        yield server


@pytest.fixture
def relay(server: Server) -> Relay:
    """A space of its own."""
    address = RelayStore.kind.parse(server.url())
    return Relay((address.host, port_of(address)), pin_of(address), address.path, server.secrets["token"])


def two(relay: Relay, configured: PeerSettings = QUICK) -> tuple[Device, Device]:
    """Two devices that know no address but that of a relay."""
    devices = Device(1, configured), Device(2, configured)
    for device in devices:
        device.service.set_relays([relay])
    return devices


def places(device: Device) -> list[object]:
    return [one.place for one in device.service.status()]


def is_direct(device: Device) -> bool:
    """Whether it has links, and none of them is through a relay."""
    return places(device) != [] and all(isinstance(one, tuple) for one in places(device))


def test_devices_that_know_only_a_relay_are_linked(relay: Relay) -> None:
    a, b = two(relay)
    a.log.add(b"of a")
    b.log.add(b"of b")
    wanted = b.put_chunk(os.urandom(300_000))
    with running(a, b):
        a.wait_linked(b)
        b.wait_linked(a)
        for device in (a, b):
            device.wait_for(b"of a", b"of b")
            assert all(isinstance(place, Through) and place.relay == relay for place in places(device))
        assert a.fetch(wanted) == b.chunks[wanted]
        a.write(b"more of a")
        b.wait_for(b"more of a")


def test_many_devices_are_linked_with_each_other(relay: Relay) -> None:
    devices = [Device(number, members=members(1, 2, 3, 4)) for number in (1, 2, 3, 4)]
    with running(*devices):
        for device in devices:
            device.service.set_relays([relay])
        for device in devices:
            device.wait_linked(*(other for other in devices if other is not device))


def test_a_direct_way_takes_the_place_of_the_relay(relay: Relay) -> None:
    a, b = two(relay)
    with running(a, b):
        a.wait_linked(b)
        b.wait_linked(a)
        knows(a, b)
        for device in (a, b):
            device.wait(partial(is_direct, device))
        a.write(b"news")
        b.wait_for(b"news")


def test_a_device_that_comes_later_is_linked_at_once(relay: Relay) -> None:
    """Though nobody tries again what has failed."""
    a, b = two(relay, SLOW)
    with running(a):
        opened = threading.Event()
        with running(b):
            a.wait_linked(b)
            opened.set()
    assert opened.is_set()


def test_a_relay_that_is_left_is_used_no_more(relay: Relay) -> None:
    a, b = two(relay)
    with running(a, b):
        a.wait_linked(b)
        a.service.set_relays([])
        a.wait_linked()
        c = Device(3)
        c.service.set_relays([relay])
        with running(c):
            b.wait_linked(c)  # which have found each other by it, as they would have found the first
            assert places(a) == []
            a.service.set_relays([relay])
            a.wait_linked(b, c)


def test_a_removed_device_gets_no_link_though_it_has_the_token(relay: Relay) -> None:
    a, b = two(relay)
    with running(a, b):
        a.wait_linked(b)
        a.service.set_members(members(1, 3))
        a.wait_linked()
        c = Device(3)
        c.service.set_relays([relay])
        with running(c):
            a.wait_linked(c)  # it has been asked by all since
            assert {one.device_id for one in a.service.status()} == {c.id}


def test_devices_of_other_volumes_do_not_meet(relay: Relay) -> None:
    a, b = two(relay)
    stranger = Device(2, identity=identity(2, secret=SECRET[::-1]))
    stranger.service.set_relays([relay])
    with running(a, stranger):
        with running(b):
            a.wait_linked(b)
        assert places(stranger) == []


def test_it_is_told_when_a_relay_is_there(relay: Relay) -> None:
    """Then all devices are called again; not each time that this one has been called."""
    reached = threading.Semaphore(0)
    handshakes = Handshakes(TlsIdentity(identity(1)), Local(1, 2), QUICK, SYSTEM)
    watch = RelayWatch(handshakes, identity(1).device.device_id, QUICK, SYSTEM, reached.release)
    b = Device(2)
    with running(b):
        watch.configure([relay])
        assert reached.acquire(timeout=LONG)
        b.service.set_relays([relay])
        b.wait_linked()
        watch.end()
        handshakes.close(time.monotonic() + LONG)
        watch.join(time.monotonic() + LONG)
    assert not reached.acquire(blocking=False)


# -- relays that lie ------------------------------------------------------------------------------------

Lie: TypeAlias = "Callable[[FalseRelay, ssl.SSLSocket, LineRequest], None]"


class FalseRelay:
    """Has the certificate of a relay, and does what *serve* does with each request."""

    def __init__(self, made: Certificate, serve: Lie) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(made.chain, made.key)
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.requests: list[LineRequest] = []
        self.asked = threading.Condition()
        self.waiting: dict[bytes, ssl.SSLSocket] = {}
        self._open: list[socket.socket] = []
        self.relay = Relay(self._listener.getsockname()[:2], made.pin, "home", "token")

    def __enter__(self) -> FalseRelay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            connection.close()

    def wait_asked(self, count: int) -> None:
        with self.asked:
            assert self.asked.wait_for(lambda: len(self.requests) >= count, LONG)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._take, args=(connection,), daemon=True).start()

    def _take(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            secure = self._context.wrap_socket(connection, server_side=True)
            self._open.append(secure)
            decoder = RequestDecoder()
            while (request := decoder.feed(secure.recv(1000))) is None:
                pass
            with self.asked:
                self.requests.append(request)
                self.asked.notify_all()
            self._serve(self, secure, request)


def say(line: ssl.SSLSocket, *said: int) -> None:
    line.sendall(bytes(said))


def pump(source: ssl.SSLSocket, sink: ssl.SSLSocket, change: Callable[[bytes], bytes]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(change(data))


def in_the_middle(
    change: Callable[[bytes], bytes],
) -> Lie:
    """Connects as a relay should, and changes what is said."""

    def serve(false: FalseRelay, line: ssl.SSLSocket, request: LineRequest) -> None:
        if request.role is Role.WAIT:
            say(line, Said.WAITING)
            false.waiting[request.tag] = line
        elif (other := false.waiting.pop(request.tag, None)) is None:
            say(line, Said.NOBODY)
            line.close()
        else:
            for one in (line, other):
                say(one, Said.CONNECTED)
            threading.Thread(target=pump, args=(other, line, change), daemon=True).start()
            pump(line, other, change)

    return serve


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def to_itself(false: FalseRelay, line: ssl.SSLSocket, request: LineRequest) -> None:
    say(line, Said.CONNECTED)
    pump(line, line, lambda data: data)


def at_once(false: FalseRelay, line: ssl.SSLSocket, request: LineRequest) -> None:
    say(line, Said.CONNECTED)
    line.close()


def nonsense(false: FalseRelay, line: ssl.SSLSocket, request: LineRequest) -> None:
    line.sendall(b"\x00\x00\x77" + os.urandom(1000))


def noise(false: FalseRelay, line: ssl.SSLSocket, request: LineRequest) -> None:
    line.sendall(b"\x01" + os.urandom(100_000))


def silence(false: FalseRelay, line: ssl.SSLSocket, request: LineRequest) -> None:
    """Says nothing."""


LIES = {
    "flip": in_the_middle(flip),
    "cut": in_the_middle(lambda data: data[:-1]),
    "pad": in_the_middle(lambda data: data + b"x"),
    "to itself": to_itself,
    "at once": at_once,
    "nonsense": nonsense,
    "noise": noise,
    "silence": silence,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_relay_that_lies_makes_no_link_and_does_no_harm(lie: str, tmp_path: Path) -> None:
    a, b = Device(1), Device(2)
    a.log.add(b"of a")
    with FalseRelay(certificate(tmp_path), LIES[lie]) as false, running(a, b):
        for device in (a, b):
            device.service.set_relays([false.relay])
        false.wait_asked(4)
        assert (places(a), places(b), b.log.all()) == ([], [], [])
        knows(a, b)  # meanwhile all else works
        b.wait_for(b"of a")


def test_an_honest_relay_in_the_middle_makes_a_link(tmp_path: Path) -> None:
    """What is changed above is why there is none."""
    a, b = Device(1), Device(2)
    with FalseRelay(certificate(tmp_path), in_the_middle(lambda data: data)) as false, running(a, b):
        for device in (a, b):
            device.service.set_relays([false.relay])
        a.wait_linked(b)


def test_another_certificate_gets_no_token(tmp_path: Path) -> None:
    other = certificate(tmp_path)
    a = Device(1)
    with FalseRelay(other, silence) as false:
        wrong = Relay(false.relay.address, hashlib.sha256(b"another").digest(), "home", "token")
        with running(a):
            a.service.set_relays([wrong])
            with running(b := Device(2)):
                knows(a, b)
                a.wait_linked(b)
        assert false.requests == []


def test_tags_tell_relays_nothing_of_devices() -> None:
    tags = {
        TlsIdentity(identity(1, secret=secret)).tag(identity(2).device.device_id)
        for secret in (SECRET, SECRET[::-1])
    }
    assert len(tags) == 2
    assert identity(2).device.device_id not in tags
