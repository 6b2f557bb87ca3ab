"""Mounting volumes."""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, UnsetType

from hybrisfs.api.request import Folder, LongRequest, Named, Record, Request, Text

__all__ = [
    "MountRequest",
    "Mounted",
    "StillMounted",
    "UmountRequest",
    "Unmounted",
    "WaitUnmountedRequest",
]


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
