"""Earlier versions of files and folders. Paths are absolute, below where a volume is mounted, or relative to
the root of a volume. All times are in seconds since the epoch."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from hybrisfs.api.request import Folder, LongRequest, Moved, PartsRequest, Record, Request, Text

__all__ = [
    "Change",
    "Changes",
    "Compared",
    "Differing",
    "FileThen",
    "FolderThen",
    "Identified",
    "LogRequest",
    "Moments",
    "NotRestored",
    "Preview",
    "PreviewedFile",
    "Removed",
    "RemovedFiles",
    "Restored",
    "SomeDiffering",
    "Version",
    "VersionRead",
    "Versions",
    "VersionsDiffRequest",
    "VersionsFolderRequest",
    "VersionsIdRequest",
    "VersionsListRequest",
    "VersionsMomentsRequest",
    "VersionsPreviewRequest",
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


class FileThen(Record):
    """What was in a folder at a moment."""

    name: str
    kind: str
    """file, folder, link or other."""
    size: int
    """In bytes."""
    modified: float


class FolderThen(Record):
    """A page of what was in a folder at a moment, by name."""

    name: str
    """Of the volume."""
    path: str
    entries: list[FileThen]
    more: bool
    """Others follow."""


class VersionsFolderRequest(Request[FolderThen], kw_only=True):
    """List a page of what was in a folder at a moment."""

    command: ClassVar = "versions folder"

    name: Text | None = None
    path: Text
    at: Text
    after: Text | None = None
    """The last name of the page before."""
    limit: int


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


class NotRestored(Record):
    """A file or folder that cannot be put back."""

    path: str
    why: str
    """In a sentence."""


class Restored(Record):
    """The files that were put back."""

    name: str
    """Of the volume."""
    path: str
    """Where it is, relative to the root of the volume."""
    files: int
    left: list[NotRestored] = msgspec.field(default_factory=list)
    """What of a folder could not be put back; the first ones."""
    left_files: int = 0
    """How many files and folders these are, without what is below them."""


class VersionsRestoreRequest(Request[Restored], kw_only=True):
    """Put a version back, or with *at* a folder with all that was in it."""

    command: ClassVar = "versions restore"

    name: Text | None = None
    path: Text
    at: Text | None = None
    version: int | None = None
    target: Text | None = None
    """Where to put it; None: where it was."""


class PreviewedFile(Record):
    """What restoring would do to a file or folder."""

    path: str
    what: str
    """made: there is none; changed: it has other content; left: it cannot be put back."""
    kind: str
    """As in `FileThen`."""
    size: int
    """Of what is put back, in bytes."""
    why: str
    """Why it cannot, in a sentence, or ""."""


class Preview(Record):
    """What restoring would change. What is as it was then stays, and so does what has come since."""

    name: str
    """Of the volume."""
    path: str
    """Where it would be, relative to the root of the volume."""
    changes: list[PreviewedFile]
    """The first ones, by path."""
    made: int
    changed: int
    left: int
    """How many; folders that would be made are not counted."""
    same: int
    """Files that are as they were then."""


class VersionsPreviewRequest(Request[Preview], kw_only=True):
    """Tell what `versions restore` with the same path, moment and target would change. Changes nothing."""

    command: ClassVar = "versions preview"

    name: Text | None = None
    path: Text
    at: Text
    target: Text | None = None


class Identified(Record):
    """A file or folder, and its ID."""

    id: str


class VersionsIdRequest(LongRequest[Identified, Moved], kw_only=True):
    """Make the ID of a file or folder: a hash of all that is in it."""

    command: ClassVar = "versions id"

    name: Text | None = None
    path: Text
    at: Text | None = None
    """As it was at that moment."""


class Differing(Record):
    """Something in which two folders differ."""

    what: str
    """added, removed or changed, from the first to the second."""
    path: str
    """Relative to both."""


class SomeDiffering(Record):
    """Some of them, in the order of paths; they follow those of the parts before."""

    differences: list[Differing]


class Compared(Record):
    """The IDs of both."""

    first: str
    second: str


class VersionsDiffRequest(PartsRequest[Compared, SomeDiffering], kw_only=True):
    """Tell what differs between two files or folders of one volume."""

    command: ClassVar = "versions diff"

    name: Text | None = None
    first: Text
    """A path below `.hybrisfs/at/MOMENT` is of that moment."""
    second: Text
