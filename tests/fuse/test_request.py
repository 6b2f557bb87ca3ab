"""Exactly one answer per request, whatever gives it and whenever. The kernel is played by a file here."""

from __future__ import annotations

import errno
import gc
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.fuse import request as module
from hybrisfs.fuse.callers_cpu import CallersCpu
from hybrisfs.fuse.loop import Handlers
from hybrisfs.fuse.operations import Operations
from hybrisfs.fuse.records import size_answer
from hybrisfs.fuse.request import ANSWER, LATER, Channel, Encoder, Request
from hybrisfs.fuse.requests import HEADER

GETXATTR = 22


class Device:
    """Takes what is sent to the kernel."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @property
    def sent(self) -> list[tuple[int, bytes | int]]:
        """The number of each request with its answer: bytes, or an errno."""
        written = io.BytesIO(self._path.read_bytes())
        answers: list[tuple[int, bytes | int]] = []
        while header := written.read(ANSWER.size):
            size, error, unique = ANSWER.unpack(header)
            data = written.read(size - ANSWER.size)
            assert len(data) == size - ANSWER.size and (not error or not data)
            answers.append((unique, -error if error else data))
        return answers


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path / "device")
    yield device
    os.close(device.fd)


@pytest.fixture
def channel(device: Device) -> Channel:
    return Channel(device.fd, CallersCpu(None, time.monotonic))


def request_to(channel: Channel, unique: int, encode: Encoder) -> Request:
    return Request(channel, unique, 0, 0, 0, encode)


def identity(answer: Any) -> Any:
    return answer


@pytest.mark.parametrize(
    "data", [b"", b"short", b"x" * (1 << 20), bytearray(b"short"), memoryview(b"-short-")[1:6]]
)
def test_every_kind_of_buffer_is_sent_as_it_is(
    device: Device, channel: Channel, data: bytes | bytearray | memoryview
) -> None:
    request_to(channel, 7, identity).reply(data)
    assert device.sent == [(7, bytes(data))]


def test_a_buffer_with_gaps_is_refused_and_the_request_still_to_be_answered(
    device: Device, channel: Channel
) -> None:
    request = request_to(channel, 7, identity)
    with pytest.raises(TypeError):
        request.reply(memoryview(b"abcdef")[::2])
    request.fail(errno.EXDEV)
    assert device.sent == [(7, errno.EXDEV)]


def test_what_is_no_buffer_is_refused_likewise(device: Device, channel: Channel) -> None:
    request = request_to(channel, 7, identity)
    with pytest.raises(TypeError):
        request.reply("text")
    request.reply(b"bytes")
    assert device.sent == [(7, b"bytes")]


def test_an_answer_of_the_wrong_kind_leaves_the_request_to_be_answered(
    device: Device, channel: Channel
) -> None:
    request = request_to(channel, 7, size_answer)
    with pytest.raises(Exception, match="required argument is not an integer"):
        request.reply("nonsense")
    request.reply(5)
    assert device.sent == [(7, size_answer(5))]


def test_success_without_a_value(device: Device, channel: Channel) -> None:
    request_to(channel, 7, None).reply()
    assert device.sent == [(7, b"")]


def test_failing_without_a_number_is_eio(device: Device, channel: Channel) -> None:
    request_to(channel, 7, None).fail(0)
    assert device.sent == [(7, errno.EIO)]


class Lookups(Operations):
    """Answers later, with an error or at once, as the name says."""

    def __init__(self) -> None:
        self.kept: list[Request] = []

    def getxattr(self, request: Request, ino: int, name: bytes, size: int) -> Any:
        if name == b"error":
            raise OSError(errno.ENODATA, "")
        if name == b"later":
            self.kept.append(request)
            return LATER
        return name


def test_the_loop_awaits_no_answer_that_was_given_at_once(device: Device, channel: Channel) -> None:
    """It does not look for requests while another thread is about to answer."""
    operations = Lookups()
    handlers = Handlers(operations, channel)
    for unique, name in enumerate((b"later", b"error", b"later", b"at once")):
        body = bytes(8) + name + b"\0"
        message = HEADER.pack(HEADER.size + len(body), GETXATTR, unique, 1, 0, 0, 0) + body
        handlers.handle(memoryview(message), len(message))
        assert channel.answers_later is (name == b"later")
    assert device.sent == [(1, errno.ENODATA), (3, b"at once")]
    for request in operations.kept:
        request.reply(b"now")
    assert device.sent[2:] == [(0, b"now"), (2, b"now")]


def test_a_request_that_is_not_known_is_answered(device: Device, channel: Channel) -> None:
    message = HEADER.pack(HEADER.size, 4711, 7, 1, 0, 0, 0)
    Handlers(Operations(), channel).handle(memoryview(message), len(message))
    assert device.sent == [(7, errno.ENOSYS)]


def test_a_second_answer_raises(device: Device, channel: Channel) -> None:
    request = request_to(channel, 7, None)
    request.reply()
    with pytest.raises(RuntimeError, match="answered before"):
        request.reply()
    with pytest.raises(RuntimeError, match="answered before"):
        request.fail(errno.EXDEV)
    assert device.sent == [(7, b"")]


def test_of_racing_answers_one_is_sent(device: Device, channel: Channel) -> None:
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for handle in range(1, 200):
            request = request_to(channel, handle, None)
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
    assert device.sent == [(handle, b"") for handle in range(1, 200)]


def test_a_dropped_request_is_answered_eio_and_logged(
    device: Device, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    request = request_to(channel, 7, None)
    request.await_answer()
    cycle: list[Any] = [request]
    cycle.append(cycle)
    del request, cycle
    with caplog.at_level(logging.ERROR, module.__name__):
        gc.collect()
    assert device.sent == [(7, errno.EIO)]
    assert "dropped without an answer" in caplog.text


def test_an_answered_request_is_dropped_quietly(
    device: Device, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    request_to(channel, 7, None).reply()
    gc.collect()
    assert device.sent == [(7, b"")]
    assert not caplog.text


def test_answers_after_the_end_come_to_nothing(device: Device, channel: Channel) -> None:
    late, failing, _dropped = (request_to(channel, handle, None) for handle in (1, 2, 3))
    channel.close()
    late.reply()
    failing.fail(errno.EXDEV)
    del _dropped
    gc.collect()
    assert device.sent == []


def test_closing_waits_for_the_answers_on_their_way(device: Device, channel: Channel) -> None:
    sending, go_on = threading.Event(), threading.Event()

    def encode(answer: bytes) -> bytes:
        sending.set()
        go_on.wait()
        return answer

    answering = threading.Thread(target=request_to(channel, 7, encode).reply, args=(b"late",))
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
    assert device.sent == [(7, b"late")]


# -- who else is there ----------------------------------------------------------------------------------


def _is_the_only_one(channel: Channel, threads: list[int]) -> bool:
    """What the handler of the last request is told, when these threads have made one request each."""
    for thread in threads:
        channel.asked(thread)
    return request_to(channel, 0, None).is_from_the_only_one


def test_who_asks_again_and_again_is_the_only_one(device: Device, channel: Channel) -> None:
    assert not _is_the_only_one(channel, [7] * 7)
    assert _is_the_only_one(channel, [7])
    assert _is_the_only_one(channel, [0, 7])  # what nobody in particular asks, as that a file be forgotten


def test_of_two_nobody_is(device: Device, channel: Channel) -> None:
    assert not _is_the_only_one(channel, [7] * 9 + [8])
    assert not _is_the_only_one(channel, [7])
    assert not _is_the_only_one(channel, [7, 8] * 9)


def test_who_is_not_visible_is_not(device: Device, channel: Channel) -> None:
    assert not _is_the_only_one(channel, [0] * 9)
    assert not _is_the_only_one(channel, [7] * 9 + [0])
