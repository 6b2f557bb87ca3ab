"""One call at a time on a connection of gRPC, without a network."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.kv.grpc_calls import BrokenCallError, Calls, RefusedCallError
from tests.kv.grpc_server import ServerEnd

PATH = "/etcdserverpb.KV/Range"
OK = [("grpc-status", "0")]


class Rig:
    """Both ends."""

    def __init__(self, window: int = 65_535) -> None:
        self.calls = Calls("db:2379", is_secure=False)
        self.server = ServerEnd(window)
        self.exchange()

    def exchange(self, portion: int = 1 << 30) -> None:
        """Carry bytes to and fro, until there are none."""
        while True:
            there, back = self.calls.to_send(), self.server.http.data_to_send()
            if not there and not back:
                return
            if there:
                self.server.receive(there)
            for start in range(0, len(back), portion):
                self.calls.receive(back[start : start + portion])

    def begin(self, message: bytes = b"asked") -> int:
        """Call; return the number of the stream when all of the message has arrived that may."""
        self.calls.begin(PATH, message, [("token", "t.1")])
        self.exchange()
        return max(self.server.headers)

    def answered(self, stream: int, *messages: bytes) -> list[bytes]:
        self.server.answer(stream, *messages, trailers=OK)
        self.exchange()
        assert self.calls.is_over
        self.calls.check()
        return self.calls.messages()


def prefixed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def test_a_call_has_a_name_and_a_message() -> None:
    rig = Rig()
    stream = rig.begin()
    assert rig.server.headers[stream] == {
        ":method": "POST",
        ":scheme": "http",
        ":authority": "db:2379",
        ":path": PATH,
        "te": "trailers",
        "content-type": "application/grpc",
        "token": "t.1",
    }
    assert (bytes(rig.server.received[stream]), rig.server.ended) == (prefixed(b"asked"), [stream])
    assert not rig.calls.is_over
    assert not rig.calls.is_usable
    assert rig.answered(stream, b"answer") == [b"answer"]
    assert rig.calls.is_usable


def test_a_connection_serves_one_call_after_the_other() -> None:
    rig = Rig()
    for number in range(5):
        answer = b"%d" % number
        assert rig.answered(rig.begin(), answer) == [answer]
    assert len(rig.server.headers) == 5


@pytest.mark.parametrize("window", [1, 100, 65_535])
def test_a_long_message_goes_as_the_server_takes_it(window: int) -> None:
    rig, message = Rig(window), bytes(range(256)) * (1 if window == 1 else 1000)
    stream = rig.begin(message)
    assert bytes(rig.server.received[stream]) == prefixed(message)
    assert rig.answered(stream, b"") == [b""]


@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(1, 60))
def test_answers_arrive_in_pieces(messages: list[bytes], portion: int) -> None:
    rig = Rig()
    rig.server.answer(rig.begin(), *messages, trailers=OK)
    rig.exchange(portion)
    rig.calls.check()
    assert rig.calls.messages() == messages


def test_a_long_answer_is_taken_in_whole() -> None:
    """More than the server may send ahead."""
    rig = Rig()
    stream = rig.begin()
    rig.server.answer(stream)
    parts = [b"%d" % number * 500_000 for number in range(10)]
    for part in parts:
        rig.server.send(stream, part)
        rig.exchange()
    rig.server.http.send_headers(stream, OK, end_stream=True)
    rig.exchange()
    assert rig.calls.messages() == parts


def test_messages_come_before_the_call_is_over() -> None:
    rig = Rig()
    rig.calls.begin(PATH, b"watch", ends=False)
    rig.exchange()
    (stream,) = rig.server.headers
    assert rig.server.ended == []
    rig.server.answer(stream, b"one", b"two")
    rig.exchange()
    assert rig.calls.messages() == [b"one", b"two"]
    rig.server.send(stream, b"three")
    rig.exchange()
    assert (rig.calls.messages(), rig.calls.is_over) == ([b"three"], False)
    rig.server.http.send_headers(stream, OK, end_stream=True)
    rig.exchange()
    assert rig.calls.is_over
    assert not rig.calls.is_usable  # the call has no end of ours


@pytest.mark.parametrize("has_messages", [False, True])
def test_a_refusal_has_a_code_and_a_message(has_messages: bool) -> None:
    rig = Rig()
    stream = rig.begin()
    refusal = [("grpc-status", "16"), ("grpc-message", "invalid auth token%3A caf%C3%A9")]
    if has_messages:
        rig.server.answer(stream, b"some", trailers=refusal)
    else:
        rig.server.refuse(stream, [(":status", "200"), ("content-type", "application/grpc"), *refusal])
    rig.exchange()
    with pytest.raises(RefusedCallError, match=r"^invalid auth token: café$") as caught:
        rig.calls.check()
    assert caught.value.code == 16
    assert rig.calls.is_usable


def test_a_call_that_is_refused_before_it_was_sent_ends_the_connection() -> None:
    rig = Rig(window=10)
    rig.calls.begin(PATH, bytes(100))
    rig.server.receive(rig.calls.to_send())
    rig.server.refuse(1, [(":status", "200"), ("grpc-status", "8"), ("grpc-message", "too large")])
    rig.calls.receive(rig.server.http.data_to_send())
    with pytest.raises(RefusedCallError, match="too large"):
        rig.calls.check()
    assert not rig.calls.is_usable


def broken(rig: Rig, stream: int) -> None:
    rig.server.http.reset_stream(stream)


def without_status(rig: Rig, stream: int) -> None:
    rig.server.answer(stream, b"answer", trailers=[("other", "1")])


def of_a_proxy(rig: Rig, stream: int) -> None:
    rig.server.refuse(stream, [(":status", "502")])


def with_a_strange_status(rig: Rig, stream: int) -> None:
    rig.server.answer(stream, b"answer", trailers=[("grpc-status", "fine")])


def compressed(rig: Rig, stream: int) -> None:
    rig.server.answer(stream)
    rig.server.http.send_data(stream, b"\1\0\0\0\1x")
    rig.server.http.send_headers(stream, OK, end_stream=True)


def endless(rig: Rig, stream: int) -> None:
    rig.server.answer(stream)
    rig.server.http.send_data(stream, b"\0\xff\xff\xff\xff")
    rig.server.http.send_headers(stream, OK, end_stream=True)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (broken, "was broken off"),
        (without_status, "was broken off"),
        (of_a_proxy, "HTTP status 502"),
        (with_a_strange_status, "none of gRPC's"),
        (compressed, "compressed"),
        (endless, "too long"),
    ],
)
def test_an_answer_that_is_none(answer: Callable[[Rig, int], None], why: str) -> None:
    rig = Rig()
    answer(rig, rig.begin())

    def take() -> None:
        rig.exchange()
        assert rig.calls.is_over
        rig.calls.check()
        rig.calls.messages()

    with pytest.raises(BrokenCallError, match=why):
        take()


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_a_server_that_is_none(data: bytes) -> None:
    calls = Calls("db:22", is_secure=True)
    calls.begin(PATH, b"asked")
    with pytest.raises(BrokenCallError):
        for some in (data, b""):
            calls.receive(some)
    assert not calls.is_usable


def test_a_server_that_is_about_to_stop_gets_no_more_calls() -> None:
    rig = Rig()
    rig.answered(rig.begin(), b"answer")
    assert rig.calls.is_usable
    rig.server.http.close_connection()
    rig.calls.receive(rig.server.http.data_to_send())
    assert not rig.calls.is_usable
