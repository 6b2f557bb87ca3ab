"""What the doctor says of FUSE, disks and limits of machines that are made up here."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from hybrisfs.doctor import clouds, machine
from hybrisfs.doctor import mounts as fuse
from hybrisfs.doctor.check import Finding, Level


def is_level(finding: Finding, level: Level) -> bool:
    """Whether the result is that, and advice is given exactly when something can be done."""
    return finding.result == level and bool(finding.advice) == (level != "ok")


@pytest.mark.parametrize(
    ("release", "level"), [("6.1.0-9-amd64", "ok"), ("5.4", "ok"), ("5.3.18", "bad"), ("4.19.0", "bad")]
)
def test_kernel(release: str, level: Level) -> None:
    assert is_level(fuse.kernel(release), level)


def test_device(tmp_path: Path) -> None:
    assert "modprobe fuse" in fuse.device(tmp_path / "fuse").advice
    (tmp_path / "fuse").touch()
    assert is_level(fuse.device(tmp_path / "fuse"), "ok")


def test_fusermount_must_be_setuid_root(tmp_path: Path) -> None:
    program = tmp_path / "fusermount3"
    program.touch(0o755)
    assert is_level(fuse.helper(None, root=True), "ok")
    assert is_level(fuse.helper(None, root=False), "bad")
    assert f"chmod u+s {program}" in fuse.helper(str(program), root=False).advice
    if os.geteuid() == 0:
        program.chmod(0o4755)
        assert is_level(fuse.helper(str(program), root=False), "ok")


def test_other_users_need_a_line_in_fuse_conf(tmp_path: Path) -> None:
    settings = tmp_path / "fuse.conf"
    assert is_level(fuse.settings(settings, needed=False), "ok")
    settings.write_text("#user_allow_other\n")
    assert is_level(fuse.settings(settings, needed=True), "bad")
    settings.write_text("mount_max = 10\nuser_allow_other\n")
    assert is_level(fuse.settings(settings, needed=True), "ok")


@pytest.mark.parametrize(
    ("place", "enabled", "root", "level"),
    [
        ("/home/a/HybrisFS", True, False, "ok"),
        ("/mnt/x", True, False, "ok"),
        ("/srv/x", True, False, "warn"),
        ("/home/ab", True, False, "warn"),
        ("/srv/x", False, False, "ok"),
        ("/srv/x", True, True, "ok"),
    ],
)
def test_apparmor(place: str, enabled: bool, root: bool, level: Level) -> None:
    found = fuse.confinement([Path(place)], Path("/home/a"), enabled=enabled, root=root)
    assert is_level(found, level)


@pytest.mark.parametrize(
    ("mebibytes", "inodes", "files", "level"),
    [
        (5000, 10**6, 10**7, "ok"),
        (500, 10**6, 10**7, "warn"),
        (50, 10**6, 10**7, "bad"),
        (5000, 100, 10**7, "warn"),
        (5000, 0, 0, "ok"),  # as btrfs says
    ],
)
def test_room(mebibytes: int, inodes: int, files: int, level: Level) -> None:
    facts = SimpleNamespace(f_bavail=mebibytes << 8, f_frsize=4096, f_favail=inodes, f_files=files)
    assert is_level(machine.room("state", Path("/x"), cast("os.statvfs_result", facts)), level)


@pytest.mark.parametrize(("kind", "level"), [("ext4", "ok"), ("nfs4", "warn"), ("tmpfs", "warn")])
def test_kind_of_disk(kind: str, level: Level) -> None:
    assert is_level(machine.durable("state", Path("/x"), kind), level)


def test_the_file_system_of_a_path_is_that_of_the_longest_and_last_mount() -> None:
    mounts = b"""\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:5 / /nowhere rw - tmpfs none rw
24 22 0:6 / /nowhere/a\\040b rw - nfs4 server:/x rw
25 22 0:7 / /nowhere/a\\040b rw shared:1 - xfs /dev/sdb rw
"""
    assert machine.file_system(Path("/nowhere/a b/c"), mounts) == "xfs"
    assert machine.file_system(Path("/nowhere/a"), mounts) == "tmpfs"
    assert machine.file_system(Path("/nowhere2"), mounts) == "ext4"


@pytest.mark.parametrize(("content", "level"), [("65536\n", "ok"), ("8192\n", "warn"), ("?", "warn")])
def test_inotify(tmp_path: Path, content: str, level: Level) -> None:
    (tmp_path / "max_user_watches").write_text(content)
    assert is_level(machine.inotify("max_user_watches", 65536, tmp_path), level)


@pytest.mark.parametrize(("limit", "level"), [(-1, "ok"), (4096, "ok"), (1024, "warn")])
def test_open_files(limit: int, level: Level) -> None:
    assert is_level(machine.open_files(limit), level)


@pytest.mark.parametrize(
    ("seconds", "level"), [(0.4, "ok"), (-59, "ok"), (61, "warn"), (-900, "bad"), (900, "bad")]
)
def test_clock(seconds: float, level: Level) -> None:
    assert is_level(clouds.difference("server", seconds), level)


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("s3://bucket/x?region=eu-west-1", "https://s3.amazonaws.com/"),
        ("s3://bucket/x?endpoint=https%3A%2F%2Fminio%3A9000", "https://minio:9000"),
        ("az://container/x?account=mine", "https://mine.blob.core.windows.net/"),
        ("az://container/x", None),
        ("webdavs://me@nas.example:8443/x", "https://nas.example:8443/"),
        ("file:///mnt", None),
        ("sftp://me@host/x", None),
        ("rclone:remote:x", None),
        (f"relay://nas.example/home?pin={64 * '0'}", None),
    ],
)
def test_the_server_that_tells_the_time(url: str, server: str | None) -> None:
    assert clouds.server_of(url) == server


def test_a_port_is_taken_by_the_daemon_or_by_a_stranger() -> None:
    with socket.create_server(("", 0)) as listener:
        number = listener.getsockname()[1]
        assert is_level(machine.port("photos", number, daemon_runs=True), "ok")
        assert is_level(machine.port("photos", number, daemon_runs=False), "warn")
    assert list(machine.examine_links({"photos": 0}, daemon_runs=False)) == []
