"""How devices came into the volume, by what the table `said` (`hybrisfs.members.minutes`) holds of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from hybrisfs.kinds import ID
from hybrisfs.members.admission import Word, parse_admission, settled
from hybrisfs.members.kinship import Kinship
from hybrisfs.members.members import Member
from hybrisfs.members.roster import BY_NOBODY, Admission, Roster
from hybrisfs.registers.values import Stamp
from hybrisfs.state.said import Said
from sync import VersionVector

__all__ = ["Lineage", "VectorOf", "trace"]

VectorOf = Callable[[bytes, int], VersionVector | None]
"""The dependency vector of the update with this branch and clock."""


class Lineage(NamedTuple):
    """What rows tell."""

    roster: Roster
    kits: frozenset[bytes]
    """Those in reserve."""
    had_seen: Callable[[bytes, bytes, int], bool]
    """Whether the update that let in a device had seen the one with this branch and clock."""
    saw: Callable[[bytes, bytes], bool]
    """Whether the update that let in the first device had seen the one that let in the second."""
    kinship: Kinship


def trace(
    members: Iterable[Said],
    admissions: Iterable[Said],
    branches: Mapping[bytes, bytes],
    vector_of: VectorOf,
    first: Collection[bytes],
) -> Lineage:
    """What rows about members and about their admissions tell; *branches* of which devices have written, and
    which are the *first* ones, see `founders`."""
    stamps: dict[tuple[bytes, bytes], Stamp] = {}  # of the first word of an author about a device
    heard: dict[bytes, Admission] = {}
    said: dict[bytes, set[bool]] = {}  # whether it is a reserve
    for key, branch, clock, value in sorted(members, key=lambda one: (one.clock, one.branch)):
        device, author, member = key[ID], branches.get(branch), Member.decode(value) if value else None
        if member is None or member.removed:
            continue
        said.setdefault(device, set()).add(member.reserve)
        if author not in (None, device):
            heard.setdefault(device, Admission(author, clock))
            stamps.setdefault((device, author), Stamp(clock, branch))
    words: dict[bytes, list[Word]] = {}
    for key, branch, clock, value in admissions:
        device, word = parse_admission(key, value, clock)
        words.setdefault(device, []).append(word)
        stamp = Stamp(clock, branch)
        stamps[device, word.author] = min(stamp, stamps.get((device, word.author), stamp))
    roster = Roster(
        {
            device: BY_NOBODY
            if device in first
            else settled(device, heard.get(device, BY_NOBODY), words.get(device, ()))
            for device in {*said, *branches.values()}
        }
    )

    def let_in_at(device: bytes) -> Stamp | None:
        inviter = roster.inviter(device)
        return None if inviter is None else stamps.get((device, inviter))

    def had_seen(device: bytes, branch: bytes, clock: int) -> bool:
        at = let_in_at(device)
        vector = None if at is None else vector_of(*at[::-1])
        return vector is not None and vector[branch] >= clock

    def saw(later: bytes, earlier: bytes) -> bool:
        first = let_in_at(earlier)
        return first is not None and had_seen(later, *first[::-1])

    kits = frozenset(device for device, reserve in said.items() if reserve == {True})
    return Lineage(roster, kits, had_seen, saw, Kinship(roster, saw))
