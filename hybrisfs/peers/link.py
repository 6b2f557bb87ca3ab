"""One link: a connection to a member, with a thread that reads, one that writes, and one that takes in.

The reading thread owns the link: it starts the others, waits for them, closes the connection, and reports
the end. Callbacks for updates and heads run on the one that takes in, for that can take seconds; chunks for
the other side are read on the writing one. A device that is asleep, cut off or gone is found out by its
silence: each side says something every few seconds, however much is still waiting to be sent or taken in.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from hybrisfs.environment import Environment
from hybrisfs.errors import disk_trouble
from hybrisfs.peers.errors import ChannelError, FrameError, PeerError
from hybrisfs.peers.frames import (
    MAX_BODY,
    Beacon,
    Bye,
    ChunkMissing,
    ChunkReply,
    ChunkRequest,
    ExchangePart,
    Frame,
    Hello,
    Parting,
    Ping,
    Pong,
    encode_frame,
)
from hybrisfs.peers.handshakes import Meeting
from hybrisfs.peers.queues import Advanced, Backlog, ChunkRequests, Last, Outbox, Serve
from hybrisfs.peers.settings import Exchange, PeerCallbacks, PeerSettings, Through
from sync import MAX_MESSAGE, Alarm, Deliver, Failed, Send

__all__ = ["Link"]

log = logging.getLogger(__name__)

_PART: Final = 1 << 20
_SMOOTHING: Final = 0.25
_TOGETHER: Final = 128 << 10  # bytes of small chunks that are sent at once

_PARTINGS: Final = {
    Parting.CLOSING: "the other machine closed the volume",
    Parting.DUPLICATE: "the other machine keeps another link",
    Parting.REMOVED: "this machine is no longer a member, says the other",
    Parting.BROKEN: "the other machine does not understand this one",
    Parting.FAILED: "something failed on the other machine",
}


class Link:
    """Works from `start` until the connection ends or `close` is called; then calls *ended* once."""

    def __init__(
        self,
        meeting: Meeting,
        callbacks: PeerCallbacks,
        settings: PeerSettings,
        ended: Callable[[Link, str], None],
        environment: Environment,
    ) -> None:
        self.device_id: Final = meeting.device_id
        self.place: Final = meeting.place
        self.is_direct: Final = not isinstance(meeting.place, Through)
        self.outgoing: Final = meeting.outgoing
        self.instance: Final = meeting.hello.instance
        self.round_trip: float | None = None
        """Smoothed, in seconds; None until the first pong."""
        self._monotonic = environment.monotonic
        self._started = environment.monotonic()
        self._channel = meeting.channel
        self._decoder = meeting.decoder
        self._callbacks = callbacks
        self._settings = settings
        self._ended = ended
        self._outbox = Outbox(settings.max_queued, environment)
        self._backlog = Backlog(settings.max_queued)
        self._requests = ChunkRequests(environment)
        self._exchange: Exchange
        self._exchange_lock = threading.Lock()
        self._parts = bytearray()
        self._ping: tuple[int, float] | None = None
        self._reason = ""
        self._reason_lock = threading.Lock()
        name = self.device_id.hex()[:8]
        self._reader = threading.Thread(target=self._read, name=f"peer-read-{name}", daemon=True)
        self._writer = threading.Thread(target=self._write, name=f"peer-write-{name}", daemon=True)
        self._taker = threading.Thread(target=self._take_in, name=f"peer-take-{name}", daemon=True)

    def start(self) -> None:
        """Begin to talk."""
        self._reader.start()

    @property
    def age(self) -> float:
        """Seconds since the link came about."""
        return self._monotonic() - self._started

    def advanced(self) -> None:
        """The local log has grown: let the exchange push. Returns at once."""
        self._outbox.advanced()

    def send_beacon(self, data: bytes) -> None:
        """Queue a sealed head."""
        self._send(Beacon(data))

    def fetch_chunks(self, chunk_ids: Sequence[bytes], patience: float) -> list[bytes | None]:
        """What the other device gives for each of the chunks, unverified; None where it gave nothing. It is
        given up when it answers nothing at all for *patience* seconds."""
        answers: list[bytes | None] = []
        while len(answers) < len(chunk_ids):
            requests = self._requests.begin(len(chunk_ids) - len(answers), patience)
            if requests is None:
                break
            asked = zip(requests.numbers, chunk_ids[len(answers) :], strict=False)
            self._put(b"".join([encode_frame(ChunkRequest(number, one)) for number, one in asked]))
            answers += self._requests.wait(requests, patience)
        return answers + [None] * (len(chunk_ids) - len(answers))

    def close(self, parting: Parting, reason: str) -> None:
        """End the link, telling the other side. Returns at once; the first reason counts."""
        self._note(reason)
        self._backlog.drop()
        self._outbox.close(encode_frame(Bye(parting)))

    def abandon(self, reason: str) -> None:
        """Break the connection off, without a word."""
        self._note(reason)
        self._backlog.drop()
        self._channel.abandon()

    def join(self, timeout: float) -> bool:
        """Wait until the link has ended; False when it has not within *timeout* seconds."""
        self._reader.join(timeout)
        return not self._reader.is_alive()

    def _note(self, reason: str) -> None:
        with self._reason_lock:
            self._reason = self._reason or reason

    def _send(self, frame: Frame) -> None:
        self._put(encode_frame(frame))

    def _put(self, frames: bytes) -> None:
        if not self._outbox.put(frames):
            self.close(Parting.FAILED, "the other machine reads too slowly")

    # The reading thread

    def _read(self) -> None:
        with self._ending_for_errors():
            self._exchange = self._callbacks.new_exchange(self.device_id)
            self._writer.start()
            self._taker.start()
            self._listen()
        if self._outbox.closed:
            self._linger()
        self._channel.abandon()
        self._outbox.close(b"")
        self._requests.close()
        self._backlog.finish()
        for thread in (self._writer, self._taker):
            if thread.ident is not None:
                thread.join()
        self._channel.close()
        self._ended(self, self._reason)

    @contextmanager
    def _ending_for_errors(self) -> Iterator[None]:
        try:
            yield
        except FrameError as error:
            self.close(Parting.BROKEN, str(error))
        except PeerError as error:
            self._note(str(error))
        except Exception as error:
            trouble = disk_trouble(error)
            if trouble is None:
                log.exception("the link with machine %s failed unexpectedly", self.device_id.hex())
            self.close(Parting.FAILED, self._why_it_failed(trouble))

    def _why_it_failed(self, trouble: str | None) -> str:
        """The reason that people see. What the disk refuses is *trouble* that passes, and no bug."""
        if trouble is None:
            return "something unexpected failed; the details are in the log"
        device = self.device_id.hex()
        if not self._reason:  # else another of its threads has said so
            log.warning("the link with machine %s ends, and will come again: the disk: %s", device, trouble)
        return f"this machine's disk: {trouble}"

    def _listen(self) -> None:
        heard = self._monotonic()
        data: bytes | None = b""  # what came with the hello is in the decoder
        while True:
            if data is not None:
                for frame in self._decoder.feed(data):
                    if isinstance(frame, Bye):
                        self._note(_PARTINGS[frame.reason])
                        return
                    self._handle(frame)
                heard = self._monotonic()
            elif self._monotonic() - heard > self._settings.silence:
                raise ChannelError(f"no sign of life for {self._settings.silence:g} s")
            if self._outbox.closed:
                return
            data = self._channel.receive(self._settings.tick)
            if data == b"":
                raise ChannelError("the other machine closed the connection")

    def _linger(self) -> None:
        """Take and drop what comes until the other side has had our bye."""
        deadline = self._monotonic() + self._settings.grace
        try:
            while (left := deadline - self._monotonic()) > 0 and self._channel.receive(left):
                pass
        except ChannelError:
            return

    def _handle(self, frame: Frame) -> None:
        match frame:
            case ExchangePart(last, data):
                self._receive_part(last, data)
            case ChunkRequest(number, chunk_id):
                if not self._outbox.serve(Serve(number, chunk_id)):
                    raise FrameError("more chunk requests at once than are allowed")
            case ChunkReply(number, data):
                self._take_answer(number, data)
            case ChunkMissing(number):
                self._take_answer(number, None)
            case Beacon():
                self._backlog.put(frame)
            case Ping(token):
                self._send(Pong(token))
            case Pong(token):
                self._take_pong(token)
            case Hello() | Bye():
                raise AssertionError("handled before")

    def _receive_part(self, last: bool, data: bytes) -> None:
        self._parts += data
        if len(self._parts) > MAX_MESSAGE:
            raise FrameError(f"an exchange message of more than {MAX_MESSAGE} bytes")
        if last:
            message = bytes(self._parts)
            self._parts.clear()
            self._backlog.put(message)

    def _take_answer(self, number: int, data: bytes | None) -> None:
        if not self._requests.answer(number, data):
            raise FrameError("an answer to what was never asked")

    def _take_pong(self, token: int) -> None:
        if self._ping is None or token > self._ping[0]:
            raise FrameError("a pong to no ping")
        if token < self._ping[0]:
            return  # so late that the next ping was already under way
        measured = self._monotonic() - self._ping[1]
        old = self.round_trip
        self.round_trip = measured if old is None else old + _SMOOTHING * (measured - old)

    # The thread that takes in

    def _take_in(self) -> None:
        with self._ending_for_errors():
            with self._exchange_lock:
                messages = self._exchange.begin()
            self._send_exchange(messages)
            while (item := self._backlog.take()) is not None:
                if isinstance(item, Beacon):
                    self._callbacks.receive_beacon(self.device_id, item.data)
                else:
                    self._receive_exchange(item)

    def _receive_exchange(self, message: bytes) -> None:
        with self._exchange_lock:
            actions = self._exchange.receive(message)
        for action in actions:
            match action:
                case Send(answer):
                    self._send_exchange([answer])
                case Deliver(updates):
                    self._callbacks.receive_updates(self.device_id, updates)
                case Alarm(reason):
                    self._callbacks.raise_alarm(self.device_id, reason)
                case Failed(reason):
                    raise FrameError(f"the exchange of updates failed: {reason}")

    def _send_exchange(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            parts = range(0, len(message), _PART) or range(1)
            frames = [
                encode_frame(ExchangePart(start + _PART >= len(message), message[start : start + _PART]))
                for start in parts
            ]
            self._put(b"".join(frames))

    # The writing thread

    def _write(self) -> None:
        try:
            self._send_queued()
        except PeerError as error:
            self._note(str(error))
            self._channel.abandon()
        except Exception as error:
            trouble = disk_trouble(error)
            if trouble is None:
                log.exception("the link with machine %s failed unexpectedly", self.device_id.hex())
            self.abandon(self._why_it_failed(trouble))

    def _send_queued(self) -> None:
        stall = self._settings.stall
        self._send_ping()
        while True:
            assert self._ping is not None
            match self._outbox.take(self._ping[1] + self._settings.keepalive):
                case bytes(message):
                    self._channel.send(message, stall)
                case Serve() as request:
                    self._channel.send(self._answers(request), stall)
                case Advanced():
                    with self._exchange_lock:
                        messages = self._exchange.advanced()
                    self._send_exchange(messages)
                case Last(data):
                    self._channel.send(data, self._settings.grace)
                    self._channel.finish_sending()
                    return
                case None:
                    self._send_ping()

    def _send_ping(self) -> None:
        token = self._ping[0] + 1 if self._ping else 1
        self._ping = (token, self._monotonic())
        self._channel.send(encode_frame(Ping(token)), self._settings.stall)

    def _answers(self, request: Serve) -> bytes:
        """The answer to a request, and to those after it as long as they are small."""
        answers: list[bytes] = []
        size = 0
        following: Serve | None = request
        while following is not None:
            answers.append(self._answer(following))
            size += len(answers[-1])
            following = self._outbox.take_serve() if size < _TOGETHER else None
        return b"".join(answers)

    def _answer(self, request: Serve) -> bytes:
        data = self._callbacks.read_chunk(request.chunk_id)
        if data is None or len(data) > MAX_BODY:
            return encode_frame(ChunkMissing(request.number))
        return encode_frame(ChunkReply(request.number, data))
