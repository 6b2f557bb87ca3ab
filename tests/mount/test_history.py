"""The folder of the past in a real mount: read by ordinary programs, changed by nobody."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hybrisfs.state.schema import ROOT_INO
from tests.volume.device import Device
from tests.volume.test_versions import sign

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")
BIG = os.urandom(3 << 20)


@pytest.fixture
def then(device: Device, root: Path, tmp_path: Path) -> Path:
    """What the volume was, before nearly all of it was changed; a copy of that is in `copy`."""
    (root / "folder" / "inner").mkdir(parents=True)
    (root / "folder" / "inner" / "big").write_bytes(BIG)
    (root / "folder" / "file").write_bytes(b"old")
    (root / "folder" / "file").chmod(0o640)
    os.setxattr(root / "folder" / "file", "user.key", b"value")
    os.setxattr(root / "folder" / "file", "user.hybrisfs.labels", b"b,a")
    (root / "folder" / "link").symlink_to("inner/big")
    (root / "folder" / "hard").hardlink_to(root / "folder" / "file")
    (root / "folder" / "sparse").touch()
    os.truncate(root / "folder" / "sparse", 5 << 20)
    os.utime(root / "folder" / "file", ns=(10**18, 10**18))
    moment = sign(device)
    shutil.copytree(root / "folder", tmp_path / "copy", symlinks=True)
    (root / "folder" / "file").write_bytes(b"something longer")
    shutil.rmtree(root / "folder" / "inner")
    (root / "folder" / "new").touch()
    (root / "folder" / "link").rename(root / "moved")
    sign(device)
    device.sync()
    return root / ".hybrisfs" / "at" / moment


def fails(code: int, act: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:
        act()
    assert caught.value.errno == code, caught.value


def test_programs_read_what_was(device: Device, root: Path, then: Path, tmp_path: Path) -> None:
    device.volume.drop_cache()
    subprocess.run(["diff", "-r", "--no-dereference", then / "folder", tmp_path / "copy"], check=True)
    subprocess.run(["cp", "-a", then / "folder", tmp_path / "again"], check=True)
    subprocess.run(["diff", "-r", "--no-dereference", tmp_path / "again", tmp_path / "copy"], check=True)
    subprocess.run(["tar", "-C", then, "-cf", tmp_path / "tar", "folder"], check=True)
    assert (tmp_path / "tar").stat().st_size > len(BIG)
    assert (then / "folder" / "inner").stat().st_mode == (tmp_path / "copy" / "inner").stat().st_mode
    for name in ("file", "sparse", "inner/big"):
        was, copied = (then / "folder" / name).stat(), (tmp_path / "copy" / name).stat()
        assert (was.st_mode, was.st_size) == (copied.st_mode, copied.st_size)
    assert (then / "folder" / "file").stat().st_mtime_ns == 10**18
    assert os.getxattr(then / "folder" / "file", "user.key") == b"value"
    assert os.listxattr(then / "folder" / "file") == ["user.key", "user.hybrisfs.labels"]
    assert os.getxattr(then / "folder" / "file", "user.hybrisfs.labels") == b"a,b"
    assert (then / "folder" / "file").stat().st_ino == (then / "folder" / "hard").stat().st_ino
    assert (then / "folder" / "file").stat().st_nlink == 2
    with (then / "folder" / "inner" / "big").open("rb") as file:
        file.seek(2_500_000)
        assert file.read(1000) == BIG[2_500_000:2_501_000]


def test_numbers_of_nodes_are_stable(device: Device, then: Path, tmp_path: Path) -> None:
    before = {path.relative_to(then): path.lstat().st_ino for path in then.rglob("*")}
    assert len(set(before.values())) == len(before) - 1  # one of them has two names
    device.volume.unmount()
    device.volume.mount(tmp_path / "mnt")
    assert {path.relative_to(then): path.lstat().st_ino for path in then.rglob("*")} == before


def test_nothing_in_it_can_be_changed(root: Path, then: Path) -> None:
    file = then / "folder" / "file"
    fails(errno.EROFS, lambda: (then / "new").touch())
    fails(errno.EROFS, lambda: (then / "new").mkdir())
    fails(errno.EROFS, lambda: (then / "new").symlink_to("x"))
    fails(errno.EROFS, lambda: file.write_bytes(b"x"))
    fails(errno.EROFS, lambda: file.open("ab"))
    fails(errno.EROFS, file.unlink)
    fails(errno.EROFS, lambda: file.chmod(0o777))
    fails(errno.EROFS, lambda: os.truncate(file, 0))
    fails(errno.EROFS, lambda: os.utime(file))
    fails(errno.EROFS, lambda: os.setxattr(file, "user.new", b"x"))
    fails(errno.EROFS, lambda: os.removexattr(file, "user.key"))
    fails(errno.EROFS, lambda: file.rename(root / "here"))
    fails(errno.EROFS, lambda: (root / "moved").rename(then / "here"))
    fails(errno.EROFS, lambda: os.link(root / "folder" / "file", then / "here"))
    fails(errno.EROFS, (then / "folder" / "inner").rmdir)
    assert file.read_bytes() == b"old"


def test_the_name_is_hidden_and_reserved(device: Device, root: Path) -> None:
    (root / "file").touch()
    (root / "folder").mkdir()
    past = root / ".hybrisfs"
    assert sorted(path.name for path in root.iterdir()) == ["file", "folder"]
    assert [path.name for path in past.iterdir()] == ["at", "versions"]
    fails(errno.EEXIST, past.mkdir)
    fails(errno.EISDIR, lambda: past.write_bytes(b"x"))
    fails(errno.EEXIST, lambda: past.symlink_to("x"))
    fails(errno.EEXIST, lambda: os.link(root / "file", past))
    fails(errno.EEXIST, lambda: (root / "folder").rename(past))
    fails(errno.EISDIR, lambda: (root / "file").rename(past))
    fails(errno.EPERM, lambda: past.rename(root / "elsewhere"))
    fails(errno.EPERM, past.rmdir)
    (root / "folder" / ".hybrisfs").mkdir()  # it is a name like others there
    assert sorted(path.name for path in root.iterdir()) == ["file", "folder"]


def test_what_was_a_moment_ago_is_listed(device: Device, root: Path) -> None:
    (root / "letter").write_bytes(b"first")
    moment = sign(device)
    (root / "letter").write_bytes(b"second")
    assert moment in [path.name for path in (root / ".hybrisfs" / "at").iterdir()]
    for then in (root / ".hybrisfs" / "at").iterdir():
        assert (then / "letter").read_bytes() in (b"first", b"second")


@pytest.mark.parametrize("moment", ["2001-01-01", "2199-01-01", "yesterday", "2026-11-22T25:00"])
def test_moments_that_there_are_not(root: Path, moment: str) -> None:
    assert not (root / ".hybrisfs" / "at" / moment).exists()


def test_a_folder_that_has_the_name_already_stays(device: Device, tmp_path: Path) -> None:
    """It was made by an earlier program, perhaps on another device."""
    root = tmp_path / "mnt"
    assert (root / ".hybrisfs" / "at").is_dir()
    device.volume.unmount()
    with device.volume.fs.state.transaction() as tx:
        device.volume.fs.make(tx, ROOT_INO, b".hybrisfs", 0o40755, os.getuid(), os.getgid())
    device.volume.mount(root)
    assert list((root / ".hybrisfs").iterdir()) == []
    (root / ".hybrisfs" / "file").write_bytes(b"mine")
    assert [path.name for path in root.iterdir()] == [".hybrisfs"]
    (root / ".hybrisfs").rename(root / "mine")
    assert (root / "mine" / "file").read_bytes() == b"mine"
    assert (root / ".hybrisfs" / "at").is_dir()


def test_a_version_that_is_open_is_read_on(device: Device, root: Path, then: Path) -> None:
    with (then / "folder" / "inner" / "big").open("rb") as file:
        assert file.read(10) == BIG[:10]
        shutil.rmtree(root / "folder")
        device.volume.drop_cache()
        assert file.read() == BIG[10:]
