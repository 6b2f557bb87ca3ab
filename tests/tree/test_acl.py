"""Access control lists: their format, and how they go with the mode."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable

import pytest

from hybrisfs.registers.tree import Attr, attr_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree import acl
from hybrisfs.tree.acl import ACCESS, DEFAULT, GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, Acl, Entry
from tests.tree.replay import Reader
from tests.tree.rig import Rig
from tests.tree.test_names import fails_with

BASE = (Entry(USER_OBJ, 6), Entry(GROUP_OBJ, 4), Entry(OTHER, 0))
LIST = Acl(
    (
        Entry(USER_OBJ, 7),
        Entry(USER, 6, 1000),
        Entry(USER, 1, 7),
        Entry(GROUP_OBJ, 5),
        Entry(GROUP, 4, 100),
        Entry(MASK, 6),
        Entry(OTHER, 1),
    )
)


def raw(entries: Iterable[tuple[int, int, int]], version: int = 2) -> bytes:
    return struct.pack("<I", version) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_the_format_is_that_of_linux() -> None:
    value = bytes.fromhex(
        "02000000 01000700ffffffff 02000600e8030000 0200010007000000 04000500ffffffff"
        "0800040064000000 10000600ffffffff 20000100ffffffff"
    )
    assert LIST.encode() == value
    assert Acl.decode(value) == LIST


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x02\0\0\0",
        raw(BASE, version=1),
        raw(BASE)[:-1],
        raw(BASE) + b"\0",
        raw(BASE[:2]),
        raw((*BASE, BASE[2])),
        raw(reversed(BASE)),
        raw((*BASE[:2], (0x40, 7, 0xFFFFFFFF))),
        raw((BASE[0], BASE[1], (OTHER, 8, 0xFFFFFFFF))),
        raw((BASE[0], BASE[1], (OTHER, 7, 1))),
        raw((BASE[0], (USER, 7, 0xFFFFFFFF), BASE[1], (MASK, 7, 0xFFFFFFFF), BASE[2])),
        raw((BASE[0], (USER, 7, 1), *BASE[1:])),
        raw((BASE[0], BASE[1], (GROUP, 7, 1), BASE[2])),
        raw((BASE[0], BASE[1], (MASK, 7, 0xFFFFFFFF), (MASK, 7, 0xFFFFFFFF), BASE[2])),
        raw((BASE[0], *((USER, 7, number) for number in range(600)), BASE[1], Entry(MASK, 7), BASE[2])),
    ],
)
def test_what_is_no_list(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"entr|format"):
        Acl.decode(value)


def test_the_mode_shows_the_mask_instead_of_the_group() -> None:
    assert LIST.permissions == 0o761
    assert not LIST.is_minimal
    assert Acl(BASE).permissions == 0o640
    assert Acl(BASE).is_minimal
    changed = LIST.with_mode(0o100_123)
    assert changed.permissions == 0o123
    assert changed.entries[1:5] == LIST.entries[1:5]
    assert Acl(BASE).with_mode(0o777).entries[1] == Entry(GROUP_OBJ, 7)


def test_a_default_list_limits_the_mode() -> None:
    assert LIST.limit(0o104_666) == 0o104_660
    assert Acl(BASE).limit(0o777) == 0o640


# -- kept by nodes -----------------------------------------------------------------------------------------


def set_acl(rig: Rig, name: bytes, kind: bytes, value: Acl, *, keeps_set_group_id: bool = True) -> None:
    rig.fs.set_acl(rig.tx, rig.find(name), kind, value.encode(), keeps_set_group_id=keeps_set_group_id)


def get_acl(rig: Rig, name: bytes, kind: bytes = ACCESS) -> Acl:
    return Acl.decode(rig.fs.attributes.get_xattr(rig.tx, rig.find(name), kind))


def test_list_and_mode_change_together(rig: Rig) -> None:
    inode = rig.make(b"file")
    set_acl(rig, b"file", ACCESS, LIST)
    assert stat.S_IMODE(inode.mode) == 0o761
    rig.fs.attributes.change(rig.tx, inode, mode=0o604)
    rig = rig.reopen()
    assert get_acl(rig, b"file") == LIST.with_mode(0o604)
    assert rig.fs.attributes.list_xattrs(rig.tx, rig.find(b"file")) == [ACCESS]
    rig.fs.attributes.remove_xattr(rig.tx, rig.find(b"file"), ACCESS)
    assert stat.S_IMODE(rig.find(b"file").mode) == 0o604
    rig.fs.attributes.remove_xattr(rig.tx, rig.find(b"file"), ACCESS)
    with fails_with(errno.ENODATA):
        get_acl(rig, b"file")
    rig.discard()


def test_a_list_that_says_no_more_than_a_mode_becomes_one(rig: Rig) -> None:
    inode = rig.make(b"file")
    set_acl(rig, b"file", ACCESS, LIST)
    set_acl(rig, b"file", ACCESS, Acl(BASE))
    assert (stat.S_IMODE(inode.mode), rig.fs.attributes.list_xattrs(rig.tx, inode)) == (0o640, [])
    rig.discard()


@pytest.mark.parametrize(("keeps", "mode"), [(True, 0o2761), (False, 0o761)])
def test_a_set_group_id_bit_stays_with_members_of_the_group(rig: Rig, keeps: bool, mode: int) -> None:
    inode = rig.make(b"file")
    rig.fs.attributes.change(rig.tx, inode, mode=0o2755)
    set_acl(rig, b"file", ACCESS, LIST, keeps_set_group_id=keeps)
    assert stat.S_IMODE(inode.mode) == mode
    rig.discard()


def test_what_is_made_inherits_the_default_list_instead_of_the_umask(rig: Rig) -> None:
    rig.mkdir(b"d")
    set_acl(rig, b"d", DEFAULT, LIST)
    folder = rig.find(b"d")
    assert stat.S_IMODE(folder.mode) == 0o755
    made, _ = rig.fs.create(rig.tx, folder.ino, b"f", 0o666, 1, 1, os.O_RDWR, umask=0o077)
    below = rig.fs.make(rig.tx, folder.ino, b"sub", stat.S_IFDIR | 0o777, 1, 1, umask=0o077)
    link = rig.fs.make(rig.tx, folder.ino, b"l", stat.S_IFLNK | 0o777, 1, 1, target=b"f")
    assert [stat.S_IMODE(one.mode) for one in (made, below, link)] == [0o660, 0o761, 0o777]
    lists = [rig.fs.attributes.list_xattrs(rig.tx, one) for one in (made, below, link)]
    assert lists == [[ACCESS], [ACCESS, DEFAULT], []]
    assert rig.fs.attributes.get_xattr(rig.tx, made, ACCESS) == LIST.with_mode(0o660).encode()
    assert rig.fs.attributes.get_xattr(rig.tx, below, DEFAULT) == LIST.encode()
    assert (
        stat.S_IMODE(rig.fs.make(rig.tx, ROOT_INO, b"f", stat.S_IFREG | 0o666, 1, 1, umask=0o077).mode)
        == 0o600
    )
    rig.discard()


def test_a_default_list_that_is_a_mode_leaves_files_without_a_list(rig: Rig) -> None:
    rig.mkdir(b"d")
    set_acl(rig, b"d", DEFAULT, Acl(BASE))
    made, _ = rig.fs.create(rig.tx, rig.find(b"d").ino, b"f", 0o666, 1, 1, os.O_RDWR, umask=0o777)
    assert (stat.S_IMODE(made.mode), rig.fs.attributes.list_xattrs(rig.tx, made)) == (0o640, [])
    rig.discard()


def test_what_is_refused(rig: Rig) -> None:
    inode = rig.make(b"file")
    with fails_with(errno.EACCES):
        set_acl(rig, b"file", DEFAULT, LIST)
    for value in (b"", b"nonsense"):
        with fails_with(errno.EINVAL):
            rig.fs.set_acl(rig.tx, inode, ACCESS, value, keeps_set_group_id=True)
    with fails_with(errno.EOPNOTSUPP):
        rig.fs.set_xattr(rig.tx, inode, ACCESS, LIST.encode(), 0)
    assert stat.S_IMODE(inode.mode) == 0o644
    rig.discard()


def test_lists_travel_with_the_attributes(rig: Rig) -> None:
    rig.mkdir(b"d")
    for name in acl.NAMES:
        set_acl(rig, b"d", name, LIST)
    assert rig.publish()
    reader = Reader()
    reader.catch_up(rig.db)
    value = reader.registers[attr_key(rig.find(b"d").id)]
    assert value is not None
    assert Attr.decode(value).xattrs == ((ACCESS, LIST.encode()), (DEFAULT, LIST.encode()))
    rig.discard()
