"""What the direct channel needs from the volume that it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sync import Action

__all__ = ["Exchange", "PeerCallbacks"]


class Exchange(Protocol):
    """One side of a log exchange over one link (`sync.exchange.Exchange`). One thread at a time calls it."""

    def begin(self) -> Sequence[bytes]:
        """The first messages to send."""

    def receive(self, message: bytes) -> Sequence[Action]:
        """What to do about a message of the other side."""

    def advanced(self) -> Sequence[bytes]:
        """What to send as the local log has grown."""


@dataclass(frozen=True, slots=True)
class PeerCallbacks:
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
