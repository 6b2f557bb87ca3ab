"""Volumes that are written and written again: their log stays short, and whoever comes later has it all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from hybrisfs.admit.rebuild import rebuild_volume
from hybrisfs.api.maintenance import WrongObject
from hybrisfs.checkpoint.checkpointer import Checkpointer
from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.home import Home
from hybrisfs.state.schema import ROOT_INO
from sync.checkpoint import CHECKPOINTS
from tests.system.deadline import until
from tests.volume.device import NAME, Device, checkpoints_within
from tests.volume.recovery_rig import First, New, Second, recover

_FILES = 10
_PATIENCE = 120.0
AT_ONCE = CheckpointLimits(look_seconds=0.05, quiet_seconds=0.1, least_bytes=1, restate_seconds=1.0)
_BRANCHES = "SELECT count(*) FROM log_branch"


@pytest.fixture
def first(tmp_path: Path) -> Iterator[First]:
    """A device whose checkpoints come at once, with a recovery kit."""
    with closing(First(tmp_path / "first", clouds=4, limits=[AT_ONCE])) as device:
        device.make_kit()
        yield device


def bare(device: Device) -> int:
    return _count(device, "SELECT count(*) FROM log WHERE bytes IS NULL")


def whole(device: Device) -> int:
    return _count(device, "SELECT count(*) FROM log WHERE bytes IS NOT NULL")


def _count(device: Device, query: str) -> int:
    with device.volume.fs.state.transaction() as tx:
        return int(tx.execute(query).fetchone()[0])


def segments(device: Device) -> set[str]:
    return {path.name for cloud in device.clouds for path in cloud.glob("log/*/*")}


def parts(cloud: Path) -> set[str]:
    return {path.name for path in (cloud / CHECKPOINTS).glob("*")}


def rewrite(device: Device, round_: int, *others: Device) -> None:
    """Write all files anew, and wait until a checkpoint of this device and the others has it, and all of
    them know where on the clouds it is."""
    for number in range(_FILES):
        device.write(f"file {number}", _content(number, round_))
    device.sync()

    def is_current() -> bool:
        for one in (device, *others):
            one.volume.signals.look_around()
        return all(one.volume.checkpoints.checkpointer.is_current() for one in (device, *others))

    volumes = [one.volume for one in (device, *others)]
    with checkpoints_within(*volumes, least_share=0.0):  # of what came last there is little
        until(is_current, "a checkpoint", _PATIENCE)


def _content(number: int, round_: int) -> bytes:
    return b"%d in round %d " % (number, round_) * 40


def compacted(device: Device, rounds: int = 3) -> int:
    """Write and drop; the last round."""
    for round_ in range(rounds):
        rewrite(device, round_)
    until(lambda: bare(device), "bodies to be dropped")
    return rounds - 1


def file_names(device: Device) -> set[str]:
    with device.volume.fs.state.transaction() as tx:
        return {name.decode() for _, name, _ in device.volume.fs.names.list(tx, ROOT_INO, 0, 1000)}


def is_compacted(checkpointer: Checkpointer) -> bool:
    view = checkpointer._view()
    newest = view.stated
    if newest is None or newest.deposited is None:
        return False
    return checkpointer.machine._compacted == (newest.deposited, view.clouds)


@contextmanager
def at_rest(device: Device) -> Iterator[None]:
    """Nothing is left to be done, and no other checkpoint is made meanwhile."""
    with checkpoints_within(device.volume, least_bytes=1 << 40):
        until(partial(is_compacted, device.volume.checkpoints.checkpointer), "what is replaced to be gone")
        yield


def has_all(device: Device, round_: int) -> bool:
    names = file_names(device)
    wanted = {f"file {number}": _content(number, round_) for number in range(_FILES)}
    return wanted.keys() <= names and all(device.read(name) == content for name, content in wanted.items())


def scrubbed(device: Device) -> list[WrongObject]:
    facts = device.volume.maintenance.scrub(100.0, lambda stage, done, total: None).facts()
    return facts.problems


def assert_sound(device: Device) -> None:
    assert device.fsck(clouds=True).problems == []
    assert scrubbed(device) == []


def test_the_log_of_a_volume_that_is_rewritten_for_long_stays_short(first: First) -> None:
    most_segments = most_bodies = 0
    for round_ in range(12):
        rewrite(first, round_)
        if round_ > 2:
            most_segments = max(most_segments, len(segments(first)))
            most_bodies = max(most_bodies, whole(first))
    signed = bare(first) + whole(first)
    assert signed > 20 and most_bodies < signed / 2, (signed, most_bodies)
    assert most_segments < 12
    assert_sound(first)
    log = first.volume.checkpoints.facts().log
    assert log.dropped == bare(first) and log.freed_bytes > 0
    first.reopen()
    assert has_all(first, 11)
    assert_sound(first)


def test_a_device_that_comes_later_sees_all_of_it(first: First, tmp_path: Path) -> None:
    last = compacted(first)
    second = Second(tmp_path / "second", first)
    try:
        until(lambda: has_all(second, last), "the other device to see all")
        second.write("by the second", b"2" * 100)
        second.sync()
        before = bare(first), bare(second)
        for round_ in (5, 6, 7):
            rewrite(first, round_, second)

        def have_dropped() -> bool:
            for one in (first, second):
                one.volume.signals.look_around()
            return bare(first) > before[0] and bare(second) > before[1]

        until(have_dropped, "both to drop what both have", _PATIENCE)
        until(lambda: has_all(second, 7), "the last round", _PATIENCE)
        assert_sound(first)
        assert_sound(second)
    finally:
        second.close()


def test_a_rebuilt_device_begins_with_what_it_has_stated(first: First) -> None:
    last = compacted(first)
    first.write("later", b"x" * 100)
    first.sync()
    first.close()
    (first.state / "volume.db").write_bytes(b"damaged")
    rebuild_volume(first.home, NAME, lambda stage, done, total: None)
    first.reopen()
    until(lambda: has_all(first, last), "all to come back")
    until(lambda: first.volume.following.has_looked(), "the own log to be back")
    assert first.read("later") == b"x" * 100
    first.sync()
    first.write("after", b"y" * 100)
    first.sync()
    assert _count(first, _BRANCHES) == 1, "it has not forked"
    assert_sound(first)


def test_a_machine_that_is_recovered_has_all_of_it(first: First, tmp_path: Path) -> None:
    last = compacted(first)
    first.write("later", b"x" * 100)
    first.sync()
    first.close()
    shutil.rmtree(first.home.state.parent)
    home = Home.below(tmp_path / "new machine")
    recover(home, first.clouds)
    new = New(home, first.clouds, [AT_ONCE])
    try:
        until(lambda: has_all(new, last), "all to come back")
        until(lambda: "later" in file_names(new), "what came after the checkpoint")
        assert new.read("later") == b"x" * 100
        assert bare(new)
        new.write("more", b"z")
        new.sync()
        assert_sound(new)
    finally:
        new.close()


def test_a_kit_can_be_used_again_after_its_log_was_covered(first: First, tmp_path: Path) -> None:
    compacted(first)
    for name in ("one", "two"):
        home = Home.below(tmp_path / name)
        recover(home, first.clouds, own_name=name)
        new = New(home, first.clouds, [AT_ONCE])
        try:
            until(lambda new=new: bare(new), "it to have begun")  # type: ignore[misc]
            new.write(name, name.encode())
            new.sync()
            first.volume.signals.look_around()
            until(lambda name=name: name in _names(first), "the first device to hear of it")  # type: ignore[misc]
        finally:
            new.close()
        first.volume.signals.look_around()
    until(lambda: _count(first, _BRANCHES) == 4, "what three devices and the kit have written")


def _names(device: Device) -> set[str]:
    return {str(one.name) for one in device.volume.devices()}


def test_scrub_names_and_repair_mends_parts_of_the_checkpoint(first: First) -> None:
    compacted(first)
    with at_rest(first):
        lost, altered, *_ = sorted(set().union(*map(parts, first.clouds)))
        _, *others = [cloud for cloud in first.clouds if lost in parts(cloud)]
        for cloud in others:
            (cloud / CHECKPOINTS / lost).unlink()
        flipped = next(cloud for cloud in first.clouds if altered in parts(cloud)) / CHECKPOINTS / altered
        flipped.write_bytes(flipped.read_bytes()[:-1] + b"?")
        told = str(scrubbed(first))
        assert lost in told and altered in told
        assert len(first.fsck(clouds=True).problems) == 2
        done = first.volume.maintenance.repair(lambda stage, done, total: None).facts()
        assert (done.repaired, done.failed) == (2, 0)
        assert_sound(first)


def test_a_part_that_a_read_finds_wrong_is_healed(first: First) -> None:
    compacted(first)
    with at_rest(first):
        cloud = next(cloud for cloud in first.clouds if parts(cloud))
        wrong = cloud / CHECKPOINTS / max(parts(cloud))
        good = wrong.stat().st_size
        wrong.write_bytes(b"?")
        assert scrubbed(first)  # as a read would, it tells the cloud's health
        maintenance = first.volume.maintenance
        assert not maintenance.heal(first.volume.engine.upkeep.wrong_objects())
        assert wrong.stat().st_size == good
        assert {one.state for one in first.volume.engine.health()} == {"ok"}


def test_a_cloud_that_leaves_takes_no_checkpoint_with_it(first: First, tmp_path: Path) -> None:
    last = compacted(first)
    leaving = next(cloud for cloud in first.clouds if parts(cloud) and any(cloud.glob("log/*/*")))
    first.volume.clouds.drain(leaving.name)
    assert first.volume.clouds.wait(leaving.name, 60.0, lambda done, total: None) == (True, "")
    assert not parts(leaving) and not any(leaving.glob("log/*/*"))
    assert_sound(first)
    second = Second(tmp_path / "second", first)
    try:
        until(lambda: has_all(second, last), "the other device to see all")
    finally:
        second.close()


def test_a_cloud_that_is_lost_is_made_up_for(first: First) -> None:
    compacted(first)
    gone = next(cloud for cloud in first.clouds if parts(cloud))
    names = parts(gone)
    gone.rename(gone.with_name("lost"))
    first.volume.clouds.remove(gone.name)
    assert first.volume.clouds.wait(gone.name, 60.0, lambda done, total: None) == (True, "")
    left = [parts(cloud) for cloud in first.clouds if cloud.exists()]
    newest = {part.hex() for part in first.volume.checkpoints.checkpointer.cloud_checkpoint.parts()}
    assert all(sum(part in cloud for cloud in left) >= 2 for part in newest & names)
    assert_sound(first)


def test_segments_that_are_gone_for_good_are_not_missed(first: First) -> None:
    """Those that a checkpoint has replaced nobody looks for; one that is lost is named, and made again."""
    compacted(first)
    with at_rest(first):
        assert_sound(first)
        for cloud in first.clouds:
            for path in cloud.glob("log/*/*"):
                path.unlink()
        assert scrubbed(first)
        done = first.volume.maintenance.repair(lambda stage, done, total: None).facts()
        assert done.failed == 0 and done.repaired, done
        assert_sound(first)
