"""The part of an open volume that it shares with other devices: members, registers, what comes in.

How it follows them through the clouds is in `hybrisfs.exchange.following`.
"""

from __future__ import annotations

import logging
import platform
import shutil
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from msgspec import UNSET, Struct

from hybrisfs.api.devices import Device
from hybrisfs.environment import Environment, sync_directory
from hybrisfs.keyring import KeyRing
from hybrisfs.members.members import MAX_DEVICE_NAME, Member
from hybrisfs.members.roles import Rights, Role
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.brake import Brake
from hybrisfs.merge.held import Held
from hybrisfs.merge.losses import Losses, LossLimits
from hybrisfs.merge.resolution import ConflictResolution, Sparing
from hybrisfs.merge.signing import Signer
from hybrisfs.receive.take import Receiver, Upcoming
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import attr_key
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.sharing.agreement import Agreement
from hybrisfs.sharing.deletions import Deletions
from hybrisfs.sharing.device_roles import DeviceRoles, SharedFolders
from hybrisfs.sharing.epochs import Epochs
from hybrisfs.sharing.membership import Membership
from hybrisfs.sharing.misconduct import Misconduct, Trials, described
from hybrisfs.stages import Signals
from hybrisfs.state.state import Transaction
from hybrisfs.state.stored_log import has_update
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem
from sync import Head, Members, VersionVector, decode_signed_header

__all__ = ["AwaitLimits", "AwaitedLog", "REBUILDING_FOLDER", "Sharing", "default_device_name", "shown_vector"]

log = logging.getLogger(__name__)

_NOBODY: Final = "device"
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
        deletion_share: float,
        awaited_log: AwaitedLog,
        upcoming: Upcoming,
    ) -> None:
        """*deletion_share*: see `Brake`; *upcoming*: see `Receiver`."""
        self.awaited_log: Final = awaited_log
        self._fs = fs
        self._time_ns = fs.environment.time_ns
        self._random_bytes = fs.environment.random_bytes
        self._ring = ring
        self._signals = signals
        self.members_changed = Topic[[]]()
        if not tx.members.all():
            tx.members.admit([Member(ring.keys.device.public, default_device_name())])
            tx.updates.set_members(tx.members.writers())
        self.device: Final = ring.keys.device.device_id
        """The id of this one."""
        self.volume: Final[bytes] = tx.meta("volume")
        epochs = Epochs(tx, ring)
        self.signer = Signer(fs.environment, awaited_log)
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
        self.losses.suspected.listen(signals.suspected)
        self.arrivals = Arrivals(tx, fs, self.losses)
        self.arrivals.grants_changed.listen(epochs.learn)
        arrivals = self.arrivals
        self.membership.renamed.listen(lambda tx: fs.shown(arrivals.device_renamed(tx)))
        self.misconduct = Misconduct(fs, self.signer)
        self.trials = Trials(fs, self.signer, self.misconduct, self.membership)
        self.receiver = Receiver(fs, self.arrivals, signals, upcoming)
        self.receiver.offended.listen(self.misconduct.note)
        self.deletions = Deletions(fs, Held(fs, self.brake, self.losses), self.arrivals, self.signer, signals)
        fs.inodes.disputed.listen(ConflictResolution(fs, self.arrivals).resolve)
        self.sparing = Sparing(fs)
        self.agreement = Agreement(fs)
        self.begun = threading.Event()  # cleared while this device looks for a checkpoint to begin with
        self.begun.set()

    def look_after(self) -> None:
        """What is to be done now and then, once the clouds were looked at since the start."""
        if self.membership.has_removals_to_act_on():  # it was cut short by a crash
            self.membership.act_on_removals()
        if len(self.current_members()) > 1:
            self.membership.describe_admission()
        if self.misconduct.look_after():
            self._signals.chunks_made()
        if self.trials.look_after(self._time_ns()):
            self._signals.chunks_made()
            self.members_changed()

    def adopt(self, config: VolumeConfig) -> None:
        """Let those settings hold that can at any time."""
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

    def announce_seconds(self) -> float:
        """How often the devices of this volume announce themselves at least."""
        with self._fs.state.transaction() as tx:
            return self._fs.labels.announce_seconds(tx)

    def vector(self) -> VersionVector:
        with self._fs.state.transaction() as tx:
            return tx.updates.state.vector

    def receive(self, updates: Sequence[bytes]) -> bool:
        """See `Receiver.receive`; who came or went by these updates is a member or none from now on."""
        if not self.has_begun():
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

    def has_begun(self) -> bool:
        """Wait until this device has begun with a checkpoint, or need not; False when it ends before."""
        while not self.begun.wait(_BEGIN_STEP):
            if self._signals.stopping:
                return False
        return True

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
        return self.awaited_log.under_way

    def devices(self) -> list[Device]:
        """What the log says of each device, for `status` and `device list`: of those with one name, also the
        beginnings of their ids."""
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
                device.vector = shown_vector(vector)
            found.append(device)
        return found


def shown_vector(vector: VersionVector) -> dict[str, int]:
    """As a record shows it."""
    return {branch.hex(): clock for branch, clock in vector.items()}


# -- a volume whose database was rebuilt signs nothing before it has its own log back -------------------
# A second update with the same predecessor would make a fork (Depot 4.3): nothing is lost by that, but all
# devices see this one as two from then on.


REBUILDING_FOLDER: Final = "rebuilding"


class AwaitLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    patience: float = 600.0
    """Seconds for what our own head names and no cloud has."""


class AwaitedLog:
    """Whether the volume with this state folder waits for its own log; a folder in there says so."""

    def __init__(self, state: Path, environment: Environment) -> None:
        self._environment = environment
        self._limits = environment.limits.of(AwaitLimits)
        self._folder = state / REBUILDING_FOLDER
        self.under_way = self._folder.exists()
        self._since: float | None = None
        self._lock = threading.Lock()

    def look(self, own: Head | None, holds: Callable[[bytes], bool]) -> bool:
        """All clouds but f were asked for *own*, this device's head, and what it leads to was taken in.
        *holds* tells whether the log has the update whose hash begins so. True when there is nothing to wait
        for any more; that is durable then. What the clouds have is waited for for ever: while its causes are
        nobody's here, this device would think that it is alone, and delete what it does not know. Raises
        OSError."""
        now = self._environment.monotonic()
        self._since = now if self._since is None else self._since
        if own is not None and own.on_clouds is not None and not holds(own.on_clouds.newest.prefix):
            return False
        missing = own is not None and not all(holds(tip.hash) for tip in own.own)
        if missing and now - self._since < self._limits.patience:
            return False
        with self._lock:
            if self.under_way:
                shutil.rmtree(self._folder)
                sync_directory(self._folder.parent, self._environment)
                self.under_way = False
        return True
