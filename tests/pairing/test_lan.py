"""Frames over TCP on loopback: genuine peers get through, strangers are dropped."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from hybrisfs.environment import SYSTEM, Environment, Limits
from hybrisfs.pairing.exchange import Link
from hybrisfs.pairing.lan import Connection, Dialer, LanLimits, Listener, local_addresses
from hybrisfs.pairing.mailbox import MAX_JOINER_MESSAGE
from tests.surroundings import limited

WAIT = 20.0  # seconds after which a test fails

Events = queue.Queue[tuple[Link, int, bytes | None]]


class Rig:
    """A listener, and what it and the dialers deliver."""

    def __init__(self, limits: LanLimits) -> None:
        self.environment = Environment(limits=Limits(limits))
        self.listener = Listener(self.environment)
        self.heard: Events = queue.Queue()
        self.answered: Events = queue.Queue()
        self.dialers: list[Dialer] = []
        self.listener.start(lambda *event: self.heard.put(event))

    def dial(self, *hosts: str, hello: bytes = b"hello") -> Dialer:
        dialer = Dialer(hello, lambda *event: self.answered.put(event), self.environment)
        self.dialers.append(dialer)
        for host in hosts:
            dialer.dial((host, self.listener.port))
        return dialer

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.listener.port), WAIT, (source, 0))

    def close(self) -> None:
        for dialer in self.dialers:
            dialer.close()
        self.listener.close()


@pytest.fixture
def limits() -> LanLimits:
    return LanLimits()


@pytest.fixture
def rig(limits: LanLimits) -> Iterator[Rig]:
    before = set(threading.enumerate())  # threads of an earlier test may still end
    rig = Rig(limits)
    yield rig
    rig.close()
    rig.close()
    assert not set(threading.enumerate()) - before


def frame(message: bytes) -> bytes:
    return struct.pack(">I", len(message)) + message


def ends(sock: socket.socket) -> bool:
    """Whether the other side hangs up."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def hosts() -> list[str]:
    """Loopback by both protocols, where the machine has both."""
    found = ["127.0.0.1"]
    if socket.has_dualstack_ipv6():
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
            found.append("::1")
        except OSError:
            pass
    return found


@pytest.mark.parametrize("host", hosts())
def test_both_sides_speak_and_hear(rig: Rig, host: str) -> None:
    rig.dial(host)
    link, number, message = rig.heard.get(timeout=WAIT)
    assert (number, message) == (1, b"hello")
    link.accepted(1)
    link.send(b"offer")
    back, number, message = rig.answered.get(timeout=WAIT)
    assert (number, message) == (1, b"offer")
    back.accepted(1)
    back.send(b"reveal")
    assert rig.heard.get(timeout=WAIT)[1:] == (2, b"reveal")
    link.send(b"g" * (1 << 20))
    assert rig.answered.get(timeout=WAIT)[1:] == (2, b"g" * (1 << 20))


def test_a_refused_stranger_is_told_and_dropped(rig: Rig) -> None:
    with rig.connect() as sock:
        sock.sendall(frame(b"nonsense"))
        link, _, _ = rig.heard.get(timeout=WAIT)
        link.refuse(b"used")
        assert sock.recv(100) == frame(b"used")
        assert ends(sock)
    assert rig.heard.get(timeout=WAIT)[2] is None


@pytest.mark.parametrize(
    "data",
    [
        frame(bytes(MAX_JOINER_MESSAGE + 1)),
        struct.pack(">I", 0xFFFFFFFF) + b"x" * 100,
    ],
)
def test_an_oversize_frame_is_not_read(rig: Rig, data: bytes) -> None:
    with rig.connect() as sock:
        sock.sendall(data)
        assert ends(sock)
    assert rig.heard.get(timeout=WAIT)[1:] == (1, None)


def test_a_peer_has_three_messages(rig: Rig) -> None:
    with rig.connect() as sock:
        sock.sendall(frame(b"1") + frame(b"2") + frame(b"3") + frame(b"4"))
        link, *first = rig.heard.get(timeout=WAIT)
        link.accepted(1)
        assert ends(sock)
    heard = [rig.heard.get(timeout=WAIT)[1:] for _ in range(3)]
    assert [tuple(first), *heard] == [(1, b"1"), (2, b"2"), (3, b"3"), (4, None)]


