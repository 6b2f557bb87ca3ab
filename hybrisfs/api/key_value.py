"""The key-value store of a volume. Values do not travel over the control socket: the client names a file that
the value is in, or is written to."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Protocol, TypeAlias

from msgspec import Meta, field

from hybrisfs.api.maintenance import UnnamedValues
from hybrisfs.api.request import (
    Done,
    Folder,
    LongRequest,
    PartsRequest,
    Record,
    Request,
    Seconds,
    Step,
    Text,
)

__all__ = [
    "IN_LOG",
    "IN_CLOUDS",
    "ON_DEVICE",
    "KvForgetRequest",
    "OfContainer",
    "Place",
    "Cleaned",
    "Created",
    "Containers",
    "Count",
    "Deleted",
    "Failure",
    "Found",
    "FoundKey",
    "FoundKeys",
    "KeyFacts",
    "KeyNeed",
    "Keys",
    "KvAppendRequest",
    "KvCleanRequest",
    "KvContainersRequest",
    "KvCreateRequest",
    "KvDeleteRequest",
    "KvDropRequest",
    "KvGetRequest",
    "KvListRequest",
    "KvMigrateRequest",
    "KvPageRequest",
    "KvPutRequest",
    "KvRebuildRequest",
    "KvReplaceRequest",
    "KvSessionRequest",
    "KvStatRequest",
    "KvTputRequest",
    "KvValuesRequest",
    "MigratedContainer",
    "Need",
    "RebuiltKeys",
    "Session",
    "Value",
    "Values",
    "Versions",
    "WAIT_FOR_CLOUDS",
    "Write",
]

_MOST_WRITES: Final = 256
_MOST_VERSION: Final = (1 << 63) - 1
_MOST_OFFSET: Final = 64 << 20
_MOST_ATTRIBUTES: Final = 4096
_MOST_OF_A_PAGE: Final = 200
_MOST_SESSION: Final = 48 << 10
_MOST_PATIENCE: Final = 60.0

Version: TypeAlias = Annotated[int, Meta(ge=0, le=_MOST_VERSION, description="a version, 0 or more")]

Attributes: TypeAlias = Annotated[
    bytes, Meta(max_length=_MOST_ATTRIBUTES, description=f"at most {_MOST_ATTRIBUTES:,} bytes in base64")
]


class OfContainer(Protocol):
    """A request about what is in a container."""

    name: str
    container: str


ON_DEVICE: Final = "device"
"""Stands for this device where the place of metadata is named."""
IN_LOG: Final = "log"
"""Stands for the log of the volume there."""
IN_CLOUDS: Final = "clouds"
"""Stands for the clouds of the volume there."""
_CLOUDS: Final = re.compile(
    rf"{IN_CLOUDS}:(?P<protocol>[a-z]+)/(?P<clouds>[0-9]+(,[0-9]+)*)/(?P<t>[0-9]{{1,2}}),(?P<b>[0-9]{{1,2}})"
)


class Created(Record):
    """A container that was made."""

    metadata: str
    """Where its metadata are: `device`, `log`, `clouds:` and what follows, or the URL of a service."""


class KvCreateRequest(Request[Created]):
    """Make a container."""

    command: ClassVar = "kv create"

    name: Text
    container: Text
    metadata: Text | None = None
    """Where its metadata are: `device`, `log`, `clouds`, or the URL of a service. Without it `log` when the
    volume has several devices, and else `device`."""


class MigratedContainer(Record):
    """What moving a container has done."""

    keys: int
    """How many were copied. Those that an earlier attempt copied do not count."""
    beside: list[str]
    """The keys, made for it, of values that machines had written to the container in the log without knowing
    of its move, and that did not agree with what the same keys have now."""


class KvMigrateRequest(LongRequest[MigratedContainer, Step]):
    """Move a container to another metadata store, or go on with a move that was cut short."""

    command: ClassVar = "kv migrate"

    name: Text
    container: Text
    metadata: Text
    """`device`, `log`, `clouds`, or the URL of a service."""


class KvForgetRequest(Request[Done]):
    """Use a service no longer, on all devices."""

    command: ClassVar = "kv forget"

    name: Text
    metadata: Text
    """Its URL."""


class KvDropRequest(Request[Done]):
    """Remove a container that holds no keys."""

    command: ClassVar = "kv drop"

    name: Text
    container: Text


class Place(Record):
    """Where metadata are, and the containers there."""

    metadata: str
    """`device`, `log`, `clouds:` and what follows, or the URL of a service."""
    containers: list[str]
    trouble: str
    """Why they are not known; empty when they are."""

    @property
    def shown(self) -> str:
        """What people read of `metadata`: of clouds (`hybrisfs.kv.cloud_place`), how many there are and how
        many of these may fail, that is, be silent, or lie."""
        found = _CLOUDS.fullmatch(self.metadata)
        if found is None:
            return self.metadata
        fail, lie = int(found["t"]), int(found["b"])
        trust = (
            f"{fail} may fail or lie"
            if lie == fail
            else f"{fail} may fail, {f'{lie} of these' if lie else 'none'} may lie"
        )
        clouds = found["clouds"].count(",") + 1
        return f"{IN_CLOUDS} ({found['protocol']}, {clouds} clouds, {trust})"


class Containers(Record):
    """The names of all containers."""

    containers: list[str]
    places: list[Place]
    """The same, by where their metadata are."""


class KvContainersRequest(Request[Containers]):
    """Which containers there are."""

    command: ClassVar = "kv containers"

    name: Text


class Session(Record):
    """What this device has seen."""

    session: str
    """A text that means something to the devices of the volume only."""


class KvSessionRequest(Request[Session]):
    """What this device has seen of the containers in the log; wait until that is all of another session."""

    command: ClassVar = "kv session"

    name: Text
    seen: Annotated[str, Meta(max_length=_MOST_SESSION, description="a session")] | None = None
    """The session: `session` of an answer to another device, or to this one."""
    patience: Annotated[float, Meta(ge=0, le=_MOST_PATIENCE, description="seconds, at most 60")] = 30.0
    """For how many seconds to wait at most."""


class Value(Record):
    """A value that was stored or read."""

    size: int
    """In bytes."""
    version: int
    """1 for the first of its key; every write adds 1."""
    tag: str
    """What it is called by in conditions; no other value has it."""


class Found(Value):
    """A value, and what its writer said of it."""

    written: float | None
    """When, in seconds since the epoch, by the clock of the machine that wrote it."""
    attributes: bytes
    """See `hybrisfs.api.objects`; empty when the writer said nothing."""


class Need(Record, forbid_unknown_fields=True):
    """What a key must have for a write to take place; without entries any value."""

    version: Version | None = None
    """Of its value; 0: it must have none."""
    tag: Text | None = None
    """Of its value."""


class KvPutRequest(Request[Value]):
    """Store the content of a file."""

    command: ClassVar = "kv put"

    name: Text
    container: Text
    key: Text
    path: Folder
    """The file."""
    need: Need | None = None
    """Otherwise nothing is written."""
    attributes: Attributes | None = None
    """What else is to be known of the value."""


class KvAppendRequest(Request[Value]):
    """Add the content of a file to the end of a value. Without a value this stores it."""

    command: ClassVar = "kv append"

    name: Text
    container: Text
    key: Text
    path: Folder
    """The file."""


class KvReplaceRequest(Request[Value]):
    """Put the content of a file in the place of a part of a value."""

    command: ClassVar = "kv replace"

    name: Text
    container: Text
    key: Text
    offset: Annotated[int, Meta(ge=0, le=_MOST_OFFSET, description="an offset in bytes")]
    """Where that begins; at most the size of the value, in bytes."""
    path: Folder
    """The file."""


class KvGetRequest(Request[Found]):
    """Write a value to a file."""

    command: ClassVar = "kv get"

    name: Text
    container: Text
    key: Text
    path: Folder
    """The file, which must be there."""
    max_age: Seconds | None = None
    """A cached value will do that was the newest so long ago."""
    max_versions: int | None = None
    """A cached value will do that at most so many newer ones follow."""
    at_least: Text | None = None
    """A cached value will do that is the one with this tag, or newer."""
    list_of_parts: bool = False
    """When it is an object in parts, its list of parts; otherwise that is refused."""
    tag: Text | None = None
    """Of several concurrent values, the one with this tag."""


class KvStatRequest(Request[Found]):
    """What there is to know of a value, without reading it."""

    command: ClassVar = "kv stat"

    name: Text
    container: Text
    key: Text


class Values(Record):
    """All values of a key; `kv get` reads the first one."""

    values: list[Found]


class KvValuesRequest(Request[Values]):
    """Which values a key has: several when machines have written it without knowing of each other."""

    command: ClassVar = "kv values"

    name: Text
    container: Text
    key: Text


class Deleted(Record):
    """The end of a key."""

    existed: bool


class KvDeleteRequest(Request[Deleted]):
    """Delete a key."""

    command: ClassVar = "kv delete"

    name: Text
    container: Text
    key: Text
    need: Need | None = None
    """Otherwise nothing is deleted."""


class KeyFacts(Record):
    """A key."""

    key: str
    size: int
    """Of its value, in bytes."""
    version: int
    """Of its value."""
    tag: str
    """Of its value."""
    written: float | None
    """When the value was written, in seconds since the epoch, by the clock of the machine that wrote it."""


class Keys(Record):
    """Some of the keys, in order; each follows those of the parts before."""

    keys: list[KeyFacts]


class Count(Record):
    """What all parts had together."""

    count: int


class KvListRequest(PartsRequest[Count, Keys]):
    """Which keys a container has, all at one moment."""

    command: ClassVar = "kv list"

    name: Text
    container: Text
    prefix: Text | None = None
    """Those that begin with it."""


class FoundKey(Found):
    """A key, and what there is to know of its value."""

    key: str


class FoundKeys(Record):
    """The first keys of those that were asked for."""

    keys: list[FoundKey]
    more: bool
    """Others may follow the last one."""


class KvPageRequest(Request[FoundKeys]):
    """The first keys of a part of a container, with all there is to know of their values."""

    command: ClassVar = "kv page"

    name: Text
    container: Text
    prefix: Text = ""
    """Those that begin with it."""
    after: Text | None = None
    """Those that sort behind it."""
    limit: Annotated[
        int, Meta(ge=1, le=_MOST_OF_A_PAGE, description=f"a number from 1 to {_MOST_OF_A_PAGE}")
    ] = _MOST_OF_A_PAGE
    """That many at most."""


class Write(Record, forbid_unknown_fields=True):
    """A write of a transaction."""

    container: Text
    key: Text
    path: Folder | None = None
    """The file with the value; None deletes the key."""
    attributes: Attributes | None = None
    """What else is to be known of the value."""


class KeyNeed(Need, forbid_unknown_fields=True, kw_only=True):
    """What a key must have for a transaction to take place. It need not be one that is written."""

    container: Text
    key: Text


class Versions(Record):
    """The tags of what a transaction has written, in its order."""

    tags: list[str]


class KvTputRequest(Request[Versions]):
    """Write several keys in one transaction."""

    command: ClassVar = "kv tput"

    name: Text
    writes: Annotated[
        list[Write],
        Meta(min_length=1, max_length=_MOST_WRITES, description=f"a list of 1 to {_MOST_WRITES} writes"),
    ]
    needs: Annotated[
        list[KeyNeed],
        Meta(max_length=_MOST_WRITES, description=f"a list of at most {_MOST_WRITES} conditions"),
    ] = field(default_factory=list)
    """Otherwise nothing is written."""


WAIT_FOR_CLOUDS: Final = frozenset(
    one.command
    for one in (
        KvPutRequest,
        KvAppendRequest,
        KvReplaceRequest,
        KvGetRequest,
        KvDeleteRequest,
        KvTputRequest,
        KvSessionRequest,
    )
)
"""The commands that may wait for a minute when clouds do not answer, or for others that do."""


class Failure(Record):
    """A cloud that could not be cleaned."""

    cloud: str
    why: str


class Cleaned(UnnamedValues):
    """Values that no key names, and how many of them were deleted."""

    deleted: int
    """How many objects."""
    failed: list[Failure]


class KvCleanRequest(Request[Cleaned]):
    """Delete from the clouds values that no key names."""

    command: ClassVar = "kv clean"

    name: Text
    dry_run: bool = False
    former: bool = False
    """And those of stores that this device had before."""


class RebuiltKeys(Record):
    """The keys that could be taken over from damaged metadata."""

    set_aside: str
    """The damaged file."""
    same_store: bool
    """It is the same store; otherwise nothing could be taken over."""
    keys: int
    """How many were taken over."""
    damaged: int
    """How many could not be read."""


class KvRebuildRequest(Request[RebuiltKeys]):
    """Make the list of keys again."""

    command: ClassVar = "kv rebuild"

    name: Text
