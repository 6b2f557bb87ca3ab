"""Making volumes, listing and mounting them, how they behave on this device, and places for them."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from hybrisfs.api.request import Folder, LongRequest, Named, Record, Request, Step, Text, Texts

__all__ = [
    "CloudUrl",
    "ListedVolume",
    "MadeVolume",
    "MountRequest",
    "Mounted",
    "PlaceSecretsRequest",
    "PlaceSuggestionsRequest",
    "PlaceTryRequest",
    "QuickstartRequest",
    "Rebuilt",
    "RebuiltVolume",
    "Secret",
    "SecretsOfPlace",
    "Started",
    "StillMounted",
    "Suggestions",
    "TriedPlace",
    "UmountRequest",
    "Unmounted",
    "Volume",
    "VolumeCreateRequest",
    "VolumeListRequest",
    "VolumeRebuildRequest",
    "VolumeSetRequest",
    "VolumeSettings",
    "Volumes",
    "WaitUnmountedRequest",
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


# -- mounting volumes -----------------------------------------------------------------------------------


class Mounted(Record):
    """A volume that is mounted."""

    name: str
    mountpoint: str
    mounted: bool
    """It was not mounted there before."""


class StillMounted(Record):
    """Where a volume is mounted yet."""

    mountpoint: str | None


class Unmounted(Record):
    """A mount that was removed."""

    name: str | None
    """Of the volume; None for a mount that nobody knows of."""
    mountpoint: str
    stale: bool
    """A dead daemon had left it behind."""
    missing: bool | UnsetType = UNSET
    """Nothing was mounted: it will not be mounted there again."""


class MountRequest(Request[Mounted]):
    """Mount a volume now and whenever the daemon starts."""

    command: ClassVar = "mount"

    name: Text
    directory: Folder
    allow_other: bool = False
    """Other users see it, too."""


class WaitUnmountedRequest(LongRequest[Named, StillMounted]):
    """Wait until a volume is mounted no longer."""

    command: ClassVar = "wait unmounted"

    name: Text


class UmountRequest(Request[Unmounted]):
    """Unmount a volume, and forget that it is to be mounted."""

    command: ClassVar = "umount"

    target: Text
    """The name of the volume, or a folder as the person wrote it."""
    directory: Folder
    """The same, if it is a folder."""
    lazy: bool = False
    """Do so even while programs use it."""


# -- places that may become clouds of a volume, or where it may be mounted ------------------------------


_MOST: int = 256
_Given: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=16384, pattern=r"\A[^\0]*\Z")]
Secrets: TypeAlias = Annotated[
    dict[Text, _Given],
    msgspec.Meta(max_length=_MOST, description="texts of 1 to 16384 characters, by name"),
]
"""More than the key file of a service account has."""


class Secret(Record):
    """A secret that a cloud can be given."""

    name: str
    label: str
    """The question to a person."""
    hidden: bool
    """It is not shown while it is typed."""


class SecretsOfPlace(Record):
    """The secrets that a cloud can be given, and whether there are some."""

    cloud: str
    """Its URL, without secrets."""
    secrets: list[Secret]
    known: bool
    """This device has some."""
    logins: str = ""
    """Who keeps its logins, where that is another program, and how to change them."""


class TriedPlace(Record):
    """A place that was tried out."""

    cloud: str
    """Its URL, without secrets."""
    seconds: dict[str, float]
    """How long each request took, by its name."""


class Suggestions(Record):
    """Places for a new volume."""

    mountpoint: str
    clouds: list[str]
    """URLs of folders on this disk, to try it with."""


class PlaceSecretsRequest(Request[SecretsOfPlace]):
    """Which secrets a cloud needs."""

    command: ClassVar = "place secrets"

    url: Text


class PlaceTryRequest(Request[TriedPlace]):
    """Try out a place that may become a cloud. Secrets are kept when it answers."""

    command: ClassVar = "place try"

    url: Text
    secrets: Secrets | None = None
    """None: it is asked with those that there are."""


class PlaceSuggestionsRequest(Request[Suggestions]):
    """Where a volume may be mounted, and which folders may play its clouds."""

    command: ClassVar = "place suggestions"

    name: Text
    """Of the volume."""
