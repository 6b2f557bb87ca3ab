"""Labels as programs see and copy them: an extended attribute like others."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path, PurePath

import pytest

from tests.volume.device import Device

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

LABELS = "user.hybrisfs.labels"


@pytest.fixture
def labelled(device: Device, root: Path) -> Path:
    """A folder with a file, a link and a pipe, all of which have labels."""
    folder = root / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"content")
    (folder / "link").symlink_to("file")
    os.mkfifo(folder / "pipe")
    for path in ("folder", "folder/file", "folder/link", "folder/pipe"):
        device.volume.labels.add(PurePath(path), ["b", "a"])
    return folder


def run(*words: str | Path) -> None:
    """Run a program, which must have nothing to complain about."""
    done = subprocess.run([str(word) for word in words], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done


def labels(path: Path) -> bytes:
    return os.getxattr(path, LABELS)


def test_programs_read_and_set_them(device: Device, labelled: Path) -> None:
    for path in (labelled, labelled / "file"):
        assert os.listxattr(path) == [LABELS]
        assert labels(path) == b"a,b"
        os.setxattr(path, LABELS, b" c ,a,")
        assert labels(path) == b"a,c"
        os.removexattr(path, LABELS)
        assert os.listxattr(path) == []
        with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
            labels(path)
    assert device.volume.labels.of(PurePath("folder")) == []
    for value in (b"a\nb", b"x" * 65, b"\xff"):
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            os.setxattr(labelled, LABELS, value)


def test_what_cannot_have_extended_attributes_lists_none(device: Device, labelled: Path) -> None:
    for name in ("link", "pipe"):
        assert os.listxattr(labelled / name, follow_symlinks=False) == []
        assert device.volume.labels.of(PurePath("folder", name)) == ["a", "b"]


def test_copies_have_the_labels(labelled: Path, root: Path, tmp_path: Path) -> None:
    (labelled / "pipe").unlink()  # rsync makes pipes for the superuser only
    run("cp", "-a", labelled, root / "by cp")
    run("cp", "-a", labelled, tmp_path / "outside")
    run("cp", "-a", tmp_path / "outside", root / "back")
    run("rsync", "-aX", f"{labelled}/", root / "by rsync")
    run("tar", "--xattrs", "-C", labelled, "-cf", tmp_path / "archive", ".")
    (root / "by tar").mkdir()
    run("tar", "--xattrs", "--xattrs-include=user.*", "-C", root / "by tar", "-xf", tmp_path / "archive")
    for copy in ("by cp", "back", "by rsync", "by tar"):
        assert labels(root / copy / "file") == b"a,b", copy
        assert labels(root / copy) == b"a,b", copy
        assert (root / copy / "link").readlink() == Path("file")


def test_a_program_that_saves_by_a_rename_leaves_them_behind_like_other_attributes(
    device: Device, labelled: Path
) -> None:
    (labelled / "draft").write_bytes(b"saved")
    (labelled / "draft").rename(labelled / "file")
    assert device.volume.labels.of(PurePath("folder/file")) == []
