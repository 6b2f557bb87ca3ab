"""Rounds of the publisher: what is cut together, what is held back, and what failures do not stop."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Any

import pytest

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.registers.tree import attr_key, content_key, place_key
from hybrisfs.registers.values import Stamp
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from hybrisfs.write.cut import CutLimits, FileSnapshot
from hybrisfs.write.layout import ChunkLimits
from sync import MAX_UPDATE
from tests.tree.invariants import check_accounts, check_published
from tests.tree.replay import Reader
from tests.tree.rig import DEVICE, Rig
from tests.write.others import Others


@pytest.fixture
def others(rig: Rig) -> Others:
    return Others(rig)


def _once_for(rig: Rig, name: bytes, action: Callable[[], object]) -> Callable[[FileSnapshot], None]:
    ino, todo = rig.find(name).ino, [action]

    def act(snapshot: FileSnapshot) -> None:
        if snapshot.inode.ino == ino and todo:
            todo.pop()()

    return act


def before_chunking(rig: Rig, name: bytes, action: Callable[[], object]) -> None:
    """Run *action* once, when the file *name* of a cut is about to be cut into chunks."""
    rig.chunker.before = _once_for(rig, name, action)


def before_signing(rig: Rig, name: bytes, action: Callable[[], object]) -> None:
    """Run *action* once, when the file *name*, the last of a cut, has been cut into chunks."""
    rig.chunker.after = _once_for(rig, name, action)


def failing(rig: Rig, name: bytes, error: Exception | None) -> None:
    """The bytes of the file *name* cannot be had, or can again."""
    ino = rig.find(name).ino

    def fail(snapshot: FileSnapshot) -> None:
        if error is not None and snapshot.inode.ino == ino:
            raise error

    rig.chunker.before = fail


def patience_over(rig: Rig) -> None:
    rig.publisher._postponed.clear()


def write(rig: Rig, name: bytes, data: bytes, offset: int = 0) -> None:
    handle = rig.fs.open(rig.tx, rig.find(name).ino, os.O_RDWR)
    rig.fs.write(rig.tx, rig.fs.handle(handle), offset, data)
    rig.fs.release(rig.tx, handle)


def opened(rig: Rig, name: bytes, data: bytes) -> tuple[Inode, int]:
    inode, handle = rig.fs.create(rig.tx, ROOT_INO, name, 0o644, 1, 1, os.O_RDWR)
    rig.fs.write(rig.tx, inode, 0, data)
    return inode, handle


# -- what is cut together -------------------------------------------------------------------------


def test_a_round_with_nothing_to_say_signs_nothing(rig: Rig) -> None:
    assert rig.publish()
    assert not rig.publish()


def test_a_rename_over_a_file_comes_with_the_bytes(rig: Rig, others: Others) -> None:
    rig.make(b"file", b"old")
    rig.publish()
    rig.make(b"file.tmp", b"new")
    rig.fs.rename(rig.tx, ROOT_INO, b"file.tmp", ROOT_INO, b"file", 0)
    rig.publish()
    assert others() == {b"file": b"new"}
    assert len(others.reader.nodes) == 3  # the root, the old and the new; no name but one


def test_what_lives_and_dies_between_two_cuts_is_never_heard_of(rig: Rig) -> None:
    rig.publish()
    inode = rig.make(b"file", b"content")
    rig.fs.unlink(rig.tx, ROOT_INO, b"file")
    rig.publish()
    reader = Reader()
    reader.catch_up(rig.db)
    assert not any(inode.id in key for key in reader.registers)


def test_what_is_written_during_a_round_belongs_to_the_next(rig: Rig, others: Others) -> None:
    rig.make(b"one", b"first")
    rig.make(b"two", b"first")

    def write_both() -> None:
        for name in (b"one", b"two"):
            write(rig, name, b"later")

    before_chunking(rig, b"one", write_both)
    rig.publish()
    assert others() == {b"one": b"first", b"two": b"first"}
    assert rig.read(rig.find(b"two")) == b"later"
    rig.publish()
    assert others() == {b"one": b"later", b"two": b"later"}


@pytest.mark.parametrize("size", [0, 2, 900])
def test_a_truncation_during_a_round_is_not_undone(rig: Rig, others: Others, size: int) -> None:
    rig.make(b"file", b"x" * 100)
    before_chunking(rig, b"file", lambda: rig.fs.truncate(rig.tx, rig.find(b"file"), size))
    rig.publish()
    assert others() == {b"file": b"x" * 100}
    assert rig.read(rig.find(b"file")) == (b"x" * 100)[:size] + bytes(max(size - 100, 0))
    check_accounts(rig, [])
    rig.publish()
    assert others()[b"file"] == rig.read(rig.find(b"file"))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("when", [before_chunking, before_signing])
def test_a_file_saved_twice_is_never_missing(
    rig: Rig, others: Others, known: bool, when: Callable[..., Any]
) -> None:
    """An editor renames a new version over the file, and another one while the first is being published."""
    rig.make(b"file", b"first")
    if known:
        rig.make(b"tmp", b"other")
    rig.publish()
    if not known:
        rig.make(b"tmp")
    write(rig, b"tmp", b"second")
    rig.fs.rename(rig.tx, ROOT_INO, b"tmp", ROOT_INO, b"file", 0)

    def save_again() -> None:
        rig.make(b"tmp", b"third")
        rig.fs.rename(rig.tx, ROOT_INO, b"tmp", ROOT_INO, b"file", 0)

    when(rig, b"file", save_again)
    rig.publish()
    assert rig.read(rig.find(b"file")) == b"third"
    assert others().get(b"file") in (b"first", b"second")
    rig.publish()
    assert others() == {b"file": b"third"}
    check_published(rig, others.reader)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("when", [before_chunking, before_signing])
def test_a_file_removed_during_a_round_is_withdrawn(
    rig: Rig, others: Others, known: bool, when: Callable[..., Any]
) -> None:
    rig.make(b"file", b"content")
    if known:
        rig.publish()
        write(rig, b"file", b"changed")
        rig.fs.rename(rig.tx, ROOT_INO, b"file", ROOT_INO, b"renamed", 0)
    name = b"renamed" if known else b"file"

    def remove() -> None:
        rig.fs.unlink(rig.tx, ROOT_INO, name)

    when(rig, name, remove)
    rig.publish()
    assert rig.fs.lookup(rig.tx, ROOT_INO, name) is None
    assert others() in ({}, {name: b"changed" if known else b"content"})
    rig.publish()
    assert others() == {}
    check_published(rig, others.reader)


def test_a_node_made_and_removed_in_one_round_after_another_leaves_no_name(rig: Rig, others: Others) -> None:
    for _ in range(3):
        rig.make(b"file", b"content")
        before_signing(rig, b"file", lambda: rig.fs.unlink(rig.tx, ROOT_INO, b"file"))
        rig.publish()
        assert rig.fs.lookup(rig.tx, ROOT_INO, b"file") is None
    rig.publish()
    assert others() == {}


def test_a_full_cut_never_takes_a_name_without_its_bytes(rig: Rig, others: Others) -> None:
    """Copying a large tree makes more changes at once than one update holds."""
    rig.publisher.limits = CutLimits(most_registers=10)
    rig.publish()
    for number in range(20):
        rig.make(b"%d" % number, b"content %d" % number)
    rounds = 0
    while rig.publish():
        rounds += 1
        found = others()
        assert found == {name: b"content " + name for name in found}
    assert rounds > 3
    assert len(others()) == 20


def test_an_update_stays_within_its_largest_size(rig: Rig, others: Others) -> None:
    for number in range(70):
        inode = rig.make(b"%d" % number, b"x")
        for part in range(15):
            rig.fs.attributes.set_xattr(rig.tx, inode, b"user.%d" % part, bytes(65536), 0)
    while rig.publish():
        pass
    assert len(others()) == 70
    rows = rig.db.rows.execute("SELECT length(bytes) FROM log").fetchall()
    assert sum(size for (size,) in rows) > MAX_UPDATE
    assert max(size for (size,) in rows) < MAX_UPDATE // 2


def test_long_files_are_listed_in_pages(rig: Rig, others: Others) -> None:
    rig.chunker.limits = ChunkLimits(64, direct_runs=2, runs_per_page=3)
    content = b"".join(b"%064d" % number for number in range(20)) + b"tail"
    inode = rig.make(b"file", content)
    rig.fs.truncate(rig.tx, inode, 3000)
    rig.publish()
    assert others() == {b"file": content + bytes(3000 - len(content))}
    found = others.reader.nodes[inode.id].content
    assert found is not None and found.depth == 1


# -- what is held back ----------------------------------------------------------------------------


def test_a_file_in_the_making_is_held_back_whole(rig: Rig, others: Others) -> None:
    rig.make(b"known", b"old")
    rig.publish()
    _, new = opened(rig, b"new", b"half")
    known = rig.fs.open(rig.tx, rig.find(b"known").ino, os.O_RDWR)
    rig.fs.write(rig.tx, rig.find(b"known"), 0, b"NEW")
    rig.fs.attributes.change(rig.tx, rig.find(b"known"), mode=0o600)
    rig.publish()
    assert others() == {b"known": b"old"}
    attr = others.reader.nodes[rig.find(b"known").id].attr
    assert attr is not None and attr.mode & 0o777 == 0o644
    rig.fs.release(rig.tx, new)
    rig.fs.release(rig.tx, known)
    rig.publish()
    assert others() == {b"known": b"NEW", b"new": b"half"}


def test_a_new_file_is_not_published_before_it_is_written(rig: Rig, others: Others) -> None:
    inode, handle = rig.fs.create(rig.tx, ROOT_INO, b"new", 0o644, 0, 0, os.O_WRONLY)
    rig.publish()
    assert others() == {}
    rig.fs.write(rig.tx, inode, 0, b"content")
    rig.fs.release(rig.tx, handle)
    rig.publish()
    assert others() == {b"new": b"content"}


def test_a_new_file_that_stays_empty_is_published_when_it_is_closed(rig: Rig, others: Others) -> None:
    inode, handle = rig.fs.create(rig.tx, ROOT_INO, b"new", 0o644, 0, 0, os.O_WRONLY)
    rig.fs.release(rig.tx, handle)
    rig.publish()
    assert others() == {b"new": b""}
    assert not inode.dirty_since


def test_a_file_that_is_always_open_is_published_now_and_then(rig: Rig, others: Others) -> None:
    inode, _ = opened(rig, b"log", b"line\n")
    rig.publish()
    assert others() == {}
    rig.publisher.limits = CutLimits(hold_seconds=0.0)
    rig.publish()
    rig.publisher.limits = CutLimits()
    assert others() == {b"log": b"line\n"}
    rig.fs.write(rig.tx, inode, 5, b"more\n")
    rig.publish()
    assert others() == {b"log": b"line\n"}
    rig.publish(everything=True)
    assert others() == {b"log": b"line\nmore\n"}


@pytest.mark.parametrize("linked", [False, True])
def test_a_file_that_is_named_anew_is_not_held_back(rig: Rig, others: Others, linked: bool) -> None:
    rig.make(b"file", b"old")
    rig.publish()
    inode, _ = opened(rig, b"tmp", b"new")
    if linked:
        rig.fs.unlink(rig.tx, ROOT_INO, b"file")
        rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"file")
    else:
        rig.fs.rename(rig.tx, ROOT_INO, b"tmp", ROOT_INO, b"file", 0)
    rig.publish()
    assert others()[b"file"] == b"new"


def test_a_file_that_was_named_anew_is_not_held_back_when_it_left_memory_meanwhile(
    rig: Rig, others: Others
) -> None:
    rig.make(b"a", b"old")
    rig.publish()
    rig.fs.rename(rig.tx, ROOT_INO, b"a", ROOT_INO, b"b", 0)
    rig.fs.make(rig.tx, ROOT_INO, b"a", stat.S_IFDIR | 0o755, 0, 0)
    rig.commit()
    rig.fs.inodes.most_loaded = 4
    for number in range(8):
        rig.fs.make(rig.tx, ROOT_INO, b"%d" % number, stat.S_IFDIR | 0o755, 0, 0)
        rig.commit()
    handle = rig.fs.open(rig.tx, rig.find(b"b").ino, os.O_RDWR)
    rig.fs.write(rig.tx, rig.fs.handle(handle), 0, b"NEW")
    rig.publish()
    assert others()[b"b"] == b"NEW"
    assert not rig.find(b"b").forced
    rig.fs.release(rig.tx, handle)


def test_a_file_that_is_held_back_still_loses_its_name(rig: Rig, others: Others) -> None:
    """Else two nodes would stand under one name."""
    rig.make(b"file", b"old")
    rig.publish()
    handle = rig.fs.open(rig.tx, rig.find(b"file").ino, os.O_RDWR)
    rig.fs.write(rig.tx, rig.fs.handle(handle), 0, b"in the making")
    rig.make(b"tmp", b"new")
    rig.fs.rename(rig.tx, ROOT_INO, b"tmp", ROOT_INO, b"file", 0)
    rig.publish()
    assert others() == {b"file": b"new"}


# -- failures -------------------------------------------------------------------------------------

FAILURES = [OSError(errno.EIO, "rotten"), ChunkUnavailable("chunk", {"cloud": "down"})]


@pytest.mark.parametrize("error", FAILURES, ids=["disk", "clouds"])
def test_a_file_that_cannot_be_read_holds_up_no_other(rig: Rig, others: Others, error: Exception) -> None:
    rig.make(b"bad", b"content")
    rig.make(b"good", b"content")
    failing(rig, b"bad", error)
    rig.publish()
    assert others() == {b"good": b"content"}
    rig.make(b"later", b"content")
    rig.publish()
    assert set(others()) == {b"good", b"later"}
    failing(rig, b"bad", None)
    patience_over(rig)
    rig.publish()
    assert set(others()) == {b"bad", b"good", b"later"}
    check_published(rig, others.reader)
    check_accounts(rig, [])


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_file_whose_successor_cannot_be_read_stays(
    rig: Rig, others: Others, known: bool, is_open: bool
) -> None:
    """Others would lose the old file and get nothing for it."""
    rig.make(b"file", b"old")
    if known:
        rig.make(b"tmp", b"older")
    rig.publish()
    before = others()
    handle = 0
    if known:
        handle = rig.fs.open(rig.tx, rig.find(b"tmp").ino, os.O_RDWR)
        rig.fs.write(rig.tx, rig.find(b"tmp"), 0, b"new")
    else:
        _, handle = opened(rig, b"tmp", b"new")
    rig.fs.rename(rig.tx, ROOT_INO, b"tmp", ROOT_INO, b"file", 0)
    if not is_open:
        rig.fs.release(rig.tx, handle)
    failing(rig, b"file", OSError(errno.EIO, "rotten"))
    rig.publish()
    assert others() == before
    rig.make(b"later", b"content")
    rig.publish()
    assert others() == before | {b"later": b"content"}
    patience_over(rig)
    rig.publish()
    assert others() == before | {b"later": b"content"}
    failing(rig, b"file", None)
    patience_over(rig)
    rig.publish()
    assert others()[b"file"][:3] == b"new"
    assert set(others()) == {b"file", b"later"}
    check_published(rig, others.reader)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_file_that_is_deleted_while_its_old_bytes_are_wanted(
    rig: Rig, others: Others, elsewhere: bool
) -> None:
    rig.make(b"file", b"x" * 1000)
    rig.make(b"other", b"content")
    rig.publish()
    if elsewhere:
        rig.pack()
        rig.room.drop_all()
        rig.clouds.down = True
    write(rig, b"file", b"yz", 500)
    write(rig, b"other", b"changed")

    def delete() -> None:
        rig.fs.unlink(rig.tx, ROOT_INO, b"file")
        rig.tx.chunks.drop_unwanted()

    before_chunking(rig, b"file", delete)
    rig.publish()
    assert others()[b"other"] == b"changed"
    rig.publish()
    assert others() == {b"other": b"changed"}
    check_accounts(rig, [])


def test_a_change_of_content_that_is_elsewhere_needs_none_of_it(rig: Rig, others: Others) -> None:
    """It leaves the device while the clouds are away, and is no wider than what was written."""
    rig.chunker.limits = ChunkLimits(small=0)
    inode = rig.make(b"file", b"x" * 1000)
    rig.publish()
    rig.pack()
    rig.room.drop_all()
    rig.clouds.down = True
    write(rig, b"file", b"yz", 500)
    rig.publish()
    changed = b"x" * 500 + b"yz" + b"x" * 498
    assert others() == {b"file": changed}
    assert rig.db.rows.execute("SELECT length FROM chunk ORDER BY number").fetchall() == [(1000,), (2,)]
    rig.clouds.down = False
    assert rig.read(inode) == changed


def test_content_that_is_evicted_while_it_is_cut_is_fetched(rig: Rig, others: Others) -> None:
    rig.make(b"file", b"x" * 1000)
    rig.publish()
    rig.pack()
    write(rig, b"file", b"yz", 500)
    rig.clouds.down = True
    before_chunking(rig, b"file", lambda: rig.tx.chunks.forget([1]))
    rig.publish()
    assert others() == {b"file": b"x" * 1000}
    rig.clouds.down = False
    patience_over(rig)
    rig.publish()
    assert others() == {b"file": b"x" * 500 + b"yz" + b"x" * 498}


def test_a_journal_without_room_can_still_be_put_into_order(rig: Rig, others: Others) -> None:
    """Scattered writes are assembled in the journal: without that nothing would ever leave it again."""
    inode = rig.make(b"file")
    handle = rig.fs.open(rig.tx, inode.ino, os.O_RDWR)
    for offset in range(0, 4000, 20):
        rig.fs.write(rig.tx, inode, 4000 - offset, b"%019d " % offset)
    rig.fs.release(rig.tx, handle)
    rig.journal.budget = rig.journal.bytes
    rig.publish()
    assert others() == {b"file": rig.read(inode)}
    rig.pack()
    rig.room.drop_all()
    assert rig.journal.bytes < rig.journal.budget


def test_a_round_that_fails_leaves_everything_to_the_next(rig: Rig, others: Others) -> None:
    inode = rig.make(b"file", b"content")
    before_signing(rig, b"file", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        rig.publish()
    check_accounts(rig, [])
    assert {key[:1] for key in rig.fs.changes.unsigned if inode.id in key} == {b"p", b"a", b"c"}
    rig.publish()
    assert others() == {b"file": b"content"}
    check_published(rig, others.reader)


def test_an_update_names_no_chunk_above_what_it_says(rig: Rig) -> None:
    numbers = []
    for number in range(3):
        inode = rig.make(b"%d" % number, b"content %d" % number)
        rig.publish()
        high = rig.db.rows.execute("SELECT chunk_high FROM log ORDER BY clock DESC LIMIT 1").fetchone()[0]
        chunk = rig.db.rows.execute("SELECT chunk FROM file_chunk WHERE ino = ?", (inode.ino,)).fetchone()[0]
        assert chunk <= high
        numbers.append(high)
    assert numbers == sorted(set(numbers))


def test_stamps_tell_which_update_wrote_a_register(rig: Rig) -> None:
    inode = rig.make(b"file", b"content")
    rig.publish()
    stamp = rig.db.rows.execute("SELECT stamp FROM place WHERE ino = ?", (inode.ino,)).fetchone()[0]
    me = Stamp(1, DEVICE.device_id)
    assert stamp == inode.attr_stamp == inode.content_stamp == rig.sharing.signer.number_of(rig.tx, me)
    rig.fs.attributes.change(rig.tx, inode, mode=0o600)
    rig.publish()
    changed = rig.sharing.signer.number_of(rig.tx, me._replace(clock=2))
    assert (inode.attr_stamp, inode.content_stamp) == (changed, stamp)
    assert {place_key(inode.id, 0), attr_key(inode.id), content_key(inode.id)}.isdisjoint(
        rig.fs.changes.unsigned
    )
