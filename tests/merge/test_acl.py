"""Access control lists that come from another device."""

from __future__ import annotations

import errno

import pytest

from hybrisfs.tree.acl import ACCESS, DEFAULT
from tests.merge.fleet import Fleet
from tests.tree.test_acl import LIST


def test_one_device_sets_the_list_and_another_the_mode() -> None:
    fleet = Fleet(2)
    ada, bob = fleet.devices
    ada.write("f", b"x")
    ada.rig.fs.set_acl(ada.rig.tx, ada.at("f"), ACCESS, LIST.encode(), keeps_set_group_id=True)
    fleet.meet()
    assert bob.rig.fs.attributes.get_xattr(bob.rig.tx, bob.at("f"), ACCESS) == LIST.encode()
    bob.rig.fs.attributes.change(bob.rig.tx, bob.at("f"), mode=0o640)
    fleet.meet()
    for device in fleet.devices:
        assert (
            device.rig.fs.attributes.get_xattr(device.rig.tx, device.at("f"), ACCESS)
            == LIST.with_mode(0o640).encode()
        )
    fleet.discard()


def test_what_is_no_list_counts_as_none() -> None:
    fleet = Fleet(2)
    ada, bob = fleet.devices
    ada.mkdir("d")
    ada.rig.db.rows.executemany(
        "INSERT INTO xattr VALUES (?, ?, ?)",
        [(ada.at("d").ino, name, b"\2\0\0\0nonsense") for name in (ACCESS, DEFAULT)],
    )
    ada.at("d").xattrs = 2
    fleet.meet()
    for name in (ACCESS, DEFAULT):
        with pytest.raises(OSError) as caught:
            bob.rig.fs.attributes.get_xattr(bob.rig.tx, bob.at("d"), name)
        assert caught.value.errno == errno.ENODATA
    bob.write("d/f", b"made")
    assert bob.at("d/f").mode == 0o100644
    fleet.discard()
