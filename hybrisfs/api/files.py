"""Files and folders: what of them is on this device, looking at them without a mount, and their labels."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from hybrisfs.api.request import Folder, LongRequest, Moved, Record, Request, Seconds, Text

__all__ = [
    "Entry",
    "EvictRequest",
    "EvictedPath",
    "EvictedPaths",
    "FilePart",
    "FileReadRequest",
    "FolderListRequest",
    "FolderPage",
    "Freed",
    "LabelAddRequest",
    "LabelCount",
    "LabelFindRequest",
    "LabelListRequest",
    "LabelRemoveRequest",
    "LabelShowRequest",
    "LabelledNode",
    "LabelledNodes",
    "LabelledPath",
    "LabelledPaths",
    "Labels",
    "ListedPin",
    "Measured",
    "Paths",
    "Pin",
    "PinListRequest",
    "PinRequest",
    "PinnedPath",
    "PinnedPaths",
    "Pins",
    "UnpinRequest",
    "VolumePath",
]

Folders: TypeAlias = Annotated[list[Folder], Meta(max_length=256, description="a list of absolute paths")]


# -- pins. Paths of requests are absolute, below where a volume is mounted. ------------------------------


class VolumePath(Record):
    """A file or folder that a command is about."""

    path: str
    """As it was given."""
    volume: str
    """The volume that it is in."""


class Measured(Record):
    """How much is below a file or folder."""

    files: int
    bytes: int
    missing_bytes: int
    """Of these, the ones that are not on this device."""


class PinnedPath(Measured):
    """A file or folder that is kept on this device."""

    path: str
    """As it was given."""
    volume: str
    """The volume that it is in."""


class PinnedPaths(Record):
    """Files and folders that were pinned."""

    paths: list[PinnedPath]
    done: bool
    """All of it is on this device."""
    problem: str | None
    """Why not, if that was waited for."""


class PinRequest(LongRequest[PinnedPaths, Moved]):
    """Keep files and folders on this device."""

    command: ClassVar = "pin"

    paths: Folders
    wait: bool = False
    """Answer when all of it is here."""
    timeout: Seconds | None = None
    """Wait no longer than that."""


class Paths(Record):
    """Files and folders that a command was about."""

    paths: list[VolumePath]


class UnpinRequest(Request[Paths]):
    """Let files and folders be evicted again."""

    command: ClassVar = "unpin"

    paths: Folders


class Pin(Measured):
    """A file or folder that is pinned itself."""

    path: str
    """Relative to the root of the volume."""


class ListedPin(Measured):
    """One of the pins of all volumes."""

    path: str | None
    """Where it is on this device; None while its volume is not mounted."""
    volume: str
    inside: str
    """Where it is in the volume."""


class Pins(Record):
    """The pins of all volumes."""

    pins: list[ListedPin]


class PinListRequest(Request[Pins]):
    """List the pins."""

    command: ClassVar = "pin list"


class Freed(Record):
    """How much of a file or folder was freed, and how much was kept."""

    freed_bytes: int
    pending_bytes: int
    """Kept, as the clouds do not have it yet."""
    pinned_bytes: int
    """Kept, as it is pinned."""
    copies_bytes: int
    """Kept, as it is to be on several devices, and too few others state that they have it."""


class EvictedPath(Freed):
    """The same with its name."""

    path: str
    """As it was given."""
    volume: str
    """The volume that it is in."""


class EvictedPaths(Record):
    """Files and folders whose local copies were given up."""

    paths: list[EvictedPath]


class EvictRequest(Request[EvictedPaths]):
    """Give up the local copies of files and folders."""

    command: ClassVar = "evict"

    paths: Folders


# -- looking. Paths are relative to the root of the volume. ----------------------------------------------


class Entry(Record):
    """A name in a folder."""

    name: str
    kind: str
    """file, folder, link or other."""
    size: int
    """In bytes."""
    modified: float
    """In seconds since the epoch."""
    state: str | None
    """Where the content of a file is: see `tree.residency`. Of a folder only whether it is ignored."""
    pinned: str
    """Whether it is pinned, and why: see `tree.pins`."""
    conflict: str | None
    """The name that it would have, if it has a conflict name."""
    labels: list[str]


class FolderPage(Record):
    """A page of the names in a folder."""

    name: str
    """Of the volume."""
    path: str
    entries: list[Entry]
    more: bool
    """Others follow the last one."""


class FolderListRequest(Request[FolderPage], kw_only=True):
    """List the names in a folder, sorted by their bytes."""

    command: ClassVar = "folder list"

    name: Text | None = None
    path: Text
    after: Text | None = None
    """Only names that sort behind this one."""
    limit: int | None = None
    """How many."""


class FilePart(Record):
    """A part of a file."""

    name: str
    """Of the volume."""
    size: int
    """Of the whole file, in bytes."""
    offset: int
    base64: bytes
    """The part; as base64 in the message."""


class FileReadRequest(Request[FilePart], kw_only=True):
    """Read a part of a file."""

    command: ClassVar = "file read"

    name: Text | None = None
    path: Text
    offset: int | None = None
    """Where it begins, in bytes; None: at the beginning."""
    length: int | None = None
    """How many bytes."""


# -- labels on files and folders. Paths of requests are absolute, below where a volume is mounted -------


Words: TypeAlias = Annotated[list[Text], Meta(min_length=1, max_length=64, description="a list of labels")]


class LabelledPath(Record):
    """A file or folder, and its labels."""

    path: str
    """As it was given."""
    volume: str
    """The volume that it is in."""
    labels: list[str]


class LabelledPaths(Record):
    """Files and folders that a command was about, as they are after it."""

    paths: list[LabelledPath]


class LabelAddRequest(Request[LabelledPaths]):
    """Give labels to files and folders."""

    command: ClassVar = "label add"

    labels: Words
    paths: Folders


class LabelRemoveRequest(Request[LabelledPaths]):
    """Take labels from files and folders."""

    command: ClassVar = "label remove"

    labels: Words
    paths: Folders


class LabelShowRequest(Request[LabelledPaths]):
    """Tell the labels of files and folders."""

    command: ClassVar = "label show"

    paths: Folders


class LabelCount(Record):
    """A label in a volume."""

    label: str
    volume: str
    count: int
    """How many files and folders have it."""


class Labels(Record):
    """The labels in all volumes."""

    labels: list[LabelCount]


class LabelListRequest(Request[Labels]):
    """List the labels that there are."""

    command: ClassVar = "label list"


class LabelledNode(Record):
    """A file or folder that has a label."""

    path: str | None
    """Where it is on this device; None while its volume is not mounted."""
    volume: str
    inside: str
    """Where it is in the volume."""


class LabelledNodes(Record):
    """What has a label, in all volumes."""

    label: str
    found: list[LabelledNode]


class LabelFindRequest(Request[LabelledNodes]):
    """Find what has a label."""

    command: ClassVar = "label find"

    label: Text
