"""How devices came into the volume, by what the table `said` (`hybrisfs.members.minutes`) holds of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from hybrisfs.kinds import ADMISSION, ID
from hybrisfs.members.kinship import BY_NOBODY, Admission, Kinship, Roster
from hybrisfs.members.members import Member
from hybrisfs.registers.values import Stamp
from hybrisfs.state.database import Reader as StateReader
from hybrisfs.state.members import admission_values, devices_from_the_beginning, inviter_of_this_device
from hybrisfs.state.registers import Said, all_values
from hybrisfs.state.stored_log import first_signer
from sync import DEVICE_ID_SIZE, DecodeError, Reader, VersionVector, Write, Writer

__all__ = [
    "Lineage",
    "VectorOf",
    "Word",
    "came_by",
    "check_admission",
    "founders",
    "let_in",
    "admission_of",
    "trace",
    "words",
]

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
    """The lineage by the rows about members and admissions. *branches*: those on which devices have written;
    *first*: see `founders`."""
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
            else admission_of(device, heard.get(device, BY_NOBODY), words.get(device, ()))
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


# -- which device let in which, as both of them say -----------------------------------------------------
# =========  =================================  =====================================================
# register   key                                value
# =========  =================================  =====================================================
# admission  ``i`` device id (16), author (16)  version u8 = 1; where the author is the device itself,
#                                               the device that let it in (16), zeros when none did
# =========  =================================  =====================================================
#
# Each writes its own register, so that no device can overwrite the word of another. A device counts as let in
# by the one that it names itself, if that one says so, too: no other device can claim it, and it cannot
# choose one that did not let it in. Where no device that it names says so, the claim with the lowest clock
# counts. Members of earlier versions did not say it: there it is the author of the first member register that
# was heard of (`hybrisfs.members.members`).
#
# A member can say that it let in the founder, in an update that pretends to have seen nothing, and which of
# the two came first the log does not tell. So each device believes those by which it came itself: `founders`.


_VERSION: Final = 1
_NOBODY: Final = bytes(DEVICE_ID_SIZE)
_DEVICE: Final = ADMISSION.parts[0]
_AUTHOR: Final = slice(_DEVICE.stop, None)  # longer in what an earlier version kept unread


class Word(NamedTuple):
    """*author* says that it let a device in; or, where it is that device, that *inviter* did."""

    author: bytes
    clock: int
    inviter: bytes | None


def let_in(device: bytes, author: bytes) -> Write:
    """The register by which *author* says that it let *device* in."""
    return ADMISSION.key(device, author), Writer().u8(_VERSION).getvalue()


def came_by(device: bytes, inviter: bytes | None) -> Write:
    """The register by which *device* names the one that let it in."""
    return ADMISSION.key(device, device), Writer().u8(_VERSION).raw(inviter or _NOBODY).getvalue()


def check_admission(key: bytes, value: bytes) -> bytes | None:
    """The device that let the author in, by its own word; None in its word of another device. Raises
    DecodeError."""
    reader = Reader(value)
    if reader.u8() != _VERSION:
        raise DecodeError("an admission of another version")
    inviter = reader.raw(DEVICE_ID_SIZE) if key[_DEVICE] == key[_AUTHOR] else None
    reader.end()
    return inviter


def parse_admission(key: bytes, value: bytes, clock: int) -> tuple[bytes, Word]:
    """The device that a register is about, and what it says. Raises DecodeError."""
    return key[_DEVICE], Word(key[_AUTHOR], clock, check_admission(key, value))


def words(database: StateReader) -> dict[bytes, list[Word]]:
    """What is said of the devices in the `member` table, by device."""
    found: dict[bytes, list[Word]] = {}
    for device, key, clock, value in admission_values(database):
        try:
            found.setdefault(device, []).append(Word(key[_AUTHOR], clock, check_admission(key, value or b"")))
        except DecodeError:
            continue  # it was kept by an earlier version, for which it was of no known kind
    return found


def founders(database: StateReader) -> frozenset[bytes]:
    """The devices that no other let in, whatever others claim: those that are here from the beginning, and
    the last one of the chain of inviters above this device, as each names its own."""
    first = devices_from_the_beginning(database)
    found = {device for device in first if _own_word(database, device) in (b"", _NOBODY)}
    at = inviter_of_this_device(database) or first_signer(database) or b""
    passed = set[bytes]()
    while at and at not in passed:
        passed.add(at)
        inviter = _own_word(database, at)
        if inviter == _NOBODY:
            found.add(at)
        at = inviter
    return frozenset(found)


def _own_word(database: StateReader, device: bytes) -> bytes:
    """The inviter that the device first named, empty if it has named none."""
    for value in all_values(database, ADMISSION.key(device, device)):
        try:
            return check_admission(ADMISSION.key(device, device), value) or b""
        except DecodeError:
            continue  # it was kept by an earlier version, for which it was of no known kind
    return b""


def admission_of(device: bytes, heard: Admission, said: Iterable[Word]) -> Admission:
    """The device that let another in; *heard* is what member registers say."""
    by = {} if heard.by is None else {heard.by: heard.clock or 0}
    own: list[tuple[int, bytes]] = []
    for author, clock, inviter in said:
        if author != device:
            by[author] = min(clock, by.get(author, clock))
        elif inviter is not None:
            own.append((clock, inviter))
    stated = min(own)[1] if own else None
    if stated in by:
        return Admission(stated, by[stated], confirmed=True)
    return min((Admission(*one) for one in by.items()), key=lambda one: (one.clock, one.by), default=heard)
