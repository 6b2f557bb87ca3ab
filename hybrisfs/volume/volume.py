"""A volume that is open on this device, and what people ask of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from hybrisfs.api.decisions import Conflict, Deletion, HeldFiles
from hybrisfs.api.devices import Admitted, Device, DeviceRole, KeptDevice, Proof, RemovedDevice
from hybrisfs.api.maintenance import Dropped
from hybrisfs.api.status import PendingFiles, VolumeStatus
from hybrisfs.clouds.checkup import CheckupLimits
from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home
from hybrisfs.members.removal import Stance
from hybrisfs.merge.signing import only_reads
from hybrisfs.mount.adapter import Served
from hybrisfs.mount.mountpoint import MountPoint
from hybrisfs.mount.programs import NoFetchPrograms
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.sharing.misconduct import described
from hybrisfs.verify.fsck import FsckReport
from hybrisfs.versions.browser import VersionBrowser
from hybrisfs.volume.opened import Opened
from hybrisfs.volume.status import devices_of, pending_files, volume_status

if TYPE_CHECKING:
    from hybrisfs.admit.invitation import Invitation

__all__ = ["Volume"]

_DROP_PATIENCE: Final = 15.0
_MEMBERS_SECONDS: Final = 5.0


class Volume(Opened):
    """One open volume. Its methods may be called from any thread."""

    @staticmethod
    def open(home: Home, name: str, environment: Environment) -> Volume:
        """Open the volume and start its background work. Raises HybrisError."""
        return Volume(home, VolumeConfig.load(home, name), environment)

    # -- mounting --------------------------------------------------------------------------------

    def mount(self, directory: Path, *, allow_other: bool = False, again: bool = False) -> None:
        """Mount at *directory*; returns when programs can use it. Raises HybrisError, also when the folder
        holds something, or is closed to its owner, unless *again*."""
        versions = VersionBrowser(self.fs, self.fetcher, self.versions)

        def begin() -> MountPoint:
            served = Served(
                self.fs,
                self.committer,
                self.fetcher,
                self.room,
                self.residency,
                self.following.freshness,
                self.sharing.sparing,
                NoFetchPrograms(self.config.no_fetch_programs),
                versions,
            )
            return MountPoint(self.name, directory, served, allow_other=allow_other, again=again)

        self._mounting.mount(begin)

    def unmount(self, *, lazy: bool = False) -> None:
        """Unmount, and make everything written so far durable. Raises HybrisError while files are open."""
        self._mounting.unmount(lazy=lazy)
        self.committer.commit_now()

    # -- what people ask -------------------------------------------------------------------------

    def status(self, *, look: bool = True) -> VolumeStatus:
        """How it is; with *look*, after a look at the clouds."""
        if look:
            self.checkup.refresh(self.environment.limits.of(CheckupLimits).patience)
        return volume_status(self)

    def pending(self, path: PurePath, limit: int) -> PendingFiles:
        """See `pending_files`."""
        return pending_files(self, path, limit)

    def sync(self, timeout: float | None, progress: Callable[[int, int], None]) -> bool:
        """See `Uploads.wait`. Raises HybrisError while transfers are held, because that may last, and when
        this device was removed from the volume."""
        self.transfers.require_free()

        def told(done: int, total: int) -> None:
            self._require_membership()
            self._require_signed()
            progress(done, total)

        done = self.uploads.wait(timeout, told)
        if done:
            self.committer.commit_now()  # what ignore rules keep here has no other place
        if done and timeout != 0:
            self.following.look_at_members(_MEMBERS_SECONDS)
            self._require_membership()
        return done

    def _require_signed(self) -> None:
        """Raises HybrisError when changes made here wait until this device is a full member again."""
        with self.fs.state.transaction() as tx:
            if self.unsaved(tx) or (self.fs.read_only and self.uploads.pending_bytes(tx)):
                self.require_writer()

    def _require_membership(self) -> None:
        if self.following.was_removed:
            raise HybrisError(
                f"this machine was removed from the volume {self.name}",
                "what changes here reaches no other machine",
                "Copy what you need to another folder. To belong to the volume again, leave it here "
                f"(hybrisfs volume leave {self.name} --force) and pair this machine again.",
            )

    def drop_cache(self) -> Dropped:
        """Look whether the clouds still hold what they should, then forget every cached byte that they
        hold."""
        self.checkup.refresh(_DROP_PATIENCE, thoroughly=True)
        freed, kept = self.room.drop_all()
        return Dropped(self.name, freed, kept)

    def fsck(self, *, clouds: bool, progress: Callable[[str, int, int], None]) -> FsckReport:
        """Verify database, log, cache and, with *clouds*, every share on every cloud."""
        self.committer.commit_now()
        return self._fsck.check(clouds=clouds, progress=progress)

    # -- devices ---------------------------------------------------------------------------------

    def invite(
        self, *, lifetime: float, with_credentials: bool, reader: bool = False, folders: Sequence[str] = ()
    ) -> Invitation:
        """An invitation for one device, valid for *lifetime* seconds; as a *reader*, or as a contributor to
        *folders*. Raises UsageError, and HybrisError when this device is not a full member itself."""
        from hybrisfs.admit.invitation import Invitation  # pairing takes long to import

        sharing = self.sharing
        self.require_writer()
        rights = sharing.shared_folders.rights(folders, reader=reader)
        self.checkpoints.checkpointer.machine.hurry()
        return Invitation(self.ground, rights, lifetime=lifetime, with_credentials=with_credentials)

    def require_writer(self) -> None:
        """Raises HybrisError unless this device is a full member."""
        self.sharing.require_writer()

    def role_of(self, device: str) -> DeviceRole:
        """What a device may do. Raises UsageError."""
        return self.sharing.roles.shown(device, self.name)

    def set_role(
        self,
        device: str,
        *,
        reader: bool = False,
        folders: Sequence[str] = (),
        passphrase: str | None = None,
    ) -> DeviceRole:
        """Make a device a reader, a contributor to *folders*, or a full member: see `DeviceRoles.set`; then
        the same as `role_of`. With the *passphrase* of a recovery kit, the kit says so, see `Kits.sign`."""
        if passphrase is None:
            self.require_writer()
        member, _ = self.sharing.membership.rights_of(device)
        rights = self.sharing.shared_folders.rights(folders, reader=reader, device=member.device)
        if passphrase is None:
            self.sharing.roles.set(device, rights)
        else:
            kit = partial(self.recovery.sign, passphrase)
            self.sharing.roles.set(device, rights, lambda write: kit(lambda _: [write]))
        self.committer.commit_now()
        return self.role_of(device)

    def devices(self) -> list[Device]:
        """See `status.devices_of`."""
        return devices_of(self)

    def rename_device(self, device: str, name: str) -> None:
        """See `Membership.rename`."""
        self.sharing.membership.rename(device, name)

    def admitted_by(self, device: str) -> Admitted:
        """See `Membership.described`."""
        member, admitted = self.sharing.membership.described(device)
        return Admitted(self.name, member.device.hex(), member.name, admitted)

    def remove_device(
        self, device: str, *, with_admitted: bool = False, passphrase: str | None = None
    ) -> RemovedDevice:
        """See `Membership.remove`. With the *passphrase* of a recovery kit, the kit votes instead, see
        `Kits.vote`."""
        membership = self.sharing.membership
        if passphrase is None:
            removal = membership.remove(device, with_admitted=with_admitted)
        else:
            vote = partial(self.recovery.vote, passphrase, Stance.REMOVE)
            removal = membership.remove_by(device, vote, with_admitted=with_admitted)
        member = removal.member
        return RemovedDevice(
            name=self.name,
            id=member.device.hex(),
            device=member.name,
            final=removal.final,
            counts=removal.counts,
            removed=removal.removed,
            remain=removal.remain,
            clouds=[cloud.url for cloud in self.config.clouds],
            charges=self.sharing.misconduct.facts(member.device),
        )

    @property
    def has_left(self) -> bool:
        """Whether this device has signed that it belongs to the volume no longer."""
        with self.fs.state.transaction() as tx:
            return tx.members.has_left(tx.updates.device)

    def leave(self, timeout: float) -> bool:
        """See `Membership.leave`; whether the clouds have that after so many seconds."""
        self.sharing.membership.leave()
        self.committer.commit_now()
        return self.uploads.shipping.wait(timeout)

    def keep_device(self, device: str, *, passphrase: str | None = None) -> KeptDevice:
        """See `Membership.keep`; with the *passphrase* of a recovery kit, the kit vetoes instead."""
        membership = self.sharing.membership
        if passphrase is None:
            member, kept = membership.keep(device)
        else:
            member = membership.find_accused(device)
            self.recovery.vote(passphrase, Stance.KEEP, [member.device])
            kept = member.device in self.sharing.key_holders()
        return KeptDevice(self.name, member.device.hex(), member.name, kept)

    def device_proof(self, device: str) -> bytes:
        """The file that proves a misdeed of a device. Raises UsageError when there is no proof."""
        sharing = self.sharing
        return sharing.misconduct.proof(sharing.membership.find(device).device)

    def check_proof(self, proof: bytes) -> Proof:
        """See `Misconduct.check`."""
        charge, name = self.sharing.misconduct.check(proof)
        told = described(charge)
        return Proof(
            name=self.name,
            kind=told.kind,
            what=told.what,
            at=told.at,
            id=charge.device.hex(),
            device=name,
            this_volume=name is not None,
        )

    def conflicts(self) -> list[Conflict]:
        """See `Conflicts.all`."""
        return self.conflict_table.all()

    def settle_conflict(self, path: str, *, keep_all: bool) -> None:
        """See `Conflicts.keep` and `Conflicts.keep_all`. A contributor settles those in its folders."""
        if self.fs.read_only:
            raise only_reads()
        (self.conflict_table.keep_all if keep_all else self.conflict_table.keep)(path)

    def deletions(self) -> list[Deletion]:
        """See `Deletions.all`."""
        return self.sharing.deletions.all()

    def held_files(self, which: str) -> HeldFiles:
        """See `Deletions.files`."""
        files, count = self.sharing.deletions.files(which)
        return HeldFiles(self.name, files, count)

    def decide_deletion(self, which: str, *, undo: bool) -> None:
        """See `Deletions.accept` and `Deletions.undo`."""
        (self.sharing.deletions.undo if undo else self.sharing.deletions.accept)(which)
