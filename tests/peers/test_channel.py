"""TLS in memory over a socket: both directions at once, stalls, ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from hybrisfs.peers.channel import SecureChannel, SocketWire
from hybrisfs.peers.errors import ChannelError
from hybrisfs.peers.tls import TlsIdentity
from tests.peers.support import LONG, identity, tcp_pair, within


@contextlib.contextmanager
def channels() -> Iterator[tuple[SecureChannel, SecureChannel]]:
    """Two ends after the handshake."""
    client, server = TlsIdentity(identity(1)), TlsIdentity(identity(2))
    with tcp_pair() as (near, far):
        left = SecureChannel(SocketWire(near), client.client, client.new_server_name())
        right = SecureChannel(SocketWire(far), server.server)
        thread = threading.Thread(target=lambda: right.handshake(within(LONG)))
        thread.start()
        left.handshake(within(LONG))
        thread.join()
        yield left, right


def receive_all(channel: SecureChannel, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        data = channel.receive(LONG)
        assert data
        got += data
    return bytes(got)


def test_both_sides_send_and_receive_at_the_same_time() -> None:
    block = os.urandom(1 << 20)
    rounds = 8
    sums: dict[str, str] = {}

    def send(channel: SecureChannel) -> None:
        for _ in range(rounds):
            channel.send(block, LONG)

    def receive(name: str, channel: SecureChannel) -> None:
        sums[name] = hashlib.sha256(receive_all(channel, rounds * len(block))).hexdigest()

    with channels() as (left, right):
        threads = [
            threading.Thread(target=send, args=(left,)),
            threading.Thread(target=send, args=(right,)),
            threading.Thread(target=receive, args=("left", left)),
            threading.Thread(target=receive, args=("right", right)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(sums.values()) == {hashlib.sha256(block * rounds).hexdigest()}
    assert len(sums) == 2


def test_nothing_within_the_wait_is_none_and_the_end_is_empty() -> None:
    with channels() as (left, right):
        assert left.receive(0.0) is None
        right.send(b"last", LONG)
        right.finish_sending()
        assert left.receive(LONG) == b"last"
        assert left.receive(LONG) == b""
        left.send(b"the other direction is still open", LONG)
        assert right.receive(LONG)


def test_a_reader_that_takes_nothing_is_given_up() -> None:
    with channels() as (left, _), pytest.raises(ChannelError, match="takes nothing"):
        left.send(bytes(64 << 20), 0.1)


def test_abandoning_wakes_both_threads() -> None:
    outcomes: list[object] = []
    with channels() as (left, right):

        def receive() -> None:
            outcomes.append(left.receive(LONG))

        def send() -> None:
            with pytest.raises(ChannelError):
                left.send(bytes(64 << 20), LONG)
            outcomes.append("failed")

        threads = [threading.Thread(target=receive), threading.Thread(target=send)]
        for thread in threads:
            thread.start()
        assert right.receive(LONG)  # the sender is at work
        left.abandon()
        for thread in threads:
            thread.join(LONG / 2)
        assert sorted(map(str, outcomes)) == ["b''", "failed"]
        left.close()
        left.abandon()
        left.finish_sending()


def test_bytes_changed_on_the_way_end_the_channel() -> None:
    client, server = TlsIdentity(identity(1)), TlsIdentity(identity(2))
    with tcp_pair() as (near, mallory_left), tcp_pair() as (mallory_right, far):
        left = SecureChannel(SocketWire(near), client.client, client.new_server_name())
        right = SecureChannel(SocketWire(far), server.server)
        tamper = threading.Event()

        def relay(source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    if tamper.is_set():
                        data = data[:-1] + bytes([data[-1] ^ 1])
                    sink.sendall(data)

        for pair in ((mallory_left, mallory_right), (mallory_right, mallory_left)):
            threading.Thread(target=relay, args=pair, daemon=True).start()
        thread = threading.Thread(target=lambda: right.handshake(within(LONG)))
        thread.start()
        left.handshake(within(LONG))
        thread.join()
        left.send(b"untouched", LONG)
        assert receive_all(right, 9) == b"untouched"
        tamper.set()
        left.send(b"changed", LONG)
        with pytest.raises(ChannelError, match="TLS failed"):
            right.receive(LONG)
