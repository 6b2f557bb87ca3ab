"""Programs on a device that is limited to a folder: elsewhere they hear that they may not."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hybrisfs.members.roles import Role
from tests.merge.fleet import NAMES
from tests.mount.mounted_fleet import MountedFleet
from tests.mount.test_reader import CHANGES

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

AT_THE_BORDER: dict[str, Callable[[Path], object]] = {
    "move in": lambda root: (root / "file").rename(root / "shared" / "new"),
    "move out": lambda root: (root / "shared" / "file").rename(root / "new"),
    "move over": lambda root: (root / "shared" / "file").rename(root / "file"),
    "link out": lambda root: (root / "new").hardlink_to(root / "shared" / "file"),
    "move the folder": lambda root: (root / "shared").rename(root / "new"),
    "chmod the folder": lambda root: (root / "shared").chmod(0o700),
}


@pytest.fixture
def contributor(tmp_path: Path) -> Iterator[MountedFleet]:
    """`there` has limited the one which is mounted to `shared`."""
    root = tmp_path / "mnt"
    root.mkdir()
    both = MountedFleet(root)
    try:
        there = both.there
        for path in ("file", "shared/file"):
            if "/" in path:
                there.mkdir("shared")
            there.write(path, b"content")
        there.mkdir("folder")
        with there.rig.fs.state.transaction() as tx:
            there.rig.fs.set_xattr(tx, there.at("file"), b"user.known", b"value", 0)
            there.rig.fs.labels.add(there.rig.tx, there.at("file"), ["known"])
        both.fleet.tell_who_came_by_whom({0: 1})
        both.fleet.meet()
        with there.rig.fs.state.transaction() as tx:
            areas = there.rig.sharing.shared_folders.choose(tx, ["shared"])
        there.rig.sharing.membership.set_role(NAMES[0], Role.CONTRIBUTOR, areas)
        there.rig.sharing.shared_folders.assign(areas)
        both.tell(both.arrive())
        yield both
    finally:
        both.close()


def test_every_change_elsewhere_is_refused(contributor: MountedFleet) -> None:
    root = contributor.root
    before = sorted(str(one.relative_to(root)) for one in root.rglob("*"))
    for name, change in (CHANGES | AT_THE_BORDER).items():
        with pytest.raises(OSError) as refused:
            change(root)
        assert refused.value.errno == errno.EACCES, name
    assert sorted(str(one.relative_to(root)) for one in root.rglob("*")) == before
    assert (root / "file").read_bytes() == b"content" == (root / "shared" / "file").read_bytes()
    assert not contributor.here.rig.fs.changes.unsigned


def test_in_its_folder_programs_work_as_on_any_machine(contributor: MountedFleet) -> None:
    deep = contributor.root / "shared" / "deep"
    deep.mkdir()
    for name in CHANGES.keys() - {"rmdir", "removexattr", "remove labels", "append"}:
        (deep / "file").write_bytes(b"content")
        CHANGES[name](deep)
        for new in deep.glob("new"):
            (Path.rmdir if new.is_dir() else Path.unlink)(new)
    (deep / "file").write_bytes(b"saved")
    os.setxattr(deep / "file", "user.hybrisfs.labels", b"saved")
    (deep / "file").rename(deep.parent / "moved")
    shutil.copy(contributor.root / "file", deep / "copied")
    contributor.fleet.meet()
    there = contributor.there
    assert there.rig.fs.labels.of(there.rig.tx, there.at("shared/moved")) == ["saved"]
    assert there.read("shared/moved") == b"saved" and there.read("shared/deep/copied") == b"content"
    paths = ["shared", "shared/deep", "shared/deep/copied", "shared/file", "shared/moved"]
    assert there.names() == ["file", "folder", *paths]


def test_mv_copies_across_the_border_on_a_full_member(tmp_path: Path) -> None:
    root = tmp_path / "mnt"
    root.mkdir()
    both = MountedFleet(root)
    try:
        both.fleet.tell_who_came_by_whom({1: 0})
        (root / "shared").mkdir()
        (root / "shared" / "file").write_bytes(b"content")
        both.fleet.meet()
        sharing = both.here.rig.sharing
        sharing.roles.set(NAMES[1], sharing.shared_folders.rights(["shared"], reader=False))
        with pytest.raises(OSError) as refused:
            (root / "shared" / "file").rename(root / "mine")
        assert refused.value.errno == errno.EXDEV
        subprocess.run(["mv", root / "shared" / "file", root / "mine"], check=True)
        assert (root / "mine").read_bytes() == b"content" and not (root / "shared" / "file").exists()
    finally:
        both.close()
