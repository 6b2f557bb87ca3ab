"""Nothing needs root: an ordinary user starts, uses, loses and regains a folder."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.clouds import objects
from tests.system.device import REPOSITORY, Device, is_mounted

_USER = pwd.getpwnam("nobody").pw_uid  # fusermount3 wants a user who has a name
_BECOME = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"]
_FUSE = Path("/dev/fuse")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def _fuse_for_all() -> Iterator[None]:
    """/dev/fuse as udev makes it on any desktop."""
    mode = stat.S_IMODE(_FUSE.stat().st_mode)
    _FUSE.chmod(0o666)
    yield
    _FUSE.chmod(mode)


@pytest.fixture
def user_device(_fuse_for_all: None) -> Iterator[Device]:
    """A device whose commands run as an ordinary user, in a folder that this user can reach."""
    if any(not folder.stat().st_mode & stat.S_IXOTH for folder in (REPOSITORY, *REPOSITORY.parents)):
        pytest.skip("the repository is out of reach of an ordinary user")
    root = Path(tempfile.mkdtemp(prefix="hybrisfs-user-"))
    os.chown(root, _USER, _USER)
    device = Device(root, run_as=_BECOME, variables={"HOME": str(root), "PYTHONDONTWRITEBYTECODE": "1"})
    try:
        with device:
            yield device
    finally:
        if not is_mounted(device.mountpoint):
            shutil.rmtree(root)


def _as_user(*words: str | Path) -> str:
    done = subprocess.run(
        [*_BECOME, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_quickstart_write_kill_remount_umount(user_device: Device) -> None:
    device = user_device
    device.volume = "home"
    device.run("quickstart", str(device.mountpoint))
    assert is_mounted(device.mountpoint)
    device.run("quickstart", str(device.mountpoint))  # safe to run twice
    letter = device.mountpoint / "letter"
    program = "import os, sys; f = open(sys.argv[1], 'w'); f.write('mine'); f.flush(); os.fsync(f.fileno())"
    _as_user(sys.executable, "-c", program, letter)
    assert _as_user("cat", letter) == "mine"
    assert _as_user("stat", "-c", "%u", letter).strip() == str(_USER)
    device.kill()
    device.mount()
    assert _as_user("cat", letter) == "mine"
    device.umount()
    assert not is_mounted(device.mountpoint)


def test_a_cloud_that_may_not_be_read_is_named(user_device: Device) -> None:
    """chmod 000 stops an ordinary user, unlike root."""
    device = user_device
    clouds = [device.root / name for name in ("amber", "birch", "cedar")]
    for cloud in (*clouds, device.mountpoint):
        cloud.mkdir()
        os.chown(cloud, _USER, _USER)
    device.create(clouds).mount()
    letter = device.mountpoint / "letter"
    _as_user("sh", "-c", f"head -c 100000 /dev/urandom > {letter}")
    device.sync()
    before = _as_user("sha256sum", letter)
    victim = next(cloud for cloud in clouds if objects(cloud))
    victim.chmod(0)
    device.cache_drop()
    device.remount()
    assert _as_user("sha256sum", letter) == before
    device.fsck(clouds=True)
    assert device.bad_clouds() == {victim.name}
