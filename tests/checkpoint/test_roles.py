"""Who begins with a checkpoint, or looks back at one, knows what others might write at any time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.environment import SYSTEM
from hybrisfs.members.roles import Role
from hybrisfs.registers.tree import Content, content_key
from sync.update import Write
from tests.checkpoint.test_adoption import adopt, snapshot_of
from tests.checkpoint.test_state_at_vector import moment, seen_again
from tests.members.test_roles import ADA, BOB, CYD, CYD_ID, NOW, agree, device_of, hear, say
from tests.merge.fleet import Device, Fleet
from tests.merge.limits import limit
from tests.tree.rig import SEALER


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(4)
    one.tell_who_came_by_whom({BOB: ADA, CYD: ADA})
    yield one
    one.discard()


@pytest.fixture
def snapshots(tmp_path: Path) -> LocalSnapshots:
    return LocalSnapshots(tmp_path / "snapshots", SEALER, SYSTEM)


def emptied(device: Device) -> Write:
    return content_key(device.at("file").id), Content(0, 0, ()).encode()


def test_a_newcomer_judges_by_what_was_said_long_ago(fleet: Fleet, snapshots: LocalSnapshots) -> None:
    """It was a reader once, and is a member now: what it signed in between comes after the checkpoint."""
    ada, bob, cyd, dan = fleet.devices
    for device in (ada, bob, cyd):
        device.write(device.name, b"content")
    ada.write("file", b"content")
    for sender in (ADA, BOB, CYD):
        for receiver in (ADA, BOB, CYD):
            fleet.send(sender, receiver)
    say(ada, CYD, Role.READER)
    fleet.send(ADA, CYD)
    cyd.rig.updates.sign([emptied(ada)], NOW, 0)
    late = cyd.log()
    say(ada, CYD, Role.FULL)
    bob.receive(ada.log())
    adopt(dan, snapshots, snapshot_of(bob, snapshots))
    assert dan.rig.sharing.signer.role_of(dan.rig.tx, CYD_ID) is Role.FULL
    assert dan.rig.tx.registers.roles
    for device in (ada, bob, dan):
        hear(device, late)
        assert device.read("file") == b"content"
    assert dan.registers() == bob.registers()
    agree(ada, bob)


def test_a_newcomer_tells_proposals_from_what_counts(fleet: Fleet, snapshots: LocalSnapshots) -> None:
    """By who let whom in, and who has seen what, which a checkpoint tells as well as the log."""
    ada, bob, cyd, dan = fleet.devices
    for device in (ada, bob, cyd):
        device.write(device.name, b"content")
    ada.write("file", b"content")
    for _ in range(2):
        for sender, receiver in permutations((ADA, BOB, CYD), 2):
            fleet.send(sender, receiver)
    ada_id = device_of(ADA)
    say(cyd, ADA, Role.READER)
    fleet.send(CYD, BOB)
    adopt(dan, snapshots, snapshot_of(bob, snapshots))
    assert dan.rig.sharing.signer.role_of(dan.rig.tx, ada_id) is Role.FULL
    assert [one.by for one in dan.rig.sharing.roles.proposed(ada_id)] == ["cyd"]
    ada.rig.updates.sign([emptied(ada)], NOW, 0)
    early = ada.log()
    say(bob, ADA, Role.READER)
    for device in (bob, dan):
        hear(device, bob.log())
        hear(device, early)
        assert device.read("file") == b"content", "it pretends not to have heard"
        assert device.rig.sharing.signer.role_of(device.rig.tx, ada_id) is Role.READER
    assert dan.registers() == bob.registers()


def test_who_looks_back_leaves_out_what_a_reader_signed(fleet: Fleet, snapshots: LocalSnapshots) -> None:
    ada, bob, cyd, _ = fleet.devices
    ada.write("file", b"content")
    fleet.meet()
    say(ada, CYD, Role.READER)
    fleet.send(ADA, CYD)
    base = moment(ada, ADA, snapshots)
    cyd.rig.updates.sign([emptied(ada)], NOW, 0)
    ada.receive(cyd.log())
    ada.write("more", b"content")
    ada.sign()
    bob.receive(ada.log())
    stated = moment(bob, BOB, snapshots)
    ada.write("later", b"content")
    ada.sign()
    assert seen_again(ada, snapshots, stated.vector, base) == stated.stored.snapshot


def test_a_newcomer_knows_which_files_were_assigned_to_a_contributor_by_when(
    fleet: Fleet, snapshots: LocalSnapshots
) -> None:
    ada, bob, cyd, dan = fleet.devices
    ada.mkdir("in")
    for name in ("in/early", "in/late"):
        ada.write(name, b"content")
    for receiver in (BOB, CYD):
        fleet.send(ADA, receiver)
    early, late = (content_key(ada.at(f"in/{name}").id) for name in ("early", "late"))
    (area,) = limit(ada, CYD, "in", assigned=["in/early"])
    fleet.send(ADA, CYD)
    empty = Content(0, 0, ()).encode()
    cyd.rig.updates.sign([(early, empty), (late, empty)], NOW, 0)
    log = cyd.log()
    ada.rig.sharing.shared_folders.assign([area])
    bob.receive(ada.log())
    adopt(dan, snapshots, snapshot_of(bob, snapshots))
    assert dan.rig.sharing.signer.role_of(dan.rig.tx, CYD_ID) is Role.CONTRIBUTOR
    for device in (ada, bob, dan):
        hear(device, log)
        assert (device.read("in/early"), device.read("in/late")) == (b"", b"content")
    assert dan.registers() == bob.registers()
    agree(ada, bob)
