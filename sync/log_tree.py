"""The tree of accepted updates: its branches, the newest update of each, and how one more is put there.

What may be put there is decided elsewhere: by the rule of acceptance (`sync.log`), or by a checkpoint
(`sync.checkpoint`), which names updates that devices have accepted without telling what they wrote.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from sync.codec import ZERO_HASH, digest
from sync.errors import LimitError, LogStoreError
from sync.identity import DEVICE_ID_SIZE
from sync.update import PREFIX_SIZE, SignedUpdate, UpdateStamp, history_hash
from sync.vector import MAX_WRITERS, Rename, VersionVector

__all__ = [
    "USUAL_LIMITS",
    "AcceptedLog",
    "Branch",
    "Branches",
    "Known",
    "LogLimits",
    "LogTree",
    "Placed",
    "Successor",
    "branch_id",
    "including",
]

_RECENT = 8192


class LogLimits(NamedTuple):
    """What a log holds at most; see `sync.log`."""

    branches: int = 64
    """Branches of a device that are accepted from anybody, in a volume of few members."""
    writers: int = MAX_WRITERS
    """Branches of all devices."""


USUAL_LIMITS: Final = LogLimits()
"""Those of the product: devices with other ones do not decide alike."""


class Placed(NamedTuple):
    """Where an update has been put. Carry out the renames first, then store it."""

    branch: bytes
    dependencies: VersionVector
    """Its full dependency vector."""
    renames: tuple[Rename, ...] = ()
    siblings: tuple[Successor, ...] = ()
    """Updates that follow the one that it follows, too: with one of them it makes a fork."""


class LogTree:
    """What has been accepted, in memory: branches and tips. The updates are in the caller's store."""

    def __init__(
        self,
        log: AcceptedLog,
        branches: Iterable[Branch] = (),
        tips: Iterable[Known] = (),
        signed: tuple[bytes, int] | None = None,
        limits: LogLimits = USUAL_LIMITS,
    ) -> None:
        """Load what was stored: see `sync.log.LogState`."""
        self._log = log
        self._limits = limits
        self._branches = Branches(branches)
        self._tips = {tip.branch: tip for tip in tips}
        self._signed = signed
        self._vector: VersionVector | None = None  # made when it is asked for
        self._recent: OrderedDict[bytes, Known] = OrderedDict()  # a dict is slow to tell its oldest item
        self._index()

    def _index(self) -> None:
        """Make again what follows from branches and tips."""
        self._vector = None
        self._leaves = {
            tip.hash: branch for branch, tip in self._tips.items() if not self._branches.children(branch)
        }
        self._ends = Counter(self._tips[branch].device for branch in self._leaves.values())

    @property
    def vector(self) -> VersionVector:
        """For each branch, the clock of its newest accepted update."""
        if self._vector is None:
            self._vector = VersionVector({branch: tip.clock for branch, tip in self._tips.items()})
        return self._vector

    @property
    def branches(self) -> Branches:
        """The tree of branches, to look at."""
        return self._branches

    def ends(self, device: bytes) -> int:
        """How many branches of a device no other branch grows from."""
        return self._ends[device]

    def tips(self) -> list[Known]:
        """The newest update of each branch that no other branch grows from: together they imply all."""
        return [self._tips[branch] for branch in self._leaves.values()]

    def newest(self, device: bytes) -> Known | None:
        """Where `device` goes on writing: its newest update; on this device's own branch if it has forked.

        The own branch is the one that grows from the last update that this device signed itself, or has
        told others to go on from (`go_on_through`).
        """
        own = [tip for tip in self.tips() if tip.device == device and self._descends(tip)]
        return max(own, key=lambda tip: (tip.clock, tip.hash), default=None)

    def go_on_through(self, branch: bytes, clock: int) -> None:
        """Whichever other updates of its own it comes to see, this device goes on from this one, which is
        on the way to its newest one."""
        device = self._branches[branch].device
        if (
            self._signed is None
            or self._branches[self._signed[0]].device != device
            or self._signed[1] < clock
        ):
            self._signed = branch, clock

    def _descends(self, tip: Known) -> bool:
        """False when this device has gone on from its last signed update on another branch."""
        if self._signed is None or self._branches[self._signed[0]].device != tip.device:
            return True
        branch, signed = self._signed
        path = self._branches.path(tip.branch, tip.clock)
        return any(one == branch and clock >= signed for one, clock in path)

    def history(self) -> bytes:
        """The history hash at our vector: equal hashes mean equal logs."""
        return history_hash((tip.device, tip.clock, tip.hash) for tip in self.tips())

    def adopt(
        self, device: bytes, clock: int, identity: bytes, prev: bytes, causes: Sequence[bytes]
    ) -> Placed:
        """Take in an update that is not accepted yet and of which only the name is known: what it follows,
        and hashes of updates that, with what it follows, imply all that it depends on.

        Raises `LogStoreError` when one of those is not here, `LimitError` for want of branches.
        """
        before = self._beginning(device) if prev == ZERO_HASH else self._accepted(prev)
        full, hashes = self._closed(before, including(before), [self._accepted(cause) for cause in causes])
        return self._place(device, clock, identity, before, full, hashes)

    def _accepted(self, identity: bytes) -> Known:
        leaf = self._leaves.get(identity)
        found = self._tips[leaf] if leaf else self._find(identity[:PREFIX_SIZE])
        if found is None or found.hash != identity:
            raise LogStoreError(f"update {identity.hex()} is not here")
        return found

    def _closed(
        self, prev: Known, known: VersionVector, causes: Sequence[Known]
    ) -> tuple[VersionVector, dict[bytes, bytes]]:
        """The full dependency vector of an update that follows `prev`, and so depends on all that `known`
        covers, and on `causes`; and the hashes of it that are known."""
        hashes = {**prev.hashes, prev.branch: prev.hash}
        if not causes:
            return known, hashes
        entries: dict[bytes, int] = {}
        for cause in causes:
            if cause.clock > max(known[cause.branch], entries.get(cause.branch, 0)):
                entries[cause.branch] = cause.clock
                hashes[cause.branch] = cause.hash
            for branch, clock in self._branches.ancestors(cause.branch):
                if clock > max(known[branch], entries.get(branch, 0)):
                    entries[branch] = clock
        return known.with_entries(entries.items()), hashes

    def _beginning(self, device: bytes) -> Known:
        """What the first update of a device follows."""
        return Known(device, device, 0, ZERO_HASH, VersionVector())

    def _place(
        self,
        device: bytes,
        clock: int,
        identity: bytes,
        prev: Known,
        causes: VersionVector,
        hashes: dict[bytes, bytes],
    ) -> Placed:
        """Put the update on its branch, a new one where it makes a fork. Raises `LimitError`."""
        branch, tip = prev.branch, self._tips.get(prev.branch)
        if prev.hash in self._leaves:
            self._advance(Known(device, branch, clock, identity, causes, hashes), prev.hash)
            return Placed(branch, causes)
        if len(self._branches) + 2 > self._limits.writers:
            raise LimitError(f"more than {self._limits.writers} branches of all machines")
        renames: tuple[Rename, ...] = ()
        siblings: tuple[Successor, ...] = ()
        if branch not in self._branches:
            self._branches.add(Branch(branch, device, None, 0))
        else:
            siblings = self._siblings(prev)
            if tip and tip.clock > prev.clock:
                renames = self._branches.split(branch, prev.clock, self._first_above)
                self._rename(renames, prev)
                causes = causes.renamed(renames)
            branch = self._branches.grow(branch, prev.clock, identity)
        self._tips[branch] = Known(device, branch, clock, identity, causes)
        self._index()
        return Placed(branch, causes, renames, siblings)

    def _advance(self, known: Known, before: bytes) -> None:
        branch = known.branch
        self._tips[branch] = known
        self._vector = None
        del self._leaves[before]
        self._leaves[known.hash] = branch
        self._remember(known)

    def _rename(self, renames: Sequence[Rename], fork: Known) -> None:
        """Give the tips to their new branches; `fork` is the newest update of the branch that was cut."""
        moved = {rename.old: rename.new for rename in renames}
        tips: dict[bytes, Known] = {}
        for old, tip in self._tips.items():
            new = moved.get(old, old)
            tips[new] = Known(tip.device, new, tip.clock, tip.hash, tip.dependencies.renamed(renames))
        if fork.clock:
            tips[fork.branch] = Known(fork.device, fork.branch, fork.clock, fork.hash, fork.dependencies)
        self._tips = tips
        self._recent.clear()
        for rename in renames:
            if self._signed and self._signed[0] == rename.old and self._signed[1] > rename.above:
                self._signed = (rename.new, self._signed[1])
                break

    def _siblings(self, prev: Known) -> tuple[Successor, ...]:
        """The updates that follow `prev`."""
        tip = self._tips.get(prev.branch)
        if tip and tip.clock > prev.clock:
            return (self._successor(prev.branch, prev.clock),)
        return tuple(self._successor(child, 0) for child in self._branches.children(prev.branch))

    def _first_above(self, branch: bytes, clock: int) -> bytes:
        return self._successor(branch, clock).hash

    def _successor(self, branch: bytes, clock: int) -> Successor:
        found = self._log.successor_of(branch, clock)
        if found is None:
            raise LogStoreError(f"the log store lost what follows update {clock} of branch {branch.hex()}")
        return found

    def _find(self, prefix: bytes) -> Known | None:
        found = self._recent.get(prefix)
        if found is None:
            found = self._log.find(prefix)
            if found:
                self._remember(found)
        return found

    def _remember(self, known: Known) -> None:
        self._recent[known.hash[:PREFIX_SIZE]] = known
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)

    def _hash_of(self, branch: bytes, clock: int) -> bytes:
        tip = self._tips.get(branch)
        found = tip.hash if tip and tip.clock == clock else self._log.hash_of(branch, clock)
        if found is None:
            raise LogStoreError(f"the log store lost update {clock} of branch {branch.hex()}")
        return found


