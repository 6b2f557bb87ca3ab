"""Chunks on this disk: sound, rotten, revived."""

from __future__ import annotations

import errno

import pytest

from hybrisfs.registers.tree import PackedChunk
from hybrisfs.state.chunk_states import CutRow
from hybrisfs.state.packs import lost_packs
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from tests.tree.rig import SEALER, Rig

CONTENT = bytes(range(256)) * 40


def spoil(rig: Rig, content: bytes = CONTENT) -> int:
    """Let the disk alter a byte of the chunk that holds *content*; the chunk's number."""
    number, segment, position = rig.db.rows.execute(
        "SELECT number, segment, position FROM chunk WHERE id = ?", (SEALER.chunk_id(content),)
    ).fetchone()
    path = rig.journal.directory / f"{segment:08d}.segment"
    data = bytearray(path.read_bytes())
    data[position + len(content) // 2] ^= 1
    path.write_bytes(data)
    return int(number)


def published(rig: Rig, name: bytes = b"file") -> Inode:
    inode = rig.make(name, CONTENT)
    rig.publish()
    return inode


def test_a_rotten_chunk_is_fetched_when_the_clouds_have_it(rig: Rig) -> None:
    inode = published(rig)
    rig.pack()
    spoil(rig)
    assert rig.read(inode) == CONTENT
    assert len(rig.clouds.gets) == 1
    assert rig.read(inode) == CONTENT
    assert len(rig.clouds.gets) == 1  # it is here again


def test_a_rotten_chunk_that_no_cloud_has_is_an_error_and_nothing_else(rig: Rig) -> None:
    inode = published(rig)
    other = rig.make(b"other", b"sound")
    rig.publish()
    spoil(rig)
    with pytest.raises(OSError) as caught:
        rig.read(inode)
    assert caught.value.errno == errno.EIO
    assert rig.read(other) == b"sound"


def test_writing_lost_content_once_more_brings_it_back(rig: Rig) -> None:
    """Deduplication must not point the new file at the rotten bytes."""
    inode = published(rig)
    spoil(rig)
    again = published(rig, b"again")
    assert rig.read(again) == CONTENT
    assert rig.read(inode) == CONTENT
    rig.pack()
    rig.room.drop_all()
    assert rig.read(inode) == CONTENT


def test_a_lost_segment_is_found_out(rig: Rig) -> None:
    inode = published(rig)
    rig.pack()
    rig.commit()
    for path in rig.journal.directory.iterdir():
        path.unlink()
    rig = rig.reopen()
    rig.make(b"new", b"other bytes" * 1000)  # must not be taken for the old ones
    rig.publish()
    assert rig.read(rig.find(b"file")) == CONTENT
    assert rig.read(rig.find(b"new")) == b"other bytes" * 1000
    assert inode.size == len(CONTENT)
    rig.discard()


def test_staged_bytes_of_a_lost_journal_are_an_error_never_other_bytes(rig: Rig) -> None:
    rig.make(b"file", CONTENT)
    rig.commit()
    for path in rig.journal.directory.iterdir():
        path.unlink()
    rig = rig.reopen()
    rig.make(b"new", b"x" * 3 * len(CONTENT))
    with pytest.raises(OSError) as caught:
        rig.read(rig.find(b"file"))
    assert caught.value.errno == errno.EIO
    rig.discard()


def test_equal_content_is_stored_once(rig: Rig) -> None:
    published(rig, b"one")
    published(rig, b"two")
    assert rig.db.rows.execute("SELECT count(*) FROM chunk").fetchone() == (1,)
    rig.fs.unlink(rig.tx, ROOT_INO, b"one")
    rig.pack()
    rig.room.drop_all()
    assert rig.read(rig.find(b"two")) == CONTENT


def test_the_number_of_a_dropped_chunk_names_no_other(rig: Rig) -> None:
    """An upload that is under way would otherwise be booked for a chunk that it does not hold."""

    def add(content: bytes) -> int:
        return rig.tx.chunks.add(CutRow(SEALER.chunk_id(content), 4, *rig.journal.append(content)))

    first = add(b"gone")
    rig.tx.chunks.soon_named.clear()
    rig.tx.chunks.drop_unwanted()
    assert add(b"next") > first
    rig.tx.chunks.packed(first, 1, 0, 10)
    assert rig.unpacked() == 1


def _heard_over_a_link(rig: Rig) -> int:
    """The number of a chunk of another device that is here, and of which no cloud is known to have it."""
    identity = SEALER.chunk_id(b"linked")
    (number,) = rig.tx.chunks.known({identity: 6}).values()
    rig.tx.chunks.keep(number, b"linked")
    return number


def _claimed(rig: Rig, pack: int, *, by_author: bool) -> None:
    said = [(pack, [PackedChunk(SEALER.chunk_id(b"linked"), 0, 9, 6)])]
    rig.tx.chunks.packed_elsewhere(said, vouched=lambda numbers: numbers if by_author else ())


def test_a_claim_loses_nothing_and_tells_of_no_loss(rig: Rig) -> None:
    number = _heard_over_a_link(rig)
    rig.db.rows.execute("INSERT INTO pack (number, id, k, n, placement) VALUES (1, x'6f', 1, 1, x'00')")
    _claimed(rig, 1, by_author=False)
    assert not rig.tx.chunks.is_on_clouds(number)
    assert lost_packs(rig.db.rows) == {}


def test_of_what_the_clouds_had_lost_nobody_is_believed_without_a_look(rig: Rig) -> None:
    number = _heard_over_a_link(rig)
    _claimed(rig, 1, by_author=True)
    rig.db.rows.execute("INSERT INTO pack (number, id, k, n, placement) VALUES (1, x'6f', 1, 1, x'00')")
    rig.tx.chunks.set_aside(1)
    _claimed(rig, 2, by_author=True)
    assert not rig.tx.chunks.is_on_clouds(number)
    assert lost_packs(rig.db.rows) == {1: b"o"}
