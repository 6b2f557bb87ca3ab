"""Other devices, followed through the clouds: what this one knows of them by that, and waits for."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from hybrisfs.api.devices import Device
from hybrisfs.local_parts import LocalParts
from hybrisfs.read.freshness import Freshness
from hybrisfs.receive.pull import CloudReader, GrantSource, Puller, Sightings
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.sharing.agreement import clock_doubts
from hybrisfs.sharing.sharing import shown_vector
from hybrisfs.stages import IDLE, Pause
from hybrisfs.topic import Topic
from sync import Head

__all__ = ["Following"]

log = logging.getLogger(__name__)

_LOOK_AGAIN: Final = 1.0  # seconds


class Following:
    """Of one volume. Its methods may be called from any thread."""

    def __init__(self, local: LocalParts, clouds: CloudReader, grants: GrantSource) -> None:
        fs, sharing = local.fs, local.sharing
        self._fs = fs
        self._sharing = sharing
        self._signals = local.signals
        self._grants = grants
        self._monotonic = fs.environment.monotonic
        self._time_ns = fs.environment.time_ns
        self.puller: Final = Puller(
            clouds,
            sharing.volume,
            local.ring.segments,
            sharing.device,
            local.signals,
            sharing,
            Sightings(fs.state),
            grants,
        )
        self.freshness: Final = Freshness(self, fs.environment)
        self.looked_after = Topic[[]]()
        """There are other devices, and it is time for what is done now and then."""
        self.seen = Topic[[Head]]()
        """Another device has said where it stands, or has said that before."""
        self._looked_at = self._monotonic()
        self._head_before: Head | None = None  # our own, as the last start left it

    def look_for_own_head(self, clouds: Collection[int], timeout: float) -> bool:
        """Search these clouds for heads of this device from before, and wait at most *timeout* seconds. False
        when all of them were searched since the start."""
        puller = self.puller
        if puller.earlier_heads().clouds.issuperset(clouds):
            return False
        puller.look_now()
        self._signals.wait_until(
            lambda: puller.earlier_heads().clouds.issuperset(clouds), self._monotonic() + timeout
        )
        return True

    def has_looked(self) -> bool:
        """Whether the clouds were looked at since the start; if not, they are looked at again."""
        if self.puller.wait_until_looked(0.0) and self._has_own_log():
            if self._head_before is None:  # before this start has put another in its place
                self._head_before = self.puller.heads().get(self._sharing.device)
            return True
        if self._monotonic() - self._looked_at >= _LOOK_AGAIN:
            self._looked_at = self._monotonic()
            self.puller.look_now()
        return False

    def _has_own_log(self) -> bool:
        sharing = self._sharing
        if not sharing.awaits_own_log:
            return True
        own = sharing.device
        head = self.puller.heads().get(own)
        if not sharing.awaited_log.look(head, lambda identity: sharing.holds(own, identity)):
            return False
        log.info("the log of the rebuilt volume is back")
        self._signals.changes_made()
        self._signals.chunks_made()
        return True

    def are_suspect(self) -> bool:
        """Whether another device is suspect now."""
        members = self._sharing.current_members()
        return any(one.suspect for one in self.puller.devices() if one.device_id in members)

    def look_now(self) -> None:
        """See `Puller.look_now`."""
        self.puller.look_now()

    def heard(self, device: bytes, head: Head) -> None:
        """A linked device has told where it stands: if that is known here, it is known to be up to date."""
        self._sharing.agreement.hear(head)
        self.seen(head)
        with self._fs.state.transaction() as tx:
            known = tx.updates.state.vector.covers(head.vector)
        if known:
            self.puller.heard(device, min(head.time_ns, self._time_ns()))

    def look_after(self) -> None:
        """What is to be done now and then."""
        if self.has_looked():
            self._sharing.look_after()
        if self._has_others():
            self.looked_after()

    def compare_states(self) -> None:
        """See whether other devices with the same log have made the same of it."""
        agreement = self._sharing.agreement
        if self._has_others():
            agreement.refresh(self._signals.last_change)
        for device, head in self.puller.heads().items():
            if device != self._sharing.device:
                agreement.hear(head)
                self.seen(head)

    def adopt(self, config: VolumeConfig) -> None:
        """Let those settings hold that can at any time."""
        self.freshness.blocks = config.stale_reads == "block"

    def pull(self) -> Pause:
        """A step of the stage that follows the others through the clouds: what a checkpoint covers is not
        looked for, as it may not be there any more."""
        return self.puller.step() if self._sharing.has_begun() else IDLE

    @property
    def was_removed(self) -> bool:
        """Whether this device belongs to the volume no longer, by its own log, or by what the clouds show: a
        member seals with keys that it gives to its fellow members, and not to this device."""
        sharing = self._sharing
        return sharing.device not in sharing.current_members() or self._grants.is_shut_out

    def is_informed(self) -> bool:
        """Whether this device has read the newest heads of the others: it has looked at the clouds since the
        start, and can read everything there. A removed device may not know of its removal. So without this,
        a device deletes nothing that the others may need, and replaces nothing that they have written."""
        return self.has_looked() and not self.was_removed and not self.puller.unread()

    def look_at_members(self, timeout: float) -> None:
        """Have the heads of all members looked at, to learn of a removal; wait at most *timeout* seconds."""
        if self._has_others():
            self.puller.look_through(timeout)

    def _has_others(self) -> bool:
        return len(self._sharing.current_members()) > 1

    def doubts(self) -> list[str]:
        """What is amiss with what comes from other devices, in sentences."""
        sharing = self._sharing
        refused = sharing.receiver.refused
        doubts = self.puller.doubts()
        heads = dict(self.puller.heads())
        if self._head_before is not None:
            heads[sharing.device] = self._head_before
        with self._fs.state.transaction() as tx:
            names = {device: tx.members.name_of(device) for device in heads}
        doubts += clock_doubts(heads, sharing.device, self._time_ns(), names.__getitem__)
        if sharing.awaits_own_log:
            doubts = [*doubts, "the volume was rebuilt: what the clouds have of it is still to come"]
        if self.was_removed:  # which `status` says first of all; what cannot be read here follows from it
            doubts = []
        with self._fs.state.transaction() as tx:
            doubts += [
                f"{tx.members.name_of(device)} and this machine have made different things of the same log: "
                "one of the two programs or disks is wrong, hybrisfs fsck on both tells which"
                for device in sorted(sharing.agreement.disagreeing)
            ]
        return [*doubts, *([f"an update was refused: {refused}"] if refused else [])]

    def devices(self) -> list[Device]:
        """See `Sharing.devices`; with what was seen of each on the clouds."""
        sightings = {one.device_id.hex(): one for one in self.puller.devices()}
        devices = self._sharing.devices()
        for device in devices:
            sighting = sightings.get(device.id)
            if device.this or sighting is None:
                continue
            device.vector = shown_vector(sighting.vector)
            seen = sighting.last_seen_ns
            device.last_seen = None if seen is None else seen / 1e9
            device.lag, device.suspect = sighting.lag, sighting.suspect
        return devices
