"""Parcels: files for people without the program, behind a link that ends."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from hybrisfs.api.request import Folder, LongRequest, Moved, Record, Request, Text

__all__ = [
    "MOST_DAYS",
    "Parcel",
    "ParcelList",
    "RevokedParcel",
    "ShareAddRequest",
    "ShareListRequest",
    "ShareRevokeRequest",
    "SharedParcel",
]

MOST_DAYS: Final = 7
"""The longest that clouds grant a link."""

Days: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_DAYS, description=f"a number of days up to {MOST_DAYS}")]


class Parcel(Record):
    """A file that is shared, as its record says. Times are in seconds since the epoch."""

    id: str
    path: str
    """Of the file in the volume, when it was shared."""
    size: int
    """Bytes."""
    made: int
    expires: int
    cloud: str
    """The name of the cloud that has it."""
    device: str
    """The name of the device that put it there."""
    link: str
    """With the key behind #: who has it can open the file."""
    whole: bool
    """False while it is being put there, and when that was broken off."""


class SharedParcel(Parcel):
    """A file that has just been shared."""

    volume: str


class ParcelList(Record):
    """All files that are shared."""

    name: str
    parcels: list[Parcel]
    silent: list[str]
    """The names of the clouds that could not be asked."""


class RevokedParcel(Parcel):
    """A file that is shared no more."""

    volume: str


class ShareAddRequest(LongRequest[SharedParcel, Moved], kw_only=True):
    """Share a file."""

    command: ClassVar = "share add"

    path: Folder
    """Absolute, below where a volume is mounted."""
    days: Days
    cloud: Text | None = None
    """The name of one; without it, the best that can make links."""


class ShareListRequest(Request[ParcelList]):
    """List what is shared of a volume."""

    command: ClassVar = "share list"

    name: Text | None = None


class ShareRevokeRequest(Request[RevokedParcel], kw_only=True):
    """Share something no more."""

    command: ClassVar = "share revoke"

    name: Text | None = None
    which: Text
    """The path of the file in the volume, or its id, or the first eight digits of that, or more."""
