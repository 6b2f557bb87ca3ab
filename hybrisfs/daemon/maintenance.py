"""The daemon's commands that look after a volume: its database and recovery kits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from hybrisfs.api.maintenance import (
    CacheDropRequest,
    CheckedVolume,
    Collected,
    Doing,
    FsckRequest,
    GcRequest,
    Kits,
    Recovered,
    RecoverRequest,
    RecoveryMakeRequest,
    RecoveryRemoveRequest,
    RecoveryShowRequest,
    RepairedVolume,
    RepairRequest,
    ScrubbedVolume,
    ScrubRequest,
    UnnamedValues,
)
from hybrisfs.api.request import Handler, Step, extended
from hybrisfs.api.volumes import RebuiltVolume, VolumeRebuildRequest
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home

if TYPE_CHECKING:
    from hybrisfs.daemon.local import LocalVolumes
    from hybrisfs.kv.rebuild import UnnamedValues as FoundValues
    from hybrisfs.volume.volume import Volume as OpenVolume

__all__ = ["MaintenanceCommands", "RecoveryCommands", "steps", "unnamed_values"]

log = logging.getLogger(__name__)


class MaintenanceCommands:
    """Passes on what is asked. A client that hangs up stops the work."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                CacheDropRequest.answered_by(lambda asked: slots.get(asked.name).open().drop_cache()),
                FsckRequest.answered_by(self._fsck),
                ScrubRequest.answered_by(self._scrub),
                RepairRequest.answered_by(self._repair),
                GcRequest.answered_by(self._gc),
                VolumeRebuildRequest.answered_by(self._rebuild),
            ]
        )

    def _fsck(self, asked: FsckRequest, tell: Callable[[Step], None]) -> CheckedVolume:
        slot = self._slots.get(asked.name)
        report = slot.open().fsck(clouds=asked.clouds, progress=steps(tell))
        return extended(CheckedVolume, report.facts(), name=slot.name)

    def _scrub(self, asked: ScrubRequest, tell: Callable[[Step], None]) -> ScrubbedVolume:
        slot = self._slots.get(asked.name)
        volume = slot.open()
        report = volume.maintenance.scrub(asked.sample, steps(tell))
        return extended(
            ScrubbedVolume, report.facts(), name=slot.name, sample=asked.sample, values=_unnamed(volume)
        )

    def _repair(self, asked: RepairRequest, tell: Callable[[Step], None]) -> RepairedVolume:
        slot = self._slots.get(asked.name)
        report = slot.open().maintenance.repair(steps(tell))
        return extended(RepairedVolume, report.facts(), name=slot.name)

    def _gc(self, asked: GcRequest, tell: Callable[[Step], None]) -> Collected:
        slot = self._slots.get(asked.name)
        volume = slot.open()
        collection = volume.collector.collect(steps(tell), dry_run=asked.dry_run)
        kept = volume.status(look=False).checkpoint.log
        told = {"name": slot.name, "dry_run": asked.dry_run, "log": kept, "values": _unnamed(volume)}
        return msgspec.convert({**collection.as_dict(), **told}, Collected)

    def _rebuild(self, asked: VolumeRebuildRequest, tell: Callable[[Step], None]) -> RebuiltVolume:
        slot = self._slots.get(asked.name)
        return extended(RebuiltVolume, slot.rebuild(steps(tell)), name=slot.name)


def _unnamed(volume: OpenVolume) -> UnnamedValues | None:
    """How many objects of values nothing names; None when that is unknown."""
    try:
        return unnamed_values(volume.key_values.orphans(volume.maintenance.trusted()).look())
    except HybrisError as error:
        log.warning("cannot tell which values of the key-value store are named: %s", error)
        return None


def unnamed_values(found: FoundValues) -> UnnamedValues:
    """How many objects of values nothing names, for people."""
    unnamed, former = found.counts
    return UnnamedValues(unnamed, former, found.of_others)


def steps(tell: Callable[[Step], None]) -> Callable[[str, int, int], None]:
    """What tells a client how far its request is: stage, done, total."""
    return lambda stage, done, total: tell(Step(done, total, stage))


# -- the daemon's commands about recovery kits, and recovering by one -----------------------------------


class RecoveryCommands:
    """Passphrases come and go over the control socket, and are kept nowhere. *creating* is held while volumes
    are made."""

    def __init__(self, home: Home, kind: LocalVolumes, slots: Slots, creating: threading.Lock) -> None:
        self._home = home
        self._kind = kind
        self._slots = slots
        self._creating = creating
        self.commands: dict[str, Handler] = dict(
            [
                RecoveryMakeRequest.answered_by(
                    lambda asked: slots.get(asked.name).open().recovery.make(asked.passphrase)
                ),
                RecoveryShowRequest.answered_by(self._show),
                RecoveryRemoveRequest.answered_by(
                    lambda asked: slots.get(asked.name).open().recovery.remove(asked.kit)
                ),
                RecoverRequest.answered_by(self._recover),
            ]
        )

    def _show(self, asked: RecoveryShowRequest) -> Kits:
        volume = self._slots.get(asked.name).open()
        return Kits(volume.name, volume.recovery.all())

    def _recover(self, asked: RecoverRequest, tell: Callable[[Doing], None]) -> Recovered:
        with self._creating:
            recovered = self._kind.recover(
                self._home,
                asked.clouds,
                asked.passphrase,
                asked.as_name,
                asked.own_name,
                incomplete=asked.incomplete,
                tell=lambda text: tell(Doing(text)),
            )
        self._slots.get(recovered.volume.name).open()
        return recovered
