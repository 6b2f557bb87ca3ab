"""What the daemon asks of a volume. `hybrisfs.volume` is the implementation; tests bring a small one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hybrisfs.api import clouds as api
from hybrisfs.api import copies, files, versions
from hybrisfs.api.decisions import Conflict, Deletion, HeldFiles
from hybrisfs.api.devices import (
    Admission,
    Admitted,
    Device,
    DeviceRole,
    Invitation,
    KeptDevice,
    Proof,
    RemovedDevice,
)
from hybrisfs.api.ignoring import IgnoreRules
from hybrisfs.api.key_value import Place
from hybrisfs.api.maintenance import Check, Dropped, Kit, MadeKit, Recovered, RemovedKit, Repair, Scrub
from hybrisfs.api.mirrors import Imported, Mirror
from hybrisfs.api.parcels import Parcel, ParcelList
from hybrisfs.api.status import PendingFiles, VolumeStatus
from hybrisfs.api.traffic import Transfers
from hybrisfs.api.volumes import DeletedCloud, Rebuilt, SecretsOfPlace, TriedPlace, Volume, VolumeSettings
from hybrisfs.content_ids import Comparison
from hybrisfs.dispersal.traffic import CloudTraffic
from hybrisfs.home import Home

if TYPE_CHECKING:  # what a daemon needs only for some commands takes long to import
    from hybrisfs.kv.containers import ContainerStore, Key
    from hybrisfs.kv.log_moves import MovedContainer
    from hybrisfs.kv.migrate import Moved
    from hybrisfs.kv.rebuild import Orphans, RebuiltMetadata
    from hybrisfs.pairing.exchange import Dialogue
    from hybrisfs.volume.merging import Compared

__all__ = [
    "Browsing",
    "CloudControl",
    "ContentControl",
    "KeyValueControl",
    "CopiesControl",
    "IgnoreControl",
    "LabelControl",
    "MaintenanceControl",
    "MirrorControl",
    "OpenVolume",
    "PairingWork",
    "RecoveryControl",
    "Report",
    "SettingsControl",
    "TransferControl",
    "VolumeKind",
]


_Facts = TypeVar("_Facts", covariant=True)


class Report(Protocol[_Facts]):
    """What came out of work that takes long."""

    def facts(self) -> _Facts: ...


class PairingWork(Protocol):
    """An invitation that waits for a device."""

    @property
    def facts(self) -> Invitation: ...
    def run(self, dialogue: Dialogue, stop: threading.Event) -> Admission:
        """Let a device in. Raises `HybrisError`."""


class ContentControl(Protocol):
    """What of a volume's content is on this device. Paths are relative to its root."""

    def pin(self, path: PurePath) -> files.Measured: ...
    def wait(
        self, paths: Sequence[PurePath], timeout: float | None, progress: Callable[[int, int], None]
    ) -> bool: ...
    @property
    def trouble(self) -> str | None: ...
    def unpin(self, path: PurePath) -> None: ...
    def evict(self, path: PurePath) -> files.Freed: ...
    def pins(self) -> list[files.Pin]:
        """With paths in the volume."""


class CopiesControl(Protocol):
    """On how many devices what is in a volume is to be. Paths are relative to its root."""

    def ask(self, path: PurePath, copies: int) -> None: ...
    def all(self) -> list[copies.FolderCopies]: ...
    def of(self, path: PurePath) -> copies.FileCopies: ...


class LabelControl(Protocol):
    """Words on what is in a volume. Paths are relative to its root."""

    def of(self, path: PurePath) -> list[str]: ...
    def add(self, path: PurePath, words: Sequence[str]) -> list[str]:
        """What is there after it."""

    def remove(self, path: PurePath, words: Sequence[str]) -> list[str]: ...
    def counts(self) -> Mapping[str, int]: ...
    def find(self, word: str) -> list[PurePath]: ...


class IgnoreControl(Protocol):
    """Ignore rules of a volume. Patterns that are none raise UsageError."""

    def list(self, limit: int) -> IgnoreRules: ...
    def add(self, patterns: Sequence[str]) -> None: ...
    def remove(self, patterns: Sequence[str]) -> None: ...


class SettingsControl(Protocol):
    """How a volume behaves on this machine, kept in its configuration."""

    def edit(self, entries: Mapping[str, Any]) -> None:
        """Change entries of `volume.json`. Raises UsageError for values that it must not have."""

    def entries(self) -> VolumeSettings: ...


class AgreedControl(Protocol):
    """How a volume behaves on all its devices."""

    @property
    def announce_seconds(self) -> int: ...
    def announce_every(self, seconds: int) -> None:
        """Raises UsageError for too few or too many."""

    @property
    def merge_texts(self) -> bool: ...
    def set_merge_texts(self, wanted: bool) -> None: ...
    @property
    def archive_after(self) -> str: ...
    @property
    def archive_code(self) -> str: ...
    def archive(self, after: str | None, code: str | None) -> None: ...


