"""Small reads of large chunks check the pieces that they touch."""

from __future__ import annotations

import errno
from random import Random
from unittest import mock

import pytest

from hybrisfs.state.pieces import PIECE
from hybrisfs.tree.content import Missing
from hybrisfs.tree.inodes import Inode
from tests.state.test_chunks import spoil
from tests.tree.rig import Rig

CONTENT = Random(1).randbytes(20 * PIECE + 777)
ROTTEN = len(CONTENT) // 2  # where `spoil` alters a byte


def small(rig: Rig, inode: Inode, offset: int, size: int = 4096) -> bytes | Missing:
    return rig.fs.read(rig.tx, inode, offset, size)


def begun_again(rig: Rig, *, packed: bool = True) -> tuple[Rig, Inode]:
    """A new life, in which nothing has been checked yet."""
    rig.make(b"file", CONTENT)
    rig.publish()
    if packed:
        rig.pack()
    rig = rig.reopen()
    return rig, rig.find(b"file")


def hashes(rig: Rig) -> list[bytes]:
    return [bytes(row[0]) for row in rig.db.rows.execute("SELECT hashes FROM piece")]


def test_a_small_read_reads_no_more_than_its_pieces(rig: Rig) -> None:
    rig, inode = begun_again(rig)
    with mock.patch.object(rig.journal, "read", wraps=rig.journal.read) as read:
        assert small(rig, inode, PIECE - 96) == CONTENT[PIECE - 96 : PIECE + 4000]
        assert small(rig, inode, 100) == CONTENT[100:4196]
        assert small(rig, inode, 20 * PIECE, 1000) == CONTENT[20 * PIECE :]
    assert [call.args[2] for call in read.call_args_list] == [2 * PIECE, 4096, 777]
    rig.discard()


def test_random_reads_of_all_sizes(rig: Rig) -> None:
    rig, inode = begun_again(rig)
    random = Random(2)
    for _ in range(300):
        offset = random.randrange(len(CONTENT))
        size = random.choice((1, 100, 4096, PIECE, 3 * PIECE, len(CONTENT)))
        assert small(rig, inode, offset, size) == CONTENT[offset : offset + size]
    assert not rig.clouds.gets
    rig.discard()


def test_a_rotten_piece_is_found_when_it_is_read(rig: Rig) -> None:
    rig, inode = begun_again(rig)
    spoil(rig, CONTENT)
    assert small(rig, inode, 0) == CONTENT[:4096]
    assert isinstance(small(rig, inode, ROTTEN - 10), Missing)
    assert rig.read(inode) == CONTENT
    assert len(rig.clouds.gets) == 1
    rig = rig.reopen()
    inode = rig.find(b"file")
    assert small(rig, inode, ROTTEN) == CONTENT[ROTTEN : ROTTEN + 4096]
    rig.discard()


def test_a_rotten_piece_that_no_cloud_has_is_an_error(rig: Rig) -> None:
    rig, inode = begun_again(rig, packed=False)
    spoil(rig, CONTENT)
    assert small(rig, inode, 0) == CONTENT[:4096]
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            small(rig, inode, ROTTEN - 10)
        assert caught.value.errno == errno.EIO
    rig.discard()


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM piece",
        "UPDATE piece SET hashes = zeroblob(length(hashes))",
        "UPDATE piece SET hashes = substr(hashes, 1, 8)",
    ],
)
def test_hashes_that_lack_or_are_wrong_are_made_again(rig: Rig, change: str) -> None:
    rig, inode = begun_again(rig)
    before = hashes(rig)
    rig.db.rows.execute(change)
    assert small(rig, inode, PIECE) == CONTENT[PIECE : PIECE + 4096]
    assert hashes(rig) == before
    assert not rig.clouds.gets
    rig.discard()


def test_hashes_go_with_the_bytes(rig: Rig) -> None:
    inode = rig.make(b"file", CONTENT)
    rig.make(b"tiny", CONTENT[:PIECE])
    rig.publish()
    rig.pack()
    before = hashes(rig)
    assert len(before) == 1
    rig.room.drop_all()
    assert hashes(rig) == []
    assert rig.read(inode) == CONTENT
    rig = rig.reopen()
    assert rig.read(rig.find(b"file")) == CONTENT
    assert hashes(rig) == before
    rig.discard()


def test_hashes_go_with_a_chunk_that_nothing_needs(rig: Rig) -> None:
    inode = rig.make(b"file", CONTENT)
    rig.publish()
    assert len(hashes(rig)) == 1
    rig.fs.truncate(rig.tx, inode, 0)
    rig.publish()
    rig.tx.chunks.soon_named.clear()
    rig.tx.chunks.drop_unwanted()
    assert rig.db.rows.execute("SELECT count(*) FROM chunk").fetchone() == (0,)
    assert hashes(rig) == []


@pytest.mark.parametrize("way", ["fetched", "written"])
def test_bytes_that_come_again_elsewhere_are_checked_again(rig: Rig, way: str) -> None:
    """What was sound in the old place says nothing of the new one."""
    rig, inode = begun_again(rig)
    assert small(rig, inode, ROTTEN) == CONTENT[ROTTEN : ROTTEN + 4096]
    rig.room.drop_all()
    if way == "fetched":
        rig.read(inode)
    else:
        rig.make(b"copy", CONTENT)
        rig.publish()
    spoil(rig, CONTENT)
    rig.tx.chunks._recent.clear()
    assert isinstance(small(rig, inode, ROTTEN - 10), Missing)
    rig.discard()
