"""A mirrored folder beside a real mount of the volume, with programs on both, and a daemon that is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.system.deadline import until
from tests.system.device import Device
from tests.system.trees import snapshot


@pytest.fixture
def folder(device: Device) -> Path:
    """A folder that mirrors `Projects` of the mounted volume."""
    made = device.root / "Projects"
    made.mkdir()
    return made


def tree(root: Path) -> dict[bytes, tuple[int, int, str]]:
    """All that a folder shows: kind, permissions and content by path."""
    found = {path: (one.kind, one.mode, one.content) for path, one in snapshot(root).items()}
    return {path: one for path, one in found.items() if b".hybrisfs-mirror" not in path}


def equal(device: Device, folder: Path) -> bool:
    try:
        here, there = tree(folder), tree(device.mountpoint / "Projects")
    except OSError:  # something went away while it was looked at
        return False
    time.sleep(0.2)  # comparing trees all the time would hold the mirror up
    return here == there


def test_git_works_on_both_sides(device: Device, folder: Path) -> None:
    there = device.mountpoint / "Projects"
    device.run("mirror", "add", str(folder))
    repository = folder / "clone"
    _git(folder, "clone", "--quiet", _small_repository(device), "clone")
    _git(repository, "checkout", "--quiet", "-b", "other")
    (repository / "file-3").write_text("changed on a branch")
    (repository / "file-4").unlink()
    _git(repository, "commit", "--quiet", "-am", "change")
    until(lambda: equal(device, folder), "the repository to be in the volume", 120)
    _git(there / "clone", "fsck", "--strict")
    assert _git(there / "clone", "status", "--porcelain") == b""
    _git(there / "clone", "checkout", "--quiet", "HEAD~1")
    until(lambda: (repository / "file-4").exists(), "what was checked out in the mount to come here")
    until(lambda: equal(device, folder), "both to be equal again", 120)
    assert (repository / "file-3").read_text() == "3"


def _git(where: Path, *words: str) -> bytes:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=where, check=True, capture_output=True).stdout


def _small_repository(device: Device) -> str:
    made = device.root / "repository"
    made.mkdir()
    for number in range(30):
        (made / f"file-{number}").write_text(str(number))
    _git(made, "init", "--quiet")
    _git(made, "add", ".")
    _git(made, "commit", "--quiet", "-m", "first")
    return made.as_uri()


def test_nothing_is_lost_when_the_daemon_is_killed(device: Device, folder: Path) -> None:
    there = device.mountpoint / "Projects"
    there.mkdir()
    contents = set()
    for number in range(300):
        for side, root in (("here", folder), ("there", there)):
            path = root / f"folder-{number % 7}" / f"{side}-{number}"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{side} {number}")
            contents.add(path.read_bytes())
    (folder / "both").write_text("here")
    (there / "both").write_text("there")
    device.run("sync", device.volume, "--wait")
    device.run("mirror", "add", str(folder))
    for steps in (50, 250):
        until(lambda: _files(folder) > 301 + steps, "some of it to be done", 120)  # noqa: B023
        device.kill()
        shutil.rmtree(folder / "folder-6", ignore_errors=True)  # what was edited while it was dead counts
        device.run("status")
        until(lambda: there.is_dir(), "the mount to be back")
    until(lambda: equal(device, folder), "both to be equal", 120)
    shown = {path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    lost = {one for one in contents - shown if int(one.split()[1]) % 7 != 6}
    assert not lost
    assert {b"here", b"there"} <= shown
    assert device.fsck().returncode == 0


def _files(root: Path) -> int:
    return sum(len(files) for *_, files in os.walk(root))


def test_a_folder_is_imported(device: Device, folder: Path) -> None:
    for number in range(50):
        (folder / f"{number}").write_bytes(os.urandom(5000))
    os.link(folder / "1", folder / "again")
    assert "51 files" in device.run("import", str(folder), "--dry-run")
    device.run("import", str(folder))
    assert tree(folder) == tree(device.mountpoint / "Projects")
    assert "51 names were there already" in device.run("import", str(folder))
    os.mkfifo(folder / "pipe")
    failed = device.attempt("import", str(folder))
    assert failed.returncode == 1
    assert "pipe" in failed.stderr
