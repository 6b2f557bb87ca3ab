"""What the doctor says of volumes, mounts and the daemon, without a daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.admit.create import create_volume
from hybrisfs.daemon.only_one import ProcessLock
from hybrisfs.daemon.wanted_mounts import WantedMount, WantedMounts
from hybrisfs.doctor.check import Finding
from hybrisfs.doctor.examination import examine
from hybrisfs.doctor.mounts import our_mounts
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home
from hybrisfs.state.database import lock_exclusively
from tests.backends.conftest import remotes
from tests.backends.rclone_remotes import Remotes
from tests.cli.conftest import Run, run
from tests.daemon.conftest import home
from tests.system.device import Device

__all__ = ["home", "remotes", "run"]


@pytest.fixture
def clouds(home: Home, tmp_path: Path) -> list[Path]:
    """Those of the volume "photos"."""
    folders = [tmp_path / name for name in ("amber", "birch", "cedar")]
    for folder in folders:
        folder.mkdir()
    create_volume(home, "photos", [folder.as_uri() for folder in folders], 1, 1)
    return folders


def found(home: Home, check: str) -> Finding:
    [finding] = [finding for finding in examine(home) if finding.check == check]
    return finding


def test_a_home_in_order_has_no_complaints(home: Home, clouds: list[Path]) -> None:
    findings = list(examine(home))
    machine = {"kernel", "fuse", "fusermount3", "fuse.conf", "apparmor", "open files"}
    folders = {"room for state", "disk of state", "daemon", "mounts", "cloud photos/amber"}
    assert {finding.check for finding in findings} >= machine | folders
    ours = [finding for finding in findings if finding.check.startswith(("cloud", "daemon", "volume"))]
    assert {finding.result for finding in ours} == {"ok"}


def test_a_cloud_that_is_gone_or_another_volumes(home: Home, clouds: list[Path]) -> None:
    (clouds[0] / "volume").unlink()
    assert "its marker is gone" in found(home, "cloud photos/amber").what
    (clouds[1] / "volume").write_bytes(b"HFVO\0\1" + bytes(range(16)))
    assert "another volume" in found(home, "cloud photos/birch").what
    clouds[2].rename(clouds[2].with_name("away"))
    gone = found(home, "cloud photos/cedar")
    assert gone.result == "bad"
    assert gone.advice


def test_a_damaged_configuration_keeps_nothing_else_from_being_looked_at(
    home: Home, clouds: list[Path]
) -> None:
    (home.volume_config("photos") / "volume.json").write_text("{")
    assert found(home, "volume photos").result == "bad"
    assert found(home, "daemon").result == "ok"


def test_a_daemon_that_does_not_answer(home: Home) -> None:
    with ProcessLock(home.daemon_lock, SYSTEM) as lock:
        assert lock.acquire()
        hung = found(home, "daemon")
    assert hung.result == "bad"
    assert f"kill -9 {os.getpid()}" in hung.advice


def test_rclone_is_named_if_a_cloud_needs_it(
    home: Home, remotes: Remotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "rclone" not in {finding.check for finding in examine(home)}
    create_volume(home, "photos", [f"rclone:disk:{tmp_path}/cloud"], 0, 1)
    assert found(home, "rclone").what.startswith("rclone v")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt install rclone" in found(home, "rclone").advice


def test_a_process_that_has_a_volume_and_is_not_the_daemon(home: Home, clouds: list[Path]) -> None:
    lock = lock_exclusively(home.volume_state("photos"))
    try:
        [stranger] = [one for one in examine(home) if one.check == "daemon" and one.result == "bad"]
        with pytest.raises(HybrisError, match=rf"in use by process {os.getpid()}(?s:.*)kill {os.getpid()}"):
            lock_exclusively(home.volume_state("photos"))
    finally:
        os.close(lock)
    assert f"process {os.getpid()} has the volume photos open" in stranger.what
    assert f"kill {os.getpid()}" in stranger.advice


def test_a_mount_that_is_missing(home: Home, clouds: list[Path], tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir(0)
    WantedMounts(home.state, SYSTEM).add("photos", WantedMount(place))
    [missing] = [one for one in examine(home) if one.check == "mounts" and one.result == "warn"]
    assert f"photos is not mounted at {place}" in missing.what
    assert "locked" in missing.what
    place.chmod(0o700)
    (place / "stray").touch()
    [missing] = [one for one in examine(home) if one.check == "mounts" and one.result == "warn"]
    assert "lies beside the volume" in missing.what


def test_mounts_of_ours_are_recognised() -> None:
    mounts = b"""\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:50 / /home/a/My\\040Files rw - fuse.hybrisfs hybrisfs:x rw
31 22 0:51 / /home/a/other rw - fuse.sshfs y rw
"""
    assert our_mounts(mounts) == [Path("/home/a/My Files")]


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    if not Path("/dev/fuse").exists():
        pytest.skip("this kernel has no FUSE")
    with Device(tmp_path) as device:
        yield device.create().mount()


def test_a_dead_mount_is_found(device: Device) -> None:
    device.kill()
    done = device.attempt("doctor")
    assert done.returncode == 1
    assert f"the mount at {device.mountpoint} is dead" in done.stdout
    assert f"hybrisfs umount {device.mountpoint}" in done.stdout
    assert device.daemon_pids() == []


def test_json_and_exit_code(home: Home, clouds: list[Path], run: Run) -> None:
    (clouds[0] / "volume").unlink()
    result = run("doctor", "--json")
    assert result.exit_code == 1
    checks = json.loads(result.stdout)["checks"]
    assert all(set(one) == {"check", "result", "what", "advice"} for one in checks)
    assert "bad" in {one["result"] for one in checks}
