"""On how many devices folders are to be, and on which they are. Paths of requests are absolute, below where a
volume is mounted."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from hybrisfs.api.files import Paths
from hybrisfs.api.request import Folder, Record, Request

__all__ = [
    "CopiesListRequest",
    "CopiesSetRequest",
    "CopiesShowRequest",
    "FileCopies",
    "FilesCopies",
    "FolderCopies",
    "FoldersCopies",
    "ListedCopies",
    "ShownCopies",
]

Folders: TypeAlias = Annotated[list[Folder], Meta(max_length=256, description="a list of absolute paths")]


class FolderCopies(Record, kw_only=True):
    """A folder, or a file, that is to be on several devices, as of the last look."""

    inside: str
    """Where it is in the volume."""
    copies: int
    """On how many devices it is to be, at least."""
    on: list[str]
    """The names of the devices that have all of it, by what they state."""
    fetching: list[str]
    """The names of those that are fetching it."""
    short: bool
    """There have been too few of them for a while."""
    bytes: int
    missing_bytes: int
    """Of these, the ones that are not on this device."""


class ListedCopies(FolderCopies, kw_only=True):
    """One of those of all volumes."""

    path: str | None
    """Where it is on this device; None while its volume is not mounted."""
    volume: str


class FoldersCopies(Record):
    """What is to be on several devices, in all volumes."""

    folders: list[ListedCopies]


class CopiesListRequest(Request[FoldersCopies]):
    """List what is to be on several devices."""

    command: ClassVar = "copies list"


class CopiesSetRequest(Request[Paths]):
    """Have files and folders kept on so many devices; 0: on those that use them."""

    command: ClassVar = "copies set"

    paths: Folders
    copies: Annotated[int, Meta(ge=0, le=32)]


class FileCopies(Record):
    """Where the content of a file is."""

    clouds: int
    """How many clouds have a part or a copy of all of it; 0: it has yet to come there."""
    on: list[str]
    """The names of the devices that have all of it, this one first if it has."""


class ShownCopies(FileCopies):
    """The same of a file that a command was about."""

    path: str
    """As it was given."""
    volume: str


class FilesCopies(Record):
    """Files that a command was about."""

    files: list[ShownCopies]


class CopiesShowRequest(Request[FilesCopies]):
    """Tell where the content of files is."""

    command: ClassVar = "copies show"

    paths: Folders
