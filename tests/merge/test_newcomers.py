"""Thousands of nodes that arrive at once: shown as if they had come one by one."""

from __future__ import annotations

import stat
from collections.abc import Iterator

import pytest

from hybrisfs.state.schema import ROOT_INO
from tests.merge.fleet import Fleet
from tests.surroundings import limited
from tests.tree.rig import SMALL_BLOCKS, small_chunks
from tests.tree.unlocked import unlocked

FOLDERS = 6
FILES = 110  # in each folder: more than one query asks about


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """Ada has signed a large tree, bob a smaller one with some of her names; neither knows of the other."""
    fleet = Fleet(5, environment=lambda _: limited(small_chunks(), SMALL_BLOCKS))
    ada, bob = fleet[0], fleet[1]
    for number in range(FOLDERS):
        folder = "/".join(f"deep {level}" for level in range(number + 1))
        ada.mkdir(folder)
        for file in range(FILES):
            ada.write(f"{folder}/{file}", b"%d" % (file % 7))
    ada.write("long", b"a list of many chunks" * 2000)
    ada.write("empty", b"")
    ada.link("long", "deep 0/linked")
    fs = ada.rig.fs
    fs.attributes.set_xattr(unlocked(fs), ada.at("empty"), b"user.colour", b"blue", 0)
    fs.make(unlocked(fs), ROOT_INO, b"symlink", stat.S_IFLNK | 0o777, 1, 1, target=b"deep 0")
    ada.sign()
    for name in ("deep 0/3", "deep 0/4"):
        ada.remove(name)
    ada.move("deep 0/5", "moved")
    bob.mkdir("deep 0")
    bob.write("deep 0/7", b"of bob")
    bob.write("deep 0/8", b"1")  # like ada's
    bob.write("empty", b"not so empty")
    fleet.sign()
    yield fleet
    fleet.discard()


def test_at_once_is_like_one_by_one(fleet: Fleet) -> None:
    log = [*fleet[0].log(), *fleet[1].log()]
    cyd, dan = fleet[2], fleet[3]
    cyd.receive(log)
    for update in log:
        dan.receive([update])
    assert cyd.tree() == dan.tree()
    facts = [
        {
            path: (inode.id, inode.mode, inode.size, inode.mtime, inode.nlink, inode.target, inode.stored)
            for path, inode in device.walk().items()
        }
        for device in (cyd, dan)
    ]
    assert facts[0] == facts[1]
    totals = [(one.rig.fs.total_files, one.rig.fs.content.total_bytes) for one in (cyd, dan)]
    assert totals[0] == totals[1]


def test_what_arrives_is_what_was_made(fleet: Fleet) -> None:
    ada, eve = fleet[0], fleet[4]
    eve.receive(ada.log())
    assert eve.tree() == ada.tree()
    fs = eve.rig.fs
    assert fs.attributes.get_xattr(unlocked(fs), eve.at("empty"), b"user.colour") == b"blue"
    assert (fs.total_files, fs.content.total_bytes) == (
        ada.rig.fs.total_files,
        ada.rig.fs.content.total_bytes,
    )
