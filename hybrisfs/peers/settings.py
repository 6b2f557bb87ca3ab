"""How the direct channel is set up: its settings, its limits, and what the volume does for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from hybrisfs.errors import UsageError
from sync import Action

__all__ = [
    "Address",
    "Exchange",
    "PeerCallbacks",
    "PeerSettings",
    "Place",
    "Relay",
    "Through",
    "format_address",
    "format_place",
    "parse_address",
]

_PORT_DIGITS: Final = 5
Address: TypeAlias = tuple[str, int]
"""Host name or IP address (IPv6 link-local ones with their scope), and TCP port."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A relay through which devices reach each other, and a space of it that they may use."""

    address: Address
    pin: bytes
    """The SHA-256 hash of its certificate."""
    space: str
    token: str = field(repr=False)


class Through(Struct, frozen=True):
    """Where a device is reached through a relay; *device* is empty for one that has called."""

    relay: Relay
    device: bytes = b""


Place: TypeAlias = Address | Through
"""Where a device is reached."""


class PeerSettings(Struct, frozen=True):
    """The first four are the user's; times are in seconds."""

    port: int = 0
    """TCP port to listen on; 0 lets the system choose."""
    addresses: tuple[Address, ...] = ()
    """Where other devices may be found, besides those that announce themselves."""
    relays: tuple[str, ...] = ()
    """URLs of relays that lead to other devices, besides those that are clouds of the volume."""
    discover: bool = True
    """Announce this device on the local network, and look for others."""
    interfaces: tuple[str, ...] = ()
    """IP addresses of the interfaces on which to announce and look; none means all."""

    connect_timeout: float = 5.0
    handshake_timeout: float = 10.0
    keepalive: float = 5.0
    """Each side says something at least this often."""
    silence: float = 15.0
    """Who says nothing for so long is taken for dead."""
    stall: float = 60.0
    """Who takes nothing for so long is given up, though alive."""
    first_retry: float = 1.0
    last_retry: float = 60.0
    stable: float = 10.0
    """A link that ends sooner counts as a failed attempt, and is tried again later each time."""
    tick: float = 1.0
    """How often a thread that waits for the network looks whether it should end."""
    look_every: float = 10.0
    """How often the network interfaces are looked at for changes."""
    grace: float = 1.0
    """What the other side has to take a bye."""
    max_queued: int = 16 << 20
    """Bytes that may wait to be sent on one link."""
    max_handshakes: int = 16
    """Connections that have not proven yet who they are."""
    max_handshakes_per_host: int = 4
    max_served: int = 4
    """Chunks that are read for other devices at the same time."""


def parse_address(text: str) -> Address:
    """`host:port`, `192.0.2.7:4711`, `[2001:db8::7]:4711`. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not colon or not host or (":" in host and not bracketed) or not port.isascii() or not port.isdigit():
        raise UsageError(f"{text!r} is not an address of a machine", "", "Write HOST:PORT or [IPV6]:PORT.")
    if len(port) > _PORT_DIGITS or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{text!r} is not an address of a machine", "ports are 1 to 65535")
    return host, int(port)


def format_address(address: Address) -> str:
    """What `parse_address` reads."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def format_place(place: Place) -> str:
    """For logs."""
    if isinstance(place, Through):
        return f"relay {format_address(place.relay.address)}"
    return format_address(place)


# -- what the direct channel needs from the volume that it serves ---------------------------------------


class Exchange(Protocol):
    """One side of a log exchange over one link (`sync.exchange.Exchange`). One thread at a time calls it."""

    def begin(self) -> Sequence[bytes]:
        """The first messages to send."""

    def receive(self, message: bytes) -> Sequence[Action]:
        """What to do about a message of the other side."""

    def advanced(self) -> Sequence[bytes]:
        """What to send as the local log has grown."""


class PeerCallbacks(Struct, frozen=True):
    """Called by the threads of links, several at once; a slow one holds up only the link that it is for."""

    new_exchange: Callable[[bytes], Exchange]
    """Makes the exchange for a new link with a device."""
    receive_updates: Callable[[bytes, tuple[bytes, ...]], None]
    """Takes updates that a device sent, of any author. It may call `PeerService.advanced`."""
    receive_beacon: Callable[[bytes, bytes], None]
    """Takes a device's sealed head, unverified."""
    raise_alarm: Callable[[bytes, str], None]
    """Takes what an exchange with a device found wrong."""
    read_chunk: Callable[[bytes], bytes | None]
    """The plaintext of a chunk if it is on this device; must not ask the clouds or other devices."""
    verify_chunk: Callable[[bytes, bytes], bool]
    """Whether the second is the plaintext of the chunk whose id is the first."""
    links_changed: Callable[[], None] = lambda: None
    """A device was linked, or lost its link."""
