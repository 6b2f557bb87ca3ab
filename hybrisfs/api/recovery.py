"""Recovery kits, and recovering by one."""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, UnsetType

from hybrisfs.api.request import LongRequest, Record, Request, Text, Texts
from hybrisfs.api.volumes import MadeVolume

__all__ = [
    "Doing",
    "Kit",
    "KitCloud",
    "Kits",
    "MadeKit",
    "RecoverRequest",
    "Recovered",
    "RecoveryMakeRequest",
    "RecoveryRemoveRequest",
    "RecoveryShowRequest",
    "RemovedKit",
]


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
