"""The part of an open volume that it shares with other devices: members, registers, what comes in."""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import UNSET

from hybrisfs.api.devices import Device
from hybrisfs.keyring import KeyRing
from hybrisfs.members.members import MAX_DEVICE_NAME, Member
from hybrisfs.members.roles import Rights, Role
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.brake import Brake
from hybrisfs.merge.losses import Losses, LossLimits
from hybrisfs.merge.resolution import ConflictResolution, Sparing
from hybrisfs.merge.signing import Signer
from hybrisfs.read.freshness import Freshness
from hybrisfs.receive.pull import CloudReader, GrantSource, Puller, Sightings
from hybrisfs.receive.take import Receiver, Upcoming, unprepared
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import attr_key
from hybrisfs.settings.config import DEFAULT_DELETION_SHARE, VolumeConfig
from hybrisfs.sharing.agreement import Agreement, clock_doubts
from hybrisfs.sharing.awaited_log import AwaitedLog
from hybrisfs.sharing.deletions import Deletions
from hybrisfs.sharing.device_roles import DeviceRoles, SharedFolders
from hybrisfs.sharing.epochs import Epochs
from hybrisfs.sharing.membership import Membership
from hybrisfs.sharing.misconduct import Misconduct, Trials, described
from hybrisfs.stages import IDLE, Pause, Signals
from hybrisfs.state.state import Transaction
from hybrisfs.state.stored_log import has_update
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem
from sync import Head, Members, VersionVector, decode_signed_header

__all__ = ["Sharing", "default_device_name"]

log = logging.getLogger(__name__)

_NOBODY: Final = "device"
_LOOK_AGAIN: Final = 1.0  # seconds
_BEGIN_STEP: Final = 0.5  # seconds


def default_device_name() -> str:
    """What this machine calls itself."""
    return platform.node().split(".")[0][:MAX_DEVICE_NAME] or _NOBODY


