"""The state of a file as its extended attributes tell it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.residency import PINNED_XATTR, STATE_XATTR
from tests.merge.fleet import Fleet
from tests.tree.rig import Rig, small_chunks
from tests.tree.test_names import fails_with


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(2)
    yield one
    one.discard()


def state(rig: Rig, inode: Inode) -> str:
    value = rig.reading.residency.attribute(rig.tx, inode, STATE_XATTR)
    assert value is not None
    return value.decode()


def ship(rig: Rig) -> None:
    """The clouds hold all that has been signed."""
    tip = rig.updates.own_tip()
    assert tip is not None
    rig.tx.pending.ship(tip.clock)


def upload(rig: Rig) -> None:
    rig.publish(everything=True)
    rig.pack()
    ship(rig)


def test_the_way_to_the_clouds_and_back(rig: Rig) -> None:
    inode = rig.make(b"file", b"content")
    assert state(rig, inode) == "uploading"
    rig.publish()
    assert state(rig, inode) == "uploading"
    rig.pack()
    assert state(rig, inode) == "uploading"  # nobody has been told of it yet
    ship(rig)
    assert state(rig, inode) == "durable"
    rig.room.drop_all()
    assert state(rig, inode) == "cloud-only"
    rig.read(inode)
    assert state(rig, inode) == "durable"


def test_attributes_and_names_count_too(rig: Rig) -> None:
    inode = rig.make(b"file", b"content")
    upload(rig)
    rig.fs.attributes.change(rig.tx, inode, mode=0o600)
    assert state(rig, inode) == "uploading"
    upload(rig)
    assert state(rig, inode) == "durable"
    rig.fs.rename(rig.tx, ROOT_INO, b"file", ROOT_INO, b"renamed", 0)
    assert state(rig, inode) == "uploading"
    upload(rig)
    assert state(rig, inode) == "durable"


def test_where_a_pack_is_must_be_known_as_well(rig: Rig) -> None:
    inode = rig.make(b"file", b"content")
    rig.publish()
    tip = rig.updates.own_tip()
    assert tip is not None
    rig.pack()
    rig.tx.pending.ship(tip.clock)
    assert state(rig, inode) == "uploading"
    other = rig.make(b"empty")
    upload(rig)
    assert state(rig, inode) == state(rig, other) == "durable"


def test_local_is_what_nothing_brings_to_the_clouds(rig: Rig) -> None:
    inode = rig.make(b"file", b"content")
    rig.clouds.down = True
    assert state(rig, inode) == "local"
    rig.clouds.down = False
    upload(rig)
    handle = rig.fs.open(rig.tx, inode.ino, os.O_WRONLY)
    assert state(rig, inode) == "durable"
    rig.fs.write(rig.tx, inode, 0, b"changed")
    assert state(rig, inode) == "local"
    rig.fs.release(rig.tx, handle)
    assert state(rig, inode) == "uploading"


def test_one_missing_chunk_of_many(rig: Rig) -> None:
    rig.chunker.limits = small_chunks(512)
    inode = rig.make(b"file", bytes(range(256)) * 40)
    upload(rig)
    assert state(rig, inode) == "durable"
    [number] = rig.db.rows.execute("SELECT chunk FROM file_chunk WHERE offset = 512").fetchone()
    assert rig.room.evict_chunks([number]) == 512
    assert state(rig, inode) == "cloud-only"


def test_what_other_devices_made(fleet: Fleet) -> None:
    fleet[0].rig.chunker.limits = small_chunks(512)
    fleet[0].write("short", b"content")
    fleet[0].write("long", bytes(range(256)) * 40)
    fleet.send(0, 1)
    rig = fleet[1].rig
    for name in ("short", "long"):
        assert state(rig, fleet[1].at(name)) == "cloud-only"
        fleet[1].read(name)
        assert state(rig, fleet[1].at(name)) == "durable"


def test_what_has_yet_to_arrive_on_the_clouds_from_elsewhere(fleet: Fleet) -> None:
    fleet[0].write("file", b"content")
    fleet[0].rig.publish(everything=True)
    fleet[1].receive(fleet[0].log())
    rig, inode = fleet[1].rig, fleet[1].at("file")
    assert state(rig, inode) == "uploading", "no cloud is known to have it"
    [number] = rig.db.rows.execute("SELECT number FROM chunk").fetchone()
    rig.tx.chunks.keep(number, b"content")  # straight from the device
    assert state(rig, inode) == "uploading"
    fleet.send(0, 1)
    assert state(rig, inode) == "durable"


def test_conflicts(fleet: Fleet) -> None:
    for device in (fleet[0], fleet[1]):
        device.write("same", device.name.encode())
        device.mkdir("folder")
    fleet.meet()
    rig = fleet[0].rig
    names = [name for name in fleet[0].names() if name != "folder"]
    assert len(names) == 2
    assert {state(rig, fleet[0].at(name)) for name in names} >= {"conflict"}
    shown = [name for name in names if state(rig, fleet[0].at(name)) == "conflict"]
    assert all("conflict" in name for name in shown)
    fleet[0].write("edited", b"first")
    fleet.meet()
    for device in (fleet[0], fleet[1]):
        device.write("edited", b"by " + device.name.encode())
    fleet.meet()
    edited = [name for name in fleet[0].names() if name.startswith("edited")]
    assert len(edited) == 2
    assert [state(rig, fleet[0].at(name)) for name in edited] == ["conflict", "conflict"]


def test_what_has_which_attribute(rig: Rig) -> None:
    residency = rig.reading.residency
    rig.mkdir(b"folder")
    folder = rig.find(b"folder")
    assert residency.attribute(rig.tx, folder, PINNED_XATTR) == b"no"
    with fails_with(errno.ENODATA):
        residency.attribute(rig.tx, folder, STATE_XATTR)
    link = rig.fs.make(rig.tx, ROOT_INO, b"link", 0o120777, 1, 1, target=b"x")
    for name in (STATE_XATTR, PINNED_XATTR):
        with fails_with(errno.ENODATA):
            residency.attribute(rig.tx, link, name)
        with fails_with(errno.EPERM):
            residency.refuse_change(name)
    assert residency.attribute(rig.tx, folder, b"user.other") is None
    residency.refuse_change(b"user.other")
    rig.fs.pins.add(rig.tx, folder)
    assert residency.attribute(rig.tx, folder, PINNED_XATTR) == b"yes"
    assert residency.attribute(rig.tx, rig.make(b"in", parent=folder.ino), PINNED_XATTR) == b"inherited"
    assert rig.fs.attributes.list_xattrs(rig.tx, folder) == []
