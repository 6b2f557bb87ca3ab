"""What the devices of an open volume may do: shown, proposed, and said for all devices."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from hybrisfs.api.devices import DeviceRole, Proposal
from hybrisfs.members.roles import Rights, Role, RoleRecord, new_role_key
from hybrisfs.merge.signing import Signer
from hybrisfs.sharing.membership import Membership
from hybrisfs.sharing.shared_folders import SharedFolders
from hybrisfs.tree.filesystem import FileSystem
from sync import Write

__all__ = ["DeviceRoles"]


class DeviceRoles:
    """Those of one volume. Its methods may be called from any thread."""

    def __init__(
        self,
        fs: FileSystem,
        membership: Membership,
        signer: Signer,
        shared_folders: SharedFolders,
    ) -> None:
        self._fs = fs
        self._random_bytes = fs.environment.random_bytes
        self._membership = membership
        self._signer = signer
        self._shared_folders = shared_folders

    def proposed(self, device: bytes) -> list[Proposal]:
        """What members want the device to be, which is less than it is, and has no effect yet."""
        with self._fs.state.transaction() as tx:
            pending = tx.registers.roles.pending(device, tx.updates.vector_of)
            present = tx.members.keys()
            return [
                Proposal(
                    by=tx.members.shown_name(author),
                    role=rights.role.name.lower(),
                    folders=list(self._shared_folders.paths(tx, rights.areas)) if rights.areas else UNSET,
                )
                for author, rights in pending
                if author in present
            ]

    def shown(self, which: str, volume: str) -> DeviceRole:
        """What a device of the volume of that name may do. Raises UsageError."""
        member, rights = self._membership.rights_of(which)
        proposed, limited = self.proposed(member.device), rights.role is Role.CONTRIBUTOR
        with self._fs.state.transaction() as tx:
            folders = self._shared_folders.paths(tx, rights.areas) if limited else None
        return DeviceRole(
            name=volume,
            id=member.device.hex(),
            device=member.name,
            reader=rights.role is Role.READER,
            folders=None if folders is None else list(folders),
            proposed=proposed or UNSET,
        )

    def set(self, which: str, rights: Rights, say: Callable[[Write], object] | None = None) -> None:
        """Say that a device has these rights from now on, and, also when it has them, let all that is in the
        folders of a contributor belong to these: see `Membership.set_role`. With *say* the caller signs the
        write, which *say* gets."""
        areas = sorted(rights.areas)
        if say is None:
            member = self._membership.set_role(which, rights.role, areas)
        else:
            member, _ = self._membership.rights_of(which)
            say(
                (
                    new_role_key(member.device, self._random_bytes),
                    RoleRecord(rights.role, areas=tuple(areas)).encode(),
                )
            )
        with self._fs.state.transaction() as tx:
            holds = self._signer.rights_of(tx, member.device) == rights
        if holds:
            self._shared_folders.assign(areas)
