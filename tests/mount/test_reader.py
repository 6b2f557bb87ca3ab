"""Programs on a device that only reads: every change fails with EROFS, and what others do is shown."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hybrisfs.members.roles import Role
from tests.merge.fleet import NAMES
from tests.mount.mounted_fleet import MountedFleet

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

CHANGES: dict[str, Callable[[Path], object]] = {
    "create": lambda root: (root / "new").write_bytes(b"content"),
    "mkdir": lambda root: (root / "new").mkdir(),
    "symlink": lambda root: (root / "new").symlink_to("file"),
    "mkfifo": lambda root: os.mkfifo(root / "new"),
    "link": lambda root: (root / "new").hardlink_to(root / "file"),
    "unlink": lambda root: (root / "file").unlink(),
    "rmdir": lambda root: (root / "folder").rmdir(),
    "rename": lambda root: (root / "file").rename(root / "new"),
    "overwrite": lambda root: (root / "file").write_bytes(b"mine"),
    "append": lambda root: os.open(root / "file", os.O_WRONLY | os.O_APPEND),
    "truncate": lambda root: os.truncate(root / "file", 1),
    "chmod": lambda root: (root / "file").chmod(0o600),
    "utime": lambda root: os.utime(root / "file", (1, 1)),
    "setxattr": lambda root: os.setxattr(root / "file", "user.name", b"value"),
    "removexattr": lambda root: os.removexattr(root / "file", "user.known"),
    "label": lambda root: os.setxattr(root / "file", "user.hybrisfs.labels", b"new"),
    "remove labels": lambda root: os.removexattr(root / "file", "user.hybrisfs.labels"),
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MountedFleet]:
    """`there` has said that the one which is mounted only reads."""
    root = tmp_path_factory.mktemp("reader") / "mnt"
    root.mkdir()
    both = MountedFleet(root)
    try:
        both.there.write("file", b"content")
        both.there.mkdir("folder")
        with both.there.rig.fs.state.transaction() as tx:
            inode = both.there.at("file")
            both.there.rig.fs.set_xattr(tx, inode, b"user.known", b"value", 0)
            both.there.rig.fs.labels.add(both.there.rig.tx, inode, ["known"])
        both.fleet.meet()
        both.fleet.tell_who_came_by_whom({0: 1})
        both.there.rig.sharing.membership.set_role(NAMES[0], Role.READER)
        both.tell(both.arrive())
        yield both
    finally:
        both.close()


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_refused(reader: MountedFleet, change: str) -> None:
    with pytest.raises(OSError) as refused:
        CHANGES[change](reader.root)
    assert refused.value.errno == errno.EROFS
    assert sorted(one.name for one in reader.root.iterdir()) == ["file", "folder"]
    assert (reader.root / "file").read_bytes() == b"content"
    assert not reader.here.rig.fs.changes.unsigned


def test_what_others_do_is_shown(reader: MountedFleet) -> None:
    reader.there.write("later", b"from there")
    reader.tell(reader.arrive())
    assert (reader.root / "later").read_bytes() == b"from there"
    reader.there.remove("later")
    reader.tell(reader.arrive())
    assert not (reader.root / "later").exists()
