"""What the log knows of an accepted update, and what it asks of the store that keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sync.update import PREFIX_SIZE, Stamp
from sync.vector import VersionVector

__all__ = ["AcceptedLog", "Known", "Successor"]


@dataclass(slots=True)  # one is made for each update, which takes twice as long when it is frozen
class Known:
    """An accepted update: its stamp, its hash and its full dependency vector."""

    device: bytes
    branch: bytes
    clock: int
    hash: bytes
    dependencies: VersionVector
    hashes: dict[bytes, bytes] = field(default_factory=dict, compare=False, repr=False)
    """Branch -> hash of the update that the entry of `dependencies` names, as far as looked up."""

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.device, self.clock, self.hash[:PREFIX_SIZE])


@dataclass(frozen=True, slots=True)
class Successor:
    """An accepted update that follows another one."""

    hash: bytes
    data: bytes | None
    """Its header and signature, whatever follows them; None when it is known from a checkpoint only."""


class AcceptedLog(Protocol):
    """Lookups in the caller's store of accepted updates."""

    def find(self, prefix: bytes) -> Known | None:
        """The accepted update whose hash begins with these PREFIX_SIZE bytes, or None when there is none."""

    def hash_of(self, branch: bytes, clock: int) -> bytes | None:
        """The hash of the accepted update with this stamp, or None when there is none."""

    def successor_of(self, branch: bytes, clock: int) -> Successor | None:
        """The first accepted update above `clock` on a branch, or None when there is none."""
