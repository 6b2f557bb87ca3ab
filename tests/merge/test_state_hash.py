"""The state hash: equal for equal registers, whatever was removed; different for any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hybrisfs.sharing.agreement import state_hash
from tests.merge.fleet import Device, Fleet
from tests.tree.rig import Rig


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2)
    yield fleet
    fleet.discard()


def hashes(fleet: Fleet) -> list[bytes]:
    return [state_hash(device.rig.db.rows) for device in fleet.devices]


def test_it_is_equal_at_equal_vectors_and_changes_with_every_change(fleet: Fleet) -> None:
    seen = set[bytes]()
    steps: tuple[Callable[[Device], object], ...] = (
        lambda device: device.write("file", b"one"),
        lambda device: device.mkdir("folder"),
        lambda device: device.move("file", "folder/file"),
        lambda device: device.write("folder/file", b"two"),
        lambda device: device.rig.fs.attributes.change(device.rig.tx, device.at("folder/file"), mode=0o600),
        lambda device: device.remove("folder/file"),
    )
    for at, step in enumerate(steps):
        step(fleet[at % 2])
        fleet.meet()
        [one] = set(hashes(fleet))
        assert one not in seen
        seen.add(one)


def test_concurrent_values_count(fleet: Fleet) -> None:
    fleet[0].write("file", b"first")
    fleet.meet()
    fleet[0].write("file", b"ada's")
    fleet[1].write("file", b"bob's")
    fleet.sign()
    one, other = hashes(fleet)
    assert one != other
    fleet.meet()
    assert len(set(hashes(fleet))) == 1


def test_what_was_removed_before_others_came_is_known_to_all_alike() -> None:
    alone, other = Device(0, (rig := Rig()).clouds, {}), Device(1, rig.clouds, {})
    alone.write("gone", b"x")
    alone.write("two", b"y")
    alone.link("two", "names")
    alone.sign()
    for path in ("gone", "names"):
        alone.remove(path)
    alone.sign()
    for device in (alone, other):
        with device.rig.fs.state.transaction():
            device.rig.tx.members.admit([alone.member, other.member])
            device.rig.updates.set_members(device.rig.tx.members.keys())
    other.receive(alone.log())
    assert other.registers() == alone.registers()
    own_root = other.rig.fs.changes.unsigned
    assert own_root and state_hash(other.rig.db.rows) == state_hash(alone.rig.db.rows)
    for one in (alone.rig, other.rig, rig):
        one.abandon()
