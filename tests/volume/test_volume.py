"""The life of a volume: open once, close, go on where it was."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hybrisfs.api.clouds import CloudStatus
from hybrisfs.clouds.checkup import CheckupLimits
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError, HybrisError, NewerFormatError
from hybrisfs.home import Home
from hybrisfs.state.schema import ROOT_INO, SCHEMA_VERSION
from hybrisfs.volume.volume import Volume
from tests.volume.device import NAME, PATIENCE, Device


def test_what_was_written_is_on_the_clouds_and_comes_back(device: Device) -> None:
    content = {f"file {number}": bytes([number]) * 5000 for number in range(20)}
    for name, data in content.items():
        device.write(name, data)
    device.sync()
    status = device.volume.status()
    assert (status.files, status.pending_files, status.pending_bytes) == (20, 0, 0)
    assert device.volume.drop_cache().kept_bytes == 0
    device.reopen()
    assert {name: device.read(name) for name in content} == content


def test_status_tells_of_the_clouds_as_they_are_now(device: Device) -> None:
    device.reopen(CheckupLimits(patience=PATIENCE))
    cloud, lost = device.clouds[0], device.clouds[0].with_name("lost")
    for _ in range(3):
        assert [one.state for one in volume_clouds(device)] == ["ok"] * 3
        cloud.rename(lost)
        assert [one.state for one in volume_clouds(device)] == ["down", "ok", "ok"]
        lost.rename(cloud)


def volume_clouds(device: Device) -> list[CloudStatus]:
    return device.volume.status().clouds


def test_any_f_clouds_may_go(device: Device) -> None:
    device.write("file", b"content" * 1000)
    device.sync()
    device.volume.drop_cache()
    gone = device.clouds[0].rename(device.clouds[0].with_name("gone"))
    assert device.read("file") == b"content" * 1000
    device.write("other", b"more")
    device.sync()
    gone.rename(device.clouds[0])


def test_erasure_coding(tmp_path: Path) -> None:
    device = Device(tmp_path, clouds=5, f=1, k=3)
    noise = b"".join(device.volume.sealer.chunk_id(b"%d" % number) for number in range(1 << 16))
    device.write("file", noise)
    device.sync()
    device.volume.drop_cache()
    assert device.read("file") == noise
    device.close()


def test_what_is_pending_is_resumed(device: Device) -> None:
    away = [cloud.rename(cloud.with_name(f"{cloud.name} away")) for cloud in device.clouds]
    device.write("file", b"content")
    assert not device.volume.sync(0.3, lambda done, total: None)
    device.reopen()
    assert device.read("file") == b"content"
    assert device.volume.status().pending_files == 2
    for cloud, folder in zip(device.clouds, away, strict=True):
        folder.rename(cloud)
    device.sync()
    device.volume.drop_cache()
    assert device.read("file") == b"content"


def test_sync_reports_progress_up_to_the_end(device: Device) -> None:
    device.write("file", bytes(range(256)) * 4000)
    seen: list[tuple[int, int]] = []
    assert device.volume.sync(PATIENCE, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    assert all(0 <= done <= total for done, total in seen)


def test_sync_is_not_fooled_by_who_writes_on(device: Device) -> None:
    """What was written before is on the clouds, though the same file changes again and again meanwhile."""
    stop = threading.Event()

    def write_on() -> None:
        count = 0
        while not stop.wait(0.001):
            count += 1
            device.write("log", b"line %d\n" % count)

    with ThreadPoolExecutor(1) as pool:
        device.write("log", b"line 0\n")
        writer = pool.submit(write_on)
        try:
            device.sync()
            with device.volume.fs.state.transaction() as tx:
                shipped = tx.shipped_clock()
                inode = device.volume.fs.lookup(tx, ROOT_INO, b"log")
                assert inode is not None
                assert inode.attr_stamp >> 16 > 0 and inode.content_stamp > 0
                first = tx.execute("SELECT min(clock) FROM log WHERE chunk_high > 0").fetchone()[0]
            assert shipped >= first
        finally:
            stop.set()
        writer.result(PATIENCE)


def test_a_volume_is_open_once(device: Device) -> None:
    with pytest.raises(HybrisError, match="in use"):
        Volume.open(device.home, NAME, SYSTEM)
    device.reopen()


def test_opening_that_failed_can_be_tried_again(device: Device) -> None:
    """Nothing of the first attempt may stay: not the lock, not the database."""
    device.write("file", b"content")
    device.close()
    keys = device.state / "keys.json"
    good = keys.read_bytes()
    keys.write_bytes(b"{}")
    for _ in range(2):
        with pytest.raises(DamagedError, match="key file"):
            Volume.open(device.home, NAME, SYSTEM)
    keys.write_bytes(good)
    device.reopen()
    assert device.read("file") == b"content"


def test_a_missing_database_is_not_taken_for_an_empty_volume(device: Device) -> None:
    device.close()
    database = device.state / "volume.db"
    away = database.rename(device.state / "away.db")
    with pytest.raises(DamagedError, match="missing"):
        Volume.open(device.home, NAME, SYSTEM)
    assert not database.exists()
    away.rename(database)
    device.reopen()


def test_a_newer_database_is_left_alone(device: Device) -> None:
    device.close()
    database = device.state / "volume.db"
    with sqlite3.connect(database) as other:
        other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    other.close()
    before = database.read_bytes()
    with pytest.raises(NewerFormatError):
        Volume.open(device.home, NAME, SYSTEM)
    assert database.read_bytes() == before


def test_a_database_that_makes_no_sense_is_refused(device: Device) -> None:
    device.write("file", b"content")
    device.sync()
    device.close()
    with sqlite3.connect(device.state / "volume.db") as other:
        other.execute("UPDATE log SET vector = ?", (b"nonsense",))
    other.close()
    for _ in range(2):
        with pytest.raises(DamagedError, match="damaged"):
            Volume.open(device.home, NAME, SYSTEM)


def test_a_journal_that_was_lost_costs_what_no_cloud_has_and_nothing_else(device: Device) -> None:
    device.write("safe", b"on the clouds" * 100)
    device.sync()
    away = [cloud.rename(cloud.with_name(f"{cloud.name} away")) for cloud in device.clouds]
    device.write("pending", b"only here" * 100)
    device.close()
    for path in (device.state / "journal").iterdir():
        path.unlink()
    for cloud, folder in zip(device.clouds, away, strict=True):
        folder.rename(cloud)
    device.reopen()
    assert device.read("safe") == b"on the clouds" * 100
    with pytest.raises(OSError, match="Input/output"):
        device.read("pending")
    device.write("new", b"new bytes" * 1000)
    assert device.read("new") == b"new bytes" * 1000


def test_segments_of_a_crash_are_cleared_away(device: Device) -> None:
    device.write("file", b"content")
    device.close()
    leftover = device.state / "journal" / "00000099.segment"
    leftover.write_bytes(b"never committed")
    device.reopen()
    assert not leftover.exists()
    assert device.read("file") == b"content"


def test_closing_goes_through_whatever_fails(device: Device, caplog: pytest.LogCaptureFixture) -> None:
    device.write("file", b"content")
    device.volume.committer.commit_now()
    device.write("lost", b"content")
    device.volume.fs.journal._failure = OSError(5, "broken disk")
    with pytest.raises(OSError, match="broken disk"):
        device.close()
    assert "could not be committed" in caplog.text
    device.reopen()
    assert device.read("file") == b"content"


def test_two_volumes_side_by_side(home: Home, tmp_path: Path) -> None:
    one, two = Device(tmp_path / "one"), Device(tmp_path / "two")
    one.write("file", b"one")
    two.write("file", b"two")
    assert (one.read("file"), two.read("file")) == (b"one", b"two")
    one.close()
    two.close()
