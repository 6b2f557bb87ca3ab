"""Attributes and extended attributes."""

from __future__ import annotations

import errno

import pytest

from hybrisfs.registers.tree import MAX_XATTR_VALUE, MAX_XATTRS_SIZE, Attr, attr_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.attributes import XATTR_CREATE, XATTR_REPLACE
from tests.tree.replay import Reader
from tests.tree.rig import Rig
from tests.tree.test_names import fails_with


def test_changing_keeps_the_type_and_nanoseconds(rig: Rig) -> None:
    inode = rig.make(b"file")
    before = inode.ctime
    rig.fs.attributes.change(
        rig.tx, inode, mode=0o104755, uid=7, gid=8, atime=-1, mtime=1_234_567_890_123_456_789
    )
    rig = rig.reopen()
    inode = rig.find(b"file")
    assert (inode.mode, inode.uid, inode.gid) == (0o104755, 7, 8)
    assert (inode.atime, inode.mtime) == (-1, 1_234_567_890_123_456_789)
    assert inode.ctime > before
    rig.discard()


def test_privileges_are_cleared_and_cost_nothing_where_there_are_none(rig: Rig) -> None:
    inode, attributes = rig.make(b"file"), rig.fs.attributes
    attributes.change(rig.tx, inode, mode=0o106755)
    attributes.set_xattr(rig.tx, inode, b"security.capability", b"any", 0)
    attributes.set_xattr(rig.tx, inode, b"user.a", b"1", 0)
    attributes.clear_privileges(rig.tx, inode, set_user_id=True, set_group_id=False)
    assert (inode.mode, attributes.list_xattrs(rig.tx, inode)) == (0o102755, [b"user.a"])
    attributes.clear_privileges(rig.tx, inode, set_user_id=True, set_group_id=True)
    assert inode.mode == 0o100755
    before = inode.ctime
    attributes.clear_privileges(rig.tx, inode, set_user_id=True, set_group_id=True)
    assert inode.ctime == before
    rig.discard()


@pytest.mark.parametrize("time", [1 << 63, -(1 << 63) - 1, 1 << 90, -(1 << 90)])
def test_a_time_beyond_what_can_be_kept_becomes_the_nearest(rig: Rig, time: int) -> None:
    """The database would refuse it, and so keep everything from being committed."""
    inode = rig.make(b"file")
    rig.fs.attributes.change(rig.tx, inode, atime=time, mtime=time)
    nearest = (1 << 63) - 1 if time > 0 else -(1 << 63)
    assert rig.publish()
    rig = rig.reopen()
    inode = rig.find(b"file")
    assert (inode.atime, inode.mtime) == (nearest, nearest)
    reader = Reader()
    reader.catch_up(rig.db)
    value = reader.registers[attr_key(inode.id)]
    assert value is not None and Attr.decode(value).mtime == nearest
    rig.discard()


def test_extended_attributes(rig: Rig) -> None:
    inode, attributes = rig.make(b"file"), rig.fs.attributes
    attributes.set_xattr(rig.tx, inode, b"user.b", b"1", 0)
    attributes.set_xattr(rig.tx, inode, b"user.a", b"", XATTR_CREATE)
    attributes.set_xattr(rig.tx, inode, b"user.b", b"\0\xff", XATTR_REPLACE)
    assert attributes.list_xattrs(rig.tx, inode) == [b"user.a", b"user.b"]
    with fails_with(errno.EEXIST):
        attributes.set_xattr(rig.tx, inode, b"user.a", b"", XATTR_CREATE)
    with fails_with(errno.ENODATA):
        attributes.set_xattr(rig.tx, inode, b"user.c", b"", XATTR_REPLACE)
    for name in (b"user.", b"trusted.", b"security."):
        with fails_with(errno.EINVAL):
            attributes.set_xattr(rig.tx, inode, name, b"", 0)
        with fails_with(errno.EINVAL):
            attributes.get_xattr(rig.tx, inode, name)
        with fails_with(errno.EINVAL):
            attributes.remove_xattr(rig.tx, inode, name)
    with fails_with(errno.ENODATA):
        attributes.remove_xattr(rig.tx, inode, b"user.c")
    for name in (b"system.other", b"nonsense"):
        with fails_with(errno.EOPNOTSUPP):
            attributes.set_xattr(rig.tx, inode, name, b"", 0)
        with fails_with(errno.EOPNOTSUPP):
            attributes.get_xattr(rig.tx, inode, name)
        with fails_with(errno.EOPNOTSUPP):
            attributes.remove_xattr(rig.tx, inode, name)
    attributes.remove_xattr(rig.tx, inode, b"user.a")
    rig = rig.reopen()
    assert rig.fs.attributes.get_xattr(rig.tx, rig.find(b"file"), b"user.b") == b"\0\xff"
    rig.fs.unlink(rig.tx, ROOT_INO, b"file")
    assert not rig.db.rows.execute("SELECT * FROM xattr").fetchall()
    rig.discard()


def test_extended_attributes_stay_within_what_an_update_can_hold(rig: Rig) -> None:
    """One file with too many of them would keep the whole volume from being published."""
    inode = rig.make(b"file", b"content")
    with fails_with(errno.E2BIG):
        rig.fs.attributes.set_xattr(rig.tx, inode, b"user.big", bytes(MAX_XATTR_VALUE + 1), 0)
    with pytest.raises(OSError) as caught:
        for number in range(1000):
            rig.fs.attributes.set_xattr(rig.tx, inode, b"user.%d" % number, bytes(MAX_XATTR_VALUE), 0)
    assert caught.value.errno == errno.ENOSPC
    rig.fs.attributes.set_xattr(
        rig.tx, inode, b"user.0", bytes(MAX_XATTR_VALUE), 0
    )  # replaced: no more than before
    assert rig.publish()
    reader = Reader()
    reader.catch_up(rig.db)
    value = reader.registers[attr_key(inode.id)]
    assert value is not None and len(value) > MAX_XATTRS_SIZE - MAX_XATTR_VALUE
    assert len(Attr.decode(value).xattrs) == inode.xattrs