def including(prev: Known) -> VersionVector:
    """What an update depends on because of the one that it follows."""
    return prev.dependencies.with_entry(prev.branch, prev.clock) if prev.clock else prev.dependencies


# -- branches: the virtual nodes that a forked writer is split into (Depot 4.3) -------------------------
# The updates of one device form a tree by `prev`; that of a correct device is a path. A *fork point* is an
# update, or the beginning before the first one, that more than one known update follows. Fork points cut the
# tree into paths, the *branches*, and each branch is a writer of its own in version vectors. Its id:
#
#     before the first known fork   the device id
#     after a fork point            digest(id of the branch that ends in the fork point + hash of the branch's
#                                   first update), 16 bytes
#
# The ids follow from the known updates alone, so devices that know the same updates name them alike, whatever
# the order in which they came. When a fork is discovered inside a branch, the part above the fork point gets
# a new id, and so does every branch that grows from that part: these are the `Rename`s.


_CONTEXT = "hybrisfs.sync 2026-11 branch id"


FirstAbove: TypeAlias = Callable[[bytes, int], bytes]


def branch_id(parent: bytes, first: bytes) -> bytes:
    """The id of the branch that leaves `parent` at its end and begins with the update of hash `first`."""
    return digest(_CONTEXT, parent + first, DEVICE_ID_SIZE)


