"""The clouds of a volume and how much they may fail, as registers tell.

==========  ====================  =====================================================================
register    key                   value
==========  ====================  =====================================================================
cloud       ``s`` number (u8)     version u8 = 1, state u8, name (blob <= 255, UTF-8), URL (blob <= 4096)
redundancy  ``r``                 version u8 = 1, f u8, k u8
==========  ====================  =====================================================================

`number` is the byte that placements name the cloud with; it is never used again. Of concurrent values, the
one with the highest stamp counts. A volume whose clouds were never changed has none of these registers:
`volume.json` on each device is the truth then, and the first change signs a register for every cloud.

A cloud is *active*; or *draining*: it is read, but gets nothing new, until another has all that it holds; or
*lost*: the same, but it is not asked for anything; or *gone*, when no register names anything there any more.
Registers and placements say which shares have to move. There is no list of jobs, which a crash could leave
out of date.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from blake3 import blake3
from msgspec import Struct

from hybrisfs.errors import UsageError
from hybrisfs.kinds import CLOUD, REDUNDANCY
from hybrisfs.merge.rules import winner
from hybrisfs.registers.values import Stamp, Value
from sync import DecodeError, Write
from sync.codec import Reader, Writer

if TYPE_CHECKING:  # checking updates need not load what registers are stored with
    from hybrisfs.log import Registers

__all__ = [
    "MAX_CLOUD_NAME",
    "MAX_CLOUD_URL",
    "REDUNDANCY_KEY",
    "CloudRecord",
    "CloudState",
    "RedundancyRecord",
    "cloud_key",
    "entries_of",
    "free_number",
    "overruled",
    "read_clouds",
    "read_redundancy",
]

MAX_CLOUD_NAME: Final = 255
MAX_CLOUD_URL: Final = 4096
MAX_SHARES: Final = 32  # of a pack, as `PackRecord` bounds it
NUMBERS: Final = 256
REDUNDANCY_KEY: Final = REDUNDANCY.key()
_VERSION: Final = 1


class CloudState(enum.IntEnum):
    """The plan for a cloud."""

    ACTIVE = 0
    DRAINING = 1
    LOST = 2
    GONE = 3


def cloud_key(number: int) -> bytes:
    return CLOUD.key(bytes((number,)))


class CloudRecord(Struct, frozen=True):
    """A cloud as its register says."""

    name: str
    url: str
    state: CloudState = CloudState.ACTIVE

    def encode(self) -> bytes:
        out = Writer().u8(_VERSION).u8(self.state)
        return out.blob(self.name.encode()).blob(self.url.encode()).getvalue()

    @staticmethod
    def decode(value: bytes) -> CloudRecord:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a cloud record of another version")
        state, name, url = reader.u8(), reader.blob(MAX_CLOUD_NAME), reader.blob(MAX_CLOUD_URL)
        reader.end()
        try:
            record = CloudRecord(name.decode(), url.decode(), CloudState(state))
        except ValueError as error:  # no UTF-8, or no state that is known
            raise DecodeError("a cloud record that no correct machine writes") from error
        if not record.name.isprintable() or not record.name or not record.url.isprintable():
            raise DecodeError("the name or URL of a cloud cannot be shown")
        return record


class RedundancyRecord(Struct, frozen=True):
    """How many clouds may fail, and how many pieces rebuild a chunk."""

    f: int
    k: int

    def encode(self) -> bytes:
        return Writer().u8(_VERSION).u8(self.f).u8(self.k).getvalue()

    @staticmethod
    def decode(value: bytes) -> RedundancyRecord:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a redundancy record of another version")
        f, k = reader.u8(), reader.u8()
        reader.end()
        if k < 1 or f + k > MAX_SHARES:
            raise DecodeError(f"f={f} and k={k} make no sense")
        return RedundancyRecord(f, k)


def read_clouds(registers: Registers) -> dict[int, tuple[CloudRecord, Stamp]]:
    """The clouds by number, each with the stamp of the update that says so."""
    found: dict[int, tuple[CloudRecord, Stamp]] = {}
    for key, values in sorted(registers.with_prefix(CLOUD.prefix).items()):
        latest = winner([one for one in values if CLOUD.has_form(key) and _record(one) is not None])
        record = _record(latest) if latest is not None else None
        if latest is not None and record is not None:
            found[key[1]] = record, latest.stamp
    return found


def overruled(registers: Registers, own: Iterable[bytes]) -> dict[int, CloudRecord]:
    """Clouds that this device (with the *own* branches) added under a number that another device gave to
    another cloud at the same moment, when the other device won."""
    branches, found = frozenset(own), dict[int, CloudRecord]()
    for key, values in registers.with_prefix(CLOUD.prefix).items():
        latest = winner([one for one in values if _record(one) is not None]) if CLOUD.has_form(key) else None
        winning = _record(latest) if latest is not None else None
        for value in values:
            record = _record(value)
            if value.stamp.branch not in branches or record is None or winning is None:
                continue
            if record.url != winning.url:
                found[key[1]] = record
    return found


def free_number(volume: bytes, url: str, taken: Container[int]) -> int:
    """A number for a new cloud. It follows from the URL, so that two devices that add one cloud at the same
    moment mean the same, and two that add different ones hardly ever do. Raises UsageError."""
    wanted = blake3(volume + url.encode()).digest()[0]
    for offset in range(NUMBERS):
        if (wanted + offset) % NUMBERS not in taken:
            return (wanted + offset) % NUMBERS
    raise UsageError("this volume has had 256 clouds", "their numbers are never used again")


def _record(value: Value) -> CloudRecord | None:
    try:
        return CloudRecord.decode(value.value or b"")
    except DecodeError:
        return None


def read_redundancy(registers: Registers) -> tuple[RedundancyRecord, Stamp] | None:
    """f and k, with the stamp of the update that set them; None when no register does. The volume's lock is
    held."""
    found: list[tuple[RedundancyRecord, Stamp]] = []
    for value in registers.values(REDUNDANCY_KEY):
        try:
            found.append((RedundancyRecord.decode(value.value or b""), value.stamp))
        except DecodeError:
            continue
    return max(found, key=lambda one: one[1], default=None)


def entries_of(clouds: Mapping[int, CloudRecord], redundancy: RedundancyRecord | None) -> list[Write]:
    """The writes that make the registers say this."""
    writes: list[Write] = [(cloud_key(number), record.encode()) for number, record in sorted(clouds.items())]
    return [*writes, (REDUNDANCY_KEY, redundancy.encode())] if redundancy is not None else writes
