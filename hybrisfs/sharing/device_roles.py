"""What the devices of an open volume may do: shown, proposed, and said for all devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import UNSET

from hybrisfs.api.devices import DeviceRole, Proposal
from hybrisfs.bounded import in_groups
from hybrisfs.errors import UsageError
from hybrisfs.kinds import AREA_SIZE
from hybrisfs.members.roles import MAX_AREAS, Area, Rights, Role, RoleRecord, new_assignment, new_role_key
from hybrisfs.merge.signing import Signer, is_limited, only_reads
from hybrisfs.registers.node_id import born_in
from hybrisfs.registers.tree import assignment_key
from hybrisfs.sharing.membership import Membership
from hybrisfs.shown import shown
from hybrisfs.stages import Signals
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import ino_of, ino_shown_for, nodes_below, shown_path
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from sync import Write

__all__ = ["DeviceRoles", "SharedFolders"]


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


# -- the folders to which contributors are limited ------------------------------------------------------


_AT_ONCE: Final = 2000  # in one update; programs wait while it is signed


class SharedFolders:
    """Those of one volume. Its methods may be called from any thread."""

    def __init__(self, fs: FileSystem, signer: Signer, signals: Signals) -> None:
        self._fs = fs
        self._signer = signer
        self._signals = signals

    def require_entry(self, tx: Transaction, directory: Inode) -> None:
        """Raises HybrisError when this device may not change what is in a directory."""
        if self._fs.read_only:
            raise only_reads()
        if not self._fs.borders.may_enter(tx, directory.id):
            raise is_limited()

    def rights(self, paths: Sequence[str], *, reader: bool, device: bytes | None = None) -> Rights:
        """Those of a contributor to these folders, of a *reader*, or of a full member. *device*: see
        `choose`. Raises UsageError."""
        if not paths:
            return Rights(Role.READER if reader else Role.FULL)
        with self._fs.state.transaction() as tx:
            return Rights(Role.CONTRIBUTOR, frozenset(self.choose(tx, paths, device)))

    def choose(self, tx: Transaction, paths: Sequence[str], device: bytes | None = None) -> tuple[Area, ...]:
        """The areas of these folders, those that a member has proposed for a *device* if there are any.
        Raises UsageError unless a device can be limited to them."""
        pending = self._signer.pending_roles(tx, device) if device is not None else []
        proposed = {area.folder: area.id for _, rights in pending for area in rights.areas}
        chosen: dict[bytes, Area] = {}
        shared = self._fs.borders.folders
        for path in paths:
            folder = self._folder(tx, path)
            self._require_apart(tx, path, folder, {*shared, *chosen})
            area = shared.get(folder.id) or proposed.get(folder.id) or self._new_area(tx, chosen.values())
            chosen[folder.id] = Area(area, folder.id)
        if len(chosen) > MAX_AREAS:
            raise UsageError(f"a contributor is limited to {MAX_AREAS} folders at most")
        return tuple(sorted(chosen.values()))

    def _folder(self, tx: Transaction, path: str) -> Inode:
        names = [name for name in os.fsencode(path).split(b"/") if name not in (b"", b".")]
        folder = self._fs.locate(tx, names)
        if folder is None:
            raise UsageError(f"there is no folder {shown(path)} in the volume")
        if not folder.is_directory:
            raise UsageError(f"{shown(path)} is not a folder")
        if folder.ino == ROOT_INO:
            raise UsageError(
                "nobody can be limited to the whole volume", "", "hybrisfs device role NAME full does that."
            )
        return folder

    def _require_apart(self, tx: Transaction, path: str, folder: Inode, others: AbstractSet[bytes]) -> None:
        """Raise UsageError when one of these folders, which others are limited to, is inside of *folder*, or
        the other way round: what is made there can belong to one of them alone."""
        for node in others - {folder.id}:
            other = ino_of(tx, node)
            if other is None:
                continue
            above = tx.places.above
            if other in above(folder.ino) or folder.ino in above(other):
                raise UsageError(
                    f"nobody can be limited to {shown(path)}",
                    f"{shown(shown_path(tx, other))} is a contributor's, and one is inside the other",
                    "Choose folders that are apart.",
                )

    def _new_area(self, tx: Transaction, chosen: Iterable[Area]) -> bytes:
        taken = tx.registers.roles.known_areas() | {one.id for one in chosen}
        while (area := self._fs.environment.random_bytes(AREA_SIZE)) in taken:
            pass
        return area

    def assign(self, areas: Iterable[Area]) -> None:
        """Sign for all that is in these folders, and that their areas lack, that it belongs to them. Raises
        HybrisError, OSError."""
        for area in areas:
            with self._fs.state.log_transaction() as tx:
                lacking = self._lacking(tx, area)
            for batch in in_groups(lacking, lambda node: 1, _AT_ONCE):
                with self._fs.state.log_transaction() as tx:
                    self._signer.sign(tx, [new_assignment(node, area.id) for node in batch], 0)
                self._signals.chunks_made()

    def _lacking(self, tx: Transaction, area: Area) -> list[bytes]:
        self._fs.flush(tx)
        ino = ino_of(tx, area.folder)
        nodes = [] if ino is None else nodes_below(tx, ino)
        roles = tx.registers.roles
        return [
            node
            for node in nodes
            if born_in(node) != area.id and not roles.known_assignments([assignment_key(node, area.id)], None)
        ]

    def paths(self, tx: Transaction, areas: Iterable[Area]) -> list[str]:
        """Where the folders are now, but for those that are gone."""
        shown_for = [ino_shown_for(tx, area.folder) for area in areas]
        return sorted(shown_path(tx, ino) for ino in shown_for if ino is not None)
