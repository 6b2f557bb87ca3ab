"""Branches: the virtual nodes that a forked writer is split into (Depot 4.3).

The updates of one device form a tree by `prev`; that of a correct device is a path. A *fork point* is an
update, or the beginning before the first one, that more than one known update follows. Fork points cut the
tree into paths, the *branches*, and each branch is a writer of its own in version vectors. Its id:

    before the first known fork   the device id
    after a fork point            digest(id of the branch that ends in the fork point + hash of the branch's
                                  first update), 16 bytes

The ids follow from the known updates alone, so devices that know the same updates name them alike, whatever
the order in which they came. When a fork is discovered inside a branch, the part above the fork point gets a
new id, and so does every branch that grows from that part: these are the `Rename`s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from sync.hashing import digest
from sync.identity import DEVICE_ID_SIZE
from sync.vector import Rename, VersionVector

__all__ = ["Branch", "Branches", "branch_id"]

_CONTEXT = "hybrisfs.sync 2026-11 branch id"


FirstAbove: TypeAlias = Callable[[bytes, int], bytes]


def branch_id(parent: bytes, first: bytes) -> bytes:
    """The id of the branch that leaves `parent` at its end and begins with the update of hash `first`."""
    return digest(_CONTEXT, parent + first, DEVICE_ID_SIZE)


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a branch is in the tree of its device."""

    id: bytes
    device: bytes
    parent: bytes | None
    """The branch whose end is the fork point; None for the branch that begins with the device."""
    above: int
    """The clock of the fork point; 0 when it is the beginning."""


class Branches:
    """The trees of all devices. The root branch of a device that forked with its first update is empty."""

    __slots__ = ("_all", "_children")

    def __init__(self, branches: Iterable[Branch] = ()) -> None:
        self._all: dict[bytes, Branch] = {}
        self._children: dict[bytes, list[bytes]] = {}
        for branch in branches:
            self.add(branch)

    def add(self, branch: Branch) -> None:
        self._all[branch.id] = branch
        if branch.parent is not None:
            self._children.setdefault(branch.parent, []).append(branch.id)

    def __iter__(self) -> Iterator[Branch]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, branch: object) -> bool:
        return branch in self._all

    def __getitem__(self, branch: bytes) -> Branch:
        return self._all[branch]

    def children(self, branch: bytes) -> tuple[bytes, ...]:
        """The branches that begin where `branch` ends."""
        return tuple(self._children.get(branch, ()))

    def ancestors(self, branch: bytes) -> Iterator[tuple[bytes, int]]:
        """The (branch, clock) of each fork point below `branch`, nearest first."""
        here = self._all[branch]
        while here.parent is not None:
            if here.above:
                yield here.parent, here.above
            here = self._all[here.parent]

    def path(self, branch: bytes, clock: int) -> list[tuple[bytes, int]]:
        """(branch, clock) of an update and of each fork point below it, newest first."""
        return [(branch, clock), *self.ancestors(branch)]

    def leaves(self, vector: VersionVector) -> Iterable[tuple[bytes, int]]:
        """The entries of a causally closed vector that no other entry of it implies."""
        if not self._children:
            return vector.items()
        known = self._all
        inner = {known[branch].parent for branch, _ in vector.items()}
        return [entry for entry in vector.items() if entry[0] not in inner]

    def grow(self, parent: bytes, above: int, first: bytes) -> bytes:
        """Add the branch that leaves the end of `parent`, at clock `above`; its id."""
        identity = branch_id(parent, first)
        self.add(Branch(identity, self._all[parent].device, parent, above))
        return identity

    def split(
        self, branch: bytes, above: int, first_above: Callable[[bytes, int], bytes]
    ) -> tuple[Rename, ...]:
        """End `branch` at clock `above`, inside it; what follows becomes a branch of its own.

        `first_above(branch, clock)` tells the hash of the first update above `clock` in a branch, by the
        branch's id before the split.
        """
        grown = self._children.pop(branch, [])
        upper = self.grow(branch, above, first_above(branch, above))
        renames = [Rename(branch, above, upper)]
        for child in grown:
            self._move(child, upper, first_above, renames)
        return tuple(renames)

    def _move(self, branch: bytes, parent: bytes, first_above: FirstAbove, renames: list[Rename]) -> None:
        """Rename `branch` and all that grows from it, now that it grows from `parent`."""
        pending = [(branch, parent)]
        while pending:
            old, under = pending.pop()
            new = self.grow(under, self._all.pop(old).above, first_above(old, 0))
            renames.append(Rename(old, 0, new))
            pending += [(child, new) for child in self._children.pop(old, [])]
