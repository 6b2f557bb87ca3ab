"""Exactly one answer per request, whoever gives it and whenever. libfuse is played by a list here."""

from __future__ import annotations

import ctypes
import errno
import gc
import logging
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hybrisfs.fuse import request as module
from hybrisfs.fuse.callbacks import _callback
from hybrisfs.fuse.callers_cpu import CallersCpu
from hybrisfs.fuse.library import Library
from hybrisfs.fuse.records import size_answer
from hybrisfs.fuse.request import LATER, Channel, Request


def _nothing() -> None:
    pass


class FakeLibrary:
    """Keeps what would be sent to the kernel."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes | int]] = []
        self.before_sending: Callable[[], None] = _nothing
        self.brief = SimpleNamespace(
            fuse_reply_buf=self._reply, fuse_reply_err=self._fail, fuse_req_ctx=lambda handle: None
        )
        self.waiting = SimpleNamespace(fuse_reply_buf=self._reply)

    def _reply(self, handle: int, data: bytes | int, size: int) -> None:
        self.before_sending()
        self.sent.append((handle, data if isinstance(data, bytes) else ctypes.string_at(data, size)))

    def _fail(self, handle: int, error: int) -> int:
        self.sent.append((handle, error))
        return 0


@pytest.fixture
def library() -> FakeLibrary:
    return FakeLibrary()


@pytest.fixture
def channel(library: FakeLibrary) -> Channel:
    return Channel(cast("Library", library), CallersCpu(None, time.monotonic))


def identity(answer: Any) -> Any:
    return answer


@pytest.mark.parametrize(
    "data", [b"", b"short", b"x" * (1 << 20), bytearray(b"short"), memoryview(b"-short-")[1:6]]
)
def test_every_kind_of_buffer_is_sent_as_it_is(
    library: FakeLibrary, channel: Channel, data: bytes | bytearray | memoryview
) -> None:
    Request(channel, 7, identity).reply(data)
    assert library.sent == [(7, bytes(data))]


def test_a_buffer_with_gaps_is_refused_and_the_request_still_to_be_answered(
    library: FakeLibrary, channel: Channel
) -> None:
    request = Request(channel, 7, identity)
    with pytest.raises(BufferError):
        request.reply(memoryview(b"abcdef")[::2])
    request.fail(errno.EXDEV)
    assert library.sent == [(7, errno.EXDEV)]


def test_what_is_no_buffer_is_refused_likewise(library: FakeLibrary, channel: Channel) -> None:
    request = Request(channel, 7, identity)
    with pytest.raises(TypeError):
        request.reply("text")
    request.reply(b"bytes")
    assert library.sent == [(7, b"bytes")]


def test_an_answer_of_the_wrong_kind_leaves_the_request_to_be_answered(
    library: FakeLibrary, channel: Channel
) -> None:
    request = Request(channel, 7, size_answer)
    with pytest.raises(Exception, match="required argument is not an integer"):
        request.reply("nonsense")
    request.reply(5)
    assert library.sent == [(7, size_answer(5))]


def test_success_without_a_value(library: FakeLibrary, channel: Channel) -> None:
    Request(channel, 7, None).reply()
    assert library.sent == [(7, 0)]


def test_failing_without_a_number_is_eio(library: FakeLibrary, channel: Channel) -> None:
    Request(channel, 7, None).fail(0)
    assert library.sent == [(7, errno.EIO)]


def test_the_loop_awaits_no_answer_that_was_given_at_once(library: FakeLibrary, channel: Channel) -> None:
    """It does not look for requests while another thread is about to answer."""

    def refuse(request: Request) -> Any:
        raise FileNotFoundError(errno.ENOENT, "")

    kept = []

    def later(request: Request) -> Any:
        kept.append(request)
        return LATER

    for handler, awaits in ((later, True), (refuse, False), (later, True), (lambda request: None, False)):
        _callback(channel, handler, None, "lookup")(1)
        assert channel.answers_later is awaits
    for request in kept:
        request.reply()


def test_a_second_answer_raises(library: FakeLibrary, channel: Channel) -> None:
    request = Request(channel, 7, None)
    request.reply()
    with pytest.raises(RuntimeError, match="answered before"):
        request.reply()
    with pytest.raises(RuntimeError, match="answered before"):
        request.fail(errno.EXDEV)
    with pytest.raises(RuntimeError, match="not known any more"):
        _ = request.uid
    assert library.sent == [(7, 0)]


def test_of_racing_answers_one_is_sent(library: FakeLibrary, channel: Channel) -> None:
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for handle in range(1, 200):
            request = Request(channel, handle, None)
            barrier = threading.Barrier(3)

            def answer(request: Request = request, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                try:
                    request.reply()
                except RuntimeError:
                    return

            threads = [threading.Thread(target=answer) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(old)
    assert library.sent == [(handle, 0) for handle in range(1, 200)]


def test_a_dropped_request_is_answered_eio_and_logged(
    library: FakeLibrary, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    request = Request(channel, 7, None)
    request.await_answer()
    cycle: list[Any] = [request]
    cycle.append(cycle)
    del request, cycle
    with caplog.at_level(logging.ERROR, module.__name__):
        gc.collect()
    assert library.sent == [(7, errno.EIO)]
    assert "dropped without an answer" in caplog.text


def test_an_answered_request_is_dropped_quietly(
    library: FakeLibrary, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    Request(channel, 7, None).reply()
    gc.collect()
    assert library.sent == [(7, 0)]
    assert not caplog.text


def test_answers_after_the_end_come_to_nothing(library: FakeLibrary, channel: Channel) -> None:
    late, failing, _dropped = (Request(channel, handle, None) for handle in (1, 2, 3))
    channel.close()
    late.reply()
    failing.fail(errno.EXDEV)
    del _dropped
    gc.collect()
    assert library.sent == []


def test_closing_waits_for_the_answers_on_their_way(library: FakeLibrary, channel: Channel) -> None:
    sending, go_on = threading.Event(), threading.Event()

    def before_sending() -> None:
        sending.set()
        go_on.wait()

    library.before_sending = before_sending
    answering = threading.Thread(target=Request(channel, 7, identity).reply, args=(b"late",))
    answering.start()
    sending.wait()
    closing = threading.Thread(target=channel.close)
    closing.start()
    closing.join(0.1)
    try:
        assert closing.is_alive()
    finally:
        go_on.set()
        closing.join()
        answering.join()
    assert library.sent == [(7, b"late")]


# -- who else is there ----------------------------------------------------------------------------------


def _is_the_only_one(channel: Channel, threads: list[int]) -> bool:
    """What the handler of the last request is told, when these threads have made one request each."""
    for thread in threads:
        channel.asked(thread)
    return Request(channel, 0, None).is_from_the_only_one


def test_who_asks_again_and_again_is_the_only_one(library: FakeLibrary, channel: Channel) -> None:
    assert not _is_the_only_one(channel, [7] * 7)
    assert _is_the_only_one(channel, [7])
    assert _is_the_only_one(channel, [0, 7])  # what nobody in particular asks, as that a file be forgotten


def test_of_two_nobody_is(library: FakeLibrary, channel: Channel) -> None:
    assert not _is_the_only_one(channel, [7] * 9 + [8])
    assert not _is_the_only_one(channel, [7])
    assert not _is_the_only_one(channel, [7, 8] * 9)


def test_who_is_not_visible_is_not(library: FakeLibrary, channel: Channel) -> None:
    assert not _is_the_only_one(channel, [0] * 9)
    assert not _is_the_only_one(channel, [7] * 9 + [0])
