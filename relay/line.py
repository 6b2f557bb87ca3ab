"""Lines through the relay, as connections: they come in where HTTP does, and begin with other bytes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from hybrisfs.client import HybrisError
from hybrisfs.peers.lines import KEEPALIVE, MAGIC, LineRequest, RequestDecoder, Said
from relay.spaces import Spaces
from relay.switchboard import Switchboard
from sync import DecodeError

__all__ = ["Exchange", "protocol_of"]

log = logging.getLogger(__name__)

_ASKS_WITHIN: Final = 10.0  # seconds
_SILENCE: Final = 60.0  # seconds; devices that are connected say something every few
_UNACKNOWLEDGED: Final = 45_000  # ms after which the kernel gives up a connection that takes nothing


class Exchange:
    """All lines of a relay. Used by one event loop."""

    def __init__(self, spaces: Spaces, entered: Callable[[tuple[str, int]], None]) -> None:
        """*entered* is called with the address and port of a line that has the token of a space."""
        self.board = Switchboard()
        self._spaces = spaces
        self._entered = entered
        self._reminding: asyncio.TimerHandle | None = None

    def line(self) -> Line:
        """A new line."""
        if self._reminding is None:
            self._remind_later()
        return Line(self)

    def ask(self, line: Line, request: LineRequest, client: tuple[str, int]) -> None:
        """A line asks for something."""
        opened = self._opened(request)
        if opened:
            self._entered(client)
        self.board.ask(line, request if opened else None)

    def _opened(self, request: LineRequest) -> bool:
        try:
            return self._spaces.opened(request.space, request.token) is not None
        except (HybrisError, OSError) as error:
            log.error("the spaces cannot be read: %s", error)
            return False

    def _remind_later(self) -> None:
        self._reminding = asyncio.get_running_loop().call_later(KEEPALIVE, self._remind)

    def _remind(self) -> None:
        self.board.remind()
        with contextlib.suppress(HybrisError, OSError):
            self.board.keep(frozenset((one.name, one.token) for one in self._spaces.all()))
        self._remind_later()


class Line(asyncio.Protocol):
    """One line: see `relay.switchboard`."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._decoder: RequestDecoder | None = RequestDecoder()
        self._other: Line | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._heard = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connection = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED)
        self._timer = self._loop.call_later(_ASKS_WITHIN, self.end)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._heard = self._loop.time()
        if self._other is not None:
            self._other._transport.write(data)
        elif self._decoder is None:
            self.end()  # who waits has nothing to say
        else:
            self._take_request(self._decoder, data)

    def _take_request(self, decoder: RequestDecoder, data: bytes) -> None:
        try:
            request = decoder.feed(data)
        except DecodeError as error:
            log.debug("a line asks for what makes no sense: %s", error)
            self.end()
            return
        if request is not None:
            self._decoder = None
            self._stop_timer()
            self._exchange.ask(self, request, self._transport.get_extra_info("peername")[:2])

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: the other one is to wait until this one has taken what there is."""
        if self._other is not None:
            self._other._transport.pause_reading()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        if self._other is not None:
            self._other._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_timer()
        self._exchange.board.gone(self)
        other, self._other = self._other, None
        if other is not None:
            other._other = None
            other.end()

    def say(self, said: Said) -> None:
        """See `relay.switchboard.Caller`."""
        self._transport.write(bytes([said]))

    def connect(self, other: Any) -> None:
        """See `relay.switchboard.Caller`."""
        self._other = other
        self._heard = self._loop.time()
        self._watch()

    def end(self) -> None:
        """See `relay.switchboard.Caller`."""
        self._transport.close()

    def _watch(self) -> None:
        silent = self._loop.time() - self._heard
        if silent >= _SILENCE:
            self.end()
        else:
            self._timer = self._loop.call_later(_SILENCE - silent, self._watch)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def protocol_of(exchange: Exchange) -> type[asyncio.Protocol]:
    """The protocol of connections on which either HTTP is spoken, or a line asked for."""

    class Either(H11Protocol):
        _first: bytes | None = b""

        def data_received(self, data: bytes) -> None:
            if self._first is None:
                super().data_received(data)
                return
            self._first += data
            if len(self._first) < len(MAGIC) and MAGIC.startswith(self._first):
                return
            first, self._first = self._first, None
            if first.startswith(MAGIC):
                self._be_line(first)
            else:
                super().data_received(first)

        def _be_line(self, first: bytes) -> None:
            self.connections.discard(self)
            line = exchange.line()
            self.transport.set_protocol(line)
            line.connection_made(self.transport)
            line.data_received(first)

    return Either
