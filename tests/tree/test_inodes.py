"""Inodes in memory: one node is one object, whatever is dropped and read again."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hybrisfs.environment import Environment, Limits
from hybrisfs.registers.tree import Place, place_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import InodeLimits
from hybrisfs.write.cut import FileSnapshot
from tests.tree.replay import Reader
from tests.tree.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    """It keeps few inodes in memory."""
    one = Rig(environment=Environment(limits=Limits(InodeLimits(most_loaded=4))))
    yield one
    one.discard()


def test_an_operation_never_meets_two_objects_of_one_node(rig: Rig) -> None:
    """A link that is counted in an object which memory has dropped is lost, and with it one day the file."""
    folder = rig.mkdir(b"folder")
    inode = rig.make(b"precious", b"content")
    for number in range(8):
        rig.make(b"other %d" % number)
    rig.commit()
    rig.fs.inodes._loaded.clear()
    for name in (b"precious", b"other 0", b"other 1", b"other 2"):
        rig.find(name)
    rig.fs.link(rig.tx, inode.ino, folder, b"second name")
    rig.fs.unlink(rig.tx, ROOT_INO, b"precious")
    rig.commit()
    rig = rig.reopen()
    assert rig.read(rig.find(b"second name", folder)) == b"content"
    rig.discard()


def test_many_inodes_do_not_stay(rig: Rig) -> None:
    for number in range(40):
        rig.make(b"%d" % number)
    rig.commit()
    rig.fs.inodes.most_loaded = 16
    for number in range(40):
        rig.find(b"%d" % number)
    assert len(rig.fs.inodes._loaded) <= 16


def test_open_and_changed_inodes_stay(rig: Rig) -> None:
    for number in range(20):
        rig.make(b"%d" % number)
    rig.commit()
    handle = rig.fs.open(rig.tx, rig.find(b"3").ino, os.O_RDWR)
    inode = rig.fs.handle(handle)
    changed = rig.find(b"4")
    rig.fs.attributes.change(rig.tx, changed, mode=0o600)
    for number in range(20):
        rig.find(b"%d" % number)
    assert rig.find(b"3") is inode
    assert rig.find(b"4") is changed


def test_a_file_that_is_being_chunked_stays(rig: Rig) -> None:
    """The publisher would otherwise write an object over what programs change in another one."""
    rig.make(b"file", b"old")
    for number in range(20):
        rig.make(b"%d" % number)
    rig.commit()

    def go_on(_: FileSnapshot) -> None:
        for number in range(20):
            rig.find(b"%d" % number)
        handle = rig.fs.open(rig.tx, rig.find(b"file").ino, os.O_RDWR)
        rig.fs.write(rig.tx, rig.fs.handle(handle), 3, b" and new")
        rig.fs.release(rig.tx, handle)

    rig.chunker.before = go_on
    rig.publish()
    rig.commit()
    rig = rig.reopen()
    assert rig.read(rig.find(b"file")).startswith(b"old and new")
    rig.discard()


def test_the_number_of_a_removed_node_is_not_used_while_its_name_is_to_be_withdrawn(rig: Rig) -> None:
    """After a restart the new node would be announced in place of the removed one's tombstone."""
    doomed = rig.make(b"doomed", b"x")
    rig.publish()
    rig.fs.unlink(rig.tx, ROOT_INO, b"doomed")
    rig = rig.reopen()
    rig.make(b"new", b"y")
    rig.publish()
    reader = Reader()
    reader.catch_up(rig.db)
    withdrawn = reader.registers[place_key(doomed.id, 0)]
    assert withdrawn is not None and Place.decode(withdrawn).removed
    assert set(reader.tree()) == {(b"new",)}
    rig.discard()
