"""What the heads of devices show: do all make the same of the same log, and are clocks right?

A device's heads say what it made of its log, over links and on the clouds. Whose log is the same must have
made the same of it: else one of the two programs, disks or memories is wrong.

Reading all registers takes a while in a large volume, so it is done when things are quiet, and seldom.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Final

from blake3 import blake3
from msgspec import Struct

from hybrisfs.kinds import ATTRIBUTES, KINDS, NODE, PLACE, Kind, Trait
from hybrisfs.merge.rules import decode_place
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.database import Reader
from hybrisfs.state.registers import branches_by_number, rows_of_kind
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from sync import Head, StateClaim
from sync.codec import Writer

__all__ = ["Agreement", "AgreementLimits", "clock_doubts", "state_hash"]

log = logging.getLogger(__name__)

_SHARE: Final = 100  # it takes at most one part in so many of the time


class AgreementLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    quiet_seconds: float = 30.0
    """Without a change, before it is worth while."""


class Agreement:
    """The state hash at the history for which it was computed last. Thread-safe."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._quiet = fs.environment.limits.of(AgreementLimits).quiet_seconds
        self._guard = threading.Lock()
        self._history = b""
        self._hash: bytes | None = None
        self._not_before = 0.0
        self._claims: dict[bytes, Head] = {}  # by device: the newest head that said so
        self._disagreeing = frozenset[bytes]()

    @property
    def disagreeing(self) -> frozenset[bytes]:
        """The devices that have made something else of the very log that is here."""
        return self._disagreeing

    def hear(self, head: Head) -> None:
        """Another device says where it stands; called without the volume's lock."""
        if head.state is None:
            return
        with self._fs.state.transaction():
            known = self._claims.get(head.writer)
            if known is not None and known.serial >= head.serial:
                return
            self._claims[head.writer] = head
        self._compare()

    def _compare(self) -> None:
        with self._fs.state.transaction() as tx:
            own = self.claim(tx)
            found = set(self._disagreeing)
            for device, head in self._claims.items():
                if own is not None and head.state is not None and head.state.history == own.history:
                    (found.discard if head.state == own else found.add)(device)
            for device in found - self._disagreeing:
                log.error("machine %s has made another state of the same log", device.hex())
            self._disagreeing = frozenset(found)

    def claim(self, tx: Transaction) -> StateClaim | None:
        """What heads are to say of this device's state, None while it is not known."""
        state = self.current(tx)
        return None if state is None else StateClaim(self._history, state)

    def current(self, tx: Transaction) -> bytes | None:
        """The hash of the state as it is, None while it is not known."""
        return self._hash if tx.updates.history() == self._history else None

    def refresh(self, last_change: float) -> None:
        """Compute it if that is worth while; *last_change* is when the view changed last (monotonic)."""
        now = self._monotonic()
        if now < self._not_before or now - last_change < self._quiet:
            return
        self.compute()
        self._not_before = now + (self._monotonic() - now) * _SHARE

    def compute(self) -> None:
        """Compute it unless it is known. Called without the volume's lock; raises OSError."""
        with self._guard:
            with self._fs.state.transaction() as tx:
                if self.current(tx) is not None:
                    return
            with self._fs.committed(lambda tx: tx.updates.history()) as (history, database):
                computed = state_hash(database)
            with self._fs.state.transaction():
                self._history, self._hash = history, computed
        self._compare()


# -- recognising clocks that are set wrong, by the times that devices state in their heads --------------
# Nothing depends on clocks being right: what happened before what follows from the updates themselves. But
# times of files and ages of versions come from them, so people should know. A head cannot have been written
# in the future: if it says so, its writer's clock is ahead or this one's is behind. The head of a device
# whose clock is behind looks old, as that of a silent device does; there the other device notices that it is
# behind.


_TOLERANCE_NS: Final = 10 * 60 * 10**9
_UNITS: Final = ((365 * 86400, "years"), (86400, "days"), (3600, "hours"), (60, "minutes"))


