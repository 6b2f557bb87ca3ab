"""Checkpoints of volumes that are open: a device that comes later begins with one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.admit.join import join_volume, make_grant
from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.home import Home
from hybrisfs.members.members import Member
from hybrisfs.pairing.errors import PairingError
from hybrisfs.pairing.exchange import Dialogue
from hybrisfs.pairing.messages import Peer
from hybrisfs.pairing.session import Joined
from hybrisfs.sharing.agreement import state_hash
from hybrisfs.state.checkpoints import CheckpointTable
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.volume.volume import Volume
from sync import DeviceKey, VersionVector
from sync.checkpoint import CHECKPOINTS
from tests.system.deadline import until
from tests.tree.unlocked import unlocked
from tests.volume.device import ALONE, NAME, Device, checkpoints_within
from tests.volume.recovery_rig import Second

_NOTHING = "SELECT count(*) FROM log WHERE bytes IS NULL"


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Device]:
    """A device whose checkpoints come at once."""
    limits = CheckpointLimits(look_seconds=0.05, quiet_seconds=0.2, least_bytes=1, restate_seconds=1.0)
    with closing(Device(tmp_path, limits=[limits])) as device:
        yield device


def invited(first: Device, root: Path) -> Home:
    """The home of a device that was let in, and has not been started."""
    volume, home, key = first.volume, Home.below(root), DeviceKey.generate()
    grant = make_grant(volume.config, volume.ring.keys, volume.sharing.current_members(), None)
    volume.sharing.membership.admit(Member(key.public, "other"))
    joined = Joined(grant, Peer(volume.ring.keys.device.public, "first"))
    replace(join_volume(home, None, key, "other", joined), links=ALONE).save(home)
    return home


def is_current(volume: Volume) -> bool:
    return volume.checkpoints.checkpointer.is_current()


def is_told(volume: Volume) -> bool:
    """Whether its head on the clouds names the newest checkpoint, so that others can begin with that."""
    told = volume.checkpoints._named_by(volume.sharing.device, volume.sharing.current_members())
    with volume.fs.state.transaction() as tx:
        return told is not None and told == volume.checkpoints.checkpointer.newest(tx)


def objects(device: Device) -> set[str]:
    return {
        path.relative_to(cloud).as_posix()
        for cloud in device.clouds
        for path in cloud.rglob("*")
        if path.is_file() and path.relative_to(cloud).as_posix().startswith(CHECKPOINTS)
    }


def bare(volume: Volume) -> int:
    with volume.fs.state.transaction() as tx:
        return int(tx.execute(_NOTHING).fetchone()[0])


def names(volume: Volume) -> list[bytes]:
    with volume.fs.state.transaction() as tx:
        return [name for _, name, _ in volume.fs.names.list(tx, ROOT_INO, 0, 1000)]


def problems(volume: Volume) -> list[object]:
    return list(volume.fsck(clouds=True, progress=lambda stage, done, total: None).problems)


def test_a_device_that_comes_later_begins_with_the_checkpoint(first: Device, tmp_path: Path) -> None:
    for number in range(30):
        first.write(f"file {number}", os.urandom(100))
    first.sync()
    until(lambda: is_current(first.volume), "the only device to agree with itself")
    until(lambda: is_told(first.volume), "its head to say so")
    before = objects(first)
    assert before
    home = invited(first, tmp_path / "other")
    second = Volume.open(home, NAME, first.around.environment)
    try:
        until(second.sharing.begun.is_set, "the second device to have begun")
        assert bare(second) > 0, "it has read the log instead"
        assert set(names(second)) == set(names(first.volume))
        first.write("later", b"later")
        until(lambda: b"later" in names(second), "what came after the checkpoint")
        both = (first.volume, second)
        with checkpoints_within(*both, least_share=0.0):  # of what came last there is little
            until(lambda: all(is_current(one) for one in both), "both to agree on the next one")
        with first.volume.fs.state.transaction() as tx, second.fs.state.transaction() as theirs:
            assert first.volume.checkpoints.checkpointer.statement(
                tx
            ) != second.checkpoints.checkpointer.statement(theirs)
            for one in both:
                one.fs.commit(unlocked(one.fs))
        assert state_hash(unlocked(first.volume.fs)) == state_hash(unlocked(second.fs))
        until(lambda: not before <= objects(first), "the first checkpoint to be removed from the clouds")
        for one in both:
            assert problems(one) == []
    finally:
        second.close()


def test_who_invites_somebody_has_a_checkpoint_made(first: Device) -> None:
    """... though the last one is not old, and the volume does not rest."""
    volume = first.volume

    def is_covered(vector: VersionVector) -> bool:
        with volume.fs.state.transaction() as tx:
            found = CheckpointTable(tx).deposited()
        return found is not None and found.vector.covers(vector)

    first.write("file", b"x" * 100)
    first.sync()
    until(lambda: is_covered(VersionVector()), "the first checkpoint")
    with checkpoints_within(volume, quiet_seconds=1e9, restate_seconds=1e9):
        first.write("later", b"y" * 100)
        first.sync()
        with volume.fs.state.transaction():
            vector = unlocked(volume.fs).updates.state.vector
        invitation = volume.invite(lifetime=60.0, with_credentials=False)
        until(lambda: is_covered(vector), "the next one")
        ended = threading.Event()
        ended.set()
        with pytest.raises(PairingError):
            invitation.run(Dialogue(lambda _: None, lambda _: False, lambda _: None), ended)


def test_devices_that_go_on_writing_agree(first: Device, tmp_path: Path) -> None:
    with checkpoints_within(first.volume, quiet_seconds=1e9, restate_seconds=1e9):
        second = Second(tmp_path / "other", first)
        second.volume.checkpoints.checkpointer.machine.limits = (
            first.volume.checkpoints.checkpointer.machine.limits
        )
        try:
            both = (first, second)
            until(second.volume.sharing.begun.is_set, "the second device to have begun")
            first.volume.checkpoints.checkpointer.machine.hurry()
            written = count()

            def have_agreed() -> bool:
                for one in both:
                    one.write(f"file {next(written)}", os.urandom(100))
                with (
                    first.volume.fs.state.transaction() as tx,
                    second.volume.fs.state.transaction() as theirs,
                ):
                    newest = (one.volume.checkpoints.checkpointer.newest for one in both)
                    found = {find(at) for find, at in zip(newest, (tx, theirs), strict=True)}
                return len(found) == 1 and None not in found

            until(have_agreed, "both to agree, though they never rest")
        finally:
            second.close()


def test_without_a_checkpoint_it_reads_the_log(first: Device, tmp_path: Path) -> None:
    with checkpoints_within(first.volume, least_bytes=1 << 40):
        first.write("file", b"x")
        first.sync()
        home = invited(first, tmp_path / "other")
        second = Volume.open(home, NAME, first.around.environment)
        try:
            until(lambda: b"file" in names(second), "the log")
            assert bare(second) == 0
        finally:
            second.close()


def test_a_damaged_checkpoint_is_passed_over(first: Device, tmp_path: Path) -> None:
    first.write("file", b"x" * 100)
    first.sync()
    until(lambda: is_current(first.volume), "the checkpoint")
    with checkpoints_within(first.volume, least_bytes=1 << 40):
        for cloud in first.clouds:
            for path in (cloud / CHECKPOINTS).glob("*"):
                path.write_bytes(path.read_bytes()[:-1] + b"?")
        home = invited(first, tmp_path / "other")
        second = Volume.open(home, NAME, first.around.environment)
        try:
            until(lambda: b"file" in names(second), "the log")
            assert bare(second) == 0
        finally:
            second.close()
