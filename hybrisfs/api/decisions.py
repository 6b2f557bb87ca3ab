"""Conflicts, and deletions in mass: both wait for a person."""

from __future__ import annotations

from typing import ClassVar, Final

from hybrisfs.api.request import Named, Record, Request, Text

__all__ = [
    "LARGEST_COMPARED",
    "ComparedVersions",
    "Conflict",
    "Conflicts",
    "ConflictsCompareRequest",
    "ConflictsKeepAllRequest",
    "ConflictsKeepRequest",
    "ConflictsListRequest",
    "ConflictsSettleRequest",
    "Deletion",
    "Deletions",
    "DeletionsAcceptRequest",
    "DeletionsListRequest",
    "DeletionsShowRequest",
    "DeletionsUndoRequest",
    "HeldFile",
    "HeldFiles",
    "MovedContainer",
]


LARGEST_COMPARED: Final = 16 << 20
"""Bytes of a version that is compared, and of what takes the place of the versions."""


class Conflict(Record):
    """A file that has a conflict name. Paths are relative to the root of the volume."""

    path: str
    of: str
    """The name that it would have."""
    kind: str
    """version: another version of the same file; name: another file of the same name."""
    size: int
    """In bytes."""
    modified: str
    """When, in this device's time: 2026-11-20 18:00:00."""


class KeyConflict(Record):
    """A key of the key-value store with several values: machines have written it without knowing of each
    other."""

    container: str
    key: str
    values: int
    """How many."""


class MovedContainer(Record):
    """A container that has left the log of the volume, and that a person should look at."""

    container: str
    late: int
    """How many of its keys machines have written in the log without knowing of that; `kv migrate` to where
    the container is brings them there."""
    twice: bool
    """Whether two machines have moved it to two places without knowing of each other: both have it."""


class Conflicts(Record):
    """Conflicts of a volume, by path."""

    name: str
    """Of the volume."""
    conflicts: list[Conflict]
    total: int
    """How many there are; not all need be listed."""
    keys: list[KeyConflict]
    """All of them, whatever part of the others was asked for."""
    moved: list[MovedContainer]
    """Likewise."""


class ConflictsListRequest(Request[Conflicts]):
    """Which conflicts wait."""

    command: ClassVar = "conflicts list"

    name: Text | None = None
    first: int | None = None
    """From that one on; the first is 0."""
    limit: int | None = None
    """How many; None: all."""


class ConflictsKeepRequest(Request[Named], kw_only=True):
    """Let a version be the only one."""

    command: ClassVar = "conflicts keep"

    name: Text | None = None
    path: Text


class ConflictsKeepAllRequest(Request[Named], kw_only=True):
    """Let each version be a file of its own."""

    command: ClassVar = "conflicts keep-all"

    name: Text | None = None
    path: Text


class ComparedVersions(Record):
    """The versions of a file that are in conflict. The daemon has written them to the files 0, 1, ... of a
    folder, what they come from to `base`, and what becomes of them to `merged`."""

    name: str
    """Of the volume."""
    path: str
    """Of the file, relative to the root of the volume."""
    versions: list[str]
    """Where each version is, that which has the name first."""
    base: bool
    """Whether it is known what they come from."""
    merged: bool
    """Whether the changes are in different places, so that a program can merge them."""
    why: str
    """Why not, as a part of a sentence."""
    mark: str
    """For `ConflictsSettleRequest`: what was compared."""


class ConflictsCompareRequest(Request[ComparedVersions], kw_only=True):
    """Write the versions of a file that are in conflict to a folder."""

    command: ClassVar = "conflicts compare"

    name: Text | None = None
    path: Text
    into: Text
    """An absolute path of a folder, which is empty."""


class ConflictsSettleRequest(Request[Named], kw_only=True):
    """Let the content of a file on this machine be the only version, if there are no others than those that
    were compared."""

    command: ClassVar = "conflicts settle"

    name: Text | None = None
    path: Text
    mark: Text
    """Of `ComparedVersions`."""
    source: Text
    """An absolute path of a regular file."""


class Deletion(Record):
    """What another device has deleted or overwritten in mass, which waits."""

    id: str
    """The beginning of its id, in hex."""
    device: str
    """The name of the device."""
    time: float
    """When it did so, in seconds since the epoch."""
    names: int
    """How many files and folders it deletes, or files that it overwrites."""
    of: int
    """How many there were."""
    overwrites: bool = False
    """It overwrites files, and deletes none but those in the place of which it puts others."""
    examined: bool = True
    """False: samples are looked at first, and nobody need decide yet."""


class Deletions(Record):
    """The deletions that wait, the oldest first."""

    name: str
    """Of the volume."""
    deletions: list[Deletion]


class DeletionsListRequest(Request[Deletions]):
    """Which deletions wait."""

    command: ClassVar = "deletions list"

    name: Text | None = None


class HeldFile(Record):
    """A file or folder that is shown as it was."""

    path: str
    change: str
    """By the other device: deleted, replaced (another file has its place), overwritten, emptied or closed
    (nobody may read it)."""
    before: int
    """Bytes of the file as it is shown; 0 of a folder."""
    now: int | None
    """Bytes of what is there in its stead; None: nothing."""


class HeldFiles(Record):
    """What one deletion is about, by path; the first thousand."""

    name: str
    """Of the volume."""
    files: list[HeldFile]
    count: int
    """How many there are."""


class DeletionsShowRequest(Request[HeldFiles], kw_only=True):
    """Which files and folders a deletion is about."""

    command: ClassVar = "deletions show"

    name: Text | None = None
    id: Text


class DeletionsAcceptRequest(Request[Named], kw_only=True):
    """Delete or overwrite here, too."""

    command: ClassVar = "deletions accept"

    name: Text | None = None
    id: Text


class DeletionsUndoRequest(Request[Named], kw_only=True):
    """Bring the deleted or overwritten files back on all devices."""

    command: ClassVar = "deletions undo"

    name: Text | None = None
    id: Text
