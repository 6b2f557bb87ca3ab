"""Copies that labels ask for: on which devices a folder is to be, and what that means for this one.

A label asks that a folder, or a file, is on at least so many devices (`hybrisfs.registers.labels`). Each
device decides for itself whether it is among them. In its heads it states what it keeps, whether that is
whole, and how much room it has (`sync.head`); from these statements all follow the same order:

1. devices that have all of it, then those that are fetching it, then others with room for it;
2. among equals, those that keep everything, then those with more room, then by their ids.

The first ones in this order are *chosen*, as many as copies are asked for. What a chosen device keeps is
fetched and stays, as if it were pinned. On other devices what they happen to have stays until enough others
state that they have it (`hybrisfs.state.pins`).

A statement is a promise for a while. A device that has stated that it has a folder keeps it for a day after
its last such statement; the others rely on it for half a day. So two devices never let the same content go
because each relies on the other, as long as their clocks are wrong by less than half a day. A member that
lies, and a device that is lost or full, can still cost a copy. The clouds have the content in any case, as
only what they have is ever evicted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct, field

from hybrisfs.kinds import NODE_ID_SIZE
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.state.pins import Measure, Precious
from hybrisfs.state.shown_nodes import ino_shown_for
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from sync import MAX_HELD, Head, Hoard, Holding, Holdings, VersionVector

__all__ = [
    "MOST_FOLDERS",
    "AskedFolder",
    "Copies",
    "CopiesLimits",
    "FolderCopies",
    "Looked",
    "Machine",
    "choose",
]

MOST_FOLDERS: Final = MAX_HELD - 1
"""For whose copies labels can ask in a volume; a head has room for these and the root."""
_NS: Final = 10**9
_STATED_KEY: Final = "copies"
_SAVED_AHEAD_NS: Final = 3600 * _NS  # so that it is not saved with each head
_MOST_ROOM: Final = 64


class CopiesLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`; all in seconds."""

    kept: float = 86_400.0
    """For which a device keeps what it has stated to have, after it stated that last."""
    relied: float = 43_200.0
    """For which others rely on it."""
    silent: float = 7 * 86_400.0
    """A device that is silent for longer is counted on no more: another one is chosen."""
    settled: float = 120.0
    """Before a device begins to fetch what is asked for, so that it has heard what others state."""
    behind: float = 600.0
    """For which a statement stays as it is while what has come since is fetched, and after which people hear
    that there are too few copies."""


class Stage(IntEnum):
    """How far a device is with a folder."""

    WHOLE = 0
    COMING = 1
    NONE = 2


class Machine(NamedTuple):
    """A device, as far as it may be chosen for a folder."""

    device: bytes
    hoard: Hoard
    room: int
    """As in a head."""
    stage: Stage

    def order(self) -> tuple[int, bool, int, bytes]:
        """The lowest is chosen first."""
        return self.stage, self.hoard is not Hoard.ALL, -self.room, self.device

    def may_take(self, size: int) -> bool:
        """Whether it has the folder, or room for it, and keeps things for the sake of others."""
        has_room = self.room > 0 and size <= 1 << (self.room - 1)
        return self.hoard is not Hoard.NONE and (self.stage is not Stage.NONE or has_room)


def choose(machines: Iterable[Machine], copies: int) -> list[bytes]:
    """The devices that are to keep a folder, of those that may take it."""
    return [one.device for one in sorted(machines, key=Machine.order)[:copies]]


def room_of(size: int) -> int:
    """So many bytes, as a head says them."""
    return min(max(size, 0).bit_length(), _MOST_ROOM)


class AskedFolder(NamedTuple):
    """A folder, or a file, that is to be on so many devices."""

    node: bytes
    ino: int
    copies: int


class Looked(Struct, frozen=True):
    """What a look at the tree has found."""

    folders: Sequence[AskedFolder]
    measures: Mapping[bytes, Measure]
    """Of these folders; of the root, too, when this device is to keep everything."""
    pinned: int
    """Bytes of what is pinned."""
    most: int
    """Bytes that may be kept here for good."""
    vector: VersionVector
    """All that it covers was in the tree."""


class FolderCopies(Struct, frozen=True):
    """How a folder for whose copies a label asks is, as of the last look."""

    folder: AskedFolder
    measure: Measure
    whole: tuple[bytes, ...]
    """The devices that have all of it, this one first."""
    coming: tuple[bytes, ...]
    """Those that are fetching it."""
    short: bool
    """There have been too few of them for a while."""


class _Heard(Struct, frozen=True):
    """What a device has stated last, and when."""

    serial: int
    time_ns: int
    holdings: Holdings | None

    def stage(self, node: bytes) -> Stage:
        nodes = {} if self.holdings is None else dict(self.holdings.nodes)
        return Stage.NONE if node not in nodes else Stage.WHOLE if nodes[node] else Stage.COMING


class _Own(Struct):
    """What this device states."""

    nodes: dict[bytes, bool] = field(default_factory=dict)
    vector: VersionVector = field(default_factory=VersionVector)
    room: int = 0
    behind_since: float | None = None


