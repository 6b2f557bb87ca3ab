"""The clouds of a volume, as the control socket describes them."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from hybrisfs.api.request import LongRequest, Moved, Record, Request, Seconds, Text

__all__ = [
    "AddedCloud",
    "Checked",
    "Cloud",
    "CloudAddRequest",
    "CloudAdoptRequest",
    "CloudDrainRequest",
    "CloudListRequest",
    "CloudRemoveRequest",
    "CloudRenameRequest",
    "CloudReplaceRequest",
    "CloudRetainRequest",
    "CloudStatus",
    "CloudTestRequest",
    "CloudWaitRequest",
    "Clouds",
    "KeptCloud",
    "NamedCloud",
    "Redundancy",
    "RedundancyRequest",
    "RedundancyWaitRequest",
    "ReplacedCloud",
    "Retention",
    "TestedCloud",
    "Waited",
    "named_url",
]


def named_url(text: str) -> tuple[str | None, str]:
    """The name and the URL of "NAME=URL"; no name where there is only a URL, which may have a "=", too."""
    name, equals, url = text.partition("=")
    return (name, url) if equals and not {":", "/"}.intersection(name) else (None, text)


class Retention(Record):
    """Facts about a cloud that may keep deleted objects; None where a fact could not be found out."""

    keeps: bool | None
    """Deleted and overwritten objects can be read again."""
    days: int | None
    """For how long, as the cloud says; None when it names no end."""
    destructible: bool | None
    """The credentials of this device can destroy these objects, or shorten their time."""
    deletes: bool
    """The credentials of this device may delete objects."""
    note: str
    """A remark for people, or ""."""
    tried: int
    """When that was found out, in seconds since the epoch."""


class CloudStatus(Record):
    """How a cloud is."""

    name: str
    url: str
    """Without secrets."""
    state: str
    """ok, slow, full, lying, auth or down."""
    reason: str
    """Why it is not ok, or ""."""
    since: int
    """Since when it is in this state, in seconds since the epoch."""
    retention: Retention | None
    """None when it was never tried."""


class Checked(Record):
    """How far the background has come with checking that all shares are on a cloud. Times are in seconds
    since the epoch."""

    days: int
    """Within which each share is checked."""
    since: float | None
    """When the round that is under way began; None before the first one."""
    before: float | None
    """When the last whole round began; None before there was one."""
    share: float
    """Of the packs that the round under way has checked; 0 to 1."""
    requests: float
    """How many it takes in a month."""


class Cloud(Record):
    """A cloud of a volume, and its objects."""

    number: int
    name: str
    url: str
    """Without secrets."""
    use: str
    """Its part in the volume: in use, draining, or the like."""
    objects: int
    bytes: int
    """Of these objects."""
    state: str
    """As in `CloudStatus`, or "not asked"."""
    reason: str
    """Why it is not ok, or ""."""
    trouble: str
    """The reason why it cannot be emptied, or ""."""
    retention: Retention | None
    checked: Checked


class Clouds(Record):
    """The clouds of a volume."""

    name: str
    """Of the volume."""
    clouds: list[Cloud]
    warnings: list[str] = msgspec.field(default_factory=list)
    """Which of them may be lost together; a sentence on each group."""


class NamedCloud(Record):
    """The cloud that a command was about."""

    name: str
    """Of the volume."""
    cloud: str
    """Its name."""


class TestedCloud(NamedCloud):
    """A cloud that was tried out; `cloud` is its URL if the volume does not use it."""

    seconds: dict[str, float]
    """How long each request took, by its name."""
    retention: Retention | None
    warnings: list[str] = msgspec.field(default_factory=list)
    """Which clouds it may be lost together with; a sentence on each group."""


class KeptCloud(NamedCloud):
    """A cloud whose retention of deleted objects was set."""

    retention: Retention | None
    note: str
    """A remark for people, or ""."""


class AddedCloud(NamedCloud):
    """A new cloud; with the facts of `KeptCloud` if its retention was set."""

    warnings: list[str] = msgspec.field(default_factory=list)
    """See `TestedCloud`."""
    note: str | UnsetType = UNSET
    retention: Retention | UnsetType | None = UNSET


class ReplacedCloud(NamedCloud):
    """A cloud in whose place there is another one now."""

    added: str
    """The name of that one."""
    warnings: list[str] = msgspec.field(default_factory=list)
    """See `TestedCloud`."""


class Waited(Record):
    """The end of a wait."""

    name: str
    """Of the volume."""
    done: bool
    trouble: str
    """The reason why it is not done, or ""."""


class Redundancy(Record):
    """On how many clouds everything is kept from now on."""

    name: str
    """Of the volume."""
    f: int
    """How many may fail or lie."""
    k: int
    """How many are needed to read."""


class CloudListRequest(Request[Clouds]):
    """List the clouds, with their state and their objects."""

    command: ClassVar = "cloud list"

    name: Text | None = None


class _CloudRequest(Request[NamedCloud], kw_only=True):
    """A request about one cloud."""

    name: Text | None = None
    cloud: Text
    """Its name or URL."""


class CloudTestRequest(Request[TestedCloud], kw_only=True):
    """Put, get and delete a small object on a cloud, which may be a URL that the volume does not use."""

    command: ClassVar = "cloud test"

    name: Text | None = None
    cloud: Text
    """Its name or URL."""
    make: bool | None = None
    """See `CloudAddRequest`."""


class CloudAddRequest(Request[AddedCloud], kw_only=True):
    """Use one more cloud."""

    command: ClassVar = "cloud add"

    name: Text | None = None
    url: Text
    cloud_name: Text | None = None
    """The end of the URL when it is None."""
    days: int | None = None
    """For how long it is to keep deleted objects."""
    make: bool | None = None
    """Make a local folder also when its parent or its disk is not there."""


class CloudRenameRequest(_CloudRequest, kw_only=True):
    """Call a cloud otherwise, on all devices."""

    command: ClassVar = "cloud rename"

    new_name: Text


class CloudRetainRequest(Request[KeptCloud], kw_only=True):
    """Have a cloud keep deleted objects."""

    command: ClassVar = "cloud retain"

    name: Text | None = None
    cloud: Text
    """Its name or URL."""
    days: int | None = None
    """For how long; 0 or None ends that."""


class CloudAdoptRequest(_CloudRequest):
    """Use a cloud as it is now, though it was emptied."""

    command: ClassVar = "cloud adopt"


class CloudDrainRequest(_CloudRequest):
    """Move the objects of a cloud to the others, and use it no more."""

    command: ClassVar = "cloud drain"


class CloudRemoveRequest(_CloudRequest):
    """Use a cloud no more, without asking it for anything."""

    command: ClassVar = "cloud remove"


class CloudReplaceRequest(Request[ReplacedCloud], kw_only=True):
    """Use another cloud in place of one."""

    command: ClassVar = "cloud replace"

    name: Text | None = None
    cloud: Text
    """The name or URL of the old one."""
    url: Text
    """Of the new one."""
    cloud_name: Text | None = None
    """That of the new one; see `CloudAddRequest`."""
    make: bool | None = None
    """See `CloudAddRequest`."""


class CloudWaitRequest(LongRequest[Waited, Moved], kw_only=True):
    """Wait until a cloud has gone. The news count objects."""

    command: ClassVar = "cloud wait"

    name: Text | None = None
    cloud: Text
    """Its name."""
    timeout: Seconds | None = None


class RedundancyRequest(Request[Redundancy]):
    """Change f or k; None changes nothing."""

    command: ClassVar = "volume redundancy"

    name: Text | None = None
    f: int | None = None
    k: int | None = None


class RedundancyWaitRequest(LongRequest[Waited, Moved]):
    """Wait until everything is on the clouds as f and k say. The news count packs and values."""

    command: ClassVar = "volume redundancy wait"

    name: Text | None = None
    timeout: Seconds | None = None
