"""Mirrors, as the control socket describes them."""

from __future__ import annotations

from typing import ClassVar

from hybrisfs.api.request import Folder, LongRequest, Moved, Record, Request, Text, Texts

__all__ = [
    "Copied",
    "ImportRequest",
    "Imported",
    "ListedMirror",
    "Mirror",
    "MirrorAddRequest",
    "MirrorDecideRequest",
    "MirrorListRequest",
    "MirrorRemoveRequest",
    "Mirrors",
    "Problem",
    "VolumeMirror",
]


class Problem(Record):
    """A file or folder that cannot be copied."""

    path: str
    why: str


class Mirror(Record):
    """A folder on the disk that is kept equal to one of the volume."""

    id: str
    directory: str
    """The folder on the disk."""
    at: str
    """The folder of the volume, as a path in it."""
    ignore: list[str]
    """Patterns of names that are left out."""
    state: str
    """starting, working, watching, waiting or paused."""
    reason: str | None
    """Why it waits or is paused."""
    names: int
    """How many files and folders are mirrored."""
    done: int
    total: int
    """How many steps it takes to be equal, and how many are done; 0 when nothing is under way."""
    equal_at: float | None
    """When both were last found equal, in seconds since the epoch."""
    held_back: dict[str, int]
    """How many deletions wait for a person, by the side where they would happen: local, volume."""
    problems: list[Problem]
    """The first ones."""
    problem_count: int
    watching: str | None
    """Why changes are noticed late, if they are."""


class VolumeMirror(Mirror):
    """The mirror that a command is about."""

    name: str
    """Of the volume."""


class ListedMirror(Mirror):
    """One of the mirrors of all volumes."""

    volume: str


class Mirrors(Record):
    """The mirrors of one or all volumes."""

    mirrors: list[ListedMirror]


class MirrorAddRequest(Request[VolumeMirror], kw_only=True):
    """Keep a folder equal to one of the volume from now on."""

    command: ClassVar = "mirror add"

    name: Text | None = None
    directory: Folder
    at: Text | None = None
    """The folder of the volume; called like *directory* when it is None."""
    ignore: Texts


class MirrorListRequest(Request[Mirrors]):
    """How mirrors are doing."""

    command: ClassVar = "mirror list"

    name: Text | None = None
    """Those of all volumes when it is None."""


class MirrorRemoveRequest(Request[VolumeMirror]):
    """Keep a folder equal no longer."""

    command: ClassVar = "mirror remove"

    directory: Folder


class MirrorDecideRequest(Request[VolumeMirror]):
    """Decide on deletions that are held back."""

    command: ClassVar = "mirror decide"

    directory: Folder
    accept: bool = False
    """Delete on the other side, too; otherwise put the deleted files back."""


class Copied(Moved):
    """How far an import is, in bytes."""

    what: str
    """The work under way, in a word."""


class Imported(Record):
    """The results of an import."""

    name: str
    """Of the volume."""
    into: str
    """The folder of the volume."""
    dry_run: bool
    """Nothing was changed: it would be copied."""
    folders: int
    files: int
    """Links and further names of files count, too."""
    bytes: int
    present: int
    """How many names were there already, and equal."""
    replaced: int
    """How many files were put in place of others."""
    problems: list[Problem]
    """The first ones."""
    problem_count: int


class ImportRequest(LongRequest[Imported, Copied], kw_only=True):
    """Copy a folder into a volume."""

    command: ClassVar = "import"

    name: Text | None = None
    directory: Folder
    into: Text | None = None
    """The folder of the volume; called like *directory* when it is None."""
    dry_run: bool = False
    replace: bool = False
    """Replace files of the volume that differ."""
