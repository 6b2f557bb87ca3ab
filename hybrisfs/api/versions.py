"""Earlier versions of files and folders. Paths are absolute, below where a volume is mounted, or relative to
the root of a volume. All times are in seconds since the epoch."""

from __future__ import annotations

from typing import ClassVar

from hybrisfs.api.request import Folder, LongRequest, Moved, Record, Request, Text

__all__ = [
    "Change",
    "Changes",
    "LogRequest",
    "Moments",
    "Removed",
    "RemovedFiles",
    "Restored",
    "Version",
    "VersionRead",
    "Versions",
    "VersionsListRequest",
    "VersionsMomentsRequest",
    "VersionsReadRequest",
    "VersionsRemovedRequest",
    "VersionsRestoreRequest",
]


class Version(Record):
    """A version of a file."""

    version: int
    """Its number: 0 is the latest."""
    since: float
    until: float | None
    """None when it is the file as it is now."""
    at: str
    """The moment at which it began, as it names folders below .hybrisfs/at."""
    signed: float
    """When its writer says that it wrote it."""
    device: str
    """The name of the writer."""
    size: int
    """In bytes."""
    path: str
    """Where the file was."""
    kept_until: float | None
    """None when it is the file as it is now."""
    readable: bool
    """False while only another device has its bytes."""


class Versions(Record):
    """The versions of a file, the latest first."""

    name: str
    """Of the volume."""
    path: str
    versions: list[Version]
    known_since: float | None
    """The beginning of the history on this device; None when it knows all."""


class VersionsListRequest(Request[Versions], kw_only=True):
    """Which versions of a file are kept."""

    command: ClassVar = "versions list"

    name: Text | None = None
    path: Text


class Change(Record):
    """A change of a file or folder by a device."""

    time: float
    signed: float
    """When it says that it did so."""
    device: str
    """Its name."""
    what: list[str]
    """In sentences."""


class Changes(Record):
    """The changes of a file or folder, the latest first."""

    name: str
    """Of the volume."""
    path: str
    changes: list[Change]
    more: bool
    """There are earlier ones."""
    known_since: float | None
    """As in `Versions`."""


class LogRequest(Request[Changes], kw_only=True):
    """List the changes of a file or folder."""

    command: ClassVar = "log"

    name: Text | None = None
    path: Text
    limit: int | None = None
    """How many changes; None: as many as there may be in an answer."""


class Removed(Record):
    """A file or folder that was removed, or a file that was emptied."""

    path: str
    kind: str
    """file, folder, emptied or the like."""
    size: int
    """In bytes."""
    removed: float
    device: str
    """The name of the device that did so."""
    kept_until: float


class RemovedFiles(Record):
    """Names that were removed from a folder, the last first."""

    name: str
    """Of the volume."""
    path: str
    removed: list[Removed]


class VersionsRemovedRequest(Request[RemovedFiles], kw_only=True):
    """List names that were removed from a folder and are kept."""

    command: ClassVar = "versions removed"

    name: Text | None = None
    path: Text


class Moments(Record):
    """Of which moments the whole tree is kept."""

    name: str
    """Of the volume."""
    moments: list[str]
    """The latest first."""
    keep: str
    """The rule, as in `VolumeSettings`."""


class VersionsMomentsRequest(Request[Moments]):
    """Of which moments the whole tree is kept."""

    command: ClassVar = "versions moments"

    name: Text | None = None


class VersionRead(Record):
    """A version that was written to a file."""

    name: str
    """Of the volume."""
    size: int
    """In bytes."""


class VersionsReadRequest(LongRequest[VersionRead, Moved], kw_only=True):
    """Write a version to a file: without *at* and *version* the latest one before the file as it is now."""

    command: ClassVar = "versions read"

    name: Text | None = None
    path: Text
    at: Text | None = None
    """As it was at that moment."""
    version: int | None = None
    """The one with this number."""
    to: Folder
    """The file, which must be there."""


class Restored(Record):
    """The files that were put back."""

    name: str
    """Of the volume."""
    path: str
    """Where it is, relative to the root of the volume."""
    files: int


class VersionsRestoreRequest(Request[Restored], kw_only=True):
    """Put a version back, or with *at* a folder with all that was in it."""

    command: ClassVar = "versions restore"

    name: Text | None = None
    path: Text
    at: Text | None = None
    version: int | None = None
    target: Text | None = None
    """Where to put it; None: where it was."""