class Copies:
    """Those of one volume. Its methods may be called from any thread; those that take the transaction, under
    the volume's lock."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._time_ns = fs.environment.time_ns
        self.limits = fs.environment.limits.of(CopiesLimits)
        """They may be others at any moment."""
        self.hoard = Hoard.ASKED
        """What this device keeps."""
        self._guard = threading.Lock()
        self._heard: dict[bytes, _Heard] = {}
        self._own = _Own()
        self._asked = False
        self._seen: dict[bytes, float] = {}  # since when a label is known to ask for a folder
        self._short: dict[bytes, float] = {}  # since when there are too few
        self.folders: tuple[FolderCopies, ...] = ()
        """As of the last look."""
        self.is_overfull = False
        """This device is to keep everything, and that is more than it may keep; as of the last look."""
        with fs.state.transaction() as tx:
            self._stated = _load_stated(tx)  # when this device has stated last that it has a folder
            self._saved = dict(self._stated)
            fs.pins.keep_copies((), dict.fromkeys(fs.labels.asking_for_copies(tx)))  # until the first look

    @property
    def is_busy(self) -> bool:
        """Whether labels asked for copies at the last look, or this device is to keep everything."""
        return self._asked or self.hoard is Hoard.ALL

    def hear(self, head: Head) -> None:
        """A member has stated this."""
        with self._guard:
            known = self._heard.get(head.writer)
            if known is None or known.serial < head.serial:
                time_ns = min(head.time_ns, self._time_ns())
                self._heard[head.writer] = _Heard(head.serial, time_ns, head.holdings)

    # -- looks -----------------------------------------------------------------------------------

    def asked_for(self, tx: Transaction) -> list[AskedFolder]:
        """What labels ask for, in the order of ids, and no more than there may be."""
        found = self._fs.labels.asking_for_copies(tx)
        return [AskedFolder(node, *found[node]) for node in sorted(found)[:MOST_FOLDERS]]

    def decide(self, tx: Transaction, looked: Looked) -> bool:
        """Decide what is kept here; False when it is what was kept before."""
        others = self._others(tx)
        chosen, used = self._chosen(tx, looked, others)
        self._own.room = 0 if self.hoard is Hoard.NONE else room_of(looked.most - used)
        self._state(looked, chosen)
        self._asked = bool(looked.folders) or self.hoard is Hoard.ALL
        self.folders = tuple(self._described(tx, one, looked, others) for one in looked.folders)
        precious = {
            one.node: self._held_by_others(one, others)
            for one in looked.folders
            if one.node not in chosen and (self.hoard is not Hoard.NONE or self._is_promised(one.node))
        }
        return self._fs.pins.keep_copies(chosen, precious)

    def _others(self, tx: Transaction) -> dict[bytes, _Heard]:
        """The other members that have not been silent for too long."""
        members, own = tx.members.devices(), tx.updates.device
        with self._guard:
            heard = dict(self._heard)
        return {
            device: one
            for device, one in heard.items()
            if device != own and device in members and self._is_within(one.time_ns, self.limits.silent)
        }

    def _is_within(self, time_ns: int, seconds: float) -> bool:
        return self._time_ns() - time_ns < seconds * _NS

    def _chosen(
        self, tx: Transaction, looked: Looked, others: Mapping[bytes, _Heard]
    ) -> tuple[set[bytes], int]:
        """The nodes that this device keeps, and how many bytes it keeps for good with these."""
        now, own = self._monotonic(), tx.updates.device
        self._seen = {one.node: self._seen.get(one.node, now) for one in looked.folders}
        # It may have been changed since the tree was measured.
        everything = looked.measures.get(ROOT_ID) if self.hoard is Hoard.ALL else None
        self.is_overfull = everything is not None and everything.bytes > looked.most
        if everything is not None and not self.is_overfull:
            return {ROOT_ID, *self._seen}, everything.bytes
        chosen, used = set[bytes](), looked.pinned
        for folder in looked.folders if self.hoard is not Hoard.NONE else ():
            measure = looked.measures[folder.node]
            if used + measure.bytes > looked.most:
                continue
            stage = Stage.WHOLE if not measure.missing else self._own_stage(folder.node)
            machines = [Machine(own, self.hoard, self._own.room, stage)]
            for device, one in others.items():
                if one.holdings is not None:
                    machine = Machine(device, one.holdings.hoard, one.holdings.room, one.stage(folder.node))
                    machines += [machine] if machine.may_take(measure.bytes) else []
            has_settled = now - self._seen[folder.node] >= self.limits.settled
            if own in choose(machines, folder.copies) and (stage is not Stage.NONE or has_settled):
                chosen.add(folder.node)
                used += measure.bytes
        return chosen, used

    def _own_stage(self, node: bytes) -> Stage:
        whole = self._own.nodes.get(node)
        return Stage.NONE if whole is None else Stage.WHOLE if whole else Stage.COMING

    def _state(self, looked: Looked, chosen: Iterable[bytes]) -> None:
        """Find what this device is to state."""
        own, before = self._own, self._own.nodes
        whole = {node for node in chosen if not looked.measures[node].missing}
        lacking = [node for node in chosen if before.get(node) and node not in whole]
        now = self._monotonic()
        own.behind_since = (now if own.behind_since is None else own.behind_since) if lacking else None
        if own.behind_since is not None and now - own.behind_since < self.limits.behind:
            # All that the tree had at the earlier vector and still has is here.
            own.nodes = {node: before.get(node, False) for node in chosen}
        else:
            own.nodes, own.vector = {node: node in whole for node in chosen}, looked.vector

    def _is_promised(self, node: bytes) -> bool:
        return self._is_within(self._stated.get(node, 0), self.limits.kept)

    def _held_by_others(self, folder: AskedFolder, others: Mapping[bytes, _Heard]) -> VersionVector | None:
        """Up to which vector enough others have a folder, so that this device need not keep what it has."""
        if self._is_promised(folder.node):
            return None
        machines = {
            Machine(device, one.holdings.hoard, one.holdings.room, Stage.WHOLE): one.holdings.vector
            for device, one in others.items()
            if one.holdings is not None
            and one.stage(folder.node) is Stage.WHOLE
            and self._is_within(one.time_ns, self.limits.relied)
        }
        relied = [machines[one] for one in sorted(machines, key=Machine.order)[: folder.copies]]
        return _meet(relied) if len(relied) == folder.copies else None

    # -- what this device states, and what people see ------------------------------------------------

    def holdings(self, tx: Transaction) -> Holdings | None:
        """What the next head is to state; the caller states it."""
        if not self._asked:
            return None
        nodes = tuple(Holding(*one) for one in sorted(self._own.nodes.items()))
        now = self._time_ns()
        self._stated |= {node: now for node, whole in nodes if whole}
        if any(self._saved.get(node, 0) < at for node, at in self._stated.items()):
            self._stated = {node: at for node, at in self._stated.items() if self._is_promised(node)}
            self._saved = {node: at + _SAVED_AHEAD_NS for node, at in self._stated.items()}
            _save_stated(tx, self._saved)
        return Holdings(self.hoard, self._own.room, self._own.vector, nodes)

    def _described(
        self, tx: Transaction, folder: AskedFolder, looked: Looked, others: Mapping[bytes, _Heard]
    ) -> FolderCopies:
        measure, now = looked.measures[folder.node], self._monotonic()
        stages = {device: one.stage(folder.node) for device, one in sorted(others.items())}
        stage = self._own_stage(folder.node)
        stages = {tx.updates.device: stage if measure.missing else Stage.WHOLE, **stages}
        whole = tuple(device for device, stage in stages.items() if stage is Stage.WHOLE)
        coming = tuple(device for device, stage in stages.items() if stage is Stage.COMING)
        if len(whole) < folder.copies:
            short = now - self._short.setdefault(folder.node, now) >= self.limits.behind
        else:
            self._short.pop(folder.node, None)
            short = False
        return FolderCopies(folder, measure, whole, coming, short)

    def holders(self, tx: Transaction, ino: int, parent: int) -> list[bytes]:
        """The other devices that have all of a file, which stands in the folder *parent*, by what they
        state."""
        return [
            device
            for device, one in sorted(self._others(tx).items())
            if one.holdings is not None
            and any(
                whole and _is_held(tx, node, one.holdings.vector, ino, parent)
                for node, whole in one.holdings.nodes
            )
        ]


def _is_held(tx: Transaction, node: bytes, vector: VersionVector, ino: int, parent: int) -> bool:
    """Whether a file is at or below a node, and all of it came with what the vector covers."""
    at = ino_shown_for(tx, node)
    return (
        at is not None
        and Precious(tx, {at: None}).has(ino, parent)
        and not Precious(tx, {at: vector}).has(ino, parent)
    )


def _meet(vectors: Sequence[VersionVector]) -> VersionVector:
    """What all of some vectors cover."""
    first, *rest = vectors
    clocks = ((branch, min([clock, *(one[branch] for one in rest)])) for branch, clock in first.items())
    return VersionVector([(branch, clock) for branch, clock in clocks if clock])


# -- when this device has stated what, kept in the row `copies` of `meta`: for each node its id, and the time
# in ns since the epoch as u64. It is up to an hour too late, and so written seldom. -------------------------


def _save_stated(tx: Transaction, stated: Mapping[bytes, int]) -> None:
    rows = (node + time_ns.to_bytes(8, "big") for node, time_ns in stated.items())
    tx.add_meta(_STATED_KEY, b"".join(rows))


def _load_stated(tx: Transaction) -> dict[bytes, int]:
    data = tx.find_meta(_STATED_KEY) or b""
    size = NODE_ID_SIZE + 8
    rows = (data[start : start + size] for start in range(0, len(data), size))
    return {row[:NODE_ID_SIZE]: int.from_bytes(row[NODE_ID_SIZE:], "big") for row in rows}