class VersionControl(Protocol):
    """What a volume was before. Paths are relative to its root; see `hybrisfs.volume.versions`."""

    def all(self, path: str) -> versions.Versions: ...
    def log(self, path: str, limit: int) -> versions.Changes: ...
    def removed(self, folder: str) -> versions.RemovedFiles: ...
    def moments(self) -> versions.Moments: ...
    def reader(self, path: str, at: str | None, number: int | None) -> VersionBytes: ...
    def restore(
        self, path: str, at: str | None, number: int | None, target: str | None
    ) -> versions.Restored: ...
    def preview(self, path: str, at: str, target: str | None, limit: int) -> versions.Preview:
        """What `restore` would change; the first *limit* changes."""

    def folder(self, path: str, at: str, after: str, limit: int) -> versions.FolderThen:
        """The first *limit* names that were in a folder then and sort behind *after*."""


class ContentIdControl(Protocol):
    """IDs of files and folders; see `hybrisfs.volume.content_ids`, which says what a place is."""

    def of(self, place: tuple[str, str | None], tell: Callable[[int], None]) -> str:
        """The ID. *tell* hears how many bytes have been read so far."""

    def compare(
        self, first: tuple[str, str | None], second: tuple[str, str | None], tell: Callable[[int], None]
    ) -> Comparison: ...


class VersionBytes(Protocol):
    """The bytes of one version."""

    @property
    def size(self) -> int: ...
    def read(self, offset: int, size: int) -> bytes: ...


class CloudControl(Protocol):
    """The clouds of a volume. A cloud is named by its name or URL."""

    def all(self) -> list[api.Cloud]: ...
    def traffic(self) -> Sequence[CloudTraffic]:
        """What was counted of each since the volume was opened, and what is under way."""

    def warnings(self) -> list[str]:
        """Which of them may be lost together; a sentence on each group."""

    def test(self, which: str, *, make: bool) -> api.TestedCloud:
        """*make*, here and below: make a local folder even if its disk is not there."""

    def retain(self, which: str, days: int) -> api.KeptCloud:
        """0 *days*: keep nothing."""

    def add(self, url: str, name: str | None, days: int | None = None, *, make: bool) -> api.AddedCloud:
        """With *days* as `retain` does, too."""

    def rename(self, which: str, name: str) -> api.NamedCloud: ...
    def adopt(self, which: str) -> api.NamedCloud: ...
    def drain(self, which: str) -> api.NamedCloud: ...
    def remove(self, which: str) -> api.NamedCloud: ...
    def replace(self, which: str, url: str, name: str | None, *, make: bool) -> api.ReplacedCloud: ...
    def wait(
        self, which: str, timeout: float | None, progress: Callable[[int, int], None]
    ) -> tuple[bool, str]:
        """Whether the cloud has gone, and what keeps it."""

    def change_redundancy(self, f: int | None, k: int | None) -> api.Redundancy: ...
    def wait_rewritten(
        self, timeout: float | None, progress: Callable[[int, int], None]
    ) -> tuple[bool, str]: ...


class MergeControl(Protocol):
    """Merging of versions that are in conflict. Paths are relative to the root of the volume."""

    def compare(self, path: str) -> Compared: ...
    def settle(self, path: str, mark: str, content: bytes) -> None: ...


class Browsing(Protocol):
    """Looking at the volume without a mount. Paths are relative to its root."""

    def folder(self, path: PurePath, after: str, limit: int) -> tuple[list[files.Entry], bool]:
        """A page of what is in a folder, and whether others follow the last one's name."""

    def read(self, path: PurePath, offset: int, length: int) -> tuple[int, bytes]:
        """The size of a file, and a part of it."""


class ParcelControl(Protocol):
    """Files for people without the program. Paths are relative to the root of the volume."""

    def make(
        self, path: PurePath, days: int, cloud: str | None, tell: Callable[[int, int], None]
    ) -> Parcel: ...
    def all(self) -> ParcelList: ...
    def revoke(self, which: str) -> Parcel: ...


class MaintenanceControl(Protocol):
    """Looking after the clouds of a volume. *step* gets stage, done and total; it may raise to stop."""

    def scrub(self, percent: float, step: Callable[[str, int, int], None]) -> Report[Scrub]:
        """Verify the given share of what the clouds hold."""

    def repair(self, step: Callable[[str, int, int], None]) -> Report[Repair]:
        """Put right what is wrong."""

    def trusted(self) -> Collection[int]:
        """The clouds that have just been seen to be the volume's."""


