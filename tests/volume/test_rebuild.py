"""A damaged database is set aside and made anew from the clouds; what no cloud had is looked for in the
journal.
"""

from __future__ import annotations

import math
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from hybrisfs.admit.create import KEYS_FILE
from hybrisfs.admit.rebuild import rebuild_volume
from hybrisfs.api.volumes import Rebuilt
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError, HybrisError
from hybrisfs.keys import VolumeKeys
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.sharing.sharing import AwaitLimits
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.volume.volume import Volume
from tests.crash.workload import shown_tree
from tests.system.deadline import until
from tests.tree.unlocked import unlocked
from tests.volume.device import ALONE, NAME, PATIENCE, Device, Second, two_devices
from tests.volume.test_garbage import collect, packs


def _rebuild(device: Device) -> Rebuilt:
    return rebuild_volume(device.home, NAME, lambda stage, done, total: None)


def _regain(device: Device) -> None:
    """Wait until the log is back."""
    deadline = time.monotonic() + PATIENCE
    assert device.volume.signals.wait_until(device.volume.following.has_looked, deadline, step=0.05)


def _branches(device: Device) -> int:
    with device.volume.fs.state.transaction() as tx:
        count: int = tx.execute("SELECT count(*) FROM log_branch").fetchone()[0]
        return count


def _spoil(path: Path, choose: random.Random, bits: int) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(bits):
        content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
    path.write_bytes(content)


@contextmanager
def _clouds_away(device: Device) -> Iterator[None]:
    away = [cloud.rename(cloud.with_name(f"{cloud.name} away")) for cloud in device.clouds]
    yield
    for cloud, folder in zip(device.clouds, away, strict=True):
        folder.rename(cloud)


def test_all_comes_back_from_the_clouds_without_a_fork(device: Device) -> None:
    for number in range(20):
        device.write(f"file {number}", b"%d" % number * 3000)
    device.sync()
    before = shown_tree(device.volume)
    device.close()
    (device.state / "volume.db").write_bytes(b"nothing of it can be read")
    with pytest.raises(DamagedError, match=f"hybrisfs volume rebuild {NAME}"):
        Volume.open(device.home, NAME, SYSTEM)
    report = _rebuild(device)
    assert (report.recovered, report.lost) == ([], [])
    assert (Path(report.set_aside) / "volume.db").read_bytes() == b"nothing of it can be read"
    device.reopen()
    _regain(device)
    assert shown_tree(device.volume) == before
    device.write("new", b"after it")
    device.sync()
    assert _branches(device) == 1
    assert not device.fsck(clouds=True).problems
    device.reopen()
    assert device.read("new") == b"after it"


def test_nothing_is_signed_before_the_own_log_is_back(device: Device) -> None:
    device.write("file", b"content")
    device.sync()
    device.close()
    (device.state / "volume.db").unlink()
    _rebuild(device)
    with _clouds_away(device):
        device.reopen()
        device.write("meanwhile", b"written while no cloud was there")
        assert not device.volume.sync(0.5, lambda done, total: None)
        assert unlocked(device.volume.fs).updates.own_tip() is None
        assert any("rebuilt" in doubt for doubt in device.volume.following.doubts())
        with pytest.raises(HybrisError, match="not back"):
            device.volume.rename_device("", "other")
        device.reopen()  # it is remembered
        assert not device.volume.sync(0.5, lambda done, total: None)
    device.sync()
    assert device.read("file") == b"content"
    assert device.read("meanwhile") == b"written while no cloud was there"
    assert _branches(device) == 1
    assert not device.volume.following.doubts()


def test_what_an_earlier_rebuild_has_set_aside_stays(device: Device) -> None:
    """Also that of the same second."""
    device.close()
    aside = set[str]()
    for content in (b"damaged", b"damaged again", b"and again"):
        (device.state / "volume.db").write_bytes(content)
        folder = _rebuild(device).set_aside
        assert (Path(folder) / "volume.db").read_bytes() == content
        aside.add(folder)
    assert len(aside) == 3


