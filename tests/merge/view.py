"""What a device shows is what the rules say of the registers that it holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from hybrisfs.filesystem.registers import Content
from hybrisfs.store.schema import ROOT_INO
from hybrisfs.volume.conflicts import Conflicts
from sync import DecodeError
from tests.filesystem.invariants import check_accounts
from tests.filesystem.replay import read_content
from tests.merge.fleet import Device
from tests.merge.model import Seen, visible_tree

__all__ = ["check_view"]


def check_view(device: Device, excused: Callable[[bytes], bool] = lambda value: False) -> None:
    """The device has signed all that it shows; that is what the model says, and so are the conflicts. The
    bytes of files with an *excused* value may be anything, and missing."""
    check_accounts(device.rig, [])
    assert not device.rig.fs.changes.unsigned
    arrivals = device.rig.sharing.arrivals
    seen = visible_tree(device.registers(), arrivals.depends, arrivals.author)
    walk = {os.fsencode(path): inode for path, inode in device.walk().items()}
    assert walk.keys() == seen.keys()
    for path, inode in walk.items():
        expected = seen[path]
        assert device.rig.fs.attributes.record(inode) == expected.attr, path
        assert inode.nlink == expected.nlink, path
        if inode.is_file and not (expected.content is not None and excused(expected.content)):
            content = b"" if expected.content is None else _bytes(device, expected.content)
            assert device.content(inode) == content, path
    root = device.rig.fs.get(ROOT_INO)
    assert root.nlink == 2 + sum(inode.is_directory for path, inode in walk.items() if b"/" not in path)
    _check_conflicts(device, seen)


def _bytes(device: Device, value: bytes) -> bytes:
    try:
        content = Content.decode(value)
    except DecodeError:
        return b""  # a lying device wrote it
    return read_content(content, device.rig.plaintexts.__getitem__)


def _check_conflicts(device: Device, seen: Mapping[bytes, Seen]) -> None:
    """All that has a conflict name is listed, with the name for whose sake it has it."""
    listed = {
        os.fsencode(str(one.path)): os.fsencode(str(one.of))
        for one in Conflicts(device.rig.fs, lambda _: None).all()
    }
    folders = {path: path[: path.rfind(b"/") + 1] for path in seen}
    assert listed == {path: folders[path] + one.beside for path, one in seen.items() if one.beside}
