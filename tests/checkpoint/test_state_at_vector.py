"""What was stated before is found again, whatever has come since."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.checkpoint.snapshot import SnapshotHash, Snapshotter
from hybrisfs.checkpoint.state_at_vector import MOST_BYTES, Base, look_back
from hybrisfs.environment import SYSTEM
from hybrisfs.state.checkpoints import StoredSnapshot
from sync import DecodeError, VersionVector
from tests.checkpoint.test_adoption import live, snapshot_of
from tests.merge.fleet import Device, Fleet
from tests.merge.world import World
from tests.simulation.determinism import SMALL_CHECKPOINTS
from tests.surroundings import limited
from tests.tree.rig import SEALER, SMALL_BLOCKS, VOLUME, small_chunks


class Moment(NamedTuple):
    """What a device stated."""

    device: int
    vector: VersionVector
    stored: StoredSnapshot


def moment(device: Device, number: int, snapshots: LocalSnapshots) -> Moment:
    stored = snapshot_of(device, snapshots)
    return Moment(number, device.rig.updates.state.vector, stored)


def seen_again(
    device: Device,
    snapshots: LocalSnapshots,
    vector: VersionVector,
    base: Moment | None,
    most_bytes: int = MOST_BYTES,
) -> bytes | None:
    """The hash of the snapshot that the device had at *vector*; None when it cannot tell."""
    device.rig.commit()
    before = None if base is None else Base(base.vector, snapshots.pieces(base.stored))
    with device.rig.db.snapshot() as db:
        if not look_back(db, vector, before, most_bytes):
            return None
        hasher = SnapshotHash()
        snapshotter = Snapshotter(db, VOLUME, device.rig.environment.limits.of(CheckpointLimits).slice_bytes)
        for piece in snapshotter.slices():
            hasher.update(piece)
        for _ in snapshotter.hints():
            pass
        return hasher.digest()


class _Onward(World):
    """No device goes back."""

    def back_up(self, number: int) -> None:
        """None is kept."""

    def restore(self, number: int) -> None:
        """There is none."""


class _FirstOnward(World):
    """The first device never goes back."""

    def restore(self, number: int) -> None:
        if number:
            super().restore(number)


@contextmanager
def world_of(count: int, kind: type[World] = World) -> Iterator[World]:
    world = kind(count, environment=lambda _: limited(SMALL_CHECKPOINTS, small_chunks(256), SMALL_BLOCKS))
    try:
        yield world
    finally:
        world.end()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_what_was_stated_is_found_by_everybody_who_has_gone_on(tmp_path: Path, seed: int) -> None:
    choices = random.Random(seed)
    snapshots = LocalSnapshots(tmp_path / "snapshots", SEALER, SYSTEM)
    count = choices.randint(2, 4)
    with world_of(count, _Onward) as world:
        moments = []
        for _ in range(choices.randint(2, 6)):
            live(world, count, choices.randint(5, 30), choices)
            number = choices.randrange(count)
            moments.append(moment(world.fleet[number], number, snapshots))
        live(world, count, choices.randint(0, 30), choices)
        found = 0
        for device in world.fleet.devices:
            here = device.rig.updates.state.vector
            for one in moments:
                bases = [other for other in moments if one.vector.covers(other.vector)]
                for base in (None, *bases) if here.covers(one.vector) else ():
                    assert seen_again(device, snapshots, one.vector, base) == one.stored.snapshot
                    found += 1
        assert found


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_forks_that_come_to_light_do_not_make_another_state_of_it(tmp_path: Path, seed: int) -> None:
    """A device that forgets nothing tells only what it stated itself, whatever branches are called."""
    choices = random.Random(seed)
    snapshots = LocalSnapshots(tmp_path / "snapshots", SEALER, SYSTEM)
    count = choices.randint(2, 4)
    with world_of(count, _FirstOnward) as world:
        moments = []
        for _ in range(choices.randint(2, 8)):
            live(world, count, choices.randint(5, 30), choices)
            moments.append(moment(world.fleet[0], 0, snapshots))
        live(world, count, choices.randint(0, 30), choices)
        for number, one in enumerate(moments):
            for base in (None, *moments[: number + 1]):
                assert seen_again(world.fleet[0], snapshots, one.vector, base) in (None, one.stored.snapshot)


@pytest.fixture
def pair() -> Iterator[Fleet]:
    fleet = Fleet(2)
    yield fleet
    fleet.discard()


def test_a_file_that_was_removed_since_is_there(pair: Fleet, tmp_path: Path) -> None:
    snapshots = LocalSnapshots(tmp_path / "snapshots", SEALER, SYSTEM)
    ada, bob = pair[0], pair[1]
    ada.write("file", b"first")
    pair.meet()
    base = moment(ada, 0, snapshots)
    bob.write("file", b"second")
    pair.meet()
    stated = moment(bob, 1, snapshots)
    ada.remove("file")
    bob.write("other", b"third")
    pair.meet()
    assert seen_again(ada, snapshots, stated.vector, base) == stated.stored.snapshot
    assert seen_again(ada, snapshots, base.vector, base) == base.stored.snapshot
    assert seen_again(ada, snapshots, base.vector, None) == base.stored.snapshot


def test_what_is_not_here_is_not_told(pair: Fleet, tmp_path: Path) -> None:
    snapshots = LocalSnapshots(tmp_path / "snapshots", SEALER, SYSTEM)
    ada, bob = pair[0], pair[1]
    ada.write("file", b"first")
    pair.meet()
    bob.write("late", b"not heard of")
    bob.sign()
    assert seen_again(ada, snapshots, bob.rig.updates.state.vector, None) is None


@pytest.fixture
def gone_on(pair: Fleet, tmp_path: Path) -> tuple[Device, LocalSnapshots, Moment]:
    """A device that has written something since it stated what it had."""
    device, snapshots = pair[0], LocalSnapshots(tmp_path / "snapshots", SEALER, SYSTEM)
    device.write("file", b"first")
    device.sign()
    stated = moment(device, 0, snapshots)
    device.write("file", b"second")
    device.sign()
    return device, snapshots, stated


def test_bodies_that_are_gone_and_too_many_are_not_told(
    gone_on: tuple[Device, LocalSnapshots, Moment],
) -> None:
    device, snapshots, stated = gone_on
    assert seen_again(device, snapshots, stated.vector, None, most_bytes=100) is None
    device.rig.db.rows.execute("UPDATE log SET bytes = NULL WHERE number = 1")
    assert seen_again(device, snapshots, stated.vector, None) is None


def test_a_damaged_checkpoint_is_found_out(
    gone_on: tuple[Device, LocalSnapshots, Moment], tmp_path: Path
) -> None:
    device, snapshots, stated = gone_on
    [path] = (tmp_path / "snapshots").glob("*.snapshot")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DecodeError):
        seen_again(device, snapshots, stated.vector, stated)
