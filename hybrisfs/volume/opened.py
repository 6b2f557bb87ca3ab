"""An open volume: its parts, as `hybrisfs.volume.opening` makes them; its background work, and its end.

All background work is listed once, in `Opened._start`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hybrisfs.admit.create import DATABASE_FILE, KEYS_FILE
from hybrisfs.admit.damaged_database import is_damage, naming_damage, rebuild_advice
from hybrisfs.api.devices import Accused
from hybrisfs.dispersal.errors import DispersalError
from hybrisfs.environment import Environment
from hybrisfs.exchange.peering import Links
from hybrisfs.home import Home
from hybrisfs.keys import VolumeKeys
from hybrisfs.merge.unsigned import is_withheld
from hybrisfs.parts import Publishing, Reading, open_reading
from hybrisfs.settings.config import HOARDS, VolumeConfig
from hybrisfs.settings.settings import Settings
from hybrisfs.settings.transfers import Transfers
from hybrisfs.stages import IDLE, LastError, Stage, Wake, start_stages
from hybrisfs.state.database import Database, lock_exclusively
from hybrisfs.state.state import Transaction
from hybrisfs.volume.mounting import Mounting
from hybrisfs.volume.opening import (
    open_clouds,
    open_control,
    open_ground,
    open_receiving,
    open_upkeep,
    open_writing,
)
from hybrisfs.write.ship import Shipper

__all__ = ["Opened"]

log = logging.getLogger(__name__)

_JOIN_SECONDS: Final = 20.0
_OFFLINE_BEACON_SECONDS: Final = 2.0


class Opened:
    """All parts of a volume, from its opening, which starts its background work, to `close`."""

    def __init__(self, home: Home, config: VolumeConfig, environment: Environment) -> None:
        """Raises HybrisError."""
        self.environment: Final = environment
        self.name: Final = config.name
        self.settings: Final = Settings(home, config)
        self.state: Final = home.volume_state(config.name)
        self.last_error: Final = LastError()
        self._mounting: Final = Mounting(self.name)
        with contextlib.ExitStack() as undo:
            self._lock_file = lock_exclusively(self.state)
            undo.callback(os.close, self._lock_file)
            keys = VolumeKeys.load(self.state / KEYS_FILE)
            with naming_damage(config.name, self.state / DATABASE_FILE):
                database = Database(self.state / DATABASE_FILE, environment)
                undo.callback(database.abandon)
                ground = open_ground(home, self.settings, keys, database, self._mounting)
            clouds = open_clouds(ground)
            undo.pop_all()
        with naming_damage(config.name, self.state / DATABASE_FILE):
            reading = open_reading(ground, clouds.engine, clouds, Links())
            receiving = open_receiving(clouds, reading)
            publishing, writing = open_writing(clouds, reading, receiving)
            upkeep = open_upkeep(reading, receiving, writing, self._mounting)
            control = open_control(reading, receiving, writing, upkeep, self._mounting)
        self.ground: Final = ground
        self.fs, self.signals, self.committer = ground.fs, ground.signals, ground.committer
        self.ring, self.sealer, self.sharing = ground.ring, ground.sealer, ground.sharing
        self.engine, self.key_values, self._transfers = clouds.engine, clouds.key_values, clouds.transfers
        self.packs, self.grants = clouds.packs, clouds.grants
        self.links, self.fetcher, self.room = reading.links, reading.fetcher, reading.room
        self.residency = reading.residency
        self.following, self.checkpoints = receiving.following, receiving.checkpoints
        self.peering = receiving.peering
        self.writing, self.relayer, self.uploads = writing, writing.relayer, writing.uploads
        self.maintenance, self.checkup, self._patrol = upkeep.maintenance, upkeep.checkup, upkeep.patrol
        self.thinner, self.versions = upkeep.thinner, upkeep.versions
        self.unreadable, self.collector = upkeep.unreadable, upkeep.collector
        self.archive = upkeep.archive
        self.recovery, self._cloud_set, self.clouds = control.kits, control.cloud_set, control.clouds
        self._fsck, self.mirrors = control.fsck, control.mirrors
        self.content, self.labels, self.browsing = control.content, control.labels, control.browsing
        self.copies, self._kept_copies = control.copies, reading.copies
        self.ignoring, self.agreed = control.ignoring, control.agreed
        self.conflict_table, self.merging = control.conflicts, control.merging
        self.unasked = control.unasked
        self.parcels, self._examiner = control.parcels, control.examiner
        self.content_ids = control.content_ids
        self.settings.changed.listen(self._adopt)
        reading.copies.hoard = HOARDS[config.hoard]
        self._threads = self._start(publishing, reading)

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
        return len({ino for key, ino, *_ in changes.spans() if is_withheld(tx, self.fs, counts, key, ino)})

    def accused(self) -> list[Accused]:
        """See `Trials.facts`."""
        return self.sharing.trials.facts()

    # -- background work -------------------------------------------------------------------------

    def _adopt(self, config: VolumeConfig) -> None:
        """Let those settings hold that can at any time."""
        self._transfers.adopt(config.transfers)
        self.sharing.adopt(config)
        self.following.adopt(config)
        self.versions.keep(config.keep_versions)
        self.fs.journal.budget = config.cache_bytes
        self._kept_copies.hoard = HOARDS[config.hoard]
        self._patrol.days = config.check_days
        self.signals.content_wanted()

    def _start(self, publishing: Publishing, reading: Reading) -> Mapping[str, threading.Thread]:
        """Start all background work; its threads, by the names of the stages."""
        fs, signals = self.fs, self.signals
        wake, packer, deferred = signals.waiting, publishing.packer, publishing.deferred_packer
        stages = (
            Stage("commit", self.committer.step, self.committer.wait, outlives=True),
            Stage("publish", publishing.publisher.step, wake(Wake.CHANGES)),
            Stage("pack", packer.step, wake(Wake.CHUNKS), finish=packer.finish),
            Stage("pack deferred", deferred.step, wake(Wake.DEFERRED), finish=deferred.finish),
            Stage("ship", self.writing.ship, wake(Wake.UPDATES)),
            Stage("pull", self.following.pull, wake(Wake.LOOK)),
            Stage("checkpoint", self.checkpoints.step, wake()),
            Stage("pin", reading.pinner.step, wake(Wake.CONTENT), moves=True),
            Stage("room", self.room.step, wake(), first=IDLE),
            Stage("gc", self.collector.step, wake(), first=self.collector.first),
            Stage("checkup", self.checkup.step, wake(Wake.CHECKUP), first=self.checkup.first),
            Stage("heal", self.maintenance.step, wake(), first=self.maintenance.first, moves=True),
            Stage("samples", self._examiner.step, wake(Wake.SUSPECTED)),
            Stage("merge", self.unasked.step, wake(), moves=True),
            Stage("clouds", self._cloud_set.step, wake(Wake.CLOUDS)),
            Stage("transfers", self._transfers.step, wake(Wake.SETTINGS)),
        )
        threads = start_stages(
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
        return threads

    def look_at_secrets(self) -> None:
        """Those of clouds, on this device, have changed."""
        self.peering.look_at_relays()

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Unmount, stop all threads, commit. What is pending is resumed at the next start."""
        self._mounting.close()
        for stop in (self.signals.stop, self.fetcher.close, self.peering.close, self.mirrors.stop):
            stop()
        if len(self.sharing.current_members()) > 1 and self._transfers.held is None:
            _send_offline_beacon(self.name, self.writing.shipper, self._threads["ship"])
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
            log.debug("the clouds were not told that this machine goes offline: %s", error)

    speaker = threading.Thread(target=say, name=f"{name}-offline", daemon=True)
    speaker.start()
    speaker.join(_OFFLINE_BEACON_SECONDS)
