"""The side of a device of a line through a relay (`hybrisfs.peers.lines`)."""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import Callable
from functools import cache
from typing import Final

from hybrisfs.peers.channel import SecureChannel, Wire
from hybrisfs.peers.errors import ChannelError
from hybrisfs.peers.lines import KEEPALIVE, LineRequest, Role, Said, encode_request
from hybrisfs.peers.settings import Relay

__all__ = ["Line", "open_line"]

_SILENCE: Final = 2.5 * KEEPALIVE

_REFUSALS: Final[dict[int, str]] = {
    Said.NOBODY: "the machine does not wait at the relay",
    Said.REFUSED: "the relay has no such space, or its token is another one",
    Said.FULL: "there are too many connections through the relay",
}


def open_line(wire: Wire, relay: Relay, role: Role, tag: bytes, left: Callable[[], float]) -> Line:
    """Ask a relay, at the other end of *wire*, for a line, in the seconds that are *left*.

    Raises `ChannelError`, also when another certificate than the relay's is shown.
    """
    channel = SecureChannel(wire, _context())
    channel.handshake(left)
    shown = channel.tls.getpeercert(binary_form=True) or b""
    if not hmac.compare_digest(hashlib.sha256(shown).digest(), relay.pin):
        raise ChannelError("it shows another certificate than the relay's")
    channel.send(encode_request(LineRequest(role, tag, relay.space, relay.token)), left())
    return Line(channel)


class Line:
    """A `Wire` to a device, once the relay has connected the two."""

    def __init__(self, channel: SecureChannel) -> None:
        """The relay has been asked."""
        self._channel = channel
        self._early = b""  # what the device said that came together with what the relay said

    def await_answer(self, left: Callable[[], float]) -> None:
        """Return when the line is connected, in the seconds that are *left*. Raises `ChannelError`."""
        while not self._is_connected(left()):
            pass

    def await_call(self, opened: Callable[[], None]) -> None:
        """Return when a device has called; *opened* is called once the line is open.

        Raises `ChannelError`, also when the relay falls silent.
        """
        connected = self._is_connected(_SILENCE)
        opened()
        while not connected:
            connected = self._is_connected(_SILENCE)

    def _is_connected(self, wait: float) -> bool:
        data = self._channel.receive(wait)
        if data is None:
            raise ChannelError("the relay says nothing")
        if not data:
            raise ChannelError("the relay closed the connection")
        said = data.lstrip(bytes([Said.WAITING]))
        if not said:
            return False
        if said[0] != Said.CONNECTED:
            raise ChannelError(_REFUSALS.get(said[0], "it is not a relay"))
        self._early = said[1:]
        return True

    def receive(self, wait: float) -> bytes | None:
        if self._early:
            early, self._early = self._early, b""
            return early
        return self._channel.receive(wait)

    def send(self, data: bytes, stall: float) -> None:
        self._channel.send(data, stall)

    def finish_sending(self) -> None:
        self._channel.finish_sending()

    def abandon(self) -> None:
        self._channel.abandon()

    def close(self) -> None:
        self._channel.close()


@cache
def _context() -> ssl.SSLContext:
    """Takes any certificate: `open_line` knows the right one by its hash."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