def clock_doubts(
    heads: Mapping[bytes, Head], own: bytes, now_ns: int, name_of: Callable[[bytes], str]
) -> list[str]:
    """What the newest *heads* of devices tell about clocks, in sentences; *now_ns* is this machine's time,
    *own* its device."""
    doubts: list[str] = []
    for device, head in heads.items():
        ahead = head.time_ns - now_ns
        if ahead <= _TOLERANCE_NS:
            continue
        if device == own:
            doubts.append(f"this machine's clock has gone back by {_described(ahead)}: is it set right?")
        else:
            doubts.append(
                f"the clock of {name_of(device)} is {_described(ahead)} ahead of this machine's: "
                "one of the two is set wrong"
            )
    return doubts


def _described(nanoseconds: int) -> str:
    seconds = nanoseconds // 10**9
    for size, name in _UNITS:
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {name}"
    return f"{seconds} seconds"


# -- the state hash: what a device makes of its log -----------------------------------------------------
# It is the BLAKE3 hash, derived with the context below, of these records, nodes in ascending order of their
# ids, members after them:
#
# =========  ===========================================================================================
# field      meaning
# =========  ===========================================================================================
# key        blob: the register's key
# values     varint: how many values follow, in ascending order of their stamps
# clock      varint } of each
# branch     16 B   }
# value      blob   }
# =========  ===========================================================================================
#
# Of each node that has a place which is not a removal: these places, by their keys, then attributes and
# content; of the root its attributes. Removed nodes do not count: no view shows them.


_CONTEXT: Final = "hybrisfs.merge 2026-11 state hash"
_HASHED: Final = [kind for kind in KINDS if Trait.HASHED in kind.traits]
_FACETS: Final = [kind for kind in _HASHED if Trait.TREE in kind.traits and kind != PLACE]
_OTHERS: Final = [kind for kind in _HASHED if Trait.TREE not in kind.traits]
_Register = tuple[bytes, list[Value]]


def state_hash(database: Reader) -> bytes:
    """The hash of all that counts, read in one pass with little memory. The registers must not change until
    it returns."""
    branches = branches_by_number(database)
    hasher = blake3(derive_key_context=_CONTEXT)
    facets = {kind: _Follower(_registers(database, branches, kind)) for kind in _FACETS}
    root = facets[ATTRIBUTES].of(ROOT_ID)
    if root is not None:
        hasher.update(_record(root))
    for node, places in groupby(_registers(database, branches, PLACE), key=lambda one: one[0][NODE]):
        standing = [one for one in places if any(_stands(value) for value in one[1])]
        if not standing:
            continue
        for register in (*standing, *(facet.of(node) for facet in facets.values())):
            if register is not None:
                hasher.update(_record(register))
    for kind in _OTHERS:
        for register in _registers(database, branches, kind):
            hasher.update(_record(register))
    return hasher.digest()


class _Follower:
    """Finds registers by nodes that are asked for in ascending order."""

    def __init__(self, registers: Iterator[_Register]) -> None:
        self._registers = registers
        self._next = next(registers, None)

    def of(self, node: bytes) -> _Register | None:
        while self._next is not None and self._next[0][NODE] < node:
            self._next = next(self._registers, None)
        return self._next if self._next is not None and self._next[0][NODE] == node else None


def _stands(value: Value) -> bool:
    place = decode_place(value)
    return place is not None and not place.removed


def _registers(database: Reader, branches: dict[int, bytes], kind: Kind) -> Iterator[_Register]:
    for key, group in groupby(rows_of_kind(database, kind), key=lambda row: row[0]):
        values = [Value(Stamp(clock, branches[writer]), value) for _, clock, writer, value in group]
        yield key, sorted(values, key=lambda one: one.stamp)


def _record(register: _Register) -> bytes:
    key, values = register
    out = Writer().blob(key).varint(len(values))
    for stamp, value in ((one.stamp, one.value) for one in values):
        out.varint(stamp.clock).raw(stamp.branch).blob(value or b"")
    return out.getvalue()
