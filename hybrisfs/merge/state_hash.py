"""The state hash: what a device's registers say, as 32 bytes, equal on all devices with equal vectors.

It is the BLAKE3 hash, derived with the context below, of these records, nodes in ascending order of their
ids, members after them:

=========  ===========================================================================================
field      meaning
=========  ===========================================================================================
key        blob: the register's key
values     varint: how many values follow, in ascending order of their stamps
clock      varint } of each
branch     16 B   }
value      blob   }
=========  ===========================================================================================

Of each node that has a place which is not a removal: these places, by their keys, then attributes and
content; of the root its attributes. Removed nodes do not count: no view shows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from blake3 import blake3

from hybrisfs.kinds import ATTRIBUTES, KINDS, NODE, PLACE, Kind, Trait
from hybrisfs.merge.rules import decode_place
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.database import Reader
from hybrisfs.state.registers import branches_by_number, rows_of_kind
from sync.codec import Writer

__all__ = ["state_hash"]

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
