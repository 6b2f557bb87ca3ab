"""From a TCP connection to a member of the volume: TLS, pinning, hellos."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from hybrisfs.peers.channel import SecureChannel
from hybrisfs.peers.errors import ChannelError, StrangerError
from hybrisfs.peers.frames import FrameDecoder, Hello, encode_frame
from hybrisfs.peers.settings import Address
from hybrisfs.peers.tls import TlsIdentity
from sync import Members

__all__ = ["Meeting", "meet"]


@dataclass(frozen=True, slots=True)
class Meeting:
    """A connection to a member. *decoder* may hold frames that came right behind the hello."""

    channel: SecureChannel
    decoder: FrameDecoder
    device_id: bytes
    address: Address
    outgoing: bool
    hello: Hello


class LocalPeer(Protocol):
    """This device, as its handshakes, its connector, its discovery and its links see it."""

    def members(self) -> Members:
        """Those that may have a link now."""

    def hello(self) -> Hello:
        """What it says first over a new connection."""

    def linked(self) -> Collection[bytes]:
        """The devices that need no connection."""

    def met(self, meeting: Meeting) -> None:
        """A member is at the other end of a new connection. Called by the thread of the handshake."""

    def seen(self, device: bytes, addresses: tuple[Address, ...]) -> None:
        """A member says that it is at these addresses."""

    def slept(self) -> None:
        """The machine has been asleep: no connection of before is worth anything now."""


def meet(
    connection: socket.socket,
    address: Address,
    outgoing: bool,
    tls: TlsIdentity,
    members: Callable[[], Members],
    hello: Hello,
    deadline: float,
) -> Meeting:
    """Prove each other's identity until *deadline* (`time.monotonic`).

    Raises `PeerError`; the connection is to be closed by the caller then, and belongs to the result
    otherwise.
    """
    try:
        if outgoing:
            channel = SecureChannel(connection, tls.client, tls.new_server_name())
        else:
            channel = SecureChannel(connection, tls.server)
    except OSError as error:
        raise ChannelError(f"the connection broke: {error.strerror or error}") from error
    channel.handshake(deadline)
    device = tls.peer(channel.tls, members())
    channel.send(encode_frame(hello), deadline - time.monotonic())
    decoder = FrameDecoder()
    theirs = _await_hello(channel, decoder, deadline)
    if theirs.instance == hello.instance:
        raise StrangerError("the other side is this device itself")
    return Meeting(channel, decoder, device, address, outgoing, theirs)


def _await_hello(channel: SecureChannel, decoder: FrameDecoder, deadline: float) -> Hello:
    while True:
        data = channel.receive(deadline - time.monotonic())
        if data is None:
            raise ChannelError("the other side did not say hello in time")
        if not data:
            raise ChannelError("the other side refused this device")
        for frame in decoder.feed(data):
            assert isinstance(frame, Hello)  # the decoder lets nothing else come first
            return frame
