"""A volume that is open on this device: its parts wired together, its threads, its mount."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from backends.credentials import CredentialStore
from hybrisfs.discard.pages import Pages
from hybrisfs.dispersal.engine import Marker
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.runs import ChunkLocation
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.errors import HybrisError
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.residency import Residency
from hybrisfs.home import Home
from hybrisfs.keyring import KeyRing
from hybrisfs.keys import VolumeKeys
from hybrisfs.merge.removal import Stance
from hybrisfs.merge.roles import Role
from hybrisfs.merge.rows import Change
from hybrisfs.merge.signing import only_reads
from hybrisfs.merge.unsigned import is_withheld
from hybrisfs.pipeline.commit import Committer
from hybrisfs.pipeline.fetch import Fetcher
from hybrisfs.pipeline.grants import Grants
from hybrisfs.pipeline.hoard import Hoarder
from hybrisfs.pipeline.log_repair import SegmentMender
from hybrisfs.pipeline.pack import Packer
from hybrisfs.pipeline.placed import PackMaker
from hybrisfs.pipeline.publish import Publisher
from hybrisfs.pipeline.relay import Relayer
from hybrisfs.pipeline.renew import PackRenewer
from hybrisfs.pipeline.repair import PackMender
from hybrisfs.pipeline.room import RoomMaker
from hybrisfs.pipeline.settle import Settler
from hybrisfs.pipeline.ship import Shipper
from hybrisfs.pipeline.signals import IDLE, Signals, Wake
from hybrisfs.stage import LastError, Stage, start_stages
from hybrisfs.store.database import Database
from hybrisfs.store.journal import Journal
from hybrisfs.versions.thinning import Thinner
from hybrisfs.volume.agreed_clouds import open_engine
from hybrisfs.volume.browsing import Browsing
from hybrisfs.volume.checkpoints import Checkpoints
from hybrisfs.volume.checkup import Checkup
from hybrisfs.volume.cloud_control import CloudControl
from hybrisfs.volume.cloud_keeper import CloudKeeper
from hybrisfs.volume.config import VolumeConfig
from hybrisfs.volume.conflicts import Conflicts
from hybrisfs.volume.create import (
    DATABASE_FILE,
    JOURNAL_FOLDER,
    KEYS_FILE,
    MARKER_NAME,
    marker,
)
from hybrisfs.volume.damage import is_damage, naming_damage, rebuild_advice
from hybrisfs.volume.discarding import make_collector
from hybrisfs.volume.followed_clouds import FollowedClouds
from hybrisfs.volume.fsck import FsckReport, check_volume
from hybrisfs.volume.goodbye import say_goodbye
from hybrisfs.volume.holdings import Holdings
from hybrisfs.volume.key_values import KeyValues
from hybrisfs.volume.leftovers import remove_unknown_segments
from hybrisfs.volume.lock import lock_exclusively
from hybrisfs.volume.maintenance import Maintenance
from hybrisfs.volume.metered import is_metered
from hybrisfs.volume.mirrors import Mirrors
from hybrisfs.volume.mounting import Mounting, begin_mount
from hybrisfs.volume.on_demand import OnDemand
from hybrisfs.volume.others_log import OthersLog
from hybrisfs.volume.own_places import OwnPlaces
from hybrisfs.volume.pairing import Invitation
from hybrisfs.volume.peering import Peering
from hybrisfs.volume.recent_puts import RecentPuts
from hybrisfs.volume.recovery import Kits
from hybrisfs.volume.regaining import Regaining
from hybrisfs.volume.settings import Settings
from hybrisfs.volume.sharing import Sharing
from hybrisfs.volume.status import devices_of, volume_status
from hybrisfs.volume.transfers import Transfers
from hybrisfs.volume.unreadable import Unreadable
from hybrisfs.volume.uploads import Uploads
from hybrisfs.volume.value_holdings import ValueHoldings
from hybrisfs.volume.versions import make_versions

__all__ = ["Volume"]

log = logging.getLogger(__name__)

_CHUNK_TIMEOUT: Final = 30.0
_STATUS_PATIENCE: Final = 1.5
_DROP_PATIENCE: Final = 15.0
_JOIN_SECONDS: Final = 20.0
_HEAD_SECONDS: Final = 30.0
_MEMBERS_SECONDS: Final = 5.0


class Volume:
    """One open volume. Its methods may be called from any thread."""

    def __init__(self, home: Home, config: VolumeConfig) -> None:
        self._home = home
        self.settings = Settings(self, home, config)
        self.name = config.name
        self._mounting = Mounting(self.name, partial(begin_mount, self))
        self.last_error = LastError()
        self.state = state = home.volume_state(config.name)
        with contextlib.ExitStack() as undo:
            self._lock_file = lock_exclusively(state)
            undo.callback(os.close, self._lock_file)
            keys = VolumeKeys.load(state / KEYS_FILE)
            self.ring = KeyRing(keys, keep=lambda keys: keys.replace(state / KEYS_FILE))
            self.sealer = Sealer(self.ring.chunks, keys.dedup)
            self.tables = TableSealer(self.ring.tables)
            with naming_damage(config.name, state / DATABASE_FILE):
                database = Database(state / DATABASE_FILE)
                undo.callback(database.abandon)
                self.mirrors = Mirrors(self)
                self._open_local(database, Journal(state / JOURNAL_FOLDER, budget=config.cache_bytes))
            credentials = CredentialStore(home.credentials)
            self.engine = open_engine(config, credentials, self.sealer, self.tables, OwnPlaces(home))
            undo.pop_all()
        self.key_values = KeyValues(state, self.engine, keys, config, self.require_writer)
        self._transfers = Transfers(
            config.transfers,
            self.engine.throttle,
            self.signals,
            lambda chosen: self.settings.set(transfers=chosen),
            is_metered,
        )
        self._transfers.look()
        with naming_damage(config.name, state / DATABASE_FILE):
            self._start_pipeline()

    @property
    def config(self) -> VolumeConfig:
        """As it is now."""
        return self.settings.config

    @property
    def transfers(self) -> Transfers:
        """What may move, by the configuration as it is in the file now."""
        self.settings.look()
        return self._transfers

    def adopt(self, config: VolumeConfig) -> None:
        """Let those settings hold that can at any time."""
        self._transfers.adopt(config.transfers)
        self.sharing.freshness.blocks = config.stale_reads == "block"
        self.sharing.brake.share = config.deletion_share
        self.sharing.trials.adopt(config.veto_hours, evicts=config.evict_liars)
        self.versions.keep(config.keep_versions)
        self.fs.journal.budget = config.cache_bytes

    @staticmethod
    def open(home: Home, name: str) -> Volume:
        """Open the volume and start its background work. Raises HybrisError."""
        return Volume(home, VolumeConfig.load(home, name))

    def _open_local(self, database: Database, journal: Journal) -> None:
        self.fs = FileSystem(database, journal, self.sealer.chunk_id, owner=(os.getuid(), os.getgid()))
        remove_unknown_segments(database, journal)
        self.signals = Signals()
        regaining = Regaining(database.path.parent)
        share = self.config.deletion_share
        self.sharing = Sharing(
            self.fs,
            self.ring,
            self.signals,
            self.show,
            share,
            regaining,
            lambda foresee: self._mounting.upcoming(foresee),
        )
        self.sharing.trials.adopt(self.config.veto_hours, evicts=self.config.evict_liars)
        self.updates = self.sharing.updates
        self.conflict_table = Conflicts(self.fs, self.show)

    def _start_pipeline(self) -> None:
        fs, signals, config = self.fs, self.signals, self.config
        fs.changes.begun.listen(signals.changes_made)
        self.committer = Committer(fs, self.signals)
        self.fetcher = Fetcher(
            fs,
            self.get_chunks,
            lambda identities, seconds: self.peering.fetch_chunks(identities, seconds),
            lambda: signals.held,
            self.engine.upkeep.find_shares,
        )
        self.room = RoomMaker(fs, self.committer, signals, self.can_upload)
        hoarder = Hoarder(fs, self.fetcher, self.room, signals, self.committer.commit_now)
        self.content = OnDemand(fs, self.committer, hoarder, self.room, signals, self._mounting.shown)
        self.residency = Residency(fs, self.can_upload)
        self.browsing = Browsing(fs, self.fetcher, self.residency)
        settler = Settler(fs, self.sealer.chunk_id, self.fetcher.fetch_one)
        sharing = self.sharing
        publisher = Publisher(fs, settler, sharing.signer, sharing.receiver.signed, signals)
        redundancy = Redundancy(config.f, config.k)
        self.packs = PackMaker(self.sealer, self.tables, redundancy, self.engine.put_pack)
        self.grants = Grants(self.ring, config.id, sharing.key_holders, self.engine)
        puller = sharing.follow(
            FollowedClouds(self.engine),
            self.grants.fetch,
            lambda: self._shipper.announce_soon(),
            lambda: self.grants.is_shut_out,
        )
        self.relayer = Relayer(
            fs,
            self.updates,
            signals,
            self.ring.segments,
            puller.heads,
            self.fetcher.fetch_one,
            puller.past,
            lambda: {one.device_id for one in self.peering.status()},
            lambda: self.peering.told,
        )
        self.uploads = Uploads(fs, signals, self.updates, self.relayer)
        shipper = Shipper(
            fs,
            self.updates,
            signals,
            self.committer,
            self.ring.keys.device,
            self.ring.segments,
            lambda name, data: self.engine.put_object(name, data, self.config.f + self.config.k),
            self.engine.put_everywhere,
            sharing.has_looked,
            lambda head: self.peering.announce(head),
            self.relayer,
            self.grants.ensure,
            lambda: self.checkpoints.told(),
            puller.past,
            sharing.agreement.claim,
        )
        self._shipper = shipper
        self.checkpoints = Checkpoints(self, puller.heads, shipper.announce_soon)
        self._marker = Marker(MARKER_NAME, marker(config.id))
        upkeep = self.engine.upkeep
        holdings = Holdings(fs, upkeep, self.ring, config.id)
        recent = RecentPuts(fs, holdings, upkeep, self.updates.device)
        renewer = PackRenewer(
            fs, sharing.signer, signals, self.packs, self.fetcher.fetch_from_devices, self.fetcher.settle
        )
        segments = SegmentMender(fs, self.updates, config.id, self.ring.segments, upkeep)
        others = OthersLog(
            fs,
            self.updates.device,
            config.id,
            self.ring.segments,
            sharing.members,
            upkeep,
            segments,
            lambda: self.config.f + self.config.k,
        )
        self.maintenance = Maintenance(
            holdings,
            upkeep,
            PackMender(fs, sharing.signer, signals, upkeep, self.tables, renewer),
            segments,
            signals,
            self.checkpoints.holdings,
            ValueHoldings(self.key_values),
            others,
            {one.number: one.name for one in config.clouds},
            marker(config.id),
            self.look_at_clouds,
            lambda: shipper.announce_again(_HEAD_SECONDS),
        )
        self.checkup = Checkup(
            fs, self.engine, self._marker, signals, recent, self.maintenance.guard, self._look_after
        )
        self.thinner = Thinner(fs, config.keep_versions, Pages(fs, self.fetcher.fetch_one).read)
        self.versions = make_versions(self)
        self.unreadable = Unreadable(self)
        self.fetcher.unavailable.listen(self.unreadable.note)
        self.collector = make_collector(self)
        self.peering = Peering(
            fs,
            sharing,
            self.ring,
            self.sealer,
            self.committer,
            puller,
            signals,
            config.links,
            self.checkpoints,
        )
        self.recovery = Kits(self)
        self._keeper = CloudKeeper(self, self._home)
        self.clouds = CloudControl(self, self._keeper)
        sharing.log_grew.listen(self.peering.advanced)
        sharing.members_changed.listen(self.peering.members_changed)
        sharing.members_changed.listen(self._keeper.changed)  # recovery kits tell who the members are
        sharing.looked_after.listen(self.peering.look_after)
        packer = Packer(fs, sharing.signer, signals, self.packs, self.fetcher.settle)
        wake = signals.waiting
        stages = (
            Stage("commit", self.committer.step, self.committer.wait, outlives=True),
            Stage("publish", publisher.step, wake(Wake.CHANGES)),
            Stage("pack", packer.step, wake(Wake.CHUNKS), finish=packer.finish),
            Stage("ship", shipper.step, wake(Wake.UPDATES)),
            Stage("pull", sharing.pull, wake(Wake.LOOK)),
            Stage("checkpoint", self.checkpoints.step, wake()),
            Stage("hoard", hoarder.step, wake(Wake.CONTENT), moves=True),
            Stage("room", self.room.step, wake(), first=IDLE),
            Stage("discard", self.collector.step, wake(), first=self.collector.first),
            Stage("checkup", self.checkup.step, wake(Wake.CHECKUP), first=self.checkup.first),
            Stage("heal", self.maintenance.step, wake(), first=self.maintenance.first, moves=True),
            Stage("clouds", self._keeper.step, wake(Wake.CLOUDS)),
            Stage("transfers", self._transfers.step, wake(Wake.SETTINGS)),
        )
        self._threads = start_stages(
            self.name,
            stages,
            signals,
            lambda: fs.journal.failure is not None,
            lambda error: f"; {rebuild_advice(self.name)}" if is_damage(error) else "",
            self.last_error,
        )
        signals.changes_made()
        signals.chunks_made()
        self.peering.members_changed()
        sharing.freshness.blocks = config.stale_reads == "block"
        self.mirrors.start()

    def _look_after(self) -> None:
        self.sharing.look_after()
        if self.recovery.is_overdue:
            self._keeper.changed()

    def can_upload(self) -> bool:
        """Whether enough clouds are well for anything to leave this device."""
        if self.signals.held:
            return False
        usable = [one for one in self.engine.health() if one.number in self.engine.in_use]
        well = sum(one.state in ("ok", "slow", "lying") for one in usable)
        return well >= self.config.f + self.config.k

    def get_chunks(self, locations: Sequence[ChunkLocation]) -> list[bytes]:
        """Chunks of one pack, from the clouds. Raises ChunkUnavailable."""
        return self.engine.get_chunks(locations, timeout=_CHUNK_TIMEOUT)

    def show(self, changes: Sequence[Change]) -> None:
        """The view has changed otherwise than through the mount."""
        self.signals.content_wanted()
        self.mirrors.noticed(changes)
        self.tell_kernel(changes)

    def tell_kernel(self, changes: Sequence[Change]) -> None:
        """Have the kernel told what has changed otherwise than through the mount."""
        self._mounting.notify(changes)

    # -- mounting --------------------------------------------------------------------------------

    @property
    def mountpoint(self) -> Path | None:
        return self._mounting.directory

    def mount(self, directory: Path, *, allow_other: bool = False, again: bool = False) -> None:
        """Mount at *directory*; returns when programs can use it. Raises HybrisError."""
        self._mounting.mount(directory, allow_other=allow_other, again=again)

    def unmount(self, *, lazy: bool = False) -> None:
        """Unmount, and make everything written so far durable. Raises HybrisError while files are open."""
        self._mounting.unmount(lazy=lazy)
        self.committer.commit_now()

    # -- what people ask -------------------------------------------------------------------------

    def status(self, *, look: bool = True) -> dict[str, object]:
        """The facts that `hybrisfs status --json` shows; with *look*, after a look at the clouds."""
        if look:
            self.checkup.refresh(_STATUS_PATIENCE)
        return volume_status(self)

    def sync(self, timeout: float | None, progress: Callable[[int, int], None]) -> bool:
        """See `Uploads.wait`. Raises HybrisError while transfers are held, for that may last, and when this
        device was removed from the volume."""
        self.transfers.require_free()

        def told(done: int, total: int) -> None:
            self._require_membership()
            self._require_signed()
            progress(done, total)

        done = self.uploads.wait(timeout, told)
        if done and timeout != 0:
            self.sharing.look_at_members(_MEMBERS_SECONDS)
            self._require_membership()
        return done

    def _require_signed(self) -> None:
        """Raises HybrisError when something that was written here waits for this device to be a full member
        again."""
        with self.fs.lock:
            if self.unsaved or (self.fs.read_only and self.uploads.pending_bytes()):
                self.require_writer()

    @property
    def unsaved(self) -> int:
        """How many files and folders were changed here and are on no other device, as this one may not change
        them now; with the volume's lock held."""
        if self.fs.is_full:
            return 0
        changes, counts = self.fs.changes, self.sharing.signer.counting()
        unsigned = [(key, ino) for key, (ino, _) in changes.unsigned.items() if key not in changes.held]
        return len({ino for key, ino in unsigned if is_withheld(self.fs, counts, key, ino)})

    def _require_membership(self) -> None:
        if self.sharing.was_removed:
            raise HybrisError(
                f"this device was removed from the volume {self.name}",
                "what changes here reaches no other device",
                "Copy what you need to another folder. To belong to the volume again, delete it here and "
                "pair this device anew.",
            )

    def look_at_clouds(self) -> None:
        """Ask every cloud whether it is there, also those that would not be asked again yet; and let those
        that are, as a cloud that has just been added, have our head."""
        self.engine.probe(self._marker, everyone=True)
        well = [one.number for one in self.engine.health() if one.state == "ok"]
        used = frozenset(self.engine.in_use).intersection(well)
        if self.sharing.look_for_own_head(used, _HEAD_SECONDS):
            self._shipper.announce_again(_HEAD_SECONDS)

    def drop_cache(self) -> dict[str, int]:
        """Forget every cached byte that the clouds hold, after a look whether they still do."""
        self.checkup.refresh(_DROP_PATIENCE, thoroughly=True)
        freed, kept = self.room.drop_all()
        return {"freed_bytes": freed, "kept_bytes": kept}

    def fsck(self, *, clouds: bool, progress: Callable[[str, int, int], None]) -> FsckReport:
        """Verify database, log, cache and, with *clouds*, every share on every cloud."""
        self.committer.commit_now()
        return check_volume(self, clouds=clouds, progress=progress)

    # -- devices ---------------------------------------------------------------------------------

    def invite(
        self, *, lifetime: float, with_credentials: bool, reader: bool = False, folders: Sequence[str] = ()
    ) -> Invitation:
        """An invitation for one device, good for *lifetime* seconds; *reader*: it is to read only; *folders*:
        it is to be limited to these. Raises UsageError, and HybrisError when this device is no full member
        itself."""
        sharing = self.sharing
        self.require_writer()
        rights = sharing.shared_folders.rights(folders, reader=reader)
        self.checkpoints.keeper.hurry()
        return Invitation(
            self._home,
            self.config,
            self.ring.keys,
            sharing.membership.own_name,
            sharing.key_holders,
            partial(sharing.admit, rights=rights),
            lifetime=lifetime,
            with_credentials=with_credentials,
            reader=rights.role is not Role.FULL,
        )

    def require_writer(self) -> None:
        """Raises HybrisError unless this device is a full member."""
        with self.fs.lock:
            self.sharing.signer.require_writer()

    def role_of(self, device: str) -> dict[str, object]:
        """See `Sharing.role_of`."""
        return self.sharing.role_of(device)

    def set_role(
        self,
        device: str,
        *,
        reader: bool = False,
        folders: Sequence[str] = (),
        passphrase: str | None = None,
    ) -> dict[str, object]:
        """Make a device a reader, a contributor to *folders*, or a full member: see `Sharing.set_role`; then
        the same as `role_of`. With the *passphrase* of a recovery kit, the kit says so, see `Kits.sign`."""
        if passphrase is None:
            self.require_writer()
        member, _ = self.sharing.membership.rights_of(device)
        rights = self.sharing.shared_folders.rights(folders, reader=reader, device=member.device)
        if passphrase is None:
            self.sharing.set_role(device, rights)
        else:
            kit = partial(self.recovery.sign, passphrase)
            self.sharing.set_role(device, rights, lambda write: kit(lambda _: [write]))
        self.committer.commit_now()
        return self.role_of(device)

    def devices(self) -> list[dict[str, object]]:
        """See `status.devices_of`."""
        return devices_of(self)

    def rename_device(self, device: str, name: str) -> None:
        """See `Membership.rename`."""
        self.sharing.membership.rename(device, name)

    def admitted_by(self, device: str) -> dict[str, object]:
        """See `Membership.described`."""
        return self.sharing.membership.described(device)

    def remove_device(
        self, device: str, *, with_admitted: bool = False, passphrase: str | None = None
    ) -> dict[str, object]:
        """See `Membership.remove`; with the URLs of the clouds that it may still have secrets of, and what is
        proven against it. With the *passphrase* of a recovery kit, the kit votes instead, see `Kits.vote`."""
        membership = self.sharing.membership
        if passphrase is None:
            removed = membership.remove(device, with_admitted=with_admitted)
        else:
            vote = partial(self.recovery.vote, passphrase, Stance.REMOVE)
            removed = membership.remove_by(device, vote, with_admitted=with_admitted)
        return {
            **removed,
            "clouds": [cloud.url for cloud in self.config.clouds],
            "charges": self.sharing.misconduct.facts(bytes.fromhex(str(removed["id"]))),
        }

    def keep_device(self, device: str, *, passphrase: str | None = None) -> dict[str, object]:
        """See `Membership.keep`; with the *passphrase* of a recovery kit, the kit vetoes instead."""
        membership = self.sharing.membership
        if passphrase is None:
            return membership.keep(device)
        member = membership.find_accused(device)
        self.recovery.vote(passphrase, Stance.KEEP, [member.device])
        kept = member.device in self.sharing.key_holders()
        return {"id": member.device.hex(), "device": member.name, "kept": kept}

    def accused(self) -> list[dict[str, object]]:
        """See `Trials.facts`."""
        return self.sharing.trials.facts()

    def device_proof(self, device: str) -> bytes:
        """The file that proves what a device did that none may. Raises UsageError when nothing is proven."""
        sharing = self.sharing
        return sharing.misconduct.proof(sharing.membership.find(device).device)

    def check_proof(self, proof: bytes) -> dict[str, object]:
        """See `Misconduct.check`."""
        return self.sharing.misconduct.check(proof)

    def conflicts(self) -> list[dict[str, object]]:
        """See `Conflicts.all`."""
        return self.conflict_table.all()

    def settle_conflict(self, path: str, *, keep_all: bool) -> None:
        """See `Conflicts.keep` and `Conflicts.keep_all`. A contributor settles those in its folders."""
        if self.fs.read_only:
            raise only_reads()
        (self.conflict_table.keep_all if keep_all else self.conflict_table.keep)(path)

    def deletions(self) -> list[dict[str, object]]:
        """See `Deletions.all`."""
        return self.sharing.deletions.all()

    def decide_deletion(self, which: str, *, undo: bool) -> None:
        """See `Deletions.accept` and `Deletions.undo`."""
        (self.sharing.deletions.undo if undo else self.sharing.deletions.accept)(which)

    # -- the end ---------------------------------------------------------------------------------

    def _say_goodbye(self) -> None:
        if len(self.sharing.current_members()) > 1 and self._transfers.held is None:
            say_goodbye(self.name, self._shipper, self._threads["ship"])

    def close(self) -> None:
        """Unmount, stop all threads, commit. What is pending is resumed at the next start."""
        self._mounting.close()
        for stop in (self.signals.stop, self.fetcher.close, self.peering.close, self.mirrors.stop):
            stop()
        self._say_goodbye()
        for end in (self.engine.close, self.fetcher.join, self.key_values.close, self.sharing.close):
            end()
        for name, thread in self._threads.items():
            if name != "commit":
                thread.join(_JOIN_SECONDS)
        self.committer.stop()
        self._threads["commit"].join(_JOIN_SECONDS)
        with self.fs.lock, contextlib.ExitStack() as last:
            last.callback(os.close, self._lock_file)
            last.callback(self.fs.db.close)
            last.callback(self.fs.journal.close)
            try:
                self.committer.commit_now()
            except OSError as error:
                log.error("volume %s: the last changes could not be committed: %s", self.name, error)
