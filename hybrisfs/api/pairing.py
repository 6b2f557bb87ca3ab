"""Letting a device into a volume. The command that begins it tells over and over where it stands; the
person's yes or no comes with a command of its own."""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, UnsetType

from hybrisfs.api.devices import Role
from hybrisfs.api.request import Done, LongRequest, Record, Request, Text, Texts
from hybrisfs.api.volumes import MadeVolume

__all__ = [
    "Admission",
    "DeviceConfirmRequest",
    "DeviceInviteRequest",
    "DeviceJoinRequest",
    "Invitation",
    "PairingNews",
    "VolumeAdmission",
]


class Invitation(Record):
    """The code that a person carries over to the other device."""

    code: str
    qr: list[str]
    """The same as lines of a picture."""
    expires: int
    """Until when it is good, in seconds since the epoch."""


class PairingNews(Record):
    """Where a pairing stands; more and more of it is told."""

    pairing: str = ""
    """Its id, which the answer of a person names."""
    code: str | UnsetType = UNSET
    qr: list[str] | UnsetType = UNSET
    expires: int | UnsetType = UNSET
    """These three as in `Invitation`."""
    doing: str | UnsetType = UNSET
    """The work under way, in a sentence."""
    comparison: str | UnsetType = UNSET
    """The text that both devices show."""
    device: str | UnsetType = UNSET
    """The name of the other one."""
    question: bool | UnsetType = UNSET
    """An answer is waited for: whether the other one shows the same."""


class Admission(Record):
    """A device that was let in."""

    device: str
    """Its name."""
    id: str
    """In hex."""
    acknowledged: bool
    """It has said that it has got everything."""


class VolumeAdmission(Admission):
    """The same, and into which volume."""

    name: str


class DeviceInviteRequest(LongRequest[VolumeAdmission, PairingNews]):
    """Let a device in."""

    command: ClassVar = "device invite"

    name: Text | None = None
    valid: int | None = None
    """For how many seconds the code is good; None: a quarter of an hour."""
    with_credentials: bool = False
    """Hand on the secrets of the clouds."""
    role: Role | None = None
    """Its role; None: full."""
    folders: Texts | None = None
    """The folders of a contributor, as paths in the volume."""


class DeviceJoinRequest(LongRequest[MadeVolume, PairingNews]):
    """Be let in."""

    command: ClassVar = "device join"

    code: Text
    as_name: Text | None = None
    """The name of the volume on this device."""
    own_name: Text | None = None
    """The name of this device."""


class DeviceConfirmRequest(Request[Done]):
    """A person's answer to the question whether both devices show the same."""

    command: ClassVar = "device confirm"

    pairing: Text
    accept: bool = False
