"""Volumes without clouds or mounts, for testing everything around them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from backends.address import scheme_of
from hybrisfs.api.decisions import Conflict, Deletion, HeldFile, HeldFiles
from hybrisfs.api.devices import (
    Admission,
    Admitted,
    Charge,
    Device,
    DeviceRole,
    Invitation,
    KeptDevice,
    NamedDevice,
    Proof,
    RemovedDevice,
)
from hybrisfs.api.key_value import Place
from hybrisfs.api.maintenance import Check, CheckProblem, Dropped, Recovered
from hybrisfs.api.status import Archive, PendingFile, PendingFiles, VolumeStatus
from hybrisfs.api.volumes import (
    CloudUrl,
    DeletedCloud,
    Rebuilt,
    Secret,
    SecretsOfPlace,
    TriedPlace,
    Volume,
    VolumeSettings,
)
from hybrisfs.daemon.local import LocalVolumes
from hybrisfs.errors import DamagedError, HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.kv.containers import Key
from hybrisfs.kv.log_moves import MovedContainer
from hybrisfs.kv.migrate import Moved
from hybrisfs.kv.rebuild import Orphans, RebuiltMetadata
from hybrisfs.kv.store import KeyValueStore
from hybrisfs.pairing.errors import PairingError
from hybrisfs.pairing.exchange import Dialogue
from hybrisfs.pairing.messages import Peer
from hybrisfs.recovery.sealed_key import RecoveryError
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.settings.settings import entries_of
from hybrisfs.volume.volume import Volume as OpenVolume
from tests.daemon.fake_clouds import DRAWN, KIT, FakeClouds, FakeMaintenance, FakeRecovery, FakeTransfers
from tests.daemon.fake_content import FakeBrowsing, FakeContent, FakeCopies, FakeIgnoring, FakeLabels
from tests.daemon.fake_facts import EXPIRES, FakeCollection
from tests.daemon.fake_merging import FakeMerging
from tests.daemon.fake_mirrors import FakeMirrors
from tests.daemon.fake_parcels import FakeParcels
from tests.daemon.fake_versions import FakeContentIds, FakeVersions
from tests.facts import device_of, status_of

__all__ = [
    "CODE",
    "COMPARISON",
    "DRAWN",
    "EXPIRES",
    "FakeContent",
    "FakePairing",
    "FakeReport",
    "FakeVolume",
    "FakeVolumes",
    "KIT",
]

CODE: Final = "hfs1-code"
COMPARISON: Final = "1234 5678"


_NOTHING_TO_DELETE: Final = {
    **{kind: {"packs": 0, "bytes": 0} for kind in ("empty", "sparse", "young", "deleted", "due")},
    "unnamed": {"orphans": 0, "strays": 0, "leftovers": 0, "young": 0},
    **dict.fromkeys(("rewritten", "proposed", "undeletable"), 0),
    "trouble": None,
}


@dataclass
class FakeReport:
    problems: list[dict[str, str]] = field(default_factory=list)

    def facts(self) -> Check:
        return Check([CheckProblem(**one) for one in self.problems], {"files": 12})


@dataclass
class FakePairing:
    """Meets a device called *peer*; without one it waits until it is stopped, and notes that it was."""

    peer: str | None = "laptop"
    comparison: str = COMPARISON
    confirmed: list[bool] = field(default_factory=list)
    waiting: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def facts(self) -> Invitation:
        return Invitation(CODE, ["##"], EXPIRES)

    def run(self, dialogue: Dialogue, stop: threading.Event) -> Admission:
        dialogue.progress("waiting")
        self.waiting.set()
        try:
            if self.peer is None:
                stop.wait()
                raise PairingError("the pairing failed", "it was ended")
            dialogue.show(self.comparison)
            self.confirmed.append(dialogue.confirm(Peer(bytes(32), self.peer)))
            if not self.confirmed[-1]:
                raise PairingError("the pairing failed", "the comparison string was not confirmed")
            return Admission(self.peer, "00", acknowledged=True)
        finally:
            self.ended.set()


class NoKeyValues:
    """In place of a key-value store, for tests that use none."""

    def of(self, container: str) -> KeyValueStore:
        raise HybrisError("this volume has no key-value store")

    def create_container(self, container: str, place: str | None) -> str:
        raise HybrisError("this volume has no key-value store")

    def containers(self) -> list[Place]:
        raise HybrisError("this volume has no key-value store")

    def only_here(self) -> list[str]:
        return []

    def delete_container(self, container: str) -> None:
        raise HybrisError("this volume has no key-value store")

    def migrate(self, container: str, place: str, step: Callable[[str, int, int], None]) -> Moved:
        raise HybrisError("this volume has no key-value store")

    def session(self, seen: str | None, patience: float) -> str:
        raise HybrisError("this volume has no key-value store")

    def conflicts(self) -> Sequence[tuple[Key, int]]:
        return []

    def moved(self) -> Sequence[MovedContainer]:
        return []

    def forget_service(self, url: str) -> None:
        raise HybrisError("this volume has no key-value store")

    def orphans(self, trusted: Collection[int]) -> Orphans:
        raise HybrisError("this volume has no key-value store")

    def rebuild(self) -> tuple[Path, RebuiltMetadata]:
        raise HybrisError("this volume has no key-value store")


@dataclass
class FakeCollector:
    """Finds what it is told; `dry` says of each time whether nothing was to be changed."""

    facts: dict[str, Any] = field(default_factory=dict)
    dry: list[bool] = field(default_factory=list)

    def collect(self, step: Callable[[str, int, int], None], *, dry_run: bool) -> FakeCollection:
        step("looking", 0, 1)
        self.dry.append(dry_run)
        waiting = [{"since": EXPIRES, **one} for one in self.facts.get("waiting_for", ())]
        return FakeCollection({**_NOTHING_TO_DELETE, **self.facts, "waiting_for": waiting})


class FakeSettings:
    """Remembers what is set."""

    def __init__(self) -> None:
        self.config = VolumeConfig("photos", bytes(16), 1, 1, (), shared=True)

    def edit(self, entries: Mapping[str, Any]) -> None:
        self.config = self.config.edited(entries)

    def entries(self) -> VolumeSettings:
        return entries_of(self.config, [])


@dataclass
class FakeAgreed:
    """Remembers what is to hold on all devices."""

    announce_seconds: int = 900

    merge_texts: bool = True

    archive_after: str = "off"
    archive_code: str = "auto"

    def archive(self, after: str | None, code: str | None) -> None:
        self.archive_after = after or self.archive_after
        self.archive_code = code or self.archive_code

    def announce_every(self, seconds: int) -> None:
        self.announce_seconds = seconds

    def set_merge_texts(self, wanted: bool) -> None:
        self.merge_texts = wanted


@dataclass
class FakeVolume:
    """Does what it is told; tests set its attributes."""

    config: Volume
    mountpoint: Path | None = None
    allow_other: bool = False
    closed: bool = False
    busy: bool = False
    pending_files: int = 0
    pending_bytes: int = 0
    waiting: list[PendingFile] = field(default_factory=list)
    machines_only: dict[str, object] | None = None
    removed: bool = False
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    report: FakeReport = field(default_factory=FakeReport)
    syncing: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None
    looks: int = 0
    browsing: FakeBrowsing = field(default_factory=FakeBrowsing)
    merging: FakeMerging = field(default_factory=FakeMerging)
    parcels: FakeParcels = field(default_factory=FakeParcels)
    content: FakeContent = field(default_factory=FakeContent)
    copies: FakeCopies = field(default_factory=FakeCopies)
    agreed: FakeAgreed = field(default_factory=FakeAgreed)
    labels: FakeLabels = field(default_factory=FakeLabels)
    ignoring: FakeIgnoring = field(default_factory=FakeIgnoring)
    maintenance: FakeMaintenance = field(default_factory=FakeMaintenance)
    transfers: FakeTransfers = field(default_factory=FakeTransfers)
    mirrors: FakeMirrors = field(default_factory=FakeMirrors)
    collector: FakeCollector = field(default_factory=FakeCollector)
    key_values: Any = field(default_factory=NoKeyValues)
    clouds: FakeClouds = field(default_factory=FakeClouds)
    recovery: FakeRecovery = field(default_factory=FakeRecovery)
    versions: FakeVersions = field(default_factory=FakeVersions)
    content_ids: FakeContentIds = field(default_factory=FakeContentIds)
    settings: FakeSettings = field(default_factory=FakeSettings)
    pairing: FakePairing = field(default_factory=FakePairing)
    readers: list[str] = field(default_factory=list)
    limits: dict[str, list[str]] = field(default_factory=dict)
    invited: list[tuple[float, bool]] = field(default_factory=list)
    others: list[dict[str, object]] = field(default_factory=list)
    charges: list[dict[str, object]] = field(default_factory=list)
    admitted: list[dict[str, object]] = field(default_factory=list)
    trials: list[dict[str, object]] = field(default_factory=list)
    removal: dict[str, bool] = field(default_factory=lambda: {"counts": True, "final": True})
    kept: bool = True
    warnings: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    log: dict[str, int] = field(default_factory=lambda: {"dropped": 0, "freed_bytes": 0, "kept": 12})
    conflicting: list[dict[str, object]] = field(default_factory=list)
    waiting_deletions: list[dict[str, object]] = field(default_factory=list)
    waiting_files: list[HeldFile] = field(default_factory=list)
    decisions: list[tuple[object, ...]] = field(default_factory=list)
    has_left: bool = False
    hears: bool = True
    """Whether the clouds hear that it leaves."""
    secret_looks: int = 0
    archive: Archive | None = None

    def look_at_secrets(self) -> None:
        self.secret_looks += 1

    @property
    def name(self) -> str:
        return self.config.name

    def mount(self, directory: Path, *, allow_other: bool = False, again: bool = False) -> None:
        if not directory.is_dir():
            raise HybrisError(f"{directory} does not exist")
        self.mountpoint, self.allow_other = directory, allow_other

    def unmount(self, *, lazy: bool = False) -> None:
        if self.busy and not lazy:
            raise HybrisError(f"{self.mountpoint} is in use")
        self.mountpoint = None

    def status(self, *, look: bool = True) -> VolumeStatus:
        self.looks += look
        if self.failure:
            raise self.failure
        clouds = []
        for cloud in self.config.clouds:
            state, reason = self.states.get(cloud.name, ("ok", ""))
            clouds.append({"name": cloud.name, "url": cloud.url, "state": state, "reason": reason})
        facts = status_of(
            name=self.name,
            mountpoint=str(self.mountpoint) if self.mountpoint else None,
            f=self.config.f,
            k=self.config.k,
            files=12,
            bytes=3_000_000,
            pending_files=self.pending_files,
            pending_bytes=self.pending_bytes,
            machines_only=self.machines_only or {"files": 0, "bytes": 0, "devices": []},
            ignored=msgspec.to_builtins(self.ignoring.facts()),
            removed=self.removed,
            conflicts=len(self.conflicting),
            clouds=clouds,
            accused=self.trials,
            warnings=self.warnings,
            notices=self.notices,
            checkpoint={"current": True, "waits_for": [], "log": self.log},
            cache={"bytes": 1_000_000, "budget": 20_000_000_000},
            notifications=self.settings.config.notifications,
        )
        facts.devices = self.devices()
        facts.transfers, facts.mirrors = self.transfers.facts(), self.mirrors.all()
        facts.archive = self.archive
        return facts

    def pending(self, path: PurePath, limit: int) -> PendingFiles:
        below = [one for one in self.waiting if one.path and PurePath(one.path).is_relative_to(path)]
        size = sum(one.bytes for one in below)
        return PendingFiles(self.config.name, str(path), below[:limit], len(below), size)

    def sync(self, timeout: float | None, progress: Callable[[int, int], None]) -> bool:
        """With something pending: until `release` is set, reporting progress all the time."""
        if self.pending_files == 0:
            return self.machines_only is None
        if timeout is not None:
            return False
        while not self.release.wait(0.01):
            progress(1, self.pending_bytes)
            self.syncing.set()
        self.pending_files = self.pending_bytes = 0
        return True

    def drop_cache(self) -> Dropped:
        return Dropped(self.name, 900_000, 100_000)

    def fsck(self, *, clouds: bool, progress: Callable[[str, int, int], None]) -> FakeReport:
        progress("clouds" if clouds else "database", 1, 1)
        return self.report

    def invite(
        self, *, lifetime: float, with_credentials: bool, reader: bool = False, folders: Sequence[str] = ()
    ) -> FakePairing:
        self.invited.append((lifetime, with_credentials))
        if reader:
            self.readers.append("phone")
        self.limits["phone"] = list(folders)
        return self.pairing

    def role_of(self, device: str) -> DeviceRole:
        if device not in [one.name for one in self.devices()]:
            raise UsageError(f"{device!r} is not a machine of this volume", "", "There are: desk.")
        proposed = next((one.proposed for one in self.devices() if one.proposed), UNSET)
        folders = self.limits.get(device) or None
        return DeviceRole(self.name, "11" * 16, device, device in self.readers, folders, proposed)

    def set_role(
        self,
        device: str,
        *,
        reader: bool = False,
        folders: Sequence[str] = (),
        passphrase: str | None = None,
    ) -> DeviceRole:
        if device == "desk":
            raise UsageError("a machine cannot set its own role")
        if passphrase is not None:
            self.decisions.append((device, f"role by {passphrase}"))
        self.readers = [device] if reader and not self.role_of(device).proposed else []
        self.limits[device] = list(folders)
        return self.role_of(device)

    def devices(self) -> list[Device]:
        return [device_of(id="00" * 16, this=True), *(device_of(**one) for one in self.others)]

    def rename_device(self, device: str, name: str) -> None:
        if device not in [one.name for one in self.devices()]:
            raise UsageError(f"{device!r} is not a machine of this volume", "", "There are: desk.")
        self.decisions.append((device, name))

    def _admitted(self) -> list[NamedDevice]:
        return msgspec.convert(self.admitted, list[NamedDevice])

    def admitted_by(self, device: str) -> Admitted:
        return Admitted(self.name, "11" * 16, device, self._admitted())

    def keep_device(self, device: str, *, passphrase: str | None = None) -> KeptDevice:
        self.decisions.append((device, f"keep by {passphrase}" if passphrase else "keep"))
        return KeptDevice(self.name, "11" * 16, device, self.kept)

    def remove_device(
        self, device: str, *, with_admitted: bool = False, passphrase: str | None = None
    ) -> RemovedDevice:
        how = "remove with admitted" if with_admitted else "remove"
        self.decisions.append((device, f"{how} by {passphrase}" if passphrase else how))
        return RemovedDevice(
            name=self.name,
            id="11" * 16,
            device=device,
            **self.removal,
            removed=self._admitted() if with_admitted else [],
            remain=[] if with_admitted else self._admitted(),
            clouds=["file:///a"],
            charges=msgspec.convert(self.charges, list[Charge]),
        )

    def leave(self, timeout: float) -> bool:
        self.has_left = True
        return self.hears

    def require_writer(self) -> None:
        if "desk" in self.readers:
            raise HybrisError("this machine only reads the volume")

    def device_proof(self, device: str) -> bytes:
        if not self.charges:
            raise UsageError(f"nothing is proven against {device}")
        return b"proof of " + device.encode()

    def check_proof(self, proof: bytes) -> Proof:
        if not proof.startswith(b"proof of "):
            raise UsageError("this file proves nothing", "no magic")
        device = proof.removeprefix(b"proof of ").decode()
        told = {**self.charges[0], "name": self.name, "id": "11" * 16, "device": device}
        return msgspec.convert({**told, "this_volume": True}, Proof)

    def conflicts(self) -> list[Conflict]:
        rest = {"path": "a", "of": "a", "kind": "version", "size": 0, "modified": ""}
        return [msgspec.convert({**rest, **one}, Conflict) for one in self.conflicting]

    def settle_conflict(self, path: str, *, keep_all: bool) -> None:
        if path not in [one[name] for one in self.conflicting for name in ("path", "of")]:
            raise UsageError(f"there is no conflict at {path}", "", "hybrisfs conflicts list shows them.")
        self.decisions.append((path, keep_all))

    def deletions(self) -> list[Deletion]:
        return msgspec.convert(self.waiting_deletions, list[Deletion])

    def held_files(self, which: str) -> HeldFiles:
        self._check_deletion(which)
        return HeldFiles(self.name, self.waiting_files, len(self.waiting_files))

    def _check_deletion(self, which: str) -> None:
        if which not in [one["id"] for one in self.waiting_deletions]:
            raise UsageError(f"no deletion {which!r} waits", "", "hybrisfs deletions list shows them.")

    def decide_deletion(self, which: str, *, undo: bool) -> None:
        self._check_deletion(which)
        self.decisions.append((which, undo))

    def close(self) -> None:
        self.closed = True


class FakeVolumes(LocalVolumes):
    """Volumes in memory; `opened` are the volumes that were opened."""

    def __init__(self, *names: str) -> None:
        self.configs: dict[str, Volume] = {}
        self.opened: dict[str, FakeVolume] = {}
        self.broken: dict[str, Exception] = {}
        self.joining = FakePairing()
        self.own_names: list[str | None] = []
        self.secrets: dict[str, dict[str, str]] = {}
        self.tried: list[str] = []
        self.lost: list[str] = []
        self.troubles: dict[str, str] = {}
        self.going: set[str] = set()
        self.few_named: bool | UnsetType = UNSET
        self.rebuilt: dict[str, Any] = {"set_aside": "/state/damaged", "recovered": [], "lost": []}
        for name in names:
            self._add(name, [f"file:///clouds/{name}-{number}" for number in range(3)], 1, 1)

    def create(
        self, home: Home, name: str, clouds: Sequence[str], f: int | None, k: int | None, *, make: bool
    ) -> Volume:
        if name in self.configs:
            raise HybrisError(f"there is a volume {name!r} already")
        return self._add(name, clouds, 1 if f is None else f, 1 if k is None else k)

    def join(
        self, home: Home, code: str, name: str | None, own_name: str | None
    ) -> Callable[[Dialogue, threading.Event], Callable[[], Volume]]:
        if code != CODE:
            raise UsageError(f"{code!r} is not a code")
        self.own_names.append(own_name)

        def work(dialogue: Dialogue, stop: threading.Event) -> Callable[[], Volume]:
            self.joining.run(dialogue, stop)
            return lambda: self._add(name or "shared", ["file:///clouds/shared"], 0, 1)

        return work

    def describe_secrets(self, home: Home, url: str) -> SecretsOfPlace:
        self._refuse_nonsense(url)
        wanted = [Secret("user", "User name", False), Secret("password", "Password", True)]
        logins = "rclone keeps them" if url.startswith("rclone:") else ""
        return SecretsOfPlace(
            url, [] if url.startswith("file:") or logins else wanted, url in self.secrets, logins
        )

    def try_place(self, home: Home, url: str, secrets: Mapping[str, str] | None, *, make: bool) -> TriedPlace:
        self._refuse_nonsense(url)
        if secrets is not None:
            if secrets.get("password") == "wrong":
                raise HybrisError(f"the cloud {url} cannot be used", "wrong password")
            self.secrets[url] = dict(secrets)
        self.tried.append(url)
        return TriedPlace(url, {"put": 0.0123})

    @staticmethod
    def _refuse_nonsense(url: str) -> None:
        if not scheme_of(url):
            raise UsageError(f"the cloud {url} cannot be used", "it is no URL")

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
        """DRAWN is the right passphrase; without *incomplete* none of the clouds may be `lost`."""
        tell("trying the passphrase")
        if passphrase != DRAWN:
            raise RecoveryError("the passphrase is wrong", "it opens none of the kits", "Compare it.")
        if self.lost and not incomplete:
            raise RecoveryError(f"{len(self.lost)} clouds are missing", self.lost[0], "Find them.")
        self.own_names.append(own_name)
        volume = self._add(name or "lost", clouds, 1, 1)
        return Recovered(volume, list(self.lost), not self.lost, self.few_named)

    def open(self, home: Home, name: str) -> OpenVolume:
        if name in self.broken:
            raise self.broken[name]
        self.opened[name] = FakeVolume(self.configs[name])
        return cast("OpenVolume", self.opened[name])

    def rebuild(self, home: Home, name: str, step: Callable[[str, int, int], None]) -> Rebuilt:
        assert name not in self.opened or self.opened[name].closed
        step("files", 1, 2)
        if isinstance(self.broken.get(name), DamagedError):
            del self.broken[name]
        elif name in self.broken:
            raise self.broken[name]
        return Rebuilt(**self.rebuilt)

    def empty_clouds(self, home: Home, name: str, tell: Callable[[int], None]) -> Sequence[DeletedCloud]:
        assert name not in self.opened or self.opened[name].closed
        tell(3)
        return [
            DeletedCloud(one.name, one.url, 4, 5000, self.troubles.get(one.name, ""), "", True)
            for one in self.configs[name].clouds
        ]

    def keep_closed(self, home: Home, name: str) -> None:
        self.broken[name] = HybrisError(f"the volume {name} is being deleted")

    def is_going(self, home: Home, name: str) -> bool:
        return name in self.going

    def forget(self, home: Home, name: str) -> None:
        assert name not in self.opened or self.opened[name].closed
        del self.configs[name]

    def rename(self, home: Home, old: str, new: str, renamed: Callable[[str, str], None]) -> None:
        assert self.opened[old].closed
        renamed(old, new)
        self.configs[new] = msgspec.structs.replace(self.configs.pop(old), name=new)

    def finish(self, home: Home, renamed: Callable[[str, str], None]) -> None:
        """Nothing is ever half done."""

    def list(self, home: Home) -> Sequence[Volume]:
        return list(self.configs.values())

    def _add(self, name: str, urls: Sequence[str], f: int, k: int) -> Volume:
        clouds = [CloudUrl(f"cloud-{number}", url) for number, url in enumerate(urls)]
        self.configs[name] = Volume(name, clouds, f, k)
        return self.configs[name]
