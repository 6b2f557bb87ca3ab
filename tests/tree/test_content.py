"""Content: limits, holes, errors that leave nothing behind, and files that are gone but open."""

from __future__ import annotations

import errno
import os

import pytest

from hybrisfs.registers.tree import MAX_FILE_SIZE
from hybrisfs.state.journal import JournalFullError
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from tests.tree.invariants import check_accounts
from tests.tree.rig import Rig
from tests.tree.test_names import fails_with

KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE, COLLAPSE = 1, 2, 16, 8


def opened(rig: Rig, name: bytes, content: bytes = b"") -> tuple[Inode, int]:
    inode = rig.make(name, content)
    return inode, rig.fs.open(rig.tx, inode.ino, os.O_RDWR)


def test_the_largest_file(rig: Rig) -> None:
    inode, _ = opened(rig, b"file")
    rig.fs.write(rig.tx, inode, MAX_FILE_SIZE - 3, b"end")
    assert rig.read(inode, MAX_FILE_SIZE - 4, 10) == b"\0end"
    for change in (
        lambda: rig.fs.write(rig.tx, inode, MAX_FILE_SIZE - 2, b"end"),
        lambda: rig.fs.truncate(rig.tx, inode, MAX_FILE_SIZE + 1),
        lambda: rig.fs.allocate(rig.tx, inode, 0, MAX_FILE_SIZE, 1),
    ):
        with fails_with(errno.EFBIG):
            change()
    assert rig.publish(everything=True)
    assert rig.read(inode, MAX_FILE_SIZE - 4, 10) == b"\0end"


@pytest.mark.parametrize("mode", [PUNCH_HOLE, COLLAPSE, COLLAPSE | KEEP_SIZE, 64])
def test_fallocate_modes_that_do_not_exist_here(rig: Rig, mode: int) -> None:
    inode, _ = opened(rig, b"file", b"content")
    with fails_with(errno.EOPNOTSUPP):
        rig.fs.allocate(rig.tx, inode, mode, 0, 4)
    with fails_with(errno.EINVAL):
        rig.fs.allocate(rig.tx, inode, 0, 0, 0)
    assert rig.read(inode) == b"content"


def test_fallocate_promises_no_more_than_the_disk_has(rig: Rig) -> None:
    inode, _ = opened(rig, b"file", b"content")
    rig.journal.free = 1 << 20
    with fails_with(errno.ENOSPC):
        rig.fs.allocate(rig.tx, inode, 0, 0, (1 << 20) + 1)
    rig.fs.allocate(rig.tx, inode, 0, 0, 1 << 20)
    rig.fs.allocate(rig.tx, inode, PUNCH_HOLE | KEEP_SIZE, 0, 1 << 30)
    assert rig.read(inode) == bytes(1 << 20)


@pytest.mark.parametrize("whence, at", [(os.SEEK_DATA, 7), (os.SEEK_HOLE, 7), (os.SEEK_DATA, -1)])
def test_seeking_beyond_the_end(rig: Rig, whence: int, at: int) -> None:
    inode, _ = opened(rig, b"file", b"content")
    with fails_with(errno.ENXIO):
        rig.fs.content.seek(rig.tx, inode, at, whence)


def test_seeking_for_data_in_a_hole_at_the_end(rig: Rig) -> None:
    inode, _ = opened(rig, b"file", b"content")
    rig.fs.truncate(rig.tx, inode, 10_000)
    assert rig.fs.content.seek(rig.tx, inode, 0, os.SEEK_HOLE) == 4096
    with fails_with(errno.ENXIO):
        rig.fs.content.seek(rig.tx, inode, 4096, os.SEEK_DATA)
    with fails_with(errno.EINVAL):
        rig.fs.content.seek(rig.tx, inode, 0, os.SEEK_CUR)


@pytest.mark.parametrize(
    ("at", "data", "hole"),
    [(0, 8192, 0), (8191, 8192, 8191), (8192, 8192, 16384), (9000, 9000, 16384), (12_300, 12_300, 16384)],
)
def test_data_fills_whole_blocks(rig: Rig, at: int, data: int, hole: int) -> None:
    """Programs that look for the block size of a filesystem by seeking find that of stat(2)."""
    inode, _ = opened(rig, b"file")
    for offset in (10_000, 12_288):
        rig.fs.write(rig.tx, inode, offset, b"some")
    rig.fs.truncate(rig.tx, inode, 50_000)
    assert rig.fs.content.seek(rig.tx, inode, at, os.SEEK_DATA) == data
    assert rig.fs.content.seek(rig.tx, inode, at, os.SEEK_HOLE) == hole


def test_a_write_that_does_not_fit_changes_nothing(rig: Rig) -> None:
    inode, _ = opened(rig, b"file", b"content")
    rig.commit()
    before = inode.row()
    rig.journal.budget = rig.journal.bytes + 10
    with pytest.raises(JournalFullError):
        rig.fs.write(rig.tx, inode, 100, bytes(11))
    assert inode.row() == before
    assert rig.read(inode) == b"content"
    assert not rig.fs.is_uncommitted(rig.tx)
    check_accounts(rig, [])