class Branch(Struct, frozen=True):
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


# -- what the log knows of an accepted update, and what it asks of the store that keeps them ------------


@dataclass(slots=True)  # one is made for each update, which takes twice as long when it is frozen
class Known:
    """An accepted update: its stamp, its hash and its full dependency vector."""

    device: bytes
    branch: bytes
    clock: int
    hash: bytes
    dependencies: VersionVector
    hashes: dict[bytes, bytes] = field(default_factory=dict, compare=False, repr=False)
    """Branch -> hash of the update that the entry of `dependencies` names, as far as looked up."""

    @property
    def stamp(self) -> UpdateStamp:
        return UpdateStamp(self.device, self.clock, self.hash[:PREFIX_SIZE])


class Successor(Struct, frozen=True):
    """An accepted update that follows another one."""

    hash: bytes
    data: bytes | None
    """Its header and signature, whatever follows them; None when it is known from a checkpoint only."""


class AcceptedLog(Protocol):
    """Lookups in the caller's store of accepted updates."""

    def find(self, prefix: bytes) -> Known | None:
        """The accepted update whose hash begins with these PREFIX_SIZE bytes, or None when there is none."""

    def hash_of(self, branch: bytes, clock: int) -> bytes | None:
        """The hash of the accepted update with this stamp, or None when there is none."""

    def successor_of(self, branch: bytes, clock: int) -> Successor | None:
        """The first accepted update above `clock` on a branch, or None when there is none."""

    def binds(self, update: SignedUpdate) -> Collection[bytes]:
        """The devices that an update binds and of which its writer had said nothing before."""