def test_files_that_no_cloud_has_are_recovered(device: Device) -> None:
    device.write("file", b"content" * 1000)
    device.sync()
    with _clouds_away(device):
        device.write("pending", b"only here" * 1000)
        device.write("file", b"changed here" * 1000)
        assert not device.volume.sync(0.5, lambda done, total: None)
        device.close()
    report = _rebuild(device)
    assert sorted(path.rpartition("/")[2] for path in report.recovered) == ["file", "pending"]
    device.reopen()
    _regain(device)
    device.sync()
    tree = {path.rpartition("/")[2]: node.content for path, node in shown_tree(device.volume).items()}
    assert tree["pending"] == b"only here" * 1000
    contents = {node.content for node in shown_tree(device.volume).values()}
    assert {b"content" * 1000, b"changed here" * 1000} <= contents
    assert not device.fsck(clouds=True).problems


def test_what_was_changed_of_a_file_that_is_not_here_is_recovered(device: Device) -> None:
    """The rest of it comes from the clouds."""
    large, small = random.Random(1).randbytes(3 << 20), b"content" * 1000
    device.write("large", large)
    device.write("small", small)
    device.sync()
    device.volume.drop_cache()
    fs = device.volume.fs
    with _clouds_away(device):
        for name, offset in (("large", 1 << 20), ("small", len(small))):
            with fs.state.transaction() as tx:
                inode = fs.lookup(tx, ROOT_INO, name.encode())
                assert inode is not None
                handle = fs.open(tx, inode.ino, os.O_WRONLY)
            device.write_at(handle, offset, b"changed here")
            with fs.state.transaction() as tx:
                fs.release(tx, handle)
        assert not device.volume.sync(0.5, lambda done, total: None)
        device.close()
    report = _rebuild(device)
    assert report.lost == []
    assert sorted(path.rpartition("/")[2] for path in report.recovered) == ["large", "small"]
    device.reopen()
    _regain(device)
    device.sync()
    changed = large[: 1 << 20] + b"changed here" + large[(1 << 20) + 12 :]
    contents = {node.content for node in shown_tree(device.volume).values()}
    assert {large, small, changed, small + b"changed here"} <= contents
    assert not device.fsck(clouds=True).problems


def test_a_file_whose_bytes_have_gone_is_named_and_no_wrong_byte_is_kept(device: Device) -> None:
    with _clouds_away(device):
        for name in ("good", "bad"):
            device.write(name, name.encode() * 5000)
        assert not device.volume.sync(1.0, lambda done, total: None)
        with device.volume.fs.state.transaction() as tx:
            device.volume.fs.flush(tx)
            rows = dict(tx.execute("SELECT length, position FROM chunk WHERE pack IS NULL"))
        device.close()
        [segment] = (device.state / "journal").iterdir()
        content = bytearray(segment.read_bytes())
        content[rows[15000] + 7] ^= 1
        segment.write_bytes(content)
    report = _rebuild(device)
    assert report.lost == ["bad"]
    assert [path.rpartition("/")[2] for path in report.recovered] == ["good"]
    device.reopen()
    device.sync()
    assert {node.content for node in shown_tree(device.volume).values()} == {b"", b"good" * 5000}


@pytest.mark.parametrize("killed_at", range(6))
def test_a_rebuild_that_is_cut_short_is_gone_on_with(device: Device, killed_at: int) -> None:
    device.write("file", b"content")
    device.sync()
    device.close()
    (device.state / "volume.db").write_bytes(b"damaged")
    moves = 0.0
    move = Path.rename

    def dies(path: Path, target: Path) -> Path:
        nonlocal moves
        moves += 1
        if moves > killed_at:
            raise KeyboardInterrupt
        return move(path, target)

    with mock.patch.object(Path, "rename", dies):
        try:
            _rebuild(device)
        except KeyboardInterrupt:
            with pytest.raises(DamagedError, match="volume rebuild"):
                Volume.open(device.home, NAME, SYSTEM)
            moves = -math.inf
            _rebuild(device)
    device.reopen()
    _regain(device)
    assert device.read("file") == b"content"
    assert any(folder.joinpath("volume.db").is_file() for folder in device.state.glob("damaged-*"))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_bits_of_the_database_flip_it_can_be_rebuilt(device: Device, seed: int) -> None:
    """It opens or says what to do; programs may get errors, but after the rebuilding all is there."""
    choose = random.Random(seed)
    contents = {f"file {number}": choose.randbytes(2000) for number in range(30)}
    for name, content in contents.items():
        device.write(name, content)
    device.sync()
    device.close()
    _spoil(device.state / "volume.db", choose, 4**seed)
    report = _rebuild(device)
    device.reopen()
    _regain(device)
    assert not report.lost
    assert {name: device.read(name) for name in contents} == contents
    device.sync()
    assert _branches(device) == 1
    assert not device.fsck(clouds=True).problems


