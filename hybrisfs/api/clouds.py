"""The clouds of a volume, as the control socket describes them."""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, UnsetType

from hybrisfs.api.request import LongRequest, Moved, Record, Request, Seconds, Text

__all__ = [
    "AddedCloud",
    "Cloud",
    "CloudAddRequest",
    "CloudAdoptRequest",
    "CloudDrainRequest",
    "CloudListRequest",
    "CloudRemoveRequest",
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
]


class Retention(Record):
    """What was found out about a cloud that may keep what is deleted; None where it could not be."""

    keeps: bool | None
    """What is deleted or overwritten can be read again."""
    days: int | None
    """For how long, as the cloud says; None when it names no end."""
    destructible: bool | None
    """The credentials of this device can destroy what is kept, or shorten for how long."""
    deletes: bool
    """The credentials of this device may delete objects."""
    note: str
    """What else to know of it, or ""."""
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


class Cloud(Record):
    """A cloud of a volume, and what it holds."""

    number: int
    name: str
    url: str
    """Without secrets."""
    use: str
    """What is done with it: in use, draining, or the like."""
    objects: int
    bytes: int
    """Of these objects."""
    state: str
    """As in `CloudStatus`, or "not asked"."""
    reason: str
    """Why it is not ok, or ""."""
    trouble: str
    """What keeps it from being emptied, or ""."""
    retention: Retention | None


class Clouds(Record):
    """The clouds of a volume."""

    name: str
    """Of the volume."""
    clouds: list[Cloud]


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


class KeptCloud(NamedCloud):
    """A cloud that was told whether to keep what is deleted."""

    retention: Retention | None
    note: str
    """What to know of it, or ""."""


class AddedCloud(NamedCloud):
    """A new cloud; with the facts of `KeptCloud` if it was told to keep what is deleted."""

    note: str | UnsetType = UNSET
    retention: Retention | UnsetType | None = UNSET


class ReplacedCloud(NamedCloud):
    """A cloud in whose place there is another one now."""

    added: str
    """The name of that one."""


class Waited(Record):
    """Whether what was waited for is done."""

    name: str
    """Of the volume."""
    done: bool
    trouble: str
    """What keeps it, or ""."""


class Redundancy(Record):
    """On how many clouds everything is kept from now on."""

    name: str
    """Of the volume."""
    f: int
    """How many may fail or lie."""
    k: int
    """How many are needed to read."""


class CloudListRequest(Request[Clouds]):
    """How the clouds are, and what they hold."""

    command: ClassVar = "cloud list"

    name: Text | None = None


class _CloudRequest(Request[NamedCloud], kw_only=True):
    """What is asked of one cloud."""

    name: Text | None = None
    cloud: Text
    """Its name or URL."""


class CloudTestRequest(Request[TestedCloud], kw_only=True):
    """Put, get and delete a small object on a cloud, which may be a URL that the volume does not use."""

    command: ClassVar = "cloud test"

    name: Text | None = None
    cloud: Text
    """Its name or URL."""


class CloudAddRequest(Request[AddedCloud], kw_only=True):
    """Use one more cloud."""

    command: ClassVar = "cloud add"

    name: Text | None = None
    url: Text
    cloud_name: Text | None = None
    """The end of the URL when it is None."""
    days: int | None = None
    """For how long it is to keep what is deleted."""


class CloudRetainRequest(Request[KeptCloud], kw_only=True):
    """Have a cloud keep what is deleted."""

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
    """Move what a cloud holds to the others, and use it no more."""

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


class CloudWaitRequest(LongRequest[Waited, Moved], kw_only=True):
    """Wait until a cloud has gone. The news count objects."""

    command: ClassVar = "cloud wait"

    name: Text | None = None
    cloud: Text
    """Its name."""
    timeout: Seconds | None = None


class RedundancyRequest(Request[Redundancy]):
    """Change f or k; what is None stays."""

    command: ClassVar = "volume redundancy"

    name: Text | None = None
    f: int | None = None
    k: int | None = None


class RedundancyWaitRequest(LongRequest[Waited, Moved]):
    """Wait until everything is on the clouds as f and k say. The news count packs and values."""

    command: ClassVar = "volume redundancy wait"

    name: Text | None = None
    timeout: Seconds | None = None
