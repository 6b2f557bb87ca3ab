"""What each device wrote, observed and read, for the check of appendix A of Depot."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from hybrisfs.merge.authority import is_assigning, lawful, permitted
from hybrisfs.merge.registers import is_kept
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
    rows = device.rig.db.execute(
        "SELECT bytes, hash, branch, clock, chunk_high, vector FROM log ORDER BY number"
    ).fetchall()
    roles = device.rig.sharing.registers.roles
    for data, identity, branch, clock, chunk_high, vector in rows:
        update: SignedUpdate = decoded(data if data is not None else bodies[identity])
        if roles or is_assigning(update.writes):
            seen = VersionVector.decode(vector)
            update = permitted(update, seen, roles, device.rig.updates.vector_of)
        hashes[branch, clock] = update.hash
        written.update((key, None) for key, _ in update.writes if is_kept(key))
        signed_here = chunk_high is not None
        found.append(Wrote(update) if signed_here else Observed(update))
    registers = device.registers()
    for key in written:
        returned = (hashes[value.stamp.writer, value.stamp.clock] for value in registers.get(key, ()))
        found.append(Read(key, frozenset(returned)))
    return found
