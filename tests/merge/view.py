"""What a device shows is what the rules say of the registers that it holds."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from hybrisfs.kinds import LABEL, NODE
from hybrisfs.merge.origins import LogOrigins
from hybrisfs.merge.rules import Seen, Tree, visible_tree
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Content
from hybrisfs.registers.values import Value
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.verify.log_check import Vectors
from hybrisfs.verify.view_check import ViewCheck
from hybrisfs.volume.decisions import Conflicts
from sync import DecodeError
from tests.merge.fleet import Device
from tests.tree.invariants import check_accounts
from tests.tree.replay import read_content
from tests.tree.rig import SEALER

__all__ = ["by_path", "check_view", "what_fsck_says"]


def check_view(device: Device, excused: Callable[[bytes], bool] | None = None) -> None:
    """The device has signed all that it shows; that is what the rules say, and so are the conflicts; fsck
    finds nothing. The bytes of files with an *excused* value may be anything, and missing."""
    check_accounts(device.rig, [], honest=excused is None)
    assert not device.rig.fs.changes.unsigned
    registers = device.registers()
    tree = visible_tree(registers, LogOrigins(device.rig.tx))
    seen, labelled = by_path(tree), labels(registers)
    walk = {os.fsencode(path): inode for path, inode in device.walk().items()}
    assert walk.keys() == seen.keys()
    for path, inode in walk.items():
        expected = seen[path]
        assert device.rig.fs.attributes.record(device.rig.tx, inode) == expected.attr, path
        together = {one for node in (expected.node, *expected.merged) for one in labelled.get(node, ())}
        assert device.rig.fs.labels.of(device.rig.tx, inode) == sorted(together, key=str.encode), path
        assert inode.nlink == (2 + subfolders(tree, expected.node) if inode.is_directory else expected.links)
        if inode.is_file and not (excused and expected.content is not None and excused(expected.content)):
            content = b"" if expected.content is None else _bytes(device, expected.content)
            assert device.content(inode) == content, path
    assert device.rig.fs.get(device.rig.tx, ROOT_INO).nlink == 2 + subfolders(tree, ROOT_ID)
    _check_conflicts(device, seen)
    found = what_fsck_says(device)
    assert not [one for one in found if not (excused and "content is not the one signed" in one)], found


def labels(registers: Mapping[bytes, Sequence[Value]]) -> dict[bytes, set[str]]:
    """The labels of each node that has some, by the definition."""
    found: dict[bytes, set[str]] = {}
    for key, values in registers.items():
        if key[0] == LABEL and any(one.value == b"\1" for one in values):
            found.setdefault(key[NODE], set()).add(key[LABEL.size :].decode())
    return found


def what_fsck_says(device: Device) -> list[str]:
    """What is wrong with the view of a device, which may have unsigned changes."""
    device.rig.fs.flush(device.rig.tx)
    db = cast("sqlite3.Connection", device.rig.tx)
    return list(ViewCheck(db, SEALER, Vectors(db)).run(lambda done, total: None))


def by_path(tree: Tree) -> dict[bytes, Seen]:
    """What is seen, by path."""
    found: dict[bytes, Seen] = {}
    waiting = [(b"", ROOT_ID)]
    while waiting:
        path, folder = waiting.pop()
        for name, seen in tree.folders[folder].items():
            where = path + b"/" + name if path else name
            found[where] = seen
            if seen.node in tree.folders:
                waiting.append((where, seen.node))
    return found


def subfolders(tree: Tree, folder: bytes) -> int:
    """How many folders are shown in a folder."""
    return sum(one.node in tree.folders for one in tree.folders[folder].values())


def _bytes(device: Device, value: bytes) -> bytes:
    try:
        content = Content.decode(value)
    except DecodeError:
        return b""  # a lying device wrote it
    return read_content(content, device.rig.plaintexts.__getitem__)


def _check_conflicts(device: Device, seen: Mapping[bytes, Seen]) -> None:
    """All that has a conflict name is listed, with the name for whose sake it has it."""
    listed = {os.fsencode(str(one.path)): os.fsencode(str(one.of)) for one in Conflicts(device.rig.fs).all()}
    folders = {path: path[: path.rfind(b"/") + 1] for path in seen}
    assert listed == {path: folders[path] + one.beside for path, one in seen.items() if one.beside}
