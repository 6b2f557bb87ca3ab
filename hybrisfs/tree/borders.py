"""Folders that some device is limited to: what belongs to them, and what this device may change.

`hybrisfs.members.roles` says what an *area* is, and which writes count. Here programs are kept to that: what
is made below the folder of an area belongs to it, nothing crosses its border, and where this device may not
change anything, programs get an error at once. They see EXDEV at a border, as between two disks, and EACCES
where this device may not change anything: EROFS would say that of the whole mount.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Mapping

from hybrisfs.errors import failure
from hybrisfs.kinds import AREA_SIZE, ASSIGNMENT
from hybrisfs.registers.node_id import born_in
from hybrisfs.state.registers import keys_of_node
from hybrisfs.state.state import Transaction

__all__ = ["Borders"]


class Borders:
    """Of one volume. While no device is limited to a folder, nothing is looked up in the
    database."""

    def __init__(self) -> None:
        self.folders: Mapping[bytes, bytes] = {}
        """The areas to which some device is limited, by the nodes of their folders."""
        self.limits: Collection[bytes] | None = None
        """The areas to which this device is limited; None: it is not."""

    def inside(self, tx: Transaction, directory: bytes) -> bytes | None:
        """The area of new nodes in a directory."""
        if not self.folders:
            return None
        return self.folders.get(directory) or self._area(tx, directory)

    def may_change(self, tx: Transaction, nodes: Iterable[bytes]) -> bool:
        """Whether this device may change all these nodes."""
        limits = self.limits
        return limits is None or all(self._area(tx, node) in limits for node in nodes)

    def require_change(self, tx: Transaction, nodes: Iterable[bytes]) -> None:
        """Raises OSError (EACCES) when this device may not change all these nodes."""
        if not self.may_change(tx, nodes):
            raise failure(errno.EACCES)

    def may_enter(self, tx: Transaction, directory: bytes) -> bool:
        """Whether this device may change the nodes in a directory."""
        return self.limits is None or self.inside(tx, directory) in self.limits

    def require_entry(self, tx: Transaction, directory: bytes) -> None:
        """Raises OSError (EACCES) when this device may not change the nodes in a directory."""
        if not self.may_enter(tx, directory):
            raise failure(errno.EACCES)

    def require_move(
        self, tx: Transaction, nodes: Iterable[bytes], directory: bytes, new_directory: bytes
    ) -> None:
        """Raises OSError when these nodes may not leave a directory (EACCES) for another one (EXDEV)."""
        if not self.folders:
            return
        if self.limits is not None:
            self.require_change(tx, nodes)
            self.require_entry(tx, directory)
            self.require_entry(tx, new_directory)
        if directory != new_directory and self.inside(tx, directory) != self.inside(tx, new_directory):
            raise failure(errno.EXDEV)

    def require_name(self, tx: Transaction, node: bytes, standing: bytes | None, directory: bytes) -> None:
        """Raises OSError when nothing may have a new name in a directory (EACCES), or not this node, which
        has one in the directory *standing* or none yet (EXDEV)."""
        if not self.folders:
            return
        self.require_entry(tx, directory)
        area = self._area(tx, node) if standing is None else self.inside(tx, standing)
        if area != self.inside(tx, directory):
            raise failure(errno.EXDEV)

    def _area(self, tx: Transaction, node: bytes) -> bytes | None:
        areas = set(self.folders.values())
        born = born_in(node)
        return born if born in areas else min(areas.intersection(self._assigned(tx, node)), default=None)

    def _assigned(self, tx: Transaction, node: bytes) -> set[bytes]:
        """The areas to which full members have assigned a node."""
        return {key[-AREA_SIZE:] for key in keys_of_node(tx, ASSIGNMENT, node)}