def test_a_device_among_others_is_rebuilt(tmp_path: Path) -> None:
    first = Device(tmp_path / "first")
    first.close()
    replace(VolumeConfig.load(first.home, NAME), links=ALONE).save(first.home)
    first.reopen()
    first.write("one", b"by the first")
    first.sync()
    second = Second(tmp_path / "second", first)
    second.write("two", b"by the second")
    second.sync()
    second.close()
    with sqlite3.connect(second.state / "volume.db") as damaged:
        damaged.execute("DELETE FROM log")
    damaged.close()
    _rebuild(second)
    second.reopen()
    _regain(second)
    second.write("three", b"after it")
    second.sync()
    deadline = time.monotonic() + PATIENCE
    for device in (first, second):

        def agrees(device: Device = device) -> bool:
            device.volume.signals.look_around()
            shown = shown_tree(device.volume)
            return {node.content for node in shown.values()} == {
                b"",
                b"by the first",
                b"by the second",
                b"after it",
            }

        assert device.volume.signals.wait_until(agrees, deadline, step=0.1)
        assert _branches(device) == 2, "one for each device"
        assert not device.fsck().problems
    second.close()
    first.close()


def test_one_that_knows_its_members_no_more_deletes_nothing_of_theirs(tmp_path: Path) -> None:
    """Their updates, on which its own log depends, are nobody's to it: it must not think that it is alone."""
    with two_devices(tmp_path) as (first, second):
        first.write("file", b"by the first" * 1000)
        first.sync()
        second.volume.signals.look_around()
        until(lambda: "/file" in shown_tree(second.volume), "the file to come")
        second.write("answer", b"by the second" * 1000)
        second.sync()
        before = packs(first)
        second.close()
        for path in second.state.glob("volume.db*"):
            path.unlink()
        _rebuild(second)
        config = VolumeConfig.load(second.home, NAME)
        replace(config, discard_hours=0).save(second.home)
        second.reopen(AwaitLimits(patience=0.0))
        for _ in range(3):
            second.volume.following.puller.look_now()
            second.volume.signals.look_around()
            second.volume.following.has_looked()
            assert collect(second).deleted_packs == 0
        until(lambda: second.volume.following.puller.heads(), "its own head to be seen")
        assert not second.volume.following.has_looked()
        assert any("rebuilt" in doubt for doubt in second.volume.following.doubts())
        assert packs(first) == before


def test_one_that_knows_no_member_and_never_shipped_deletes_nothing_of_theirs(tmp_path: Path) -> None:
    """No head of its own leads to what it wrote, so it goes on alone."""
    with two_devices(tmp_path) as (first, second):
        first.write("file", b"by the first" * 1000)
        first.sync()
        before = packs(first)
        second.close()
        for path in second.state.glob("volume.db*"):
            path.unlink()
        own = f"heads/{VolumeKeys.load(second.state / KEYS_FILE).device.device_id.hex()}"
        for cloud in first.clouds:
            (cloud / own).unlink(missing_ok=True)
        _rebuild(second)
        config = VolumeConfig.load(second.home, NAME)
        replace(config, discard_hours=0).save(second.home)
        second.reopen()
        until(second.volume.following.has_looked, "the clouds to be looked at")
        for _ in range(3):
            assert collect(second).deleted_packs == 0
        assert packs(first) == before
