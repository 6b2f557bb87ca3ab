"""Content that is staged in a file without a name, and handed over in one step."""

from __future__ import annotations

import os

from tests.tree.invariants import check_accounts
from tests.tree.rig import Rig


def test_a_file_takes_over_what_was_staged_without_a_name(rig: Rig) -> None:
    inode = rig.make(b"file", b"old, and longer than the new")
    staged, handle = rig.fs.create_scratch(rig.tx, 0o600, 0, 0)
    rig.fs.write(rig.tx, staged, 0, b"new")
    assert rig.read(inode) == b"old, and longer than the new"
    rig.fs.content.take_over(rig.tx, inode, staged)
    rig.fs.release(rig.tx, handle)
    rig.fs.forget(rig.tx, staged.ino)
    assert rig.read(inode) == b"new"
    assert rig.publish(everything=True)
    assert rig.read(inode) == b"new"
    check_accounts(rig, [])
    after = rig.reopen()
    assert after.read(after.find(b"file")) == b"new"


def test_what_was_only_staged_is_gone_after_a_crash(rig: Rig) -> None:
    rig.make(b"file", b"old")
    staged, _ = rig.fs.create_scratch(rig.tx, 0o600, 0, 0)
    rig.fs.write(rig.tx, staged, 0, os.urandom(10_000))
    rig.commit()
    after = rig.crashed()
    assert after.read(after.find(b"file")) == b"old"
    assert after.fs.inodes.find(after.tx, staged.ino) is None
    assert after.fs.total_files == 1
    check_accounts(after, [])
