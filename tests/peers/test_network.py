"""What the kernel tells of the network."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.environment import SYSTEM
from hybrisfs.peers.network import Interfaces, NetworkWatch

NEWLINK, DELLINK, NEWADDR, DELADDR = 16, 17, 20, 21
UP, RUNNING = 0x1, 0x40
IFA_LABEL, IFA_ADDRESS = 3, 1


def message(kind: int, body: bytes) -> bytes:
    size = 16 + len(body)
    return struct.pack("=IHHII", size, kind, 0, 0, 0) + body + bytes(-size % 4)


def link(kind: int, index: int, flags: int) -> bytes:
    return message(kind, struct.pack("=BxHiII", 0, 1, index, flags, 0xFFFFFFFF))


def address(kind: int, index: int, text: str) -> bytes:
    label = struct.pack("=HH", 4 + 5, IFA_LABEL) + b"eth0\0" + bytes(3)
    packed = struct.pack("=HH", 8, IFA_ADDRESS) + socket.inet_aton(text)
    return message(kind, struct.pack("=BBBBi", socket.AF_INET, 24, 0, 0, index) + label + packed)


def test_a_link_that_comes_up_is_news_and_nothing_else_about_it() -> None:
    told = Interfaces()
    assert not told.take_in(link(NEWLINK, 2, UP))
    assert told.take_in(link(NEWLINK, 2, UP | RUNNING))
    assert not told.take_in(link(NEWLINK, 2, UP | RUNNING))
    assert not told.take_in(link(NEWLINK, 2, UP))
    assert told.take_in(link(NEWLINK, 3, UP | RUNNING))
    assert told.take_in(link(NEWLINK, 2, UP | RUNNING))


def test_a_link_that_is_removed_and_made_again_is_news() -> None:
    told = Interfaces()
    assert told.take_in(link(NEWLINK, 2, UP | RUNNING))
    assert not told.take_in(link(DELLINK, 2, UP | RUNNING))
    assert told.take_in(link(NEWLINK, 2, UP | RUNNING))


def test_an_address_that_is_renewed_is_no_news() -> None:
    told = Interfaces()
    assert told.take_in(address(NEWADDR, 2, "10.77.0.1"))
    assert not told.take_in(address(NEWADDR, 2, "10.77.0.1"))
    assert told.take_in(address(NEWADDR, 2, "10.77.0.2"))
    assert told.take_in(address(NEWADDR, 3, "10.77.0.1"))
    assert not told.take_in(address(DELADDR, 2, "10.77.0.1"))
    assert told.take_in(address(NEWADDR, 2, "10.77.0.1"))


def test_all_messages_that_come_together_are_read() -> None:
    told = Interfaces()
    assert told.take_in(link(NEWLINK, 2, UP | RUNNING) + address(NEWADDR, 2, "10.77.0.1"))
    assert not told.take_in(address(NEWADDR, 2, "10.77.0.1") + link(NEWLINK, 2, UP | RUNNING))


@given(st.binary() | st.builds(message, st.integers(16, 21), st.binary()))
def test_nothing_that_comes_breaks_it(data: bytes) -> None:
    Interfaces().take_in(data)


@pytest.mark.parametrize("started", [False, True])
def test_it_stops(started: bool) -> None:
    watch = NetworkWatch(lambda: None, SYSTEM)
    if started:
        watch.start()
    watch.close()
    watch.close()
    assert not [one for one in threading.enumerate() if one.name == "peers-network"]


def hears(answer: object) -> bool:
    watch = NetworkWatch(lambda: None, SYSTEM)
    watch._socket = mock.Mock(recvfrom=mock.Mock(side_effect=[answer]))
    try:
        return watch._hears_news()
    finally:
        watch.close()


def test_nobody_but_the_kernel_is_heard() -> None:
    news = link(NEWLINK, 7, UP | RUNNING)
    assert hears((news, (0, 1)))
    assert not hears((news, (4711, 0)))


def test_more_than_can_be_told_is_news() -> None:
    assert hears(OSError(errno.ENOBUFS, "no buffer space"))
