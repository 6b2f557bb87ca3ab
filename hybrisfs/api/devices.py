"""The devices of a volume, as the control socket describes them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from hybrisfs.api.request import Named, Record, Request, Text, Texts

__all__ = [
    "Accused",
    "Charge",
    "Device",
    "DeviceListRequest",
    "DeviceRenameRequest",
    "DeviceRole",
    "DeviceRoleRequest",
    "Devices",
    "Proposal",
    "Role",
    "Vote",
]

Role: TypeAlias = Annotated[
    Literal["full", "contributor", "reader"], Meta(description="one of full, contributor, reader")
]


class Proposal(Record):
    """The wish of a member to change the role of a device. It has no effect until others agree."""

    by: str
    """The name of the member."""
    role: str
    """full, contributor or reader."""
    folders: list[str] | UnsetType = UNSET
    """The folders of a contributor, as paths in the volume."""


class Charge(Record):
    """A proven misdeed of a device."""

    kind: str
    """fork, or another kind of misdeed."""
    what: str
    """The deed, as the rest of a sentence that begins with the name of the device."""
    at: float
    """When it did so, by its own clock, in seconds since the epoch."""


class Device(Record, kw_only=True):
    """A device that belongs to the volume."""

    id: str
    """In hex."""
    name: str
    """With the beginning of the id if others are called the same."""
    this: bool
    """It is the one that answers."""
    forked: bool
    """Its history has two ends: it was restored from a backup, or copied."""
    forked_at: float | UnsetType = UNSET
    """When that was noticed, in seconds since the epoch."""
    vector: dict[str, int] | UnsetType = UNSET
    """Its vector when it was last seen: the clock of each branch, by its id in hex."""
    last_seen: float | UnsetType | None = UNSET
    """When it was alive for certain, in seconds since the epoch; None when never, `UNSET` for this one."""
    lag: int | UnsetType = UNSET
    """By how many steps of logical time it was behind then."""
    suspect: bool | UnsetType = UNSET
    """It has been silent for too long: changes of it may be missing here."""
    rejoined: bool
    """It has forked, and goes on with one history."""
    reader: bool
    """It may only read."""
    folders: list[str] | None
    """The folders that it is limited to, as paths in the volume; None when it is not limited."""
    overstepped: bool
    """It has signed changes that it may not make."""
    proposed: list[Proposal] | UnsetType = UNSET
    charges: list[Charge]
    let_in_by: str | UnsetType = UNSET
    """The name of the device that has let it in."""
    linked: bool | UnsetType = UNSET
    """There is a direct link to it now."""
    round_trip: float | UnsetType | None = UNSET
    """Of that link, in seconds; None until it is measured."""
    unanswered_since: float | UnsetType = UNSET
    """Since when a discard waits for it, in seconds since the epoch."""

    @property
    def seen(self) -> float | None:
        """When it was alive for certain, as far as that is known, in seconds since the epoch."""
        return self.last_seen if isinstance(self.last_seen, float) else None


class Vote(Record):
    """The vote of a member about an accused device."""

    by: str
    """The name of the member."""
    id: str
    """Of the member, in hex."""
    stance: str
    """keep, suspend or remove."""
    counts: bool
    """It suspends the device."""


class Accused(Record):
    """A device or recovery kit that is accused, or was removed by votes."""

    id: str
    """In hex."""
    name: str
    this: bool
    """It is the device that answers."""
    final: bool
    """Nobody but the first recovery kit can undo that."""
    suspended: bool
    until: float | None
    """When this device seconds the accusation if that is not vetoed, in seconds since the epoch."""
    votes: list[Vote]


class Devices(Record):
    """The devices of a volume."""

    name: str
    """Of the volume."""
    devices: list[Device]
    accused: list[Accused]


class DeviceListRequest(Request[Devices]):
    """Which devices belong to the volume."""

    command: ClassVar = "device list"

    name: Text | None = None


class DeviceRenameRequest(Request[Named], kw_only=True):
    """Call a device otherwise, on all devices."""

    command: ClassVar = "device rename"

    name: Text | None = None
    device: Text
    """Its name, or the beginning of its id."""
    new_name: Text


class DeviceRole(Record):
    """The role of a device."""

    name: str
    """Of the volume."""
    id: str
    """Of the device, in hex."""
    device: str
    """Its name."""
    reader: bool
    """It may only read."""
    folders: list[str] | None
    """The folders that it is limited to, as paths in the volume; None when it is not limited."""
    proposed: list[Proposal] | UnsetType = UNSET


class DeviceRoleRequest(Request[DeviceRole], kw_only=True):
    """Tell the role of a device; with *role*, change it first."""

    command: ClassVar = "device role"

    name: Text | None = None
    device: Text
    """Its name, or the beginning of its id."""
    role: Role | None = None
    folders: Texts | None = None
    """The folders of a contributor, as paths in the volume."""
    passphrase: Text | None = None
    """Of a recovery kit, which says so instead of this device."""
