"""Packs and shares that a standing proposal forbids to name; checked before the place of a pack is recorded.

A device keeps to it from the moment at which it knows of the proposal, whether it has answered or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hybrisfs.kinds import PROPOSAL
from hybrisfs.registers.ballots import Proposal, Stray
from hybrisfs.state.database import Reader
from hybrisfs.state.registers import values_of_kind
from sync.codec import DecodeError

__all__ = ["bans_orphan", "bans_place", "bans_strays_of"]


def bans_orphan(db: Reader, pack: bytes) -> bool:
    """Whether a pack that no register here names must stay unnamed."""
    return any(pack in proposal.orphans for proposal in _standing(db))


def bans_strays_of(db: Reader, pack: bytes) -> bool:
    """Whether some shares of this pack must not be recorded at some clouds."""
    return any(stray.pack == pack for proposal in _standing(db) for stray in proposal.strays)


def bans_place(db: Reader, pack: bytes, placement: Sequence[int]) -> bool:
    """Whether the shares of a pack must not be recorded at these clouds."""
    places = {Stray(pack, index, cloud) for index, cloud in enumerate(placement)}
    return any(not places.isdisjoint(proposal.strays) for proposal in _standing(db))


def _standing(db: Reader) -> Iterator[Proposal]:
    """Of all that was ever a member: a forbidden name too many does no harm."""
    for value in values_of_kind(db, PROPOSAL):
        try:
            yield Proposal.decode(value or b"")
        except DecodeError:
            continue  # no correct device has written it
