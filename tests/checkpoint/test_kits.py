"""Who begins with a checkpoint knows the recovery kits, whatever was written over registers of reserves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.environment import SYSTEM
from hybrisfs.members.lineage import let_in
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.removal import Stance, encode_vote, vote_key
from hybrisfs.recovery.record import SignedKit, signed_kit_key
from tests.checkpoint.test_adoption import adopt, snapshot_of
from tests.merge.fleet import Device, Fleet
from tests.recovery.support import RECORD, SECRET
from tests.tree.rig import SEALER

NOW = 1_700_000_000 * 10**9
KIT = SECRET.kit
RESERVE = Member(SECRET.reserve.public, "recovery kit", reserve=True)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(5)
    yield one
    one.discard()


def is_kept(device: Device) -> bool:
    members = device.rig.tx.members
    return [one.device for one in members.reserves()] == [KIT] and KIT in device.rig.sharing.key_holders()


@pytest.mark.parametrize("vetoed", [False, True])
def test_a_kit_that_one_member_wants_to_remove(fleet: Fleet, tmp_path: Path, *, vetoed: bool) -> None:
    ada, bob, mallory, witness, beginner = fleet.devices
    kit = signed_kit_key(KIT), SignedKit(RECORD, RESERVE.public).encode(SECRET.reserve)
    made = [(member_key(KIT), RESERVE.encode()), let_in(KIT, ada.key.device_id), kit]
    ada.rig.updates.sign(made, NOW, 0)
    for device in (bob, mallory, witness):
        device.receive(ada.log())
        assert is_kept(device)
    removed = replace(RESERVE, reserve=False, removed=True)
    writes = [
        (vote_key(KIT, mallory.key.device_id), encode_vote(Stance.REMOVE)),
        (member_key(KIT), removed.encode()),
    ]
    mallory.rig.updates.sign(writes, NOW, 0)
    for device in (bob, witness):
        device.receive(mallory.log())
        assert not is_kept(device) and KIT in device.rig.tx.members.suspended
    if vetoed:
        bob.rig.updates.sign([(vote_key(KIT, bob.key.device_id), encode_vote(Stance.KEEP))], NOW, 0)
        witness.receive(bob.log())
    snapshots = LocalSnapshots(tmp_path / "snapshots", SEALER, SYSTEM)
    adopt(beginner, snapshots, snapshot_of(witness, snapshots))
    for device in (witness, beginner):
        assert is_kept(device) == vetoed
        device.rig = device.rig.reopen()
        assert is_kept(device) == vetoed
        assert (KIT in device.rig.tx.members.suspended) != vetoed
