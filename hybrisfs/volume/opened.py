"""An open volume: its parts, opened in stages, each of which takes earlier ones; and its end.

    ground (settings, keys, tree) -> sharing -> clouds -> reading -> receiving -> writing -> upkeep -> control

All background work is listed once, at the end of `Opened._start_pipeline`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from backends.credentials import CredentialStore
from hybrisfs.admit.create import DATABASE_FILE, JOURNAL_FOLDER, KEYS_FILE
from hybrisfs.admit.damaged_database import is_damage, naming_damage, rebuild_advice
from hybrisfs.admit.kits import Kits
from hybrisfs.api.devices import Accused
from hybrisfs.clouds.agreed_clouds import open_engine
from hybrisfs.clouds.checkpoints import Checkpoints
from hybrisfs.clouds.checkup import Checkup, RecentPuts
from hybrisfs.clouds.cloud_set import CloudSet
from hybrisfs.clouds.control import CloudControl
from hybrisfs.clouds.maintenance import Maintenance
from hybrisfs.clouds.objects import CloudObjects
from hybrisfs.clouds.value_services import ValueServices
from hybrisfs.dispersal.engine import Marker
from hybrisfs.dispersal.errors import DispersalError
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.gc.collector import Collector
from hybrisfs.gc.find import Pages
from hybrisfs.home import Home
from hybrisfs.keyring import KeyRing
from hybrisfs.keys import VolumeKeys
from hybrisfs.kv.log_store import LogStore
from hybrisfs.kv.opening import KeyValues
from hybrisfs.kv.shared import Owner, SharedStores
from hybrisfs.merge.unsigned import is_withheld
from hybrisfs.parts import Clouds, Core, Ground, HeadSources, Reading, Writing
from hybrisfs.read.evict import Evictor
from hybrisfs.read.fetch import Fetcher
from hybrisfs.read.pin import Hoarder
from hybrisfs.receive.pull import Puller
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.settings.settings import Settings
from hybrisfs.settings.transfers import Transfers, is_metered
from hybrisfs.sharing.awaited_log import AwaitedLog
from hybrisfs.sharing.links import Links
from hybrisfs.sharing.peering import Peering
from hybrisfs.stages import IDLE, LastError, Stage, Wake, start_stages
from hybrisfs.state.database import Database, lock_exclusively
from hybrisfs.state.journal import Journal
from hybrisfs.state.state import Transaction
from hybrisfs.stores.own_places import MARKER_NAME, OwnPlaces, marker
from hybrisfs.tree.residency import Residency
from hybrisfs.verify.fsck import Fsck
from hybrisfs.versions.thinning import Thinner
from hybrisfs.volume.decisions import Conflicts, Unreadable
from hybrisfs.volume.files import Browsing, Labelling, OnDemand
from hybrisfs.volume.mirrors import Mirrors
from hybrisfs.volume.mounting import Mounting
from hybrisfs.volume.versions import Versions
from hybrisfs.write.grants import Grants
from hybrisfs.write.pack import IN_FLIGHT, Packer, PackMaker
from hybrisfs.write.publish import Chunker, Publisher
from hybrisfs.write.relayer import Relayer, Uploads
from hybrisfs.write.ship import Shipper

__all__ = ["Opened"]

log = logging.getLogger(__name__)

_JOIN_SECONDS: Final = 20.0
_OFFLINE_BEACON_SECONDS: Final = 2.0


class Opened:
    """All parts of a volume, from its opening, which starts its background work, to `close`."""

    def __init__(self, home: Home, config: VolumeConfig, environment: Environment = SYSTEM) -> None:
        """Raises HybrisError."""
        self.environment: Final = environment
        self.name = config.name
        self.settings = Settings(home, config)
        self.state = home.volume_state(config.name)
        self.last_error = LastError()
        self._mounting = Mounting(self.name)
        with contextlib.ExitStack() as undo:
            self._lock_file = lock_exclusively(self.state)
            undo.callback(os.close, self._lock_file)
            keys = VolumeKeys.load(self.state / KEYS_FILE)
            with naming_damage(config.name, self.state / DATABASE_FILE):
                database = Database(self.state / DATABASE_FILE, environment)
                undo.callback(database.abandon)
                self._open_ground(home, keys, database)
            self._open_clouds(keys)
            undo.pop_all()
        with naming_damage(config.name, self.state / DATABASE_FILE):
            self._open_reading()
            self._open_receiving()
            self._open_writing()
            self._open_upkeep()
            self._open_control()
            self._start_pipeline()

    @property
    def config(self) -> VolumeConfig:
        """As it is now."""
        return self.settings.config

    # -- how it is ------------------------------------------------------------------------------

    @property
    def transfers(self) -> Transfers:
        """What may move, by the configuration as it is in the file now."""
        self.settings.look()
        return self._transfers

    @property
    def mountpoint(self) -> Path | None:
        return self._mounting.directory

    def unsaved(self, tx: Transaction) -> int:
        """How many files and folders were changed here and are on no other device, as this one may not change
        them now."""
        if self.fs.is_full:
            return 0
        changes, counts = self.fs.changes, self.sharing.signer.counting(tx)
        unsigned = [(key, ino) for key, (ino, _) in changes.unsigned.items() if key not in changes.held]
        return len({ino for key, ino in unsigned if is_withheld(tx, self.fs, counts, key, ino)})

    def accused(self) -> list[Accused]:
        """See `Trials.facts`."""
        return self.sharing.trials.facts()

    # -- the stages of opening -------------------------------------------------------------------

    def _open_ground(self, home: Home, keys: VolumeKeys, database: Database) -> None:
        state, environment = self.state, self.environment
        self.ring = KeyRing(keys, path=state / KEYS_FILE, environment=environment)
        self.sealer = Sealer(self.ring.chunks, keys.dedup)
        self.tables = TableSealer(self.ring.tables)
        journal = Journal(state / JOURNAL_FOLDER, environment, budget=self.config.cache_bytes)
        core = Core(
            database,
            journal,
            self.sealer,
            self.ring,
            (os.getuid(), os.getgid()),
            deletion_share=self.config.deletion_share,
            awaited_log=AwaitedLog(state, environment),
            upcoming=self._mounting.upcoming,
        )
        self.fs, self.signals, self.committer = core.fs, core.signals, core.committer
        self.ground = Ground(
            home,
            self.settings,
            state,
            self.ring,
            self.sealer,
            self.tables,
            self.fs,
            self.signals,
            self.committer,
        )
        self.fs.shown.listen(lambda changes: self.signals.content_wanted())
        self.fs.shown.listen(self._mounting.notify)
        self.sharing = core.sharing
        self.sharing.adopt(self.config)
        self.conflict_table = Conflicts(self.fs)

    def _open_clouds(self, keys: VolumeKeys) -> None:
        ground, config = self.ground, self.config
        credentials = CredentialStore(ground.home.credentials)
        self.engine = engine = open_engine(
            config,
            credentials,
            ground.sealer,
            ground.tables,
            OwnPlaces(ground.home, self.environment),
            self.environment,
        )
        redundancy = Redundancy(config.f, config.k)
        owner = Owner(config.id, keys.device.device_id, keys.first.values, ground.ring.values)
        services = ValueServices(ground, self.sharing)
        shared = SharedStores(ground.state, engine, owner, services, credentials, redundancy, self.sharing)
        in_log = LogStore(ground.fs, self.sharing.signer, ground.committer, ground.signals)
        self.key_values = KeyValues(ground.state, engine, keys, redundancy, shared, in_log, self.sharing)
        self._transfers = Transfers(
            config.transfers,
            engine.throttle,
            ground.signals,
            lambda chosen: self.settings.set(transfers=chosen),
            is_metered,
        )
        self._transfers.look()
        self.packs = PackMaker(ground.sealer, ground.tables, redundancy, engine)
        self.grants = Grants(ground.ring, config.id, self.sharing.key_holders, engine)
        self._clouds = Clouds(
            ground,
            engine,
            Marker(MARKER_NAME, marker(config.id)),
            self.packs,
            self.grants,
            self.key_values,
            self._transfers,
        )

    def _open_reading(self) -> None:
        fs, signals, clouds = self.fs, self.signals, self._clouds
        self.links = Links()
        self.fetcher = Fetcher(fs, self.engine, signals, self.links.fetch_chunks)
        self.room = Evictor(fs, self.committer, signals, clouds)
        self.residency = Residency(fs, clouds)
        hoarder = Hoarder(fs, self.fetcher, self.room, signals, self.committer)
        self._reading = Reading(self.fetcher, self.room, hoarder, self.residency)
        self.content = OnDemand(fs, self.committer, hoarder, self.room, signals, self._mounting)
        self.labels = Labelling(fs, self.committer, self._mounting)
        self.browsing = Browsing(fs, self.fetcher, self.residency)

    def _open_receiving(self) -> None:
        self._puller: Puller = self.sharing.follow(self.engine, self.grants)
        self.checkpoints = Checkpoints(self.ground, self.sharing, self._clouds, self.links, self._puller)
        self.peering = Peering(
            self.fs,
            self.sharing,
            self.ring,
            self.sealer,
            self.committer,
            self.signals,
            self.config.links,
            self.links,
            self.checkpoints.checkpointer,
        )

    def _open_writing(self) -> None:
        fs, signals, sharing, puller = self.fs, self.signals, self.sharing, self._puller
        chunker = Chunker(fs, self.fetcher)
        self._publisher = Publisher(fs, chunker, sharing.signer, sharing.receiver, signals)
        uploaders = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="upload")
        self._packer = Packer(fs, sharing.signer, signals, self.packs, self.fetcher, uploaders)
        self.relayer = Relayer(
            fs,
            signals,
            self.ring.segments,
            puller,
            self.fetcher,
            self.links,
        )
        self.uploads = Uploads(fs, signals, self.relayer, self.fetcher)
        self._shipper = Shipper(
            fs,
            signals,
            self.committer,
            self.ring,
            self._clouds,
            self.relayer,
            HeadSources(puller, self.checkpoints.checkpointer, sharing.agreement),
        )
        self._shipper.told.listen(self.links.announce)
        self.writing = Writing(self._clouds, sharing, self.relayer, self.uploads, self._shipper)

    def _open_upkeep(self) -> None:
        fs, signals, sharing, config = self.fs, self.signals, self.sharing, self.config
        objects = CloudObjects(self.writing, self.fetcher, self.checkpoints.expected)
        self.maintenance = Maintenance(objects, self.writing)
        recent = RecentPuts(fs, objects.expected, objects.upkeep, self.sharing.device, self.environment)
        self.checkup = Checkup(fs, self.engine, self._clouds.marker, signals, recent, self.maintenance)
        self.checkup.minute.listen(sharing.look_after)
        self.thinner = Thinner(fs, config.keep_versions, Pages(fs, self.fetcher).read)
        self.versions = Versions(
            fs,
            self.committer,
            self.fetcher,
            self.thinner,
            self.uploads,
            config.name,
        )
        self.unreadable = Unreadable(self.ground, sharing, self.versions, self._mounting)
        self.fetcher.unavailable.listen(self.unreadable.note)
        self.collector = Collector(self.ground, self.fetcher, self.writing, self.thinner, objects)

    def _open_control(self) -> None:
        ground, sharing, clouds = self.ground, self.sharing, self._clouds
        self.recovery = Kits(ground, sharing, self.engine, self.uploads)
        self._cloud_set = CloudSet(
            ground, sharing, clouds, self.maintenance, self.writing, self.checkpoints, self.recovery
        )
        self.checkup.minute.listen(self._cloud_set.look_after)
        self.clouds = CloudControl(ground, sharing, clouds, self._cloud_set, self.maintenance, self.writing)
        self._fsck = Fsck(self.writing, self.maintenance, self.collector, self._cloud_set)
        self.mirrors = Mirrors(ground, sharing, self._reading, self._mounting)
        self.settings.changed.listen(self._adopt)

    def _adopt(self, config: VolumeConfig) -> None:
        """Let those settings hold that can at any time."""
        self._transfers.adopt(config.transfers)
        self.sharing.adopt(config)
        self.versions.keep(config.keep_versions)
        self.fs.journal.budget = config.cache_bytes

    def _start_pipeline(self) -> None:
        """Start all background work."""
        fs, signals = self.fs, self.signals
        wake = signals.waiting
        stages = (
            Stage("commit", self.committer.step, self.committer.wait, outlives=True),
            Stage("publish", self._publisher.step, wake(Wake.CHANGES)),
            Stage("pack", self._packer.step, wake(Wake.CHUNKS), finish=self._packer.finish),
            Stage("ship", self.writing.ship, wake(Wake.UPDATES)),
            Stage("pull", self.sharing.pull, wake(Wake.LOOK)),
            Stage("checkpoint", self.checkpoints.step, wake()),
            Stage("hoard", self._reading.hoarder.step, wake(Wake.CONTENT), moves=True),
            Stage("room", self.room.step, wake(), first=IDLE),
            Stage("discard", self.collector.step, wake(), first=self.collector.first),
            Stage("checkup", self.checkup.step, wake(Wake.CHECKUP), first=self.checkup.first),
            Stage("heal", self.maintenance.step, wake(), first=self.maintenance.first, moves=True),
            Stage("clouds", self._cloud_set.step, wake(Wake.CLOUDS)),
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
        self.peering.open()
        self.mirrors.start()

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Unmount, stop all threads, commit. What is pending is resumed at the next start."""
        self._mounting.close()
        for stop in (self.signals.stop, self.fetcher.close, self.peering.close, self.mirrors.stop):
            stop()
        if len(self.sharing.current_members()) > 1 and self._transfers.held is None:
            _send_offline_beacon(self.name, self._shipper, self._threads["ship"])
        for end in (self.engine.close, self.fetcher.join, self.key_values.close, self.sharing.close):
            end()
        for name, thread in self._threads.items():
            if name != "commit":
                thread.join(_JOIN_SECONDS)
        self.committer.stop()
        self._threads["commit"].join(_JOIN_SECONDS)
        try:
            self.committer.commit_now()
        except OSError as error:
            log.error("volume %s: the last changes could not be committed: %s", self.name, error)
        with self.fs.state.transaction(), contextlib.ExitStack() as last:
            last.callback(os.close, self._lock_file)
            last.callback(self.fs.state.close)
            last.callback(self.fs.journal.close)


def _send_offline_beacon(name: str, shipper: Shipper, thread: threading.Thread) -> None:
    """Tell the clouds when the shipper's *thread* has ended, if they listen; closing waits for nobody."""

    def say() -> None:
        thread.join(_OFFLINE_BEACON_SECONDS)
        try:
            shipper.send_offline_beacon()
        except (DispersalError, OSError) as error:
            log.debug("the clouds were not told that this device goes offline: %s", error)

    speaker = threading.Thread(target=say, name=f"{name}-offline", daemon=True)
    speaker.start()
    speaker.join(_OFFLINE_BEACON_SECONDS)