class Sharing:
    """Members, registers and the ways in. Its methods may be called from any thread."""

    def __init__(
        self,
        tx: Transaction,
        fs: FileSystem,
        ring: KeyRing,
        signals: Signals,
        deletion_share: float = DEFAULT_DELETION_SHARE,
        awaited_log: AwaitedLog | None = None,
        upcoming: Upcoming = unprepared,
    ) -> None:
        """*deletion_share*: see `Brake`; *upcoming*: see `Receiver`."""
        self._awaited_log = awaited_log or AwaitedLog()
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._time_ns = fs.environment.time_ns
        self._random_bytes = fs.environment.random_bytes
        self._ring = ring
        self._signals = signals
        self.members_changed = Topic[[]]()
        self.looked_after = Topic[[]]()
        """There are other devices, and it is time for what is done now and then."""
        if not tx.members.all():
            tx.members.admit([Member(ring.keys.device.public, default_device_name())])
            tx.updates.set_members(tx.members.writers())
        self.device: Final = ring.keys.device.device_id
        """The id of this one."""
        self.volume: Final[bytes] = tx.meta("volume")
        epochs = Epochs(tx, ring)
        self.signer = Signer(fs.environment, lambda: self._awaited_log.under_way)
        self.signer.signed.listen(tx.updates.grew)
        self.membership = Membership(fs, self.signer, epochs, signals)
        self.membership.changed.listen(self._members_changed)
        self.shared_folders = SharedFolders(fs, self.signer, signals)
        self.roles = DeviceRoles(fs, self.membership, self.signer, self.shared_folders)
        self._rights = Rights(Role.FULL)
        tx.registers.roles.changed.listen(self._roles_changed)
        self._roles_changed(tx.registers.roles.devices())
        if tx.registers.roles.are_awaited(self.device):
            fs.changes.drop(attr_key(ROOT_ID))  # that of the root is not for this device to say
        self.brake = Brake(deletion_share, fs.environment.limits.of(LossLimits).few)
        self.losses = Losses(fs, self.brake)
        self.arrivals = Arrivals(tx, fs, self.losses)
        self.arrivals.grants_changed.listen(epochs.learn)
        arrivals = self.arrivals
        self.membership.renamed.listen(lambda tx: fs.shown(arrivals.device_renamed(tx)))
        self.misconduct = Misconduct(fs, self.signer)
        self.trials = Trials(fs, self.signer, self.misconduct, self.membership)
        self.receiver = Receiver(fs, self.arrivals, signals, upcoming)
        self.receiver.offended.listen(self.misconduct.note)
        self.deletions = Deletions(fs, self.losses, self.arrivals, self.signer, signals)
        fs.inodes.disputed.listen(ConflictResolution(fs, self.arrivals).resolve)
        self.sparing = Sparing(fs)
        self.agreement = Agreement(fs)
        self._puller: Puller | None = None
        self.freshness = Freshness(self, fs.environment)
        self._looked_at = self._monotonic()
        self.begun = threading.Event()  # cleared while this device looks for a checkpoint to begin with
        self.begun.set()
        self._grants: GrantSource | None = None
        self._head_before: Head | None = None  # our own, as the last start left it

    def follow(self, engine: CloudReader, grants: GrantSource) -> Puller:
        """The puller that follows the other devices through these clouds."""
        self._grants = grants
        self._puller = Puller(
            engine,
            self.volume,
            self._ring.segments,
            self.device,
            self._signals,
            self,
            Sightings(self._fs.state),
            grants,
        )
        return self._puller

    def look_for_own_head(self, clouds: Collection[int], timeout: float) -> bool:
        """Search these clouds for heads of this device from before, and wait at most *timeout* seconds. False
        when all of them were searched since the start."""
        puller = self._puller
        if puller is None or puller.earlier_heads().clouds.issuperset(clouds):
            return False
        puller.look_now()
        self._signals.wait_until(
            lambda: puller.earlier_heads().clouds.issuperset(clouds), self._monotonic() + timeout
        )
        return True

    def has_looked(self) -> bool:
        """Whether the clouds were looked at since the start; if not, they are looked at again."""
        if self._puller is None:
            return False
        if self._puller.wait_until_looked(0.0) and self._has_own_log(self._puller):
            if self._head_before is None:  # before this start has put another in its place
                self._head_before = self._puller.heads().get(self.device)
            return True
        if self._monotonic() - self._looked_at >= _LOOK_AGAIN:
            self._looked_at = self._monotonic()
            self._puller.look_now()
        return False

    def _has_own_log(self, puller: Puller) -> bool:
        if not self._awaited_log.under_way:
            return True
        own = self.device
        if not self._awaited_log.look(puller.heads().get(own), lambda identity: self.holds(own, identity)):
            return False
        log.info("the log of the rebuilt volume is back")
        self._signals.changes_made()
        self._signals.chunks_made()
        return True

    def are_suspect(self) -> bool:
        """Whether another device is suspect now."""
        members = self.current_members()
        sightings = self._puller.devices() if self._puller is not None else []
        return any(one.suspect for one in sightings if one.device_id in members)

    def look_now(self) -> None:
        """See `Puller.look_now`."""
        if self._puller is not None:
            self._puller.look_now()

    def heard(self, device: bytes, head: Head) -> None:
        """A linked device has told where it stands: if that is known here, it is known to be up to date."""
        self.agreement.hear(head)
        with self._fs.state.transaction() as tx:
            known = tx.updates.state.vector.covers(head.vector)
        if known and self._puller is not None:
            self._puller.heard(device, min(head.time_ns, self._time_ns()))

    def look_after(self) -> None:
        """What is to be done now and then."""
        if self.has_looked() and self.membership.has_removals_to_act_on():  # it was cut short by a crash
            self.membership.act_on_removals()
        if self.has_looked() and len(self.current_members()) > 1:
            self.membership.describe_admission()
        if self.has_looked() and self.misconduct.look_after():
            self._signals.chunks_made()
        if self.has_looked() and self.trials.look_after(self._time_ns()):
            self._signals.chunks_made()
            self.members_changed()
        if len(self.current_members()) > 1:
            self.looked_after()

    def compare_states(self) -> None:
        """See whether other devices with the same log have made the same of it."""
        if len(self.current_members()) > 1:
            self.agreement.refresh(self._signals.last_change)
        if self._puller is not None:
            for device, head in self._puller.heads().items():
                if device != self.device:
                    self.agreement.hear(head)

    def adopt(self, config: VolumeConfig) -> None:
        """Let those settings hold that can at any time."""
        self.freshness.blocks = config.stale_reads == "block"
        self.brake.share = config.deletion_share
        self.trials.adopt(config.veto_hours, evicts=config.evict_liars)

    def require_writer(self) -> None:
        """Raises HybrisError when this device only reads."""
        with self._fs.state.transaction() as tx:
            self.signer.require_writer(tx)

    def current_members(self) -> Members:
        """The devices that belong to the volume, and those that did."""
        with self._fs.state.transaction() as tx:
            return tx.members.devices()

    def full_members(self) -> Members:
        """The devices that belong to the volume and do not only read, as far as is known here."""
        with self._fs.state.transaction() as tx:
            members, roles = tx.members.devices(), tx.registers.roles
            if not roles:
                return members
            return Members(
                public
                for device, public in members.public_keys.items()
                if self.signer.role_of(tx, device) is Role.FULL
            )

    def _roles_changed(self, devices: Collection[bytes]) -> None:
        """What these devices may do may be something else, votes included."""
        with self._fs.state.transaction() as tx:
            updates, roles = tx.updates, tx.registers.roles
            updates.set_members(tx.members.writers())
            for device in devices:
                if (
                    device != updates.device
                ):  # what this one has signed it takes back from a cloud at any time
                    updates.bind(device, roles.bounds(device, updates.state.vector, updates.vector_of))
            before, self._rights = self._rights, self.signer.rights(tx)
            self._fs.read_only = self._rights.role is Role.READER
            self._fs.is_full = self._rights.role is Role.FULL
            self._draw_borders(tx)
            if before != self._rights and not self._fs.read_only:  # what has waited can go on its way
                self._signals.changes_made()
                self._signals.chunks_made()

    def _draw_borders(self, tx: Transaction) -> None:
        """Let programs here be kept to the folders that members are limited to."""
        borders, role = self._fs.borders, self._rights.role
        limited = self._rights.areas if role is Role.CONTRIBUTOR else None
        borders.limits = None if limited is None else frozenset(area.id for area in limited)
        every = sorted(
            {area for one in tx.members.devices() for area in self.signer.rights_of(tx, one).areas},
            reverse=True,
        )
        borders.folders = {area.folder: area.id for area in every}  # the lowest of several of one folder

    def admit(self, member: Member, rights: Rights) -> None:
        """Let a device in with these rights: see `Membership.admit`. Raises HybrisError, OSError."""
        areas = sorted(rights.areas)
        self.membership.admit(member, role=rights.role, areas=areas)
        self.shared_folders.assign(areas)

    def key_holders(self) -> Members:
        """The same, with those in reserve."""
        with self._fs.state.transaction() as tx:
            return tx.members.keys()

    def followed(self) -> Members:
        """Whose log is looked for on the clouds: also that of devices whose removal is still to be heard
        of."""
        with self._fs.state.transaction() as tx:
            return tx.members.followed(self.device)

    def holds(self, device: bytes, start: bytes) -> bool:
        """Whether the log has the update of the device whose hash begins so."""
        with self._fs.state.transaction() as tx:
            return has_update(tx, device, start)

    def vector(self) -> VersionVector:
        with self._fs.state.transaction() as tx:
            return tx.updates.state.vector

    def receive(self, updates: Sequence[bytes]) -> bool:
        """See `Receiver.receive`; who came or went by these updates is a member or none from now on."""
        if not self._has_begun():
            return False
        before, was_fit = frozenset(self.key_holders()), self._ring.is_fit
        complete = self.receiver.receive(updates)
        after = frozenset(self.key_holders())
        if after != before:
            self._members_changed()
        unfit = was_fit and not self._ring.is_fit  # a member gave a removed device the keys
        with self._fs.state.transaction() as tx:
            limits = bool(tx.registers.roles)
        if after != before or unfit or (limits and self.membership.has_removals_to_act_on()):
            self.membership.act_on_removals()
        if self.device in after - before:  # what was held back is signed now
            self._signals.changes_made()
            self._signals.chunks_made()
        return complete

    def _members_changed(self) -> None:
        with self._fs.state.transaction() as tx:
            if tx.registers.roles:
                self._draw_borders(tx)
        self.members_changed()
        refused = self.receiver.take_refused()  # of those whose removal was vetoed, perhaps
        if refused:
            self.receive(refused)

    def close(self) -> None:
        """End what receiving has started; nothing is received any more."""
        self.receiver.close()

    def _has_begun(self) -> bool:
        """Wait until this device has begun with a checkpoint, or need not; False when it ends before."""
        while not self.begun.wait(_BEGIN_STEP):
            if self._signals.stopping:
                return False
        return True

    def pull(self) -> Pause:
        """A step of the stage that follows the others through the clouds: what a checkpoint covers is not
        looked for, as it may not be there any more."""
        if self._puller is None or not self._has_begun():
            return IDLE
        return self._puller.step()

    def checkpoint_taken_in(self, tx: Transaction) -> None:
        """Show what a checkpoint has brought; called with the locks held that `Receiver` holds."""
        self._fs.shown(self.arrivals.unveil(tx))
        tx.updates.grew()

    def receive_pulled(self, updates: Sequence[bytes]) -> bool:
        """Take in consecutive updates of one device from the clouds. Of a device that had been removed before
        this one was let in only what others depend on: the rest it may have written afterwards."""
        with self._fs.state.transaction() as tx:
            told = {member.device for member in tx.members.told_removed()}
        writer = decode_signed_header(updates[0]).writer if updates else None
        if writer in told:
            last = self.receiver.named(writer)
            updates = [update for update in updates if decode_signed_header(update).clock <= last]
        return self.receive(updates)

    @property
    def awaits_own_log(self) -> bool:
        """Whether the volume was rebuilt, and waits for its own log: the view is not complete."""
        return self._awaited_log.under_way

    @property
    def was_removed(self) -> bool:
        """Whether this device belongs to the volume no longer, by its own log, or by what the clouds show: a
        member seals with keys that it gives to its fellow members, and not to this device."""
        return self.device not in self.current_members() or (
            self._grants is not None and self._grants.is_shut_out
        )

    def look_at_members(self, timeout: float) -> None:
        """Have the heads of all members looked at, to learn of a removal; wait at most *timeout* seconds."""
        if self._puller is not None and len(self.current_members()) > 1:
            self._puller.look_through(timeout)

    def doubts(self) -> list[str]:
        """What is amiss with what comes from other devices, in sentences."""
        refused = self.receiver.refused
        doubts = self._puller.doubts() if self._puller is not None else []
        heads = dict(self._puller.heads()) if self._puller is not None else {}
        if self._head_before is not None:
            heads[self.device] = self._head_before
        with self._fs.state.transaction() as tx:
            names = {device: tx.members.name_of(device) for device in heads}
        doubts += clock_doubts(heads, self.device, self._time_ns(), names.__getitem__)
        if self._awaited_log.under_way:
            doubts = [*doubts, "the volume was rebuilt: what the clouds have of it is still to come"]
        if self.was_removed:  # which `status` says first of all; what cannot be read here follows from it
            doubts = []
        with self._fs.state.transaction() as tx:
            doubts += [
                f"{tx.members.name_of(device)} and this device have made different things of the same log: "
                "one of the two programs or disks is wrong, hybrisfs fsck on both tells which"
                for device in sorted(self.agreement.disagreeing)
            ]
        return [*doubts, *([f"an update was refused: {refused}"] if refused else [])]

    def devices(self) -> list[Device]:
        """What `status` and `device list` show of each device: of those with one name, also the beginnings of
        their ids."""
        sightings = {one.device_id: one for one in (self._puller.devices() if self._puller else [])}
        with self._fs.state.transaction() as tx:
            members = tx.members.all()
            vector = tx.updates.state.vector
            forks = tx.updates.forks()
            rejoined = {device for device in forks if tx.updates.has_rejoined(device)}
            charges = self.misconduct.charges(tx)
            names = {member.device: tx.members.shown_name(member.device) for member in members}
            rights = {one.device: self.signer.rights_of(tx, one.device) for one in members}
            folders = {
                device: self.shared_folders.paths(tx, one.areas)
                for device, one in rights.items()
                if one.role is Role.CONTRIBUTOR
            }
            overstepped = tx.registers.roles.overstepped
            proposed = {member.device: self.roles.proposed(member.device) for member in members}
            inviters = {member.device: tx.members.inviter_of(member.device) for member in members}
            let_in_by = {
                device: tx.members.shown_name(inviter)
                for device, inviter in inviters.items()
                if inviter is not None
            }
        this, found = self.device, []
        for member in members:
            device = Device(
                id=member.device.hex(),
                name=names[member.device],
                this=member.device == this,
                forked=member.device in forks,
                forked_at=forks[member.device] / 1e9 if member.device in forks else UNSET,
                rejoined=member.device in rejoined,
                reader=rights[member.device].role is Role.READER,
                folders=folders.get(member.device),
                overstepped=member.device in overstepped,
                proposed=proposed[member.device] or UNSET,
                charges=[described(one) for one in charges.get(member.device, ())],
                let_in_by=let_in_by.get(member.device, UNSET),
            )
            if device.this:
                device.vector = _shown(vector)
            elif (sighting := sightings.get(member.device)) is not None:
                device.vector = _shown(sighting.vector)
                seen = sighting.last_seen_ns
                device.last_seen = None if seen is None else seen / 1e9
                device.lag, device.suspect = sighting.lag, sighting.suspect
            found.append(device)
        return found


def _shown(vector: VersionVector) -> dict[str, int]:
    return {branch.hex(): clock for branch, clock in vector.items()}
