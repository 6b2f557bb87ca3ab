"""Connections of gRPC that are used again, and servers that are away, silent or restarted."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from h2.settings import SettingCodes

from hybrisfs.environment import SYSTEM
from hybrisfs.kv.grpc_calls import BrokenCallError, RefusedCallError
from hybrisfs.kv.grpc_channel import Channel, NotReachedError
from tests.kv.grpc_server import ServerEnd, listening

PATIENCE = 60.0
PATH = "/service/method"
OK = [("grpc-status", "0")]

Answer = Callable[[ServerEnd, int], None]


def asked(end: ServerEnd, stream: int) -> bytes:
    return bytes(end.received[stream][5:])


def echo(end: ServerEnd, stream: int) -> None:
    end.answer(stream, asked(end, stream), trailers=OK)


def serving(connection: socket.socket, end: ServerEnd, answer: Answer, most: int = 1 << 30) -> None:
    """Answer so many calls."""
    served = 0
    while served < most:
        connection.sendall(end.http.data_to_send())
        data = connection.recv(1 << 16)
        if not data:
            return
        end.receive(data)
        for stream in end.ended[served:]:
            answer(end, stream)
            served += 1
    connection.sendall(end.http.data_to_send())


@pytest.fixture
def channel() -> Iterator[Channel]:
    with contextlib.closing(Channel(None, SYSTEM)) as channel:
        yield channel


def call(channel: Channel, host: str, message: bytes = b"asked") -> bytes:
    return channel.call(host, PATH, message, [], PATIENCE)


def test_calls_of_one_thread_share_a_connection(channel: Channel) -> None:
    connections = []

    def serve(connection: socket.socket, end: ServerEnd) -> None:
        connections.append(connection)
        serving(connection, end, echo)

    with listening(serve) as host:
        assert [call(channel, host, b"%d" % number) for number in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
        assert len(connections) == 1


def test_calls_at_the_same_time_have_connections_of_their_own(channel: Channel) -> None:
    together = threading.Barrier(3)

    def answer(end: ServerEnd, stream: int) -> None:
        together.wait(PATIENCE)
        echo(end, stream)

    with (
        listening(lambda connection, end: serving(connection, end, answer)) as host,
        ThreadPoolExecutor(3) as pool,
    ):
        messages = [b"%d" % number * 300_000 for number in range(3)]
        assert list(pool.map(lambda message: call(channel, host, message), messages)) == messages


def test_a_connection_that_was_closed_is_not_used_again(channel: Channel) -> None:
    """As by a server that was restarted: no call fails for that."""
    closed = threading.Semaphore(0)

    def serve(connection: socket.socket, end: ServerEnd) -> None:
        serving(connection, end, echo, most=1)
        connection.shutdown(socket.SHUT_RDWR)
        closed.release()

    with listening(serve) as host:
        for number in range(3):
            assert call(channel, host, b"%d" % number) == b"%d" % number
            assert closed.acquire(timeout=PATIENCE)


def test_a_connection_is_used_again_after_a_refusal(channel: Channel) -> None:
    connections = []

    def refuse(end: ServerEnd, stream: int) -> None:
        end.refuse(stream, [(":status", "200"), ("grpc-status", "5"), ("grpc-message", "no")])

    def serve(connection: socket.socket, end: ServerEnd) -> None:
        connections.append(connection)
        serving(connection, end, refuse)

    with listening(serve) as host:
        for _ in range(2):
            with pytest.raises(RefusedCallError, match="no"):
                call(channel, host)
        assert len(connections) == 1


def test_nobody_waits_longer_than_he_says(channel: Channel) -> None:
    with (
        listening(lambda connection, end: serving(connection, end, lambda *_: None)) as host,
        pytest.raises(TimeoutError),
    ):
        channel.call(host, PATH, b"asked", [], 0.1)


def test_nobody_waits_longer_for_a_server_that_takes_nothing_in(channel: Channel) -> None:
    ended = threading.Event()

    def serve(connection: socket.socket, end: ServerEnd) -> None:
        end.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 30})
        end.http.increment_flow_control_window(1 << 30)
        connection.sendall(end.http.data_to_send())
        assert ended.wait(PATIENCE)

    with listening(serve) as host:
        with pytest.raises(TimeoutError):
            channel.call(host, PATH, bytes(64 << 20), [], 0.5)
        ended.set()


def test_a_server_that_hangs_up_has_not_answered(channel: Channel) -> None:
    with (
        listening(lambda connection, end: serving(connection, end, lambda *_: None, most=1)) as host,
        pytest.raises((BrokenCallError, OSError)),
    ):
        call(channel, host)


@pytest.mark.parametrize("host", ["127.0.0.1:1", "[::1]:1", f"{'x' * 70}.invalid:1"])
def test_a_server_that_is_away_has_not_got_the_call(channel: Channel, host: str) -> None:
    with pytest.raises(NotReachedError):
        call(channel, host)


def test_a_server_without_tls_has_not_got_the_call() -> None:
    import ssl

    def serve(connection: socket.socket, end: ServerEnd) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with (
        contextlib.closing(Channel(ssl.create_default_context, SYSTEM)) as channel,
        listening(serve) as host,
        pytest.raises(NotReachedError),
    ):
        call(channel, host)


def test_messages_come_one_after_the_other(channel: Channel) -> None:
    more = threading.Semaphore(0)

    def serve(connection: socket.socket, end: ServerEnd) -> None:
        while not end.received or not end.received[1]:
            connection.sendall(end.http.data_to_send())
            end.receive(connection.recv(1 << 16))
        end.answer(1, b"one")
        for message in (b"two", b"three"):
            connection.sendall(end.http.data_to_send())
            assert more.acquire(timeout=PATIENCE)
            end.send(1, message)
        end.http.send_headers(1, OK, end_stream=True)
        connection.sendall(end.http.data_to_send())

    with (
        listening(serve) as host,
        contextlib.closing(channel.stream(host, PATH, b"watch", [], PATIENCE)) as stream,
    ):
        found = []
        for message in stream.messages():
            found.append(message)
            more.release()
        assert found == [b"one", b"two", b"three"]


def test_another_thread_ends_a_stream(channel: Channel) -> None:
    with (
        listening(lambda connection, end: serving(connection, end, echo)) as host,
        contextlib.closing(channel.stream(host, PATH, b"watch", [], PATIENCE)) as stream,
        ThreadPoolExecutor(1) as pool,
    ):
        future = pool.submit(list, stream.messages())
        stream.interrupt()
        with pytest.raises((BrokenCallError, OSError)):
            future.result(PATIENCE)


def test_what_was_closed_keeps_no_connection() -> None:
    ended = threading.Semaphore(0)

    def serve(connection: socket.socket, end: ServerEnd) -> None:
        serving(connection, end, echo)
        ended.release()

    channel = Channel(None, SYSTEM)
    with listening(serve) as host:
        call(channel, host)
        channel.close()
        assert ended.acquire(timeout=PATIENCE)
        call(channel, host)  # as of a thread that was in the midst of it
        assert ended.acquire(timeout=PATIENCE)
