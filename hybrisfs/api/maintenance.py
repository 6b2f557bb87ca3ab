"""Looking after a volume: its database, its clouds, the room that they take, and its recovery kits."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from hybrisfs.api.request import LongRequest, Record, Request, Step, Text, Texts
from hybrisfs.api.status import LogStatus
from hybrisfs.api.volumes import MadeVolume

__all__ = [
    "CacheDropRequest",
    "Check",
    "CheckProblem",
    "CheckedVolume",
    "Collected",
    "Doing",
    "Dropped",
    "Fragments",
    "FsckRequest",
    "GcRequest",
    "Kit",
    "KitCloud",
    "Kits",
    "MadeKit",
    "Packs",
    "RecoverRequest",
    "Recovered",
    "RecoveryMakeRequest",
    "RecoveryRemoveRequest",
    "RecoveryShowRequest",
    "RemovedKit",
    "Repair",
    "RepairRequest",
    "RepairedCloud",
    "RepairedVolume",
    "Scrub",
    "ScrubRequest",
    "ScrubbedCloud",
    "ScrubbedVolume",
    "UnnamedValues",
    "Unrepaired",
    "WaitingFor",
    "WrongObject",
]


class Dropped(Record):
    """How much of the cache was freed, and how much was kept."""

    name: str
    """Of the volume."""
    freed_bytes: int
    kept_bytes: int
    """In use, pinned, or not on the clouds yet."""


class CacheDropRequest(Request[Dropped]):
    """Forget cached content that the clouds hold."""

    command: ClassVar = "cache drop"

    name: Text | None = None


# -- fsck ----------------------------------------------------------------------------------------------


class CheckProblem(Record):
    """Something that is not as it should be."""

    where: str
    what: str
    severity: str
    """error or warning."""


class Check(Record):
    """The findings of `fsck`."""

    problems: list[CheckProblem]
    """The first ones."""
    checked: dict[str, int]
    """How many of each kind of things were looked at."""


class CheckedVolume(Check):
    """The same of a volume."""

    name: str


class FsckRequest(LongRequest[CheckedVolume, Step]):
    """Verify the database, the log and the cache."""

    command: ClassVar = "fsck"

    name: Text | None = None
    clouds: bool = False
    """And every object on every cloud."""


# -- scrub and repair ----------------------------------------------------------------------------------


class UnnamedValues(Record):
    """Objects on the clouds of values that no key of the key-value store names."""

    unnamed: int
    former: int
    """Of stores that this device had before."""
    of_others: int
    """Of stores of other devices, which are left alone."""


class ScrubbedCloud(Record):
    """How many objects of a cloud were read, and how many of these are wrong in which way."""

    name: str
    checked: int
    missing: int
    stale: int
    corrupt: int
    unreadable: int


class WrongObject(Record):
    """An object that is not as it should be."""

    cloud: str
    kind: str
    """missing, stale, corrupt or unreadable."""
    what: str
    """A sentence that names it."""
    key: str | None
    """CONTAINER/KEY, if it holds a part of a value."""
    older: bool
    """The cloud keeps the right one as an older version."""


class Scrub(Record):
    """The findings of `scrub`."""

    clouds: list[ScrubbedCloud]
    problems: list[WrongObject]
    """The first ones."""
    wrong: int
    """How many objects."""
    older: int
    """Of how many of these their clouds keep the right ones."""


class ScrubbedVolume(Scrub):
    """The same of a volume."""

    name: str
    sample: float
    """Which share of the data was read, in per cent."""
    values: UnnamedValues | None
    """None when that is unknown."""


class ScrubRequest(LongRequest[ScrubbedVolume, Step]):
    """Verify the objects on the clouds."""

    command: ClassVar = "scrub"

    name: Text | None = None
    sample: Annotated[
        float,
        msgspec.Meta(gt=0, le=100, description="a number of per cent above 0, at most 100"),
    ] = 100.0
    """Which share of the data to read, in per cent."""


class RepairedCloud(Record):
    """How many wrong objects of a cloud were repaired, and how many were not."""

    name: str
    repaired: int
    moved: int
    """Put onto other clouds."""
    failed: int


class Unrepaired(Record):
    """An object that could not be repaired."""

    cloud: str
    what: str
    """A sentence that names it."""
    key: str | None
    """CONTAINER/KEY, if it holds a part of a value."""
    why: str


class Repair(Record):
    """The results of `repair`."""

    clouds: list[RepairedCloud]
    problems: list[Unrepaired]
    """The first ones."""
    repaired: int
    """How many objects, also those that were put onto other clouds."""
    failed: int


class RepairedVolume(Repair):
    """The same of a volume."""

    name: str


class RepairRequest(LongRequest[RepairedVolume, Step]):
    """Repair wrong objects on the clouds."""

    command: ClassVar = "repair"

    name: Text | None = None


# -- gc ------------------------------------------------------------------------------------------------


class Packs(Record):
    """Some packs, and the bytes that they waste on all clouds together."""

    packs: int
    bytes: int


class Fragments(Record):
    """Objects on the clouds that nothing names."""

    orphans: int
    """Packs."""
    strays: int
    """Shares of packs that are elsewhere."""
    leftovers: int
    """Shares of packs that are no more."""
    young: int
    """Shares that may be on the way still."""


class WaitingFor(Record):
    """A device that has yet to agree."""

    device: str
    """Its name."""
    last_seen: float | None
    """In seconds since the epoch; None when never."""
    since: float
    """Since when it is waited for, in seconds since the epoch."""


class Collected(Record):
    """Packs that no file needs any more, and how many of them were deleted."""

    name: str
    """Of the volume."""
    dry_run: bool
    """Nothing was changed."""
    empty: Packs
    """Not needed at all."""
    sparse: Packs
    """Hardly needed."""
    young: Packs
    """Kept for some time yet."""
    unnamed: Fragments
    rewritten: int
    """How many packs were packed again."""
    proposed: int
    """How many packs all devices are asked about now."""
    deleted: Packs
    due: Packs
    """To be deleted when the clouds can be reached."""
    undeletable: int
    """How many objects wait for a device that may delete."""
    waiting_for: list[WaitingFor]
    trouble: str | None
    """Why it could not be finished."""
    log: LogStatus
    values: UnnamedValues | None
    """None when that is unknown."""


class GcRequest(LongRequest[Collected, Step]):
    """Delete packs that no file needs any more."""

    command: ClassVar = "gc"

    name: Text | None = None
    dry_run: bool = False


# -- recovery kits, and recovering by one ---------------------------------------------------------------


class KitCloud(Record):
    """A cloud that should hold a kit."""

    name: str
    url: str
    state: str
    """complete, old, missing, damaged or unknown."""


class Kit(Record, kw_only=True):
    """A recovery kit."""

    kit: str
    """Its id, in hex."""
    created: int
    """In seconds since the epoch."""
    used: bool
    """A device was recovered by it."""
    unsigned: bool | UnsetType = UNSET
    """An earlier version made it, and any device can take it away."""
    made_by: str | UnsetType = UNSET
    """The name of the device, if it was another one than this."""
    clouds: list[KitCloud]
    complete: bool
    """All clouds have it as it should be."""


class Kits(Record):
    """The recovery kits of a volume, the oldest first."""

    name: str
    """Of the volume."""
    kits: list[Kit]


class RecoveryShowRequest(Request[Kits]):
    """Which kits there are, and whether the clouds hold them."""

    command: ClassVar = "recovery show"

    name: Text | None = None


class MadeKit(Kit, kw_only=True):
    """A new kit."""

    name: str
    """Of the volume."""
    pages: dict[str, str] | UnsetType = UNSET
    """Pages to be printed, by their format: html, text."""
    passphrase: str | UnsetType = UNSET
    """The one that was drawn."""
    bits: int | UnsetType = UNSET
    """How hard it is to guess."""


class RecoveryMakeRequest(Request[MadeKit]):
    """Make a kit."""

    command: ClassVar = "recovery make"

    name: Text | None = None
    passphrase: Text | None = None
    """None: one is drawn."""


class RemovedKit(Record):
    """A kit that opens nothing any more that is written from now on."""

    name: str
    """Of the volume."""
    kit: str
    """Its id, in hex."""
    left: list[str]
    """The names of clouds that may still have it."""


class RecoveryRemoveRequest(Request[RemovedKit], kw_only=True):
    """Make a kit worthless."""

    command: ClassVar = "recovery remove"

    name: Text | None = None
    kit: Text
    """The beginning of its id."""


class Doing(Record):
    """News of a recovery."""

    doing: str
    """In a sentence."""


class Recovered(MadeVolume):
    """A volume that was brought back on this device."""

    missing: list[str]
    """The URLs of clouds that were not reached."""
    agreed: bool
    """Enough clouds have the same kit."""
    few_named: bool | UnsetType = UNSET
    """Only the kit says that these are clouds of the volume: too few of them were named."""


class RecoverRequest(LongRequest[Recovered, Doing], kw_only=True):
    """Bring a volume back from its clouds and the passphrase of a kit."""

    command: ClassVar = "recover"

    clouds: Texts
    """URLs of those that are known."""
    passphrase: Text
    as_name: Text | None = None
    """The name of the volume on this device."""
    own_name: Text | None = None
    """The name of this device."""
    incomplete: bool = False
    """Go on when more clouds are missing than the volume can do without."""
