"""Deleted data leaves the clouds: one device, folders that play clouds."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from msgspec import structs

from hybrisfs.errors import HybrisError
from hybrisfs.gc.collector import Collection
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.versions.retention import parse_retention
from hybrisfs.write.pack import PackLimits
from tests.system.deadline import until
from tests.tree.unlocked import unlocked
from tests.volume.device import NAME, Device

MIB = 1 << 20
ONE_CHUNK = 1 << 16
"""Bytes of a file that is in one pack; what is longer is cut by content, and may go in two."""


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Device]:
    """A device that deletes at once what nobody needs."""
    device = Device(tmp_path)
    device.close()
    config = VolumeConfig.load(device.home, NAME)
    structs.replace(config, discard_hours=0, keep_versions=parse_retention("off")).save(device.home)
    device.reopen()
    yield device
    device.close()


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def remove(device: Device, name: str) -> None:
    with device.volume.fs.state.transaction() as tx:
        device.volume.fs.unlink(tx, ROOT_INO, name.encode())


def collect(device: Device, *, dry_run: bool = False) -> Collection:
    """What it does when a person asks, as soon as its own work in the background lets it: on a busy machine
    that may take longer than the person waits."""
    collector = device.volume.collector

    def ask() -> Collection | None:
        try:
            return collector.collect(lambda stage, done, total: None, dry_run=dry_run)
        except HybrisError:
            return None

    found = until(ask, "the collector to be free")
    assert found is not None
    return found


def packs(device: Device) -> dict[str, int]:
    """The shares on all clouds, and their sizes."""
    return {
        f"{cloud.name}/{path.name}": path.stat().st_size
        for cloud in device.clouds
        for path in (cloud / "packs").rglob("*")
        if path.is_file()
    }


def sound(device: Device) -> None:
    report = device.fsck(clouds=True)
    assert report.problems == []


def test_what_another_device_may_have_deleted_by_now_is_missed_by_nobody(device: Device) -> None:
    """Between the promise not to use a pack again and the news that it has ended."""
    device.write("file", noise(1, MIB))
    device.sync()
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        tx.chunks.condemned.add([number for (number,) in tx.execute("SELECT number FROM pack").fetchall()])
        fs.commit(tx)
    for cloud in device.clouds:
        shutil.rmtree(cloud / "packs", ignore_errors=True)
    sound(device)
    report = device.volume.maintenance.scrub(100.0, lambda stage, done, total: None).facts()
    assert report.problems == []
    assert {one.state for one in device.volume.engine.health()} == {"ok"}


def test_what_is_deleted_leaves_the_clouds(hasty: Device) -> None:
    hasty.write("kept", noise(1, MIB))
    hasty.sync()
    kept = packs(hasty)
    hasty.write("gone", noise(2, 3 * MIB))
    hasty.sync()
    assert sum(packs(hasty).values()) > sum(kept.values()) + 6 * MIB
    remove(hasty, "gone")
    hasty.sync()
    looked = collect(hasty, dry_run=True)
    assert looked.found["empty"] >= 1
    assert looked.found["empty bytes"] >= 6 * MIB
    assert looked.deleted_packs == 0
    assert len(packs(hasty)) > len(kept)
    done = collect(hasty)
    assert (done.deleted_packs, done.due_packs, done.waiting) == (looked.found["empty"], 0, [])
    assert done.deleted_bytes >= 6 * MIB
    assert packs(hasty) == kept
    listed = hasty.volume.clouds.all()
    assert sum(int(str(one.bytes)) for one in listed) > 2 * MIB - (1 << 16)
    assert hasty.volume.status().clouds
    hasty.volume.drop_cache()
    assert hasty.read("kept") == noise(1, MIB)
    sound(hasty)
    assert collect(hasty).proposed == 0


def test_what_was_deleted_and_is_written_again_goes_to_the_clouds_anew(hasty: Device) -> None:
    hasty.write("file", noise(1, ONE_CHUNK))
    hasty.sync()
    remove(hasty, "file")
    hasty.sync()
    before = packs(hasty)
    collect(hasty)
    assert packs(hasty) == {}
    hasty.write("again", noise(1, ONE_CHUNK))
    hasty.sync()
    assert len(packs(hasty)) == 2
    assert packs(hasty).keys().isdisjoint(before)
    hasty.volume.drop_cache()
    hasty.reopen()
    assert hasty.read("again") == noise(1, ONE_CHUNK)
    sound(hasty)


def test_little_that_is_needed_does_not_keep_much(hasty: Device) -> None:
    for number in range(6):
        hasty.write(f"file {number}", noise(number, MIB // 2))
    hasty.sync()
    before = packs(hasty)
    for number in range(5):
        remove(hasty, f"file {number}")
    hasty.sync()
    hasty.volume.drop_cache()
    done = collect(hasty)
    assert done.deleted_packs >= 1
    assert sum(packs(hasty).values()) < sum(before.values()) // 4
    hasty.volume.drop_cache()
    assert hasty.read("file 5") == noise(5, MIB // 2)
    sound(hasty)
    assert collect(hasty).deleted_packs == 0


def test_nothing_goes_before_its_time(device: Device) -> None:
    device.volume.settings.edit({"keep_versions": "off"})
    device.write("gone", noise(1, ONE_CHUNK))
    device.sync()
    before = packs(device)
    remove(device, "gone")
    device.sync()
    done = collect(device)
    assert (done.found["young"], done.proposed, done.deleted_packs) == (1, 0, 0)
    assert packs(device) == before
    device.around.ahead_ns = 10 * 365 * 86_400 * 10**9
    assert collect(device).deleted_packs == 1
    assert packs(device) == {}


def test_a_file_that_was_deleted_and_is_still_open_keeps_its_bytes(hasty: Device) -> None:
    hasty.write("open", noise(1, ONE_CHUNK))
    hasty.sync()
    fs = hasty.volume.fs
    with fs.state.transaction() as tx:
        handle = fs.open(tx, fs.lookup(tx, ROOT_INO, b"open").ino, os.O_RDONLY)  # type: ignore[union-attr]
    remove(hasty, "open")
    hasty.sync()
    assert collect(hasty).deleted_packs == 0
    with fs.state.transaction() as tx:
        fs.release(tx, handle)
    assert collect(hasty).deleted_packs == 1


def test_a_cloud_that_is_away_is_cleaned_when_it_is_back(hasty: Device, tmp_path: Path) -> None:
    hasty.write("gone", noise(1, ONE_CHUNK))
    hasty.sync()
    [away, *_] = [cloud for cloud in hasty.clouds if (cloud / "packs").exists()]
    remove(hasty, "gone")
    hasty.sync()
    away.rename(tmp_path / "elsewhere")
    away.mkdir()  # the folder at which a disk is not mounted
    done = collect(hasty)
    assert done.due_packs == 1
    assert len(packs(hasty)) == 0
    hasty.close()
    away.rmdir()
    (tmp_path / "elsewhere").rename(away)
    hasty.reopen()
    assert len(packs(hasty)) == 1
    done = collect(hasty)
    assert (done.due_packs, len(packs(hasty))) == (0, 0)


def test_nothing_is_deleted_while_transfers_are_paused(hasty: Device) -> None:
    hasty.write("gone", noise(1, MIB))
    hasty.sync()
    remove(hasty, "gone")
    hasty.sync()
    before = packs(hasty)
    hasty.volume.transfers.pause(None)
    assert "paused" in collect(hasty).trouble
    assert packs(hasty) == before
    hasty.volume.transfers.resume()
    collect(hasty)
    assert packs(hasty) == {}


def test_shares_that_nothing_names_are_shown_and_deleted(hasty: Device) -> None:
    """An upload cut short, a share that a third cloud got in vain, one that came after its pack's end."""
    hasty.write("kept", noise(1, 100_000))
    with mock.patch("hybrisfs.write.pack.record_pack", side_effect=OSError("killed")) as cut:
        hasty.volume.signals.chunks_made()
        assert hasty.volume.signals.wait_until(lambda: bool(cut.called), deadline=None, step=0.05)
        hasty.volume.transfers.pause(None)
        hasty.close()
    # The chunks must make another pack: the same one could go to other clouds now, and be on all three.
    hasty.reopen(PackLimits(linger_seconds=600.0))
    hasty.write("another", noise(3, 1000))
    until(hasty.has_signed, "all to be signed")
    hasty.volume.transfers.resume()
    hasty.sync()
    recorded = unlocked(hasty.volume.fs).execute("SELECT id FROM pack WHERE n > 0").fetchall()
    (name,) = [identity.hex() for (identity,) in recorded]
    placed = next(cloud for cloud in hasty.clouds if list(cloud.glob(f"packs/*/{name}.*")))
    share = next(placed.glob(f"packs/*/{name}.*"))
    spare = next(cloud for cloud in hasty.clouds if not list(cloud.glob(f"packs/*/{name}.*")))
    vain = spare / share.relative_to(placed)
    vain.parent.mkdir(parents=True, exist_ok=True)
    vain.write_bytes(share.read_bytes())
    shown = collect(hasty, dry_run=True)
    assert shown.unnamed["strays"] == 1
    assert vain.exists()
    assert hasty.fsck(clouds=True).checked["objects that nothing names"] >= 1
    assert hasty.fsck(clouds=True).problems == []
    done = collect(hasty)
    assert done.unnamed["strays"] == 1 and done.trouble == ""
    assert not vain.exists()
    assert {path.split("/")[1].split(".")[0] for path in packs(hasty)} == {name}
    assert collect(hasty).unnamed.total() == 0
    sound(hasty)
    hasty.volume.drop_cache()
    assert hasty.read("kept") == noise(1, 100_000)
