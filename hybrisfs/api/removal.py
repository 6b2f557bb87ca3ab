"""The removal of devices, vetoes against it, and proofs of misdeeds."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import UNSET, UnsetType

from hybrisfs.api.devices import Charge
from hybrisfs.api.request import Record, Request, Text

__all__ = [
    "Admitted",
    "DeviceAdmittedRequest",
    "DeviceCheckProofRequest",
    "DeviceKeepRequest",
    "DeviceProofRequest",
    "DeviceRemoveRequest",
    "KeptDevice",
    "NamedDevice",
    "Proof",
    "RemovedDevice",
]

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
