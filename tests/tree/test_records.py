"""An fsync after a few small writes: one sync of one file, and as good as a commit after a power cut."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from hybrisfs.admit.damaged_database import DamagedDatabase
from hybrisfs.environment import Limits
from hybrisfs.state.database import DatabaseLimits
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.commit import CommitLimits
from hybrisfs.tree.inodes import Inode
from tests.state.disk import ForgetfulDisk
from tests.tree.rig import Rig
from tests.tree.test_commit import ask

LIMITS: Final = Limits(DatabaseLimits(redo_bytes=64 << 10), CommitLimits(interval=1e9))


class Synced:
    """A volume with a file `f` that has been synced, on a disk that forgets what was not."""

    def __init__(self, folder: Path) -> None:
        self.disk = ForgetfulDisk(folder, LIMITS)
        self.rig = Rig(folder, segment_size=1 << 20, environment=self.disk.environment)
        self.disk.watch(folder)
        self.inode = self.rig.make(b"f", b"0123456789")
        self.fsync()
        self.syncs: list[str] = []
        note = self.rig.around.fdatasync

        def note_sync(descriptor: int) -> None:
            self.syncs.append(Path(f"/proc/self/fd/{descriptor}").readlink().suffix)
            note(descriptor)

        self.rig.around.fdatasync = self.rig.around.fsync = note_sync

    def write(self, offset: int, data: bytes, inode: Inode | None = None) -> None:
        self.rig.fs.write(self.rig.tx, inode or self.inode, offset, data)

    def fsync(self) -> None:
        answer = ask(self.rig)
        self.rig.committer._round()
        assert answer.result(0) is None

    def after_power_cut(self) -> bytes:
        """What is in the file then; the life goes on from there."""
        self.rig = self.rig.powerless(self.disk)
        self.disk.watch(self.rig.directory)
        self.inode = self.rig.find(b"f")
        return self.rig.read(self.inode)


@pytest.fixture
def synced(tmp_path: Path) -> Iterator[Synced]:
    one = Synced(tmp_path)
    yield one
    one.rig.abandon()


def test_one_sync_of_one_file(synced: Synced) -> None:
    for number in range(3):
        synced.write(number, b"x")
        synced.fsync()
    assert synced.syncs == [".db-redo"] * 3
    assert synced.rig.fs.is_uncommitted(synced.rig.tx)
    assert synced.after_power_cut() == b"xxx3456789"


def test_with_nothing_new_there_is_nothing_to_sync(synced: Synced) -> None:
    synced.fsync()
    synced.write(0, b"x")
    synced.fsync()
    synced.fsync()
    assert synced.syncs == [".db-redo"]


def test_what_was_not_synced_is_as_before(synced: Synced) -> None:
    synced.write(0, b"x")
    synced.fsync()
    synced.write(1, b"y")
    with synced.rig.state.transaction() as tx:
        assert synced.rig.fs.record(tx)  # and the power fails before its sync
    assert synced.after_power_cut() == b"x123456789"


def test_the_newest_bytes_of_a_place_win(synced: Synced) -> None:
    for data in (b"aaaa", b"bbbb", b"cc"):
        synced.write(0, data)
        synced.write(1, b"-")
        synced.fsync()
    assert synced.after_power_cut() == b"c-bb456789"


def test_what_a_record_names_is_not_overwritten(synced: Synced) -> None:
    """Its bytes may be in the journal alone."""
    synced.write(0, b"aaaa")
    synced.rig.journal.sync()
    synced.fsync()
    synced.write(0, b"bbbb")
    synced.rig.journal.sync()
    assert synced.after_power_cut() == b"aaaa456789"


def test_an_earlier_record_does_not_undo_a_commit(synced: Synced) -> None:
    synced.write(0, b"aaaa")
    synced.fsync()
    synced.write(0, b"bbbb")
    synced.rig.commit()
    assert synced.after_power_cut() == b"bbbb456789"
    synced.write(0, b"c")
    synced.fsync()
    assert synced.after_power_cut() == b"cbbb456789"


def test_a_commit_that_is_not_durable_yet_leaves_the_records(synced: Synced) -> None:
    synced.write(0, b"aaaa")
    synced.fsync()
    synced.write(0, b"bbbb")
    with synced.rig.state.transaction() as tx:
        synced.rig.fs.commit(tx)
        synced.write(0, b"c")
        assert not synced.rig.fs.record(tx)
    assert synced.after_power_cut() == b"aaaa456789"


def test_records_go_on_after_a_crash(synced: Synced) -> None:
    synced.write(0, b"a")
    synced.fsync()
    assert synced.after_power_cut() == b"a123456789"
    synced.write(1, b"b")
    assert synced.after_power_cut() == b"a123456789"
    synced.write(2, b"c")
    synced.fsync()
    synced.write(3, b"d")
    synced.fsync()
    assert synced.after_power_cut() == b"a1cd456789"


def test_what_was_recorded_before_a_crash_is_uncommitted_after_it(synced: Synced) -> None:
    """Whoever needs a snapshot commits it first."""
    synced.write(10, b"more")
    synced.fsync()
    synced.after_power_cut()
    rig = synced.rig
    assert rig.fs.is_uncommitted(rig.tx)
    with rig.fs.committed(lambda tx: None) as (_, snapshot):
        assert snapshot.execute("SELECT size FROM node WHERE ino = ?", (synced.inode.ino,)).fetchone() == (
            14,
        )
    assert rig.tx.meta("bytes") == rig.fs.content.total_bytes == 14


def test_a_clean_restart_needs_no_records(synced: Synced) -> None:
    synced.write(0, b"a")
    synced.fsync()
    synced.write(0, b"b")
    synced.rig = synced.rig.reopen()
    assert not synced.rig.fs.is_uncommitted(synced.rig.tx)
    assert synced.rig.read(synced.rig.find(b"f")) == b"b123456789"


def test_new_names_are_recorded(synced: Synced) -> None:
    rig = synced.rig
    folder = rig.mkdir(b"folder")
    one = rig.make(b"one", b"content", folder)
    rig.fs.make(rig.tx, folder, b"link", stat.S_IFLNK | 0o777, 1, 1, target=b"one")
    rig.fs.link(rig.tx, one.ino, folder, b"two")
    synced.fsync()
    assert synced.syncs == [".db-redo"]
    rig.make(b"lost")
    synced.after_power_cut()
    rig = synced.rig
    assert rig.fs.lookup(rig.tx, ROOT_INO, b"lost") is None
    folder = rig.find(b"folder").ino
    assert rig.read(rig.find(b"one", folder)) == b"content"
    assert rig.find(b"one", folder) is rig.find(b"two", folder)
    assert rig.find(b"link", folder).target == b"one"
    assert rig.fs.total_files == 2
    rig.make(b"next")
    synced.fsync()
    synced.after_power_cut()
    assert synced.rig.read(synced.rig.find(b"next")) == b""


def _make_many(one: Synced) -> None:
    for number in range(65):
        one.rig.make(b"%d" % number)


def _touch_many(one: Synced) -> None:
    """They are in memory only."""
    for number in range(600):
        one.rig.make(b"%d" % number)
    one.rig.commit()
    one.syncs.clear()
    for number in range(600):
        one.rig.fs.attributes.change(one.rig.tx, one.rig.find(b"%d" % number), mode=0o600)


def _unlink(one: Synced) -> None:
    one.rig.fs.unlink(one.rig.tx, ROOT_INO, b"g")


def _write_much(one: Synced) -> None:
    one.write(0, bytes(65537))


def _rename(one: Synced) -> None:
    one.rig.fs.rename(one.rig.tx, ROOT_INO, b"g", ROOT_INO, b"h", 0)


def _begin_segment(one: Synced) -> None:
    one.rig.journal.seal_active()
    one.write(0, b"x")


def _flush(one: Synced) -> None:
    one.write(0, b"x")
    one.rig.fs.flush(one.rig.tx)


@pytest.mark.parametrize(
    "change", [_make_many, _touch_many, _unlink, _write_much, _rename, _begin_segment, _flush]
)
def test_other_changes_take_a_commit(synced: Synced, change: Callable[[Synced], None]) -> None:
    synced.rig.make(b"g", b"content")
    synced.rig.commit()
    synced.syncs.clear()
    change(synced)
    synced.fsync()
    assert ".db-wal" in synced.syncs and ".db-redo" not in synced.syncs
    assert not synced.rig.fs.is_uncommitted(synced.rig.tx)
    synced.write(1, b"y")
    synced.fsync()
    assert synced.syncs[-1] == ".db-redo"


def test_a_full_log_takes_a_commit(synced: Synced) -> None:
    while ".db-wal" not in synced.syncs:
        synced.write(0, b"x" * 9000)
        synced.fsync()
    assert synced.syncs.count(".db-redo") == 7
    synced.write(0, b"y")
    synced.fsync()
    assert synced.after_power_cut()[:2] == b"yx"


def test_what_found_no_room_is_not_left_out(synced: Synced) -> None:
    """The commit that takes it may fail for a while, as the disk is full."""
    with synced.rig.state.transaction() as tx:
        for _ in range(5):
            synced.write(0, b"x" * 9000)
            assert synced.rig.fs.record(tx)
        synced.write(0, b"y" * 20_000)
        assert not synced.rig.fs.record(tx)
        synced.rig.journal.sync()
        synced.write(0, b"z")
        assert not synced.rig.fs.record(tx)


def test_sooner_or_later_there_is_a_commit(synced: Synced) -> None:
    synced.rig.committer.limits = CommitLimits(interval=10.0)
    synced.write(0, b"x")
    synced.fsync()
    synced.rig.around.passed += 10.0
    synced.write(0, b"y")
    synced.fsync()
    assert synced.syncs[0] == ".db-redo" and synced.syncs[-1] == ".db-wal"


def test_without_anybody_who_waits_there_is_a_commit(synced: Synced) -> None:
    synced.write(0, b"x")
    synced.rig.committer._round()
    assert ".db-redo" not in synced.syncs and synced.syncs[-1] == ".db-wal"


def test_a_log_that_cannot_be_synced_takes_a_commit(synced: Synced, caplog: pytest.LogCaptureFixture) -> None:
    fdatasync = synced.rig.around.fdatasync

    def fail(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".db-redo":
            raise OSError(errno.EIO, "broken disk")
        fdatasync(descriptor)

    synced.rig.around.fdatasync = fail
    synced.write(0, b"x")
    synced.fsync()
    assert "fsync is slower without it" in caplog.text
    assert synced.after_power_cut() == b"x123456789"


# -- in the thread that serves programs -----------------------------------------------------------------


def test_a_lone_fsync_is_answered_at_once(synced: Synced) -> None:
    synced.write(0, b"x")
    assert synced.rig.committer.at_once()
    assert synced.syncs == [".db-redo"]
    assert synced.after_power_cut() == b"x123456789"


def test_what_takes_a_commit_is_not_done_at_once(synced: Synced) -> None:
    _flush(synced)
    assert not synced.rig.committer.at_once()
    assert not synced.syncs


def test_who_comes_when_others_wait_waits_with_them(synced: Synced) -> None:
    synced.write(0, b"x")
    answer = ask(synced.rig)
    assert not synced.rig.committer.at_once()
    synced.rig.committer._round()
    assert answer.result(0) is None


def test_a_slow_disk_does_not_hold_up_programs_again_and_again(synced: Synced) -> None:
    fdatasync, committer = synced.rig.around.fdatasync, synced.rig.committer

    def slowly(descriptor: int) -> None:
        synced.rig.around.passed += 0.1
        fdatasync(descriptor)

    synced.rig.around.fdatasync = slowly
    synced.write(0, b"x")
    assert committer.at_once()
    synced.write(0, b"y")
    assert not committer.at_once()
    synced.rig.around.passed += committer.limits.rest
    assert committer.at_once()


def test_the_publisher_gets_the_moment_that_it_waits_for(synced: Synced) -> None:
    synced.rig.signals.want_rest(True)
    synced.write(0, b"x")
    assert not synced.rig.committer.at_once()
    synced.rig.signals.want_rest(False)
    assert synced.rig.committer.at_once()


# -- eviction -------------------------------------------------------------------------------------------


def test_a_segment_that_a_record_names_stays_until_a_commit(synced: Synced) -> None:
    """Without room for a commit, only what the last one and the records do not need may go."""
    rig = synced.rig
    rig.journal.seal_active()
    rig.make(b"g", b"content")
    rig.commit()
    rig.fs.unlink(rig.tx, ROOT_INO, b"g")
    rig.commit()  # no committed row names the last segment now
    synced.write(0, b"a" * 100)
    synced.fsync()
    (segment,) = rig.tx.recorded_segments()
    rig.fs.truncate(rig.tx, synced.inode, 0)
    rig.journal.seal_active()
    rig.journal.free = -1
    assert segment in rig.journal.evictable()
    rig.room.evict(1 << 20)
    assert segment in rig.journal
    rig.journal.free = None
    assert synced.after_power_cut() == b"a" * 100


def test_what_is_in_records_only_is_found_in_a_damaged_database_too(synced: Synced, tmp_path: Path) -> None:
    synced.write(2, b"changed")
    synced.fsync()
    synced.rig.make(b"new", b"just made")
    synced.write(0, b"a")
    synced.fsync()
    assert synced.syncs == [".db-redo"] * 2
    copy = tmp_path / "after a power cut"
    copy.mkdir()
    synced.disk.image(copy)
    namer = synced.rig.fs.state.namer
    with closing(DamagedDatabase(copy / "volume.db", copy / "journal", namer)) as database:
        found = {str(one.path): (one.size, list(database.pieces(one))) for one in database.staged_files()}
    assert {name: size for name, (size, _) in found.items()} == {"f": 10, "new": 9}
    content = bytearray(10)
    for offset, data in found["f"][1]:
        content[offset : offset + len(data)] = data
    assert content == b"a1changed9"
    assert b"".join(data for _, data in found["new"][1]) == b"just made"
