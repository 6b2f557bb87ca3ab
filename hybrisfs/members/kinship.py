"""How devices came into a volume by one another: which are above, older, or independent.

*Independent* of each other are two members of which neither let the other in, if there is no third one that
may have let in both after a device came that they speak of: a thief's puppets second no member. A member *is
older* than another one that was let in by an update which had seen its own admission: that no device can
claim afterwards. The *first* recovery kit is the one that is older than all others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache

from hybrisfs.members.roster import Roster

__all__ = ["Kinship"]


class Kinship:
    """What follows from a roster; *saw* tells whether the update that let in the first device had seen the
    one that let in the second."""

    def __init__(self, roster: Roster, saw: Callable[[bytes, bytes], bool]) -> None:
        self._roster = roster
        self._saw = saw
        self.line = lru_cache(None)(lambda device: frozenset(roster.admitted(device)))
        """All that a device has let in, and that these have let in, and so on."""
        self.above = lru_cache(None)(self._find_above)
        """The inviter of a device, the inviter of that one, and so on."""
        self._origin = lru_cache(None)(self._find_origin)

    def inviter(self, device: bytes) -> bytes | None:
        """The device that let this one in."""
        return self._roster.inviter(device)

    def _find_above(self, device: bytes) -> frozenset[bytes]:
        found: set[bytes] = set()
        inviter = self._roster.inviter(device)
        while inviter is not None:
            found.add(inviter)
            inviter = self._roster.inviter(inviter)
        return frozenset(found)

    def older(self, one: bytes, other: bytes) -> bool:
        """Whether the first is older than the second."""
        return one in self.above(other) or self._saw(other, one)

    def _find_origin(self, voter: bytes, accused: bytes) -> bytes:
        """The farthest one above that may have let the voter in, through others, after the accused came. Two
        voters that the same one may have let in so have the same origin."""
        while not self.older(voter, accused):
            inviter = self._roster.inviter(voter)
            if inviter is None or inviter == accused:
                break
            voter = inviter
        return voter

    def are_independent(self, voters: Collection[bytes], accused: bytes) -> bool:
        """Whether any two of these, which speak of the accused, are independent."""
        origins = {one: self._origin(one, accused) for one in voters}
        if len(set(origins.values())) < 2:
            return False
        # Any two that are neither of one origin nor one above the other will do: the search for a pair ends
        # soon, or all are of one line.
        above = {one: self.above(one) for one in voters}
        return any(
            origins[one] != origins[other] and one not in above[other] and other not in above[one]
            for one in voters
            for other in voters
        )

    def first_kits(self, accused: bytes, kits: Collection[bytes]) -> list[bytes]:
        """The first of *kits*, and several when their order is not known. Those that the accused let in
        do not count for it, when there is another one."""
        first = [
            one for one in kits if one != accused and not any(self.older(k, one) for k in kits if k != one)
        ]
        return [one for one in first if one not in self.line(accused)] or first
