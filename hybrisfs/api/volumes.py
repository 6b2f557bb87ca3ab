"""Making volumes, listing them, and how they behave on this device."""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, UnsetType

from hybrisfs.api.request import Folder, LongRequest, Named, Record, Request, Step, Text, Texts

__all__ = [
    "CloudUrl",
    "ListedVolume",
    "MadeVolume",
    "QuickstartRequest",
    "Rebuilt",
    "RebuiltVolume",
    "Started",
    "Volume",
    "VolumeCreateRequest",
    "VolumeListRequest",
    "VolumeRebuildRequest",
    "VolumeSetRequest",
    "VolumeSettings",
    "Volumes",
]


class CloudUrl(Record):
    """Where a cloud is."""

    name: str
    url: str


class Volume(Record):
    """A volume as it was created."""

    name: str
    clouds: list[CloudUrl]
    f: int
    """How many clouds may fail or lie."""
    k: int
    """How many clouds are needed to read."""


class MadeVolume(Record):
    """A volume that is new on this device."""

    volume: Volume


class ListedVolume(Volume):
    """A volume, and where it is mounted."""

    mountpoint: str | None


class Volumes(Record):
    """The volumes of this device, by name."""

    volumes: list[ListedVolume]


class Started(MadeVolume):
    """A volume to try HybrisFS with."""

    created: bool
    """The volume is new."""
    mounted: bool
    """It was not mounted before."""
    mountpoint: str | None


class VolumeSettings(Named):
    """The settings that were changed."""

    stale_reads: str | UnsetType = UNSET
    """The reaction while a device is silent for too long: warn or block."""
    keep_versions: str | UnsetType = UNSET
    """The rule as it is kept."""
    notifications: bool | UnsetType = UNSET
    """The desktop shows trouble that needs a person."""
    veto_hours: int | UnsetType = UNSET
    """How long the removal of a device can be vetoed."""
    evict_liars: bool | UnsetType = UNSET
    """This device suspends those against which there is a proof that no backup explains."""


class Rebuilt(Record):
    """The files of a damaged volume, by their fate."""

    set_aside: str
    """The folder with the damaged files."""
    recovered: list[str]
    """Paths in the volume of files that no cloud had."""
    lost: list[str]
    """Paths of those that could not be read."""


class RebuiltVolume(Rebuilt):
    """The same with its name."""

    name: str


class QuickstartRequest(Request[Started]):
    """Make a volume over folders of this disk, and mount it."""

    command: ClassVar = "quickstart"

    directory: Folder | None = None
    """Where to mount it; None for the usual folder."""


class VolumeCreateRequest(Request[MadeVolume]):
    """Make a volume."""

    command: ClassVar = "volume create"

    name: Text
    clouds: Texts
    """Their URLs."""
    f: int | None = None
    """How many clouds may fail or lie; None: as many as their number allows, at most 1."""
    k: int | None = None
    """How many clouds are needed to read; None: 1."""
    evict_liars: bool | None = None
    """See `VolumeSettings`."""


class VolumeListRequest(Request[Volumes]):
    """Which volumes there are."""

    command: ClassVar = "volume list"


class VolumeSetRequest(Request[VolumeSettings]):
    """Change settings of a volume on this device; None changes nothing. See `VolumeSettings`."""

    command: ClassVar = "volume set"

    name: Text
    stale_reads: Text | None = None
    keep_versions: Text | None = None
    notifications: bool | None = None
    veto_hours: int | None = None
    evict_liars: bool | None = None


class VolumeRebuildRequest(LongRequest[RebuiltVolume, Step]):
    """Make the database of a damaged volume again."""

    command: ClassVar = "volume rebuild"

    name: Text
