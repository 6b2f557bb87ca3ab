"""What each device wrote, observed and read, for the check of appendix A of Depot."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from functools import lru_cache

from hybrisfs.kinds import ATTRIBUTES, ID
from hybrisfs.log import is_kept
from hybrisfs.merge.authority import is_assigning, lawful, permitted
from hybrisfs.registers.node_id import kind_of
from hybrisfs.registers.tree import Attr
from sync import VersionVector
from sync.update import SignedUpdate, decode_signed
from tests.merge.fleet import Device
from tests.sync.fjc import Observed, Operation, Read, Wrote

__all__ = ["decoded", "operations"]


@lru_cache(maxsize=20_000)  # updates are seen by many devices
def decoded(data: bytes) -> SignedUpdate:
    """A signed update, with those of its writes that break no rule."""
    return lawful(decode_signed(data))


def operations(device: Device, bodies: Mapping[bytes, bytes]) -> list[Operation]:
    """All that the device did, in its order; in the end it reads every register that anybody ever wrote.
    *bodies*: by their hashes, updates that it may know through a checkpoint only."""
    found: list[Operation] = []
    hashes: dict[tuple[bytes, int], bytes] = {}
    written: dict[bytes, None] = {}
    rows = device.rig.db.rows.execute(
        "SELECT bytes, hash, branch, clock, chunk_high, vector FROM log ORDER BY number"
    ).fetchall()
    roles = device.rig.tx.registers.roles
    kinds: dict[bytes, int] = {}
    for data, identity, branch, clock, chunk_high, vector in rows:
        update: SignedUpdate = decoded(data if data is not None else bodies[identity])
        if roles or is_assigning(update.writes):
            seen = VersionVector.decode(vector)
            update = permitted(update, seen, roles, device.rig.updates.vector_of)
        update = _untwisted(update, kinds)
        hashes[branch, clock] = update.hash
        written.update((key, None) for key, _ in update.writes if is_kept(key))
        signed_here = chunk_high is not None
        found.append(Wrote(update) if signed_here else Observed(update))
    registers = device.registers()
    for key in written:
        returned = (hashes[value.stamp.branch, value.stamp.clock] for value in registers.get(key, ()))
        found.append(Read(key, frozenset(returned)))
    return found


def _untwisted(update: SignedUpdate, kinds: dict[bytes, int]) -> SignedUpdate:
    """The update without attributes of another kind than the first ones, of nodes whose ids do not tell it;
    *kinds* holds what there was before."""
    twisted = []
    for key, value in update.writes:
        if key[0] == ATTRIBUTES and value is not None and kind_of(key[ID]) is None:
            kind = stat.S_IFMT(Attr.decode(value).mode)
            if kinds.setdefault(key, kind) != kind:
                twisted.append(key)
    if not twisted:
        return update
    return update._replace(writes=tuple(one for one in update.writes if one[0] not in twisted))
