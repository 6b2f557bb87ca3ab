"""Files that are made without a name (O_TMPFILE)."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from hybrisfs.registers.tree import Attr, Content, attr_key, content_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.acl import ACCESS, DEFAULT
from hybrisfs.tree.inodes import Inode
from tests.tree.replay import Reader
from tests.tree.rig import Rig
from tests.tree.test_acl import LIST, get_acl
from tests.tree.test_names import fails_with


def nameless(rig: Rig, data: bytes = b"content", flags: int = 0, parent: int = ROOT_INO) -> tuple[Inode, int]:
    inode, handle = rig.fs.create_nameless(rig.tx, parent, 0o666, 7, 8, os.O_RDWR | flags, umask=0o022)
    rig.fs.write(rig.tx, inode, 0, data)
    return inode, handle


def test_it_has_everything_but_a_name(rig: Rig) -> None:
    inode, handle = nameless(rig)
    assert (stat.S_IMODE(inode.mode), inode.uid, inode.gid, inode.nlink) == (0o644, 7, 8, 0)
    assert rig.read(inode) == b"content"
    rig.publish()
    assert not rig.fs.names.list(rig.tx, ROOT_INO, 0, 10)
    assert rig.fs.space().files == 0
    rig.fs.release(rig.tx, handle)
    rig.fs.forget(rig.tx, inode.ino)
    assert rig.fs.inodes.find(rig.tx, inode.ino) is None
    rig.discard()


@pytest.mark.parametrize("first", [True, False])
def test_it_can_get_a_name_and_travels_from_then_on(rig: Rig, first: bool) -> None:
    inode, handle = nameless(rig)
    if not first:
        rig.commit()
    rig.fs.attributes.set_xattr(rig.tx, inode, b"user.a", b"1", 0)
    rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"named")
    rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"again")
    assert (inode.nlink, rig.fs.space().files) == (2, 1)
    rig.fs.release(rig.tx, handle)
    assert rig.publish()
    reader = Reader()
    reader.catch_up(rig.db)
    value = reader.registers[attr_key(inode.id)]
    assert value is not None and Attr.decode(value).xattrs == ((b"user.a", b"1"),)
    value = reader.registers[content_key(inode.id)]
    assert value is not None and Content.decode(value).size == len(b"content")
    rig = rig.reopen()
    for name in (b"named", b"again"):
        assert rig.read(rig.find(name)) == b"content"
    assert rig.find(b"named") is rig.find(b"again")
    rig.discard()


def test_without_a_name_a_crash_ends_it(rig: Rig) -> None:
    inode, _ = nameless(rig)
    rig.commit()
    rig = rig.crashed()
    assert rig.fs.inodes.find(rig.tx, inode.ino) is None
    assert not rig.db.rows.execute("SELECT * FROM orphan").fetchall()
    assert not rig.db.rows.execute("SELECT * FROM extent").fetchall()
    rig.discard()


def test_one_that_was_named_survives_a_crash(rig: Rig) -> None:
    inode, _ = nameless(rig)
    rig.commit()
    rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"named")
    rig.commit()
    rig = rig.crashed()
    assert rig.read(rig.find(b"named")) == b"content"
    rig.discard()


def test_what_gets_no_name(rig: Rig) -> None:
    exclusive, _ = nameless(rig, flags=os.O_EXCL)
    closed, handle = nameless(rig)
    closed.looked_up = True
    rig.fs.release(rig.tx, handle)
    removed = rig.make(b"file")
    rig.fs.open(rig.tx, removed.ino, os.O_RDONLY)
    rig.fs.unlink(rig.tx, ROOT_INO, b"file")
    for inode in (exclusive, closed, removed):
        with fails_with(errno.ENOENT):
            rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"name")
    rig.discard()


def test_it_inherits_from_the_directory_it_is_made_in(rig: Rig) -> None:
    folder = rig.mkdir(b"d")
    rig.fs.attributes.change(rig.tx, rig.find(b"d"), mode=0o2755, gid=99)
    rig.fs.set_acl(rig.tx, rig.find(b"d"), DEFAULT, LIST.encode(), keeps_set_group_id=True)
    inode, _ = nameless(rig, parent=folder)
    rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"named")
    assert inode.gid == 99
    assert get_acl(rig, b"named", ACCESS) == LIST.with_mode(0o660)
    rig.discard()
