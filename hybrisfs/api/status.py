"""How the daemon and its volumes are, and what has happened to them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from hybrisfs.api.clouds import CloudStatus
from hybrisfs.api.copies import FolderCopies
from hybrisfs.api.devices import Accused, Device
from hybrisfs.api.ignoring import Ignored
from hybrisfs.api.mirrors import Mirror
from hybrisfs.api.request import LongRequest, Message, Moved, Record, Request, Seconds, Text, Waiting
from hybrisfs.api.traffic import Transfers

__all__ = [
    "Archive",
    "Pending",
    "PendingFile",
    "PendingFiles",
    "PendingRequest",
    "AnyVolume",
    "Cache",
    "Checkpoint",
    "DaemonStatus",
    "Events",
    "EventsRequest",
    "LogStatus",
    "MachinesOnly",
    "MergedFile",
    "MissingMount",
    "Owing",
    "PanelFile",
    "PanelVolume",
    "PinnedContent",
    "Status",
    "StatusRequest",
    "SyncRequest",
    "Synced",
    "UnusableVolume",
    "Values",
    "VersionRoom",
    "VolumeEvent",
    "VolumeStatus",
]


class MachinesOnly(Record):
    """Content that other devices wrote and no cloud is known to have."""

    files: int
    bytes: int
    """Of these files."""
    devices: list[str]
    """The names of those that have yet to bring it to the clouds."""


class PinnedContent(Record):
    """The pinned content, as of the last look."""

    files: int
    bytes: int
    missing_bytes: int
    """Bytes of these files that are not on this device yet."""
    problem: str | None
    """Why not."""


class LogStatus(Record):
    """The log on this device."""

    dropped: int
    """How many updates a checkpoint has made superfluous here."""
    freed_bytes: int
    """The bytes that they took on this disk."""
    kept: int
    """How many updates are left."""


class Checkpoint(Record):
    """The newest checkpoint of the log."""

    current: bool
    """The one on the clouds has it all."""
    waits_for: list[str]
    """The names of the devices that a new one waits for."""
    log: LogStatus


class VersionRoom(Record):
    """The earlier versions of files, as of the last look."""

    keep: str
    """The rule: see `hybrisfs volume set --help`."""
    count: int
    bytes: int


class Archive(Record):
    """Packs that have rested and are stored with a wider code."""

    after: str
    """After how many days of rest, "30d"; "off" when nothing more is archived."""
    code: str
    """Of what is archived now, "4+1"; "" when the clouds allow none that takes less room."""
    hot: int
    """Bytes that are not archived, before they are dispersed."""
    archived: int
    """Bytes that are, likewise."""
    stored: int
    """Bytes that these take on all clouds together."""
    saved: int
    """How many bytes less that is than if they were not archived."""
    clouds: dict[str, int] = msgspec.field(default_factory=dict)
    """Of the bytes that they take, those on each cloud, by its name."""
    dollars: float = 0.0
    """What they cost less in a month than if they were not archived and lay on all clouds alike, in USD;
    clouds whose prices are unknown count as free."""


class Owing(Record):
    """A cloud on which values are yet to be deleted."""

    cloud: str
    since: int
    """In seconds since the epoch."""


class Values(Record):
    """The key-value store."""

    unreadable: int
    """How many values cannot be read now."""
    owing: list[Owing]


class Cache(Record):
    """The cached content."""

    bytes: int
    budget: int
    """The most bytes that it may be."""


class MergedFile(Record):
    """A file whose versions were merged unasked."""

    path: str
    at: float
    """When, in seconds since the epoch."""


class MissingMount(Record):
    """A volume that should be mounted and is not."""

    directory: str
    """Where it should be."""
    reason: str
    """Why it is not."""


class VolumeStatus(Record, kw_only=True):
    """How a volume is."""

    name: str
    mountpoint: str | None
    f: int
    """How many clouds may fail or lie."""
    k: int
    """How many clouds are needed to read."""
    files: int
    bytes: int
    """Of all files."""
    pending_files: int
    """How many files and folders have changes that the clouds lack."""
    pending_bytes: int
    """How many bytes the clouds lack."""
    machines_only: MachinesOnly
    ignored: Ignored
    """Nothing of that is pending, nor on a cloud."""
    removed: bool
    """This device belongs to the volume no longer."""
    reader: bool
    """This device may only read."""
    folders: list[str] | None
    """The folders that this device is limited to, as paths in the volume; None when it is not limited."""
    conflicts: int
    """How many files, and keys in the log, wait for a person."""
    clouds: list[CloudStatus]
    devices: list[Device]
    accused: list[Accused]
    stale_reads: str
    """The reaction while a device is silent for too long: warn or block."""
    notifications: bool
    """The desktop shows trouble that needs a person."""
    jobs: list[str]
    """Background work, in sentences."""
    pinned: PinnedContent
    copies: list[FolderCopies]
    """What is to be on several devices."""
    checkpoint: Checkpoint
    versions: VersionRoom
    values: Values
    cache: Cache
    transfers: Transfers
    mirrors: list[Mirror]
    undeletable: int
    """How many objects on clouds wait for a device that may delete them."""
    warnings: list[str]
    """Trouble that a person should look after, in sentences."""
    notices: list[str]
    """News that needs no action, in sentences."""
    last_error: str | None
    missing_mount: MissingMount | None = None
    """None when it is mounted, or need not be."""
    merged: list[MergedFile] = msgspec.field(default_factory=list)
    """Those that this device has merged since the daemon's start, at most the last 100."""
    archive: Archive | None = None
    """None when nothing was ever archived."""