def test_a_file_that_is_gone_cannot_be_opened_and_taken_for_an_empty_one(rig: Rig) -> None:
    """The kernel may have found it just before; told so, it looks its name up again."""
    inode = rig.make(b"file", b"content")
    rig.fs.unlink(rig.tx, ROOT_INO, b"file")
    with fails_with(errno.ESTALE):
        rig.fs.open(rig.tx, inode.ino, os.O_RDONLY)
    check_accounts(rig, [])


def test_an_unlinked_file_lives_until_it_is_closed(rig: Rig) -> None:
    inode, handle = opened(rig, b"file", b"content")
    rig.fs.unlink(rig.tx, ROOT_INO, b"file")
    rig.fs.write(rig.tx, inode, 7, b" goes on")
    rig.commit()
    assert rig.read(inode) == b"content goes on"
    assert (rig.fs.total_files, rig.fs.content.total_bytes) == (0, 15)
    check_accounts(rig, [])
    rig.fs.release(rig.tx, handle)
    rig.fs.forget(rig.tx, inode.ino)
    check_accounts(rig, [])
    assert rig.fs.content.total_bytes == 0
    assert not +rig.journal.dirty_pieces


def test_a_file_that_was_looked_up_can_still_be_opened_when_its_name_goes(rig: Rig) -> None:
    """Twice ESTALE for one open(2), as when a file is replaced again and again, and the program sees it."""
    inode = rig.make(b"file", b"content")
    inode.looked_up = True
    rig.fs.unlink(rig.tx, ROOT_INO, b"file")
    rig.commit()
    handle = rig.fs.open(rig.tx, inode.ino, os.O_RDONLY)
    rig.commit()
    rig.commit()
    assert rig.read(inode) == b"content"
    check_accounts(rig, [])
    rig.fs.release(rig.tx, handle)
    rig.fs.forget(rig.tx, inode.ino)
    check_accounts(rig, [])
    assert rig.fs.content.total_bytes == 0
    assert not +rig.journal.dirty_pieces


def test_what_the_kernel_does_not_forget_goes_with_the_second_commit(rig: Rig) -> None:
    for name in (b"file", b"made and removed at once"):
        inode = rig.make(name, b"content")
        inode.looked_up = True
        rig.fs.unlink(rig.tx, ROOT_INO, name)
        rig.commit()
    assert rig.fs.content.total_bytes == len(b"content")  # of the second one
    rig = rig.crashed()
    check_accounts(rig, [])
    assert rig.fs.content.total_bytes == 0
    assert not +rig.journal.dirty_pieces
    rig.abandon()


def test_opening_truncates_also_who_only_reads(rig: Rig) -> None:
    inode = rig.make(b"file", b"content")
    rig.fs.open(rig.tx, inode.ino, os.O_RDONLY | os.O_TRUNC)
    assert inode.size == 0


def test_what_was_open_without_a_name_is_gone_after_a_crash(rig: Rig) -> None:
    inode, _ = opened(rig, b"file", b"content")
    rig.fs.attributes.set_xattr(rig.tx, inode, b"user.a", b"b", 0)
    rig.fs.unlink(rig.tx, ROOT_INO, b"file")
    rig.commit()
    rig = rig.crashed()
    check_accounts(rig, [])
    assert (rig.fs.total_files, rig.fs.content.total_bytes) == (0, 0)
    for table in ("extent", "xattr", "orphan"):
        assert not rig.db.rows.execute(f"SELECT * FROM {table}").fetchall()
    assert not +rig.journal.dirty_pieces
    rig.abandon()


def test_a_file_made_and_unlinked_between_two_commits(rig: Rig) -> None:
    inode, handle = opened(rig, b"file", b"content")
    rig.fs.unlink(rig.tx, ROOT_INO, b"file")
    rig = rig.crashed()
    check_accounts(rig, [])
    assert rig.fs.lookup(rig.tx, ROOT_INO, b"file") is None
    assert inode.orphan and handle
    rig.abandon()


def test_blocks_count_what_is_stored(rig: Rig) -> None:
    inode, handle = opened(rig, b"file")
    rig.fs.write(rig.tx, inode, 1 << 20, bytes(range(256)) * 16)
    assert inode.blocks == 8
    rig.fs.release(rig.tx, handle)
    rig.publish()
    assert inode.blocks == -(-((1 << 20) + 4096 - (1 << 20)) // 512)
    rig.fs.truncate(rig.tx, inode, 1 << 30)
    assert inode.blocks == 8


def test_overwriting_never_alters_a_chunk_that_was_cut_from_the_same_bytes(rig: Rig) -> None:
    """A file is cut while it is cut shorter, so it stays staged; its chunks exist nevertheless."""
    inode, handle = opened(rig, b"file", b"content of a chunk")
    rig.make(b"twin", b"content of a chunk")
    rig.fs.release(rig.tx, handle)

    def cut_short() -> None:
        rig.namer.before = lambda: None
        rig.fs.truncate(rig.tx, inode, 10)
        rig.fs.truncate(rig.tx, inode, 18)

    rig.namer.before = cut_short
    rig.publish()
    rig = rig.reopen()
    handle = rig.fs.open(rig.tx, rig.find(b"file").ino, os.O_RDWR)
    rig.fs.write(rig.tx, rig.fs.handle(handle), 0, b"C")
    assert rig.read(rig.find(b"twin")) == b"content of a chunk"
    assert rig.read(rig.find(b"file")) == b"Content of" + bytes(8)
    rig.discard()
