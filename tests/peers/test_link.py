"""One link, its other side played by the test: everything that a device could do wrong."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from hybrisfs.environment import SYSTEM
from hybrisfs.peers.channel import SecureChannel, SocketWire
from hybrisfs.peers.errors import ChannelError
from hybrisfs.peers.frames import (
    MAX_REQUESTS,
    Beacon,
    Bye,
    ChunkMissing,
    ChunkReply,
    ChunkRequest,
    ExchangePart,
    Frame,
    FrameDecoder,
    Hello,
    Parting,
    Ping,
    Pong,
    encode_frame,
)
from hybrisfs.peers.handshakes import Meeting, meet
from hybrisfs.peers.link import Link
from hybrisfs.peers.settings import PeerCallbacks, PeerSettings
from hybrisfs.peers.tls import TlsIdentity
from sync.messages import MAX_MESSAGE
from tests.peers.support import LONG, QUICK, Device, identity, key, members, settings, tcp_pair, within


@dataclass
class Other:
    """The other side, in the hands of the test."""

    channel: SecureChannel
    decoder: FrameDecoder
    frames: list[Frame] = field(default_factory=list)

    def say(self, *frames: Frame) -> None:
        self.say_raw(b"".join(map(encode_frame, frames)))

    def say_raw(self, data: bytes) -> None:
        self.channel.send(data, LONG)

    def hear(self, *kinds: type[Frame]) -> Frame:
        """The next frame of one of these kinds; others are dropped. Raises EOFError at the end."""
        while True:
            while self.frames:
                frame = self.frames.pop(0)
                if isinstance(frame, kinds):
                    return frame
            data = self.channel.receive(LONG)
            assert data is not None, "nothing came"
            if not data:
                raise EOFError
            self.frames += self.decoder.feed(data)


@dataclass
class Rig:
    """A link of device 1, and what became of it."""

    device: Device
    link: Link
    other: Other
    ended: threading.Event
    reasons: list[str]

    def wait_end(self) -> str:
        assert self.ended.wait(LONG)
        assert self.link.join(LONG)
        return self.reasons[0]


@contextlib.contextmanager
def rig(
    configured: PeerSettings = QUICK, callbacks: PeerCallbacks | None = None, early: bytes = b""
) -> Iterator[Rig]:
    """*early* is sent in one piece with the hello."""
    device = Device(1)
    ended, reasons = threading.Event(), list[str]()
    tls = TlsIdentity(identity(2))
    left = within(LONG)
    meetings: list[Meeting] = []

    def end(link: Link, reason: str) -> None:
        reasons.append(reason)
        ended.set()

    with tcp_pair() as (near, far):
        thread = threading.Thread(
            target=lambda: meetings.append(
                meet(
                    SocketWire(far),
                    ("192.0.2.1", 1),
                    False,
                    TlsIdentity(identity(1)),
                    lambda: members(1, 2),
                    Hello(bytes(8), 1),
                    left,
                )
            )
        )
        thread.start()
        channel = SecureChannel(SocketWire(near), tls.client, tls.new_server_name())
        channel.handshake(left)
        channel.send(encode_frame(Hello(b"other   ", 9)) + early, LONG)
        thread.join()
        other = Other(channel, FrameDecoder())
        other.hear(Hello)
        link = Link(meetings[0], callbacks or device.callbacks(), configured, end, SYSTEM)
        link.start()
        try:
            yield Rig(device, link, other, ended, reasons)
        finally:
            link.abandon("the test is over")
            assert link.join(LONG)


def test_it_begins_the_exchange_and_pings_unasked() -> None:
    with rig() as r:
        assert {type(r.other.hear(ExchangePart, Ping)) for _ in range(2)} == {ExchangePart, Ping}
        assert r.link.device_id == key(2).device_id
        assert r.link.instance == b"other   "


def test_frames_in_one_piece_with_the_hello_are_not_lost() -> None:
    with rig(early=encode_frame(Ping(77)) + encode_frame(Ping(78))[:7]) as r:
        assert r.other.hear(Pong) == Pong(77)
        r.other.say_raw(encode_frame(Ping(78))[7:])
        assert r.other.hear(Pong) == Pong(78)


def test_pongs_measure_the_round_trip() -> None:
    with rig() as r:
        ping = r.other.hear(Ping)
        assert isinstance(ping, Ping)
        assert r.link.round_trip is None
        r.other.say(Pong(ping.token), Ping(1))
        r.other.hear(Pong)
        assert r.link.round_trip is not None and r.link.round_trip > 0
        r.link.round_trip = 7.0
        r.other.say(Pong(ping.token - 1), Ping(1))  # one that comes too late says nothing any more
        r.other.hear(Pong)
        assert r.link.round_trip == 7.0


def test_silence_ends_the_link() -> None:
    with rig(settings(silence=0.2)) as r:
        assert "no sign of life" in r.wait_end()


def test_who_only_pings_is_alive() -> None:
    with rig(settings(silence=1.5, keepalive=0.1)) as r:
        started = time.monotonic()
        while time.monotonic() < started + 2.0:
            r.other.hear(Ping)  # one every 0.1 s
            r.other.say(Ping(1))
        assert not r.ended.is_set()


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.go_on.set()


class Slow:
    """A device that takes in no update before it is told to go on."""

    def __init__(self) -> None:
        self.device = Device(1)
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.callbacks = replace(self.device.callbacks(), receive_updates=self._take)

    def _take(self, who: bytes, updates: tuple[bytes, ...]) -> None:
        self.entered.set()
        assert self.go_on.wait(LONG)
        self.device.log.add(*updates)


def test_both_sides_are_alive_while_updates_are_taken_in(slow: Slow) -> None:
    with rig(settings(silence=1.5, keepalive=0.1), slow.callbacks) as r:
        r.other.say(ExchangePart(True, b"upd:x"))
        assert slow.entered.wait(LONG)
        started = time.monotonic()
        while time.monotonic() < started + 2.0:  # more than the silence that is borne
            r.other.hear(Ping)
            r.other.say(Ping(5))
            assert r.other.hear(Pong) == Pong(5)
        slow.go_on.set()
        slow.device.wait_for(b"x")
        assert not r.ended.is_set()


def test_chunks_come_while_updates_are_taken_in(slow: Slow) -> None:
    with rig(callbacks=slow.callbacks) as r:
        r.other.say(ExchangePart(True, b"upd:x"))
        assert slow.entered.wait(LONG)
        answers: list[list[bytes | None]] = []
        fetching = threading.Thread(target=lambda: answers.append(r.link.fetch_chunks([bytes(32)], LONG)))
        fetching.start()
        request = r.other.hear(ChunkRequest)
        assert isinstance(request, ChunkRequest)
        r.other.say(ChunkReply(request.number, b"chunk"))
        fetching.join(LONG)
        assert answers == [[b"chunk"]]
        slow.go_on.set()


def test_what_came_before_a_bye_is_taken_in(slow: Slow) -> None:
    with rig(callbacks=slow.callbacks) as r:
        r.other.say(ExchangePart(True, b"upd:x"), ExchangePart(True, b"upd:y"), Beacon(b"z"))
        r.other.say(Bye(Parting.CLOSING))
        slow.go_on.set()
        assert "closed the volume" in r.wait_end()
    assert slow.device.log.all() == [b"x", b"y"]
    assert slow.device.beacons == [(key(2).device_id, b"z")]


def test_what_waits_to_be_taken_in_is_dropped_when_this_side_ends_the_link(slow: Slow) -> None:
    with rig(callbacks=slow.callbacks) as r:
        r.other.say(ExchangePart(True, b"upd:x"), ExchangePart(True, b"upd:y"), Ping(5))
        assert slow.entered.wait(LONG)
        assert r.other.hear(Pong) == Pong(5)
        r.link.close(Parting.CLOSING, "the test closes it")
        slow.go_on.set()
        assert r.wait_end() == "the test closes it"
    assert slow.device.log.all() == [b"x"]


def test_who_sends_more_than_is_taken_in_has_to_wait(slow: Slow) -> None:
    updates = [b"%05d" % number + bytes(20_000) for number in range(2000)]
    with rig(settings(max_queued=100_000), slow.callbacks) as r:

        def send() -> None:
            r.other.say(*(ExchangePart(True, b"upd:" + one) for one in updates))

        sending = threading.Thread(target=send)
        sending.start()
        assert slow.entered.wait(LONG)
        sending.join(1.0)  # 40 MB, which no buffer on the way holds
        assert sending.is_alive()
        slow.go_on.set()
        sending.join(LONG)
        slow.device.wait_for(updates[-1])
    assert slow.device.log.all() == updates


def test_requests_are_answered_with_their_numbers() -> None:
    with rig() as r:
        data = os.urandom(100_000)
        there = r.device.put_chunk(data)
        r.other.say(ChunkRequest(7, there), ChunkRequest(9, bytes(32)))
        assert r.other.hear(ChunkReply, ChunkMissing) == ChunkReply(7, data)
        assert r.other.hear(ChunkReply, ChunkMissing) == ChunkMissing(9)


def test_a_chunk_that_no_frame_can_carry_is_missing() -> None:
    with rig() as r:
        r.other.say(ChunkRequest(7, r.device.put_chunk(bytes((2 << 20) + 1))))
        assert r.other.hear(ChunkReply, ChunkMissing) == ChunkMissing(7)


def test_chunks_are_read_when_they_can_be_sent_and_not_before() -> None:
    """Whoever asks for much and takes nothing costs the memory of what is on its way, no more."""
    reads: list[bytes] = []
    device = Device(1)

    def read(wanted: bytes) -> bytes:
        reads.append(wanted)
        return bytes(2 << 20)

    callbacks = replace(device.callbacks(), read_chunk=read)
    with rig(settings(stall=0.5), callbacks) as r:
        r.other.say(*(ChunkRequest(number, bytes(32)) for number in range(MAX_REQUESTS)))
        assert "takes nothing" in r.wait_end()
    assert 0 < len(reads) < MAX_REQUESTS / 2


def test_too_many_requests_end_the_link() -> None:
    blocked = threading.Event()
    device = Device(1)

    def read(wanted: bytes) -> bytes | None:
        assert blocked.wait(LONG)
        return None

    callbacks = replace(device.callbacks(), read_chunk=read)
    with rig(callbacks=callbacks) as r:
        r.other.say(*(ChunkRequest(number, bytes(32)) for number in range(MAX_REQUESTS + 2)))
        while not r.link._outbox.closed:
            r.other.say(Ping(1))
        blocked.set()
        assert "more chunk requests" in r.wait_end()


@pytest.mark.parametrize(
    "answer", [ChunkReply(3, b"x"), ChunkMissing(0), Pong(1 << 40)], ids=["reply", "missing", "pong"]
)
def test_answers_to_nothing_end_the_link(answer: Frame) -> None:
    with rig() as r:
        r.other.say(answer)
        assert r.other.hear(Bye) == Bye(Parting.BROKEN)
        assert "asked" in r.wait_end() or "ping" in r.reasons[0]


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 100, b"\0\0\0\0", b"\0\0\0\x01\x63"], ids=["too long", "empty", "unknown"]
)
def test_garbage_ends_the_link(garbage: bytes) -> None:
    with rig() as r:
        r.other.say_raw(garbage)
        assert r.other.hear(Bye) == Bye(Parting.BROKEN)
        assert "frame" in r.wait_end()


def test_an_exchange_that_fails_ends_the_link() -> None:
    with rig() as r:
        r.other.say(ExchangePart(True, b"????"))
        assert r.other.hear(Bye) == Bye(Parting.BROKEN)
        assert "unknown message" in r.wait_end()


def test_a_callback_that_fails_ends_the_link_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def fail(who: bytes, data: bytes) -> None:
        raise RuntimeError("a bug")

    callbacks = replace(Device(1).callbacks(), receive_beacon=fail)
    with rig(callbacks=callbacks) as r:
        r.other.say(Beacon(b"x"))
        assert r.other.hear(Bye) == Bye(Parting.FAILED)
        assert "unexpected" in r.wait_end()
    assert "a bug" in caplog.text


def _full_database() -> sqlite3.Error:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE one (data)")
        database.execute("PRAGMA max_page_count = 2")
        try:
            database.execute("INSERT INTO one VALUES (randomblob(100000))")
        except sqlite3.Error as error:
            return error
    raise AssertionError("it is not full")


@pytest.mark.parametrize(
    "trouble",
    [OSError(errno.ENOSPC, "the disk is full"), OSError(errno.EIO, "a bad block"), _full_database()],
    ids=str,
)
@pytest.mark.parametrize("thread", ["takes in", "writes"])
def test_a_disk_that_fails_ends_the_link_and_is_no_bug(
    trouble: Exception, thread: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(who: bytes, updates: tuple[bytes, ...]) -> None:
        raise trouble

    def fail_to_read(wanted: bytes) -> bytes | None:
        raise trouble

    callbacks = replace(Device(1).callbacks(), receive_updates=fail, read_chunk=fail_to_read)
    with rig(callbacks=callbacks) as r:
        r.other.say(ExchangePart(True, b"upd:x") if thread == "takes in" else ChunkRequest(1, bytes(32)))
        assert "disk" in r.wait_end()
    [record] = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert record.exc_info is None and record.levelno == logging.WARNING
    assert "disk" in record.getMessage()


def test_a_read_that_fails_ends_the_link_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def fail(wanted: bytes) -> bytes | None:
        raise RuntimeError("a bug")

    with rig(callbacks=replace(Device(1).callbacks(), read_chunk=fail)) as r:
        r.other.say(ChunkRequest(1, bytes(32)))
        assert "unexpected" in r.wait_end()
    assert "a bug" in caplog.text


def test_who_reads_nothing_costs_no_more_than_the_queue() -> None:
    with rig(settings(max_queued=10_000)) as r:
        with contextlib.suppress(ChannelError):
            for _ in range(4000):
                r.other.say_raw(encode_frame(Ping(1)) * 10_000)
        assert "slowly" in r.wait_end()


def test_a_bye_ends_the_link_with_its_reason() -> None:
    with rig() as r:
        r.other.say(Bye(Parting.REMOVED))
        assert "no longer a member" in r.wait_end()


def test_closing_says_bye_even_while_much_is_queued() -> None:
    with rig() as r:
        for _ in range(100):
            r.link.send_beacon(bytes(60_000))
        r.link.close(Parting.CLOSING, "done here")
        assert r.other.hear(Bye) == Bye(Parting.CLOSING)
        assert r.wait_end() == "done here"


def test_closing_does_not_wait_for_who_takes_nothing() -> None:
    device = Device(1)
    with rig(settings(stall=600.0), replace(device.callbacks(), read_chunk=lambda w: bytes(2 << 20))) as r:
        r.other.say(*(ChunkRequest(number, bytes(32)) for number in range(MAX_REQUESTS)))
        assert isinstance(r.other.hear(ChunkReply), ChunkReply)
        r.link.close(Parting.CLOSING, "done here")
        assert r.wait_end() == "done here"


def test_the_end_answers_whoever_waits_for_a_chunk() -> None:
    with rig() as r:
        got: list[bytes | None] = []
        thread = threading.Thread(target=lambda: got.extend(r.link.fetch_chunks([bytes(32)], LONG)))
        thread.start()
        r.other.hear(ChunkRequest)
        r.other.channel.abandon()
        thread.join()
        assert got == [None]
        assert r.link.fetch_chunks([bytes(32)], LONG) == [None]
        r.wait_end()


def test_fetching_gives_up_in_time_and_takes_the_late_answer() -> None:
    with rig() as r:
        assert r.link.fetch_chunks([bytes(32)], 0.01) == [None]
        request = r.other.hear(ChunkRequest)
        assert isinstance(request, ChunkRequest)
        r.other.say(ChunkReply(request.number, b"late"), Ping(1))
        assert r.other.hear(Pong) == Pong(1)
        assert not r.ended.is_set()


def test_a_message_of_any_size_travels_in_parts() -> None:
    with rig() as r:
        large = os.urandom(5 << 20)
        r.other.say(ExchangePart(False, b"have"), ExchangePart(True, b""), Ping(1))
        r.other.hear(Pong)
        r.device.log.add(large)
        r.link.advanced()
        parts: list[ExchangePart] = []
        while not parts or not parts[-1].last:
            part = r.other.hear(ExchangePart)
            assert isinstance(part, ExchangePart)
            parts += [part] if part.data[:4] == b"upd:" or parts else []
        assert b"".join(part.data for part in parts) == b"upd:" + large


def test_a_message_without_end_ends_the_link() -> None:
    with rig() as r:
        with contextlib.suppress(ChannelError):
            for _ in range(MAX_MESSAGE // (1 << 20) + 1):
                r.other.say(ExchangePart(False, bytes(1 << 20)))
        assert "exchange message of more" in r.wait_end()


def test_a_push_follows_when_the_log_advances() -> None:
    with rig() as r:
        r.other.say(ExchangePart(True, b"have"), Ping(1))
        r.other.hear(Pong)
        r.device.log.add(b"news")
        r.link.advanced()
        assert r.other.hear(ExchangePart) == ExchangePart(True, b"upd:news")