class KeyValueControl(Protocol):
    """The key-value stores of a volume."""

    def of(self, container: str) -> ContainerStore:
        """The store that has a container. Raises NoSuchContainerError."""

    def create_container(self, container: str, place: str | None) -> str:
        """Make a container with its metadata in that place; where they are. Raises ContainerExistsError."""

    def delete_container(self, container: str) -> None:
        """Remove a container that holds no keys. Raises NoSuchContainerError and ContainerInUseError."""

    def migrate(self, container: str, place: str, step: Callable[[str, int, int], None]) -> Moved:
        """Move a container to that place."""

    def containers(self) -> list[Place]:
        """All containers, by where their metadata are."""

    def only_here(self) -> list[str]:
        """The containers whose keys only this device knows, those on their way to another place included."""

    def session(self, seen: str | None, patience: float) -> str:
        """What this device has seen, once it has seen all of *seen*. Raises HybrisError."""

    def conflicts(self) -> Sequence[tuple[Key, int]]:
        """The keys that have several values, and how many."""

    def moved(self) -> Sequence[MovedContainer]:
        """The containers that have left the log, and that a person should look at."""

    def forget_service(self, url: str) -> None:
        """Use a service no longer, on all devices. Raises UsageError."""

    def orphans(self, trusted: Collection[int]) -> Orphans:
        """What looks for values that nothing names. Raises DamagedError."""

    def rebuild(self) -> tuple[Path, RebuiltMetadata]:
        """Rebuild damaged metadata: where the former ones are now, and what could be taken over."""


class TransferControl(Protocol):
    """What may move between this device and the clouds of a volume."""

    def limit(self, up: str | None, down: str | None, on_metered: str | None) -> None: ...
    def pause(self, seconds: float | None) -> None: ...
    def resume(self) -> None: ...
    def facts(self) -> Transfers: ...


class RecoveryControl(Protocol):
    """The recovery kits of a volume."""

    def make(self, passphrase: str | None) -> MadeKit:
        """With a passphrase that is drawn when it is None."""

    def all(self) -> list[Kit]: ...
    def remove(self, which: str) -> RemovedKit: ...


class Garbage(Protocol):
    """What no file needs any more."""

    def as_dict(self) -> dict[str, Any]:
        """What `Collected` tells of it."""


class CollectorControl(Protocol):
    """Garbage collection."""

    def collect(self, step: Callable[[str, int, int], None], *, dry_run: bool) -> Garbage:
        """Delete what all devices have agreed on; with *dry_run*, only look."""


class MirrorControl(Protocol):
    """The mirrors of a volume, each by its folder on the disk; see `volume.mirrors`."""

    @property
    def directories(self) -> Sequence[Path]: ...
    def all(self) -> list[Mirror]: ...
    def add(self, directory: Path, at: PurePath, ignore: Sequence[str]) -> Mirror: ...
    def remove(self, directory: Path) -> Mirror: ...
    def decide(self, directory: Path, *, accept: bool) -> Mirror: ...
    def bring_in(
        self,
        directory: Path,
        into: PurePath,
        step: Callable[[str, int, int], None],
        *,
        dry_run: bool,
        replace: bool,
    ) -> Imported:
        """Import a folder."""


