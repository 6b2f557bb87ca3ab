"""Versions that no cloud has, when there is no room left for them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hybrisfs.state.schema import ROOT_INO
from hybrisfs.versions.contents import forget_lost
from tests.tree.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.tx.chunks.dropped.listen(forget_lost)
    yield rig
    rig.abandon()


def contents(rig: Rig) -> int:
    """How many contents are kept as versions, of files that are there and of removed ones."""
    (past,) = rig.db.rows.execute("SELECT count(*) FROM past WHERE key >= x'63' AND key < x'64'").fetchone()
    (removed,) = rig.db.rows.execute("SELECT count(*) FROM removal").fetchone()
    return int(past + removed)


def change(rig: Rig, name: bytes, content: bytes) -> None:
    inode = rig.find(name)
    handle = rig.fs.open(rig.tx, inode.ino, os.O_WRONLY | os.O_TRUNC)
    rig.fs.write(rig.tx, inode, 0, content)
    rig.fs.release(rig.tx, handle)
    assert rig.publish(everything=True)


def test_what_cannot_be_read_is_not_called_kept(rig: Rig) -> None:
    rig.make(b"file", b"on the clouds")
    rig.make(b"other", b"on the clouds as well")
    assert rig.publish(everything=True)
    rig.pack()
    change(rig, b"file", b"on no cloud")
    change(rig, b"file", b"now")
    rig.make(b"third", b"on no cloud either")
    assert rig.publish(everything=True)
    for name in (b"other", b"third"):
        rig.fs.unlink(rig.tx, ROOT_INO, name)
    assert rig.publish(everything=True)
    assert contents(rig) == 4
    rig.tx.chunks.soon_named.clear()
    rig.tx.chunks.drop_unwanted()
    assert contents(rig) == 2
    rig.pack()
    rig.tx.chunks.drop_unwanted()
    assert contents(rig) == 2
