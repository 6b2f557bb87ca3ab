"""The devices of a volume: listed, let in, removed."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hybrisfs.api.request import Done, LongRequest, Named, Record, Request, Text, Texts
from hybrisfs.api.volumes import MadeVolume

__all__ = [
    "Accused",
    "Admission",
    "Admitted",
    "Charge",
    "Device",
    "DeviceAdmittedRequest",
    "DeviceCheckProofRequest",
    "DeviceConfirmRequest",
    "DeviceInviteRequest",
    "DeviceJoinRequest",
    "DeviceKeepRequest",
    "DeviceListRequest",
    "DeviceProofRequest",
    "DeviceRemoveRequest",
    "DeviceRenameRequest",
    "DeviceRole",
    "DeviceRoleRequest",
    "Devices",
    "Invitation",
    "KeptDevice",
    "NamedDevice",
    "PairingNews",
    "Proof",
    "Proposal",
    "RemovedDevice",
    "Role",
    "VolumeAdmission",
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
    """By how many updates it was behind then: steps of logical time."""
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
    """There is a link to it now, direct or through a relay."""
    relay: str | UnsetType = UNSET
    """Through which relay that link goes, as host:port; `UNSET` for a link without one."""
    round_trip: float | UnsetType | None = UNSET
    """Of that link, in seconds; None until it is measured."""
    unanswered_since: float | UnsetType = UNSET
    """Since when garbage collection waits for its consent, in seconds since the epoch."""

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


# -- letting a device into a volume. The command that begins it tells over and over where it stands -----


class Invitation(Record):
    """The code that a person carries over to the other device."""

    code: str
    qr: list[str]
    """The same as lines of a picture."""
    expires: int
    """Until when it is good, in seconds since the epoch."""


class PairingNews(Record):
    """Where a pairing stands; each message says more."""

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


# -- the removal of devices, vetoes against it, and proofs of misdeeds ----------------------------------


_MOST_HEX: Final = 2 << 19  # digits


class NamedDevice(Record):
    """A device or a recovery kit."""

    id: str
    """In hex."""
    device: str
    """Its name."""
    reserve: bool
    """It is a recovery kit."""


class Admitted(Record):
    """The devices that a device has let in. They can be removed with it."""

    name: str
    """Of the volume."""
    id: str
    """Of the device, in hex."""
    device: str
    """Its name."""
    admitted: list[NamedDevice]


class DeviceAdmittedRequest(Request[Admitted], kw_only=True):
    """List the devices that a device has let in."""

    command: ClassVar = "device admitted"

    name: Text | None = None
    device: Text
    """Its name, or the beginning of its id."""


class RemovedDevice(Record):
    """The effect of a removal."""

    name: str
    """Of the volume."""
    id: str
    """Of the device, in hex."""
    device: str
    """Its name."""
    final: bool
    """No other device can veto it."""
    counts: bool
    """It has an effect."""
    removed: list[NamedDevice]
    """Devices that it had let in, and that were removed with it."""
    remain: list[NamedDevice]
    """Devices that it had let in, and that belong to the volume still."""
    clouds: list[str]
    """The URLs of clouds of which it may still have secrets."""
    charges: list[Charge]
    """Its proven misdeeds."""


class DeviceRemoveRequest(Request[RemovedDevice], kw_only=True):
    """Let a device belong to the volume no longer."""

    command: ClassVar = "device remove"

    name: Text | None = None
    device: Text
    """Its name, or the beginning of its id."""
    with_admitted: bool = False
    """And all that it has let in."""
    passphrase: Text | None = None
    """Of a recovery kit, which votes instead of this device."""


class KeptDevice(Record):
    """The effect of a veto."""

    name: str
    """Of the volume."""
    id: str
    """Of the device or recovery kit, in hex."""
    device: str
    """Its name."""
    kept: bool
    """It belongs to the volume now."""


class DeviceKeepRequest(Request[KeptDevice], kw_only=True):
    """Veto the removal of a device."""

    command: ClassVar = "device keep"

    name: Text | None = None
    device: Text
    """Its name, or the beginning of its id."""
    passphrase: Text | None = None
    """Of a recovery kit, which vetoes instead of this device."""


class Proof(Record, kw_only=True):
    """The content of a proof."""

    name: str
    """Of the volume that was asked."""
    proof: str | UnsetType = UNSET
    """The file, in hex."""
    kind: str
    what: str
    at: float
    """As in `Charge`."""
    id: str
    """Of the device, in hex."""
    device: str | None
    """Its name; None when it is of another volume."""
    this_volume: bool
    """It is of the volume that was asked."""


class DeviceProofRequest(Request[Proof], kw_only=True):
    """Tell a proven misdeed of a device, with a file that proves it."""

    command: ClassVar = "device proof"

    name: Text | None = None
    device: Text
    """Its name, or the beginning of its id."""


class DeviceCheckProofRequest(Request[Proof], kw_only=True):
    """Check a proof."""

    command: ClassVar = "device check-proof"

    name: Text | None = None
    proof: Annotated[str, msgspec.Meta(max_length=_MOST_HEX, description="a proof in hex")]
    """The file, of at most 512 KiB, in hex."""
