"""Taking in a checkpoint comes to the same as taking in all of its updates, wherever it is taken in."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrisfs.checkpoint.intake import Adoption
from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.checkpoint.snapshot import SnapshotHash, Snapshotter
from hybrisfs.environment import SYSTEM
from hybrisfs.sharing.agreement import state_hash
from hybrisfs.state.checkpoints import StoredSnapshot
from tests.merge.fleet import Device, Entry, NotHereError
from tests.merge.world import World
from tests.surroundings import limited
from tests.tree.rig import SEALER, SMALL_BLOCKS, VOLUME, Rig, small_chunks

_STEPS: tuple[tuple[str, int], ...] = (
    ("write", 4), ("write_same", 4), ("append", 2), ("mkdir", 3), ("remove", 2), ("rename", 4), ("link", 4),
    ("chmod", 3), ("sign", 1), ("send", 4), ("back_up", 1), ("restore", 1),
)  # fmt: skip


def live(world: World, count: int, steps: int, choices: random.Random) -> None:
    for _ in range(steps):
        name, arguments = choices.choice(_STEPS)
        if name == "send":
            sender, receiver = choices.sample(range(count), 2)
            world.send(sender, receiver, choices.randrange(6), 0)
        else:
            picks = [choices.randrange(12) for _ in range(arguments - 1)]
            getattr(world, name)(choices.randrange(count), *picks)


def snapshot_of(device: Device, snapshots: LocalSnapshots) -> StoredSnapshot:
    device.rig.commit()
    hasher = SnapshotHash()
    with device.rig.db.snapshot() as db:
        limits = device.rig.environment.limits.of(CheckpointLimits)
        snapshotter = Snapshotter(db, VOLUME, limits.slice_bytes)

        def pieces() -> Iterator[bytes]:
            for piece in snapshotter.slices():
                hasher.update(piece)
                yield piece

        return snapshots.put(pieces(), snapshotter.hints(), hasher.digest)


def adopt(device: Device, snapshots: LocalSnapshots, stored: StoredSnapshot) -> None:
    sharing, fs = device.rig.sharing, device.rig.fs
    with fs.state.log_transaction() as tx:
        Adoption(fs, sharing.arrivals).run(tx, snapshots, stored)
        sharing.arrivals.unveil(tx)


def log_of(device: Device) -> list[tuple[object, ...]]:
    return device.rig.db.rows.execute(
        "SELECT branch, clock, device, hash, vector, time FROM log ORDER BY hash"
    ).fetchall()


SMALL: Final = limited(small_chunks(256), SMALL_BLOCKS)


@contextmanager
def copied(device: Device) -> Iterator[Device]:
    """Another device with the same disk and key."""
    backup = device.saved()
    copy = Device.__new__(Device)
    copy.key, copy.name = device.key, device.name
    rig = device.rig
    copy.rig = Rig(backup, rig.clouds, plaintexts=rig.plaintexts, device=device.key, environment=SMALL)
    try:
        yield copy
    finally:
        copy.rig.abandon()


def compare(one: Device, other: Device) -> None:
    assert log_of(one) == log_of(other)
    assert one.registers() == other.registers()
    assert state_hash(one.rig.db.rows) == state_hash(other.rig.db.rows)
    assert tree_of(one) == tree_of(other)


def tree_of(device: Device) -> dict[str, Entry] | None:
    """What programs see; None when the device has heard of a content, but not yet where its chunks are."""
    try:
        return device.tree()
    except NotHereError:
        return None


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 60))
def test_adopting_is_taking_in_all_updates(
    seed: int, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    choices = random.Random(seed)
    directory = tmp_path_factory.mktemp("snapshots")
    snapshots = LocalSnapshots(directory, SEALER, SYSTEM)
    world = World(3, environment=lambda _: SMALL)
    try:
        live(world, 3, steps, choices)
        world.sign(0)
        stored = snapshot_of(world.fleet[0], snapshots)
        log = world.fleet[0].log()
        for number in (1, 2):
            device = world.fleet[number]
            device.sign()
            with copied(device) as adopting:
                adopt(adopting, snapshots, stored)
                device.receive(log)
                compare(adopting, device)
    finally:
        world.end()
        shutil.rmtree(directory)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 60))
def test_devices_that_know_the_same_make_the_same_snapshot(
    seed: int, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    snapshots = LocalSnapshots(tmp_path_factory.mktemp("snapshots"), SEALER, SYSTEM)
    world = World(3, environment=lambda _: SMALL)
    try:
        live(world, 3, steps, random.Random(seed))
        world.settle()
        made = [snapshot_of(device, snapshots) for device in world.fleet.devices]
        assert len({one.snapshot for one in made}) == len({one.slices for one in made}) == 1
    finally:
        world.end()
