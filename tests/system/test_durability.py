"""What was fsynced is there, nothing is torn, and no hand need be lent, however the daemon ends."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.system.clouds import away, objects
from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import Device, is_mounted
from tests.system.trees import fsync_tree, make_tree, snapshot
from tests.system.writers import Appender, Database, PageWriter, Replacer, Writer

_KILLS = 25


def _writers(device: Device, seed: int) -> list[Writer]:
    kinds: Sequence[type[Writer]] = (Replacer, PageWriter, Appender, Database)
    writers = [kind(device.mountpoint / kind.__name__, seed) for kind in kinds]
    for writer in writers:
        writer.prepare()
    return writers


def _run_and_kill(device: Device, writers: list[Writer], seconds: float) -> None:
    for writer in writers:
        writer.start()
    time.sleep(seconds)  # the instant of the crash is the random input, nothing waits for it
    assert all(writer.running for writer in writers), "a writer met an error while the daemon was alive"
    device.kill()
    for writer in writers:
        writer.finish()


def _mount_again(device: Device, choose: random.Random) -> None:
    """Mount as a user would, without repairing anything; some recoveries are themselves cut short."""
    while choose.random() < 0.3:
        attempt = device.start("mount", device.volume, str(device.mountpoint))
        time.sleep(choose.uniform(0.0, 0.6))
        attempt.kill()
        attempt.communicate()
        if device.daemon_pids():
            device.kill()
    device.mount()


@pytest.mark.timeout(300)
def test_sigkill_at_any_moment_loses_nothing_fsynced(device: Device, seed: int) -> None:
    choose = random.Random(seed)
    writers = _writers(device, seed)
    for _ in range(_KILLS):
        _run_and_kill(device, writers, choose.expovariate(1 / 0.4))
        _mount_again(device, choose)
        for writer in writers:
            writer.check()
    assert all(writer.steps > _KILLS for writer in writers), "too little was written to prove anything"
    _clean(device)
    before = snapshot(device.mountpoint)
    device.forget()
    assert snapshot(device.mountpoint) == before
    for writer in writers:
        writer.check()


def _clean(device: Device) -> None:
    done = device.fsck()
    assert done.returncode == 0, done.stdout + done.stderr
    device.sync()
    done = device.fsck(clouds=True)
    assert done.returncode == 0, done.stdout + done.stderr
    status = device.status()
    assert (status["pending_files"], status["pending_bytes"]) == (0, 0)


def test_sigkill_while_the_cache_is_dropped_and_refilled(device: Device, seed: int) -> None:
    """Eviction and download are cut short as well as writing."""
    choose = random.Random(seed)
    make_tree(device.mountpoint / "tree", seed=5, files=40)
    device.sync()
    before = snapshot(device.mountpoint / "tree")
    for _ in range(6):
        drop = device.start("cache", "drop", device.volume)
        time.sleep(choose.uniform(0.0, 0.5))
        device.kill()
        drop.communicate(timeout=60)
        device.mount()
        assert snapshot(device.mountpoint / "tree") == before
    _clean(device)


@pytest.mark.parametrize("end", ["umount", "kill", "stop"])
def test_invariant_1_pending_uploads_survive(make_device: MakeDevice, end: str) -> None:
    """... an unmount, a crash and a reboot (rclone 7309, 4293)."""
    device = make_device().create(3).mount()
    with away(*device.clouds):
        make_tree(device.mountpoint / "tree", seed=3, files=20)
        (device.mountpoint / "last").write_bytes(b"written just before the end")
        fsync_tree(device.mountpoint)
        before = snapshot(device.mountpoint)
        until(lambda: device.status()["pending_bytes"] > 0, "the files to be pending")
        {"umount": device.umount, "kill": device.kill, "stop": device.stop}[end]()
        device.mount()
        assert snapshot(device.mountpoint) == before
        assert device.status()["pending_bytes"] > 0
    device.forget()
    assert snapshot(device.mountpoint) == before


def test_invariant_2_what_is_not_dispersed_is_not_evicted(device: Device) -> None:
    """... not even by `cache drop` (JuiceFS 6161)."""
    (device.mountpoint / "safe").write_bytes(os.urandom(100_000))
    device.sync()
    with away(*device.clouds):
        make_tree(device.mountpoint / "tree", seed=4, files=20)
        before = snapshot(device.mountpoint / "tree")
        device.cache_drop()
        device.remount()
        assert snapshot(device.mountpoint / "tree") == before
    device.forget()
    assert snapshot(device.mountpoint / "tree") == before


def test_invariant_3_an_upload_never_discards_a_newer_version(device: Device, seed: int) -> None:
    """... written while it was under way (magic-folder 459)."""
    choose, path, content = random.Random(seed), device.mountpoint / "busy", b""
    for _ in range(6):
        upload = device.start("sync", device.volume, "--wait", "--timeout", "60")
        while upload.poll() is None:
            content = choose.randbytes(choose.randrange(2_000_000))
            path.write_bytes(content)
            assert path.read_bytes() == content
        upload.communicate()
        assert upload.returncode == 0
    device.forget()
    assert path.read_bytes() == content


def test_invariant_4_a_file_that_changes_all_the_time_is_published(device: Device) -> None:
    """... now and then (magic-folder 460)."""
    log = device.mountpoint / "log"

    def growing() -> int:
        with log.open("ab") as file:
            file.write(os.urandom(10_000))
        return sum(path.stat().st_size for cloud in device.clouds for path in objects(cloud / "packs"))

    until(lambda: growing() > 100_000, "a part of the log to be on the clouds", 120)


def test_invariant_9_open_handles_keep_the_version_they_opened(device: Device) -> None:
    """Nobody reads new bytes under an old size (rclone 9617)."""
    path = device.mountpoint / "file"
    path.write_bytes(b"old " * 100_000)
    device.sync()
    device.cache_drop()
    with path.open("rb") as file:
        assert file.read(4) == b"old "
        aside = device.mountpoint / "aside"
        aside.write_bytes(b"new!!" * 200_000)
        aside.replace(path)
        device.sync()
        device.cache_drop()
        assert file.read() == b"old " * 99_999
    assert path.read_bytes() == b"new!!" * 200_000


def test_invariant_12_a_crash_needs_no_fsck_and_leaves_no_dead_mount(device: Device) -> None:
    """No "Transport endpoint is not connected" (s3ql 273, rclone 2982): mount and umount clear it away."""
    (device.mountpoint / "file").write_bytes(b"content")
    fsync_tree(device.mountpoint)
    device.kill()
    device.mount()
    assert (device.mountpoint / "file").read_bytes() == b"content"
    device.kill()
    device.umount()
    assert not is_mounted(device.mountpoint)
    assert list(device.mountpoint.iterdir()) == []
    device.mount()
    assert (device.mountpoint / "file").read_bytes() == b"content"


def test_a_cloud_object_is_never_left_half_written(device: Device, seed: int) -> None:
    """Kills in the middle of uploads leave nothing on the clouds that fsck would call damaged."""
    choose = random.Random(seed)
    for number in range(8):
        (device.mountpoint / f"file{number}").write_bytes(choose.randbytes(3_000_000))
        upload = device.start("sync", device.volume, "--wait", "--timeout", "60")
        time.sleep(choose.uniform(0.0, 0.4))
        device.kill()
        upload.communicate(timeout=60)
        device.mount()
    _clean(device)


def test_two_mounts_of_one_volume_are_refused(device: Device, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    assert device.attempt("mount", device.volume, str(second)).returncode != 0
    assert not is_mounted(second)
    (device.mountpoint / "file").write_bytes(b"still fine")
