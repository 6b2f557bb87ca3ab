"""Programs with privileges lose them when they are changed, also when another device has just given them.

`tests/system/test_set_ids.py` compares this with a local disk.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hybrisfs.state.schema import ROOT_INO
from tests.another_user import only_root
from tests.system.changing_programs import CAPABILITY, RAW_CAPABILITY
from tests.volume.device import Device

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")


@only_root
def test_a_write_removes_capabilities_of_which_the_kernel_does_not_know(device: Device, root: Path) -> None:
    """It has asked before the first write, and does not ask again."""
    fs, path = device.volume.fs, root / "file"
    with path.open("wb", buffering=0) as file:
        file.write(b"x")
        with fs.state.transaction() as tx:
            inode = fs.lookup(tx, ROOT_INO, b"file")
            assert inode is not None
            fs.set_xattr(tx, inode, CAPABILITY.encode(), RAW_CAPABILITY, 0)
        file.write(b"y")
    assert os.listxattr(path) == []


@only_root
def test_allocating_clears_what_the_kernel_does_not_speak_of(device: Device, root: Path) -> None:
    path = root / "file"
    path.write_bytes(b"x")
    path.chmod(0o6755)
    os.setxattr(path, CAPABILITY, RAW_CAPABILITY)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 100)
    assert (path.stat().st_mode & 0o7777, os.listxattr(path)) == (0o6755, [])