class UnusableVolume(Record, kw_only=True):
    """A volume that cannot be opened. It has the fields that there always were, for scripts that do not look
    for `unusable` first; new facts need none."""

    name: str
    mountpoint: None = None
    files: None = None
    bytes: None = None
    pending_files: None = None
    pending_bytes: None = None
    machines_only: None = None
    ignored: None = None
    removed: Literal[False] = False
    reader: Literal[False] = False
    folders: None = None
    conflicts: None = None
    clouds: list[CloudStatus] = msgspec.field(default_factory=list)
    devices: list[Device] = msgspec.field(default_factory=list)
    accused: list[Accused] = msgspec.field(default_factory=list)
    transfers: None = None
    checkpoint: None = None
    mirrors: list[Mirror] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    notices: list[str] = msgspec.field(default_factory=list)
    last_error: str
    """Why it cannot be opened."""
    missing_mount: MissingMount | None
    unusable: Literal[True] = True


AnyVolume: TypeAlias = VolumeStatus | UnusableVolume


class DaemonStatus(Record):
    """The process that answers."""

    version: str
    pid: int
    uptime: float
    """In seconds."""


class Status(Record):
    """The state of the daemon and its volumes."""

    daemon: DaemonStatus
    volumes: list[AnyVolume]


class _Undecided(Record):
    """A status whose volumes have yet to be sorted by their kind."""

    daemon: DaemonStatus
    volumes: list[Message]


class StatusRequest(Request[Status]):
    """How a volume is, or each of them."""

    command: ClassVar = "status"

    name: Text | None = None
    """All volumes when it is None."""
    without_look: bool = False
    """Do not ask the clouds."""

    @classmethod
    def answer_from(cls, message: Message) -> Status:
        """See `Question.answer_from`. The mark of an unusable volume is not a tag as msgspec has it."""
        found = msgspec.convert(message, _Undecided)
        return Status(found.daemon, [_volume_from(one) for one in found.volumes])


def _volume_from(message: Message) -> AnyVolume:
    if message.get("unusable"):
        return msgspec.convert(message, UnusableVolume)
    return msgspec.convert(message, VolumeStatus)


class Synced(Record):
    """The content that is still to be brought to the clouds."""

    name: str
    done: bool
    """Everything is on the clouds but what is ignored."""
    pending_files: int
    pending_bytes: int
    machines_only: MachinesOnly
    ignored: Ignored
    clouds: list[CloudStatus]


class SyncRequest(LongRequest[Synced, Moved]):
    """Bring everything to the clouds."""

    command: ClassVar = "sync"

    name: Text | None = None
    wait: bool = False
    """Answer when it is done."""
    timeout: Seconds | None = None
    """Wait no longer than that."""


# -- what waits for the clouds --------------------------------------------------------------------------


class PendingFile(Record):
    """A file or folder that the clouds lack something of."""

    path: str | None
    """In the volume; None when it was removed, and the clouds have yet to learn that."""
    bytes: int
    """Of its content; 0 when only its name or its attributes wait."""
    since: float | None
    """When it was changed last, in seconds since the epoch; None when it was removed."""
    is_open: bool
    """A program has it open for writing: it goes when that is over, or in pieces."""


class PendingFiles(Record):
    """What waits for the clouds in a folder."""

    name: str
    path: str
    """Of the folder, or of the file."""
    files: list[PendingFile]
    """Those that have waited longest, up to the number that was asked for."""
    total: int
    """How many there are."""
    bytes: int
    """Of all of them."""


class Pending(PendingFiles):
    """The same, and how long that may take."""

    rate: float
    """Bytes/s to all clouds in the last minute, or since the first of it waits; 0 at its beginning."""
    seconds: float | None
    """How long it takes at that rate, or at the limit while nothing has arrived yet; None when something
    keeps it, or nobody knows."""


class PendingRequest(Request[Pending]):
    """What waits for the clouds."""

    command: ClassVar = "pending"

    name: Text | None = None
    path: Text | None = None
    """In the volume; its root when it is None."""
    limit: int | None = None
    """How many files at most: 1000 when it is None."""


# -- events of volumes ----------------------------------------------------------------------------------


class VolumeEvent(Record):
    """Trouble that began or changed, trouble that is over, or news."""

    volume: str
    number: int
    """Events of a volume are numbered."""
    time: float
    """In seconds since the epoch."""
    kind: str
    """trouble, over or news."""
    topic: str
    """Its topic: one topic has one trouble at a time."""
    text: str


class Events(Record):
    """Events of one or all volumes, by time."""

    events: list[VolumeEvent]
    after: dict[str, int]
    """The number of the last one of each volume, for the next request."""


class EventsRequest(LongRequest[Events, Waiting]):
    """List events."""

    command: ClassVar = "events"

    name: Text | None = None
    """To all volumes when it is None."""
    after: Annotated[dict[str, int], Meta(description="numbers by volume")] | None = None
    """Only events with higher numbers; None: the last ones."""
    limit: int | None = None
    """How many."""
    wait: Seconds | None = None
    """When there is none yet, wait so long for one."""


# -- for panels -----------------------------------------------------------------------------------------


class PanelVolume(Record):
    """What a panel shows of a volume."""

    name: str
    state: Literal["ok", "busy", "attention", "trouble"]
    text: str
    """The same in a sentence."""
    pending_files: int
    pending_bytes: int
    conflicts: int
    mountpoint: str | None
    paused: bool
    """Whether a person has paused its transfers."""


class PanelFile(Record):
    """The file `status.json` in the runtime folder."""

    version: Literal[1]
    volumes: list[PanelVolume]
