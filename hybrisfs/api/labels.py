"""Labels on files and folders. Paths of requests are absolute, below where a volume is mounted."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from hybrisfs.api.content import Folders
from hybrisfs.api.request import Record, Request, Text

__all__ = [
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
]

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