class OpenVolume(Protocol):
    """A volume that is open: its background work goes on. Methods raise `HybrisError` or `OSError`."""

    @property
    def name(self) -> str: ...
    @property
    def mountpoint(self) -> Path | None:
        """None as well when another program unmounted it."""

    @property
    def content(self) -> ContentControl: ...
    @property
    def copies(self) -> CopiesControl: ...
    @property
    def agreed(self) -> AgreedControl: ...
    @property
    def labels(self) -> LabelControl: ...
    @property
    def ignoring(self) -> IgnoreControl: ...
    @property
    def browsing(self) -> Browsing: ...
    @property
    def merging(self) -> MergeControl: ...
    @property
    def parcels(self) -> ParcelControl: ...
    @property
    def maintenance(self) -> MaintenanceControl: ...
    @property
    def key_values(self) -> KeyValueControl: ...
    @property
    def transfers(self) -> TransferControl: ...
    @property
    def collector(self) -> CollectorControl: ...
    @property
    def clouds(self) -> CloudControl: ...
    @property
    def recovery(self) -> RecoveryControl: ...
    @property
    def settings(self) -> SettingsControl: ...
    @property
    def versions(self) -> VersionControl: ...
    @property
    def content_ids(self) -> ContentIdControl: ...
    @property
    def mirrors(self) -> MirrorControl: ...

    def mount(self, directory: Path, *, allow_other: bool = False, again: bool = False) -> None:
        """*again*: the volume was mounted there before; what is in the folder is hidden, and a folder
        that is closed to its owner is opened for it."""

    def unmount(self, *, lazy: bool = False) -> None: ...
    def look_at_secrets(self) -> None:
        """Those of clouds, on this machine, have changed."""

    def status(self, *, look: bool = True) -> VolumeStatus:
        """How it is; with *look*, after a look at the clouds."""

    def pending(self, path: PurePath, limit: int) -> PendingFiles:
        """What waits for the clouds at or below a path, relative to the root. Raises HybrisError, OSError."""

    def sync(self, timeout: float | None, progress: Callable[[int, int], None]) -> bool: ...
    def drop_cache(self) -> Dropped: ...
    def fsck(self, *, clouds: bool, progress: Callable[[str, int, int], None]) -> Report[Check]: ...
    def invite(
        self, *, lifetime: float, with_credentials: bool, reader: bool = False, folders: Sequence[str] = ()
    ) -> PairingWork:
        """*reader*, *folders*: see `set_role`."""

    def role_of(self, device: str) -> DeviceRole: ...
    def set_role(
        self,
        device: str,
        *,
        reader: bool = False,
        folders: Sequence[str] = (),
        passphrase: str | None = None,
    ) -> DeviceRole:
        """The same, after it was said that it is a reader, or limited to *folders*, paths in the volume, or a
        full member; with the *passphrase* of a recovery kit by that one."""

    def devices(self) -> list[Device]: ...
    def rename_device(self, device: str, name: str) -> None: ...
    def admitted_by(self, device: str) -> Admitted: ...
    def keep_device(self, device: str, *, passphrase: str | None = None) -> KeptDevice: ...
    def remove_device(
        self, device: str, *, with_admitted: bool = False, passphrase: str | None = None
    ) -> RemovedDevice: ...
    @property
    def has_left(self) -> bool:
        """Whether this device has said that it belongs to the volume no longer."""

    def leave(self, timeout: float) -> bool:
        """Say so; whether the clouds have it after so many seconds."""

    def require_writer(self) -> None: ...
    def device_proof(self, device: str) -> bytes:
        """The file that proves what a device did that none may."""

    def check_proof(self, proof: bytes) -> Proof: ...
    def conflicts(self) -> list[Conflict]: ...
    def settle_conflict(self, path: str, *, keep_all: bool) -> None: ...
    def deletions(self) -> list[Deletion]: ...
    def held_files(self, which: str) -> HeldFiles: ...
    def decide_deletion(self, which: str, *, undo: bool) -> None: ...
    def close(self) -> None: ...


class VolumeKind(Protocol):
    """How volumes are made, found and opened."""

    def create(
        self, home: Home, name: str, clouds: Sequence[str], f: int | None, k: int | None, *, make: bool
    ) -> Volume:
        """See `hybrisfs.admit.create.create_volume`."""

    def join(
        self, home: Home, code: str, name: str | None, own_name: str | None
    ) -> Callable[[Dialogue, threading.Event], Callable[[], Volume]]:
        """What has this device let in by *code*, and then makes the volume. Raises `HybrisError` for a bad
        code."""

    def describe_secrets(self, home: Home, url: str) -> SecretsOfPlace:
        """What the cloud at *url* can be given."""

    def try_place(self, home: Home, url: str, secrets: Mapping[str, str] | None, *, make: bool) -> TriedPlace:
        """Try out what may become a cloud. Secrets are kept when it answers; without any it is asked with
        those that there are. *make*: make its folder even if its disk is not there."""

    def recover(
        self,
        home: Home,
        clouds: Sequence[str],
        passphrase: str,
        name: str | None,
        own_name: str | None,
        *,
        incomplete: bool,
        tell: Callable[[str], None],
    ) -> Recovered:
        """Make a volume on this device of what its clouds hold."""

    def open(self, home: Home, name: str) -> OpenVolume: ...
    def rebuild(self, home: Home, name: str, step: Callable[[str, int, int], None]) -> Rebuilt:
        """Rebuild the database of a closed volume. *step* gets stage, done and total. Raises
        `HybrisError`, `OSError`."""

    def empty_clouds(self, home: Home, name: str, tell: Callable[[int], None]) -> Sequence[DeletedCloud]:
        """Delete everything of a closed volume on its clouds; *tell* hears how many objects are deleted."""

    def keep_closed(self, home: Home, name: str) -> None:
        """Let the volume be opened no more, because it is about to be deleted."""

    def is_going(self, home: Home, name: str) -> bool:
        """Whether the volume was being given up when the program ended."""

    def forget(self, home: Home, name: str) -> None:
        """Delete what this device has of a closed volume."""

    def rename(self, home: Home, old: str, new: str, renamed: Callable[[str, str], None]) -> None:
        """Call a closed volume otherwise. *renamed* gets both names, maybe again after a crash."""

    def finish(self, home: Home, renamed: Callable[[str, str], None]) -> None:
        """Finish what `forget` and `rename` had begun when the program ended."""

    def list(self, home: Home) -> Sequence[Volume]: ...
