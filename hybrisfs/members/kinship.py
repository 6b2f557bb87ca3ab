"""How devices came into a volume by one another: which are above, older, or independent.

*Independent* of each other are two members of which neither let the other in, if there is no third one that
may have let in both after a device came that they speak of: a thief's puppets second no member. A member *is
older* than another one that was let in by an update which had seen its own admission: that no device can
claim afterwards. The *first* recovery kit is the one that is older than all others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from sync import MAX_WRITERS

__all__ = ["BY_NOBODY", "MAX_ADMITTED", "Admission", "Kinship", "Roster"]


class Kinship:
    """What follows from a roster; *saw* tells whether the update that let in the first device had seen the
    one that let in the second."""

    def __init__(self, roster: Roster, saw: Callable[[bytes, bytes], bool]) -> None:
        self._roster = roster
        self._saw = saw
        self.line = lru_cache(None)(lambda device: frozenset(roster.admitted(device)))
        """All devices that a device has let in, directly or through others."""
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
        """The highest ancestor of the voter that may have let it in, through others, after the accused came.
        Two voters that the same device may have let in like this have the same origin."""
        while not self.older(voter, accused):
            inviter = self._roster.inviter(voter)
            if inviter is None or inviter == accused:
                break
            voter = inviter
        return voter

    def are_independent(self, voters: Collection[bytes], accused: bytes) -> bool:
        """Whether any two of these voters about the accused are independent."""
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


# -- the devices that count as members, and which device let each in ------------------------------------
# A member can sign that thousands of others are let in. What is above the bounds counts for nothing: such a
# device has no keys, and what it signs is accepted only as far as a member depends on it, like that of a
# device which was removed. The bounds look at admissions and at the clocks of these updates, not at the order
# of arrival:
#
# * of all devices that one has let in, and those that these have let in, and so on, the first `MAX_ADMITTED`
#   count, those that were removed since included;
# * of all devices of the volume, the first MAX_WRITERS count.
#
# First are those with fewer devices between them and the founder, which no device let in and to which the
# first bound does not apply; of several, those with the lower clock. So a device pushes out only devices that
# came into the volume through it, or later through as many others.


MAX_ADMITTED: Final = 128


class Admission(NamedTuple):
    """The device that let another in, and the clock of the update of the admission; None where that is
    unknown."""

    by: bytes | None
    clock: int | None
    confirmed: bool = False
    """Whether the device says so, too (`hybrisfs.members.lineage`)."""


BY_NOBODY: Final = Admission(None, 0)


class Roster:
    """The devices that there are and ever were, as a forest."""

    def __init__(self, admissions: Mapping[bytes, Admission], most: int = MAX_ADMITTED) -> None:
        """*most*: see `MAX_ADMITTED`."""
        self.devices = frozenset(admissions)
        self._clock = {device: one.clock or 0 for device, one in admissions.items()}
        self._by = _forest(admissions)
        self._admitted: dict[bytes | None, list[bytes]] = {}
        for device in sorted(admissions, key=self._first):
            self._admitted.setdefault(self._by.get(device), []).append(device)
        self.counted = self._counted(most)
        """Those within the bounds."""

    def _first(self, device: bytes) -> tuple[int, bytes]:
        return self._clock[device], device

    def inviter(self, device: bytes) -> bytes | None:
        """The device that let this one in."""
        return self._by.get(device)

    def admitted(self, device: bytes) -> list[bytes]:
        """The devices that this one let in, directly or through others."""
        found: list[bytes] = []
        for level in self._levels(self._admitted.get(device, [])):
            found += level
        return found

    def _levels(self, level: list[bytes]) -> Iterator[list[bytes]]:
        while level:
            yield level
            level = [one for device in level for one in self._admitted.get(device, ())]

    def _counted(self, most: int) -> frozenset[bytes]:
        roots = self._admitted.get(None, [])
        above: dict[bytes, list[bytes]] = {}  # of a device that counts: the devices whose bounds include it
        below: dict[bytes, int] = {}
        for level in self._levels(roots):
            for device in sorted(level, key=self._first):
                inviter = self._by.get(device)
                if inviter is not None and inviter not in above:
                    continue
                bound = [] if inviter is None or self._by.get(inviter) is None else [*above[inviter], inviter]
                if len(above) < MAX_WRITERS and all(below.get(one, 0) < most for one in bound):
                    above[device] = bound
                    for one in bound:
                        below[one] = below.get(one, 0) + 1
        return frozenset(above)


def _forest(admissions: Mapping[bytes, Admission]) -> dict[bytes, bytes]:
    """The inviter of each device, without circles. Of admissions that make a circle, the latest does not
    count, but confirmed ones go before others (a device was renamed, and its inviter is unknown)."""
    by: dict[bytes, bytes] = {}
    root = {device: device for device in admissions}

    def find(device: bytes) -> bytes:
        while root[device] != device:
            root[device] = root[root[device]]
            device = root[device]
        return device

    for _, _, device, inviter in sorted(
        (not one.confirmed, one.clock or 0, device, one.by)
        for device, one in admissions.items()
        if one.by is not None and one.by in admissions
    ):
        if find(inviter) != device:
            by[device] = inviter
            root[device] = find(inviter)
    return by