def test_nothing_more_is_read_from_whom_nobody_has_judged(rig: Rig) -> None:
    with rig.connect() as sock:
        sock.sendall(frame(b"1") + frame(b"2"))
        link, _, _ = rig.heard.get(timeout=WAIT)
        link.refuse(None)
        assert ends(sock)
    assert rig.heard.get(timeout=WAIT)[1:] == (2, None)


@pytest.mark.parametrize("limits", [LanLimits(first_frame=-1.0)])
def test_a_frame_that_comes_too_late_is_not_delivered(rig: Rig) -> None:
    with rig.connect() as sock:
        sock.sendall(frame(b"hello"))
        assert ends(sock)
    assert rig.heard.get(timeout=WAIT)[1:] == (1, None)


def test_a_frame_that_ends_early_is_not_delivered(rig: Rig) -> None:
    with rig.connect() as sock:
        sock.sendall(frame(b"hello")[:-1])
    assert rig.heard.get(timeout=WAIT)[2] is None


@pytest.mark.parametrize("limits", [LanLimits(first_frame=0.05)])
def test_a_silent_peer_is_dropped(rig: Rig) -> None:
    with rig.connect() as sock:
        sock.sendall(frame(b"hello")[:2])
        assert ends(sock)


def is_refused(sock: socket.socket) -> bool:
    """Whether the other side hangs up whatever is said."""
    with sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(frame(b"x"))
        return ends(sock)


def test_strangers_are_few_at_a_time(rig: Rig) -> None:
    held = [rig.connect(f"127.0.0.{2 + number // 2}") for number in range(8)]
    for sock in held:
        sock.sendall(frame(b"x"))
        rig.heard.get(timeout=WAIT)
    assert is_refused(rig.connect())
    assert rig.heard.empty()
    for sock in held:
        sock.close()


def test_one_host_does_not_keep_the_others_out(rig: Rig) -> None:
    held = [rig.connect("127.0.0.2") for _ in range(2)]
    for sock in held:
        sock.sendall(frame(b"x"))
        rig.heard.get(timeout=WAIT)
    assert is_refused(rig.connect("127.0.0.2"))
    with rig.connect("127.0.0.1") as another:
        another.sendall(frame(b"hello"))
        assert rig.heard.get(timeout=WAIT)[2] == b"hello"
    for sock in held:
        sock.close()


def test_the_joiner_keeps_the_connection_it_chose(rig: Rig) -> None:
    dialer = rig.dial(*hosts(), "127.0.0.2")
    first, _, _ = rig.heard.get(timeout=WAIT)
    first.accepted(1)
    first.send(b"offer")
    chosen, _, _ = rig.answered.get(timeout=WAIT)
    dialer.keep(chosen)
    chosen.send(b"reveal")
    while (event := rig.heard.get(timeout=WAIT))[2] != b"reveal":
        assert event[2] in (b"hello", None)
    assert event[0] is first


@pytest.mark.parametrize("limits", [LanLimits(redial=0.01)])
def test_the_dialer_tries_again(rig: Rig) -> None:
    rig.dial("127.0.0.1")
    for _ in range(2):
        link, _, message = rig.heard.get(timeout=WAIT)
        assert message == b"hello"
        link.refuse(None)
        assert rig.heard.get(timeout=WAIT)[2] is None
    link, _, message = rig.heard.get(timeout=WAIT)
    assert message == b"hello"


def test_hopeless_addresses_do_no_harm() -> None:
    dialer = Dialer(b"hello", lambda *event: None, SYSTEM)
    for address in (("127.0.0.1", 1), ("no such host.invalid", 1), ("x" * 300, 1), ("::ffff:zz", 1)):
        dialer.dial(address)
        dialer.dial(address)
    dialer.close()
    dialer.dial(("127.0.0.1", 2))


def test_the_addresses_for_the_code_are_no_loopback_ones() -> None:
    assert not [host for host in local_addresses() if host.startswith(("127.", "::1", "fe80:", "169.254."))]


def test_a_peer_that_does_not_read_does_not_hold_up_the_sender() -> None:
    left, right = socket.socketpair()
    with left, right:
        connection = Connection(left, "test", lambda *event: None, 100, limited(LanLimits(send=1)))
        connection.send(bytes(1 << 24))
        right.settimeout(WAIT)
        assert ends(right)
