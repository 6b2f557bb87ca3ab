"""Ignore rules of volumes: what they match stays on the machine that makes it."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from hybrisfs.api.request import Record, Request, Text

__all__ = [
    "Ignored",
    "IgnoreAddRequest",
    "IgnoreListRequest",
    "IgnoreRemoveRequest",
    "IgnoreRule",
    "IgnoreRules",
    "IgnoredPath",
]

Patterns: TypeAlias = Annotated[
    list[Text], Meta(min_length=1, max_length=64, description="a list of patterns")
]


class IgnoreRule(Record):
    """A rule that holds on all machines of a volume."""

    pattern: str
    by: str | None
    """The name of the machine that added it; None when that is not known."""


class Ignored(Record):
    """What ignore rules keep on this machine only."""

    rules: list[IgnoreRule]
    """In their order: of those that match, the last one counts."""
    files: int
    """How many files and folders."""
    bytes: int


class IgnoredPath(Record):
    """A file or folder that stays on this machine; all in it does, too."""

    path: str
    """In the volume."""
    folder: bool


class IgnoreRules(Ignored):
    """The same, with paths."""

    name: str
    """Of the volume."""
    paths: list[IgnoredPath]
    """Up to as many as were asked for, the oldest first; none of them is in another."""


class IgnoreListRequest(Request[IgnoreRules]):
    """List the rules, and what they keep here."""

    command: ClassVar = "ignore list"

    name: Text | None = None
    limit: int | None = None
    """How many paths at most: 20 when it is None."""


class IgnoreAddRequest(Request[IgnoreRules]):
    """Add rules behind the others."""

    command: ClassVar = "ignore add"

    patterns: Patterns
    name: Text | None = None


class IgnoreRemoveRequest(Request[IgnoreRules]):
    """Remove rules: what only they have kept here goes to the clouds, and to the other machines."""

    command: ClassVar = "ignore remove"

    patterns: Patterns
    name: Text | None = None
