"""Which device let in which, as both of them say.

=========  =================================  =====================================================
register   key                                value
=========  =================================  =====================================================
admission  ``i`` device id (16), author (16)  version u8 = 1; where the author is the device itself,
                                              the device that let it in (16), zeros when none did
=========  =================================  =====================================================

Each writes its own register, so that no device can overwrite the word of another. A device counts as let in
by the one that it names itself, if that one says so, too: no other device can claim it, and it cannot choose
one that did not let it in. Where no device that it names says so, the claim with the lowest clock counts.
Members of earlier versions did not say it: there it is the author of the first member register that was heard
of (`hybrisfs.members.members`).

A member can say that it let in the founder, in an update that pretends to have seen nothing, and which of the
two came first the log does not tell. So each device believes those by which it came itself: `founders`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from hybrisfs.kinds import ADMISSION
from hybrisfs.members.roster import Admission
from hybrisfs.state.database import Reader as StateReader
from hybrisfs.state.members import admission_values, devices_from_the_beginning, inviter_of_this_device
from hybrisfs.state.said import all_values
from hybrisfs.state.stored_log import first_signer
from sync import DEVICE_ID_SIZE, DecodeError, Reader, Write, Writer

__all__ = [
    "Word",
    "came_by",
    "check_admission",
    "founders",
    "let_in",
    "parse_admission",
    "settled",
    "words",
]

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
    the last of this chain: the device that let this one in, the inviter that it names itself, and so on."""
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


def settled(device: bytes, heard: Admission, said: Iterable[Word]) -> Admission:
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
