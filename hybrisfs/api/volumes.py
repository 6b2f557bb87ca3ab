"""Making volumes, listing and mounting them, how they behave on this device, and places for them."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from hybrisfs.api.request import (
    Folder,
    LongRequest,
    Moved,
    Named,
    Record,
    Request,
    Seconds,
    Step,
    Text,
    Texts,
)

__all__ = [
    "CreatedVolume",
    "CloudUrl",
    "DeletedCloud",
    "DeletedVolume",
    "LeftVolume",
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
    "RenamedVolume",
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
    "VolumeDeleteRequest",
    "VolumeLeaveRequest",
    "VolumeListRequest",
    "VolumeRebuildRequest",
    "VolumeRenameRequest",
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


class CreatedVolume(MadeVolume):
    """A volume that is new everywhere."""

    warnings: list[str] = msgspec.field(default_factory=list)
    """Which of its clouds may be lost together; a sentence on each group."""


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
    """How a volume behaves on this device: entries of its `volume.json`, see `hybrisfs.settings.config`; and
    on all devices, see `hybrisfs.volume.agreed`."""

    cache_bytes: int
    """The most that is kept on this device."""
    stale_reads: str
    """The reaction while a device is silent for too long: warn or block."""
    keep_versions: str
    """The rule as it is kept."""
    notifications: bool
    """The desktop shows trouble that needs a person."""
    deletion_percent: int
    """Deletions of more of all names by another device wait for a person; 100: none does, nor does what it
    overwrites."""
    discard_hours: int
    """For how long the clouds keep what nothing needs any more."""
    veto_hours: int
    """How long the removal of a device can be vetoed."""
    evict_liars: bool
    """This device suspends those against which there is a proof that no backup explains."""
    hoard: str
    """What this device keeps beside what is used on it: all, what is asked for copies of, or none."""
    check_days: int
    """Within which the background checks that each share is on its cloud."""
    no_fetch_programs: list[str]
    """Programs whose reads fetch nothing from the clouds; shell wildcards."""
    link_port: int
    """On which this device listens for the others; 0: any."""
    link_addresses: list[str]
    """Where other devices may be found, as host:port."""
    discover: bool
    """This device looks for others on the local network."""
    warnings: list[str]
    """What does not hold before the daemon is restarted, and what else is doubtful, in sentences."""
    announce_seconds: int = 900
    """How often each device of the volume says at least that it is there."""
    merge_texts: bool = True
    """Devices of the volume merge texts unasked that were changed in different places."""
    archive_after: str = "off"
    """After how many days of rest devices of the volume archive something, "30d"; "off" for never."""
    archive_code: str = "auto"
    """The code of the archive, "4+1", or "auto" for the cheapest that the clouds allow."""


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


class LeftVolume(Named):
    """A volume that this device has left: nothing of it is here any more."""

    others: list[str]
    """The names of the devices that belong to it still, as far as was known."""
    told: bool
    """The clouds have it that this device has left."""
    trouble: str
    """Why not; "" when they have, or nobody need know."""
    lost_files: int
    """How many files and folders had changes that were on this device only."""
    lost_bytes: int
    """Bytes that were on this device only."""
    lost_containers: list[str]
    """Containers of keys and values whose lists of keys were on this device only."""


class DeletedCloud(CloudUrl):
    """What was deleted from a cloud."""

    objects: int
    bytes: int
    """As the cloud said."""
    trouble: str
    """Why something may be there still; "" when all is gone."""
    kept: str
    """For how long the cloud keeps what is deleted; "" when it does not."""
    place_gone: bool
    """The folder itself is gone, too."""


class DeletedVolume(Named):
    """A volume that was deleted."""

    clouds: list[DeletedCloud]
    forgotten: bool
    """Nothing of it is on this device any more."""


class RenamedVolume(Named):
    """A volume under its new name."""

    mountpoint: str | None


class QuickstartRequest(Request[Started]):
    """Make a volume over folders of this disk, and mount it."""

    command: ClassVar = "quickstart"

    directory: Folder | None = None
    """Where to mount it; None for the usual folder."""


class VolumeCreateRequest(Request[CreatedVolume]):
    """Make a volume."""

    command: ClassVar = "volume create"

    name: Text
    clouds: Texts
    """Their URLs, each behind "NAME=" if it is to have that name."""
    f: int | None = None
    """How many clouds may fail or lie; None: as many as their number allows, at most 1."""
    k: int | None = None
    """How many clouds are needed to read; None: 1."""
    evict_liars: bool | None = None
    """See `VolumeSettings`."""
    make: bool | None = None
    """Make local folders also where the parent or the disk is not there."""


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
    hoard: Text | None = None
    check_days: int | None = None
    cache_bytes: int | None = None
    deletion_percent: int | None = None
    discard_hours: int | None = None
    no_fetch_programs: Texts | None = None
    """["default"]: the usual ones."""
    link_port: int | None = None
    link_addresses: Texts | None = None
    discover: bool | None = None
    announce_seconds: int | None = None
    merge_texts: bool | None = None
    archive_after: Text | None = None
    archive_code: Text | None = None


class VolumeRebuildRequest(LongRequest[RebuiltVolume, Step]):
    """Make the database of a damaged volume again."""

    command: ClassVar = "volume rebuild"

    name: Text


# -- giving a volume up, and calling it otherwise -------------------------------------------------------


class VolumeLeaveRequest(LongRequest[LeftVolume, Moved]):
    """Bring everything to the clouds, take this device out of the volume, and delete what it has of it."""

    command: ClassVar = "volume leave"

    name: Text
    force: bool = False
    """Also when something is lost by that, or the others do not hear of it."""
    last: bool = False
    """Also when this is the last device, without which the clouds can be read with a recovery kit only."""
    timeout: Seconds | None = None
    """Wait for the clouds no longer than that."""


class VolumeDeleteRequest(LongRequest[DeletedVolume, Moved]):
    """Delete everything on all clouds of a volume, and what this device has of it."""

    command: ClassVar = "volume delete"

    name: Text
    confirm: Text
    """The name once more."""
    force: bool = False
    """Delete what this device has also when a cloud could not be emptied."""


class VolumeRenameRequest(Request[RenamedVolume]):
    """Call a volume otherwise on this device."""

    command: ClassVar = "volume rename"

    name: Text
    new_name: Text


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
    make: bool | None = None
    """Make a local folder also when its parent or its disk is not there."""


class PlaceSuggestionsRequest(Request[Suggestions]):
    """Where a volume may be mounted, and which folders may play its clouds."""

    command: ClassVar = "place suggestions"

    name: Text
    """Of the volume."""
