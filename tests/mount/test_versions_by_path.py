"""`.hybrisfs/versions` in a real mount: a folder per file, and in it its versions, for any program."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from hybrisfs.versions.tree import parse_moment
from tests.mount.test_history import fails
from tests.volume.device import Device
from tests.volume.test_versions import sign

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")
CONTENTS = [b"one", b"second", os.urandom(3 << 20)]
TIMES = [10**18, 11 * 10**17, 12 * 10**17]


@pytest.fixture
def of_file(device: Device, root: Path) -> Path:
    """The versions of a file that was written three times."""
    (root / "folder").mkdir()
    for content, time in zip(CONTENTS, TIMES, strict=True):
        (root / "folder" / "notes.txt").write_bytes(content)
        os.utime(root / "folder" / "notes.txt", ns=(time, time))
        sign(device)
    device.sync()
    return root / ".hybrisfs" / "versions" / "folder" / "notes.txt"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def versions(folder: Path) -> list[Path]:
    """The earliest first."""
    found = [path for path in folder.iterdir() if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def test_programs_list_and_read_each_version(device: Device, of_file: Path, tmp_path: Path) -> None:
    device.volume.drop_cache()
    found = versions(of_file)
    assert [path.stat().st_size for path in found] == [len(content) for content in CONTENTS]
    assert [path.stat().st_mtime_ns for path in found] == TIMES
    assert all(path.name.endswith("notes.txt") for path in found)
    moments = [parse_moment(path.name.split()[0]) for path in found]
    assert all(moments) and moments == sorted(moments, key=lambda moment: moment or 0)
    assert sorted(path.name for path in found) == names(of_file)
    assert [path.read_bytes() for path in found] == CONTENTS
    subprocess.run(["cp", "-a", of_file, tmp_path / "copy"], check=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == {
        path.name: content for path, content in zip(found, CONTENTS, strict=True)
    }


def test_nothing_is_fetched_before_it_is_read(device: Device, of_file: Path) -> None:
    fs = device.volume.fs

    def chunks_here() -> int:
        with fs.state.transaction() as tx:
            (count,) = tx.execute("SELECT count(*) FROM chunk WHERE segment IS NOT NULL").fetchone()
        return int(count)

    device.volume.drop_cache()
    subprocess.run(["ls", "-lR", of_file.parent], check=True, stdout=subprocess.DEVNULL)
    assert chunks_here() == 0
    assert versions(of_file)[2].read_bytes() == CONTENTS[2]
    assert chunks_here() > 0


def test_numbers_and_names_are_stable(device: Device, of_file: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_ino for path in versions(of_file)}
    assert len(set(before.values())) == len(CONTENTS)
    device.volume.unmount()
    device.volume.mount(tmp_path / "mnt")
    assert {path.name: path.stat().st_ino for path in versions(of_file)} == before


def test_a_version_that_is_added_is_seen(device: Device, root: Path, of_file: Path) -> None:
    before = set(names(of_file))
    (root / "folder" / "notes.txt").write_bytes(b"the fourth")
    sign(device)
    device.volume.unmount()  # what was listed within the last second may be believed
    device.volume.mount(root)
    [new] = set(names(of_file)) - before
    assert (of_file / new).read_bytes() == b"the fourth"


def test_what_was_removed_or_called_otherwise_has_its_versions(
    device: Device, root: Path, of_file: Path
) -> None:
    (root / "folder" / "notes.txt").rename(root / "folder" / "other.txt")
    (root / "gone").mkdir()
    (root / "gone" / "file").write_bytes(b"gone")
    sign(device)
    shutil.rmtree(root / "gone")
    sign(device)
    top = root / ".hybrisfs" / "versions"
    assert names(top) == ["folder", "gone"]
    assert names(top / "gone") == ["file"]
    assert [path.read_bytes() for path in versions(top / "gone" / "file")] == [b"gone"]
    assert names(top / "folder") == ["notes.txt", "other.txt"]
    assert [path.read_bytes() for path in versions(of_file)] == CONTENTS
    assert [path.read_bytes() for path in versions(of_file.with_name("other.txt"))] == CONTENTS


def test_it_cannot_be_changed_and_what_never_was_is_not_there(root: Path, of_file: Path) -> None:
    refused = errno.EROFS if os.geteuid() == 0 else errno.EACCES  # by the mode of the folder
    [first, *_] = versions(of_file)
    fails(errno.EROFS, lambda: first.write_bytes(b"x"))
    fails(refused, first.unlink)
    fails(refused, lambda: first.rename(root / "here"))
    fails(refused, lambda: (of_file / "new").touch())
    fails(refused, of_file.rmdir)
    for name in ("never", "folder/never", "folder/notes.txt/2001-01-01T00:00:00Z notes.txt"):
        assert not (root / ".hybrisfs" / "versions" / name).exists()


def test_a_folder_of_versions_is_as_closed_as_the_folder(device: Device, root: Path) -> None:
    for mode in (0o755, 0o700):
        (root / "private").mkdir()
        (root / "private").chmod(mode)
        (root / "private" / "file").write_bytes(b"x")
        sign(device)
        if mode == 0o755:
            shutil.rmtree(root / "private")
    shown = (root / ".hybrisfs" / "versions" / "private").stat()
    assert stat.S_IMODE(shown.st_mode) == 0o500
    assert (shown.st_uid, shown.st_gid) == (os.getuid(), os.getgid())


def test_links_are_not_shown_and_long_names_are_cut(device: Device, root: Path) -> None:
    (root / "link").symlink_to("elsewhere")
    long = "ä" * 120 + ".txt"
    (root / long).write_bytes(b"long")
    sign(device)
    top = root / ".hybrisfs" / "versions"
    assert names(top) == [long]
    [version] = versions(top / long)
    assert version.name.endswith("ä.txt") and len(os.fsencode(version.name)) <= 255
    assert version.read_bytes() == b"long"
