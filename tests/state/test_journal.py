"""The journal: bytes that come back, space that is kept to, and syncs that mean it."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.state.journal import Journal, JournalFullError, JournalLimits
from tests.state.disk import ForgetfulDisk
from tests.surroundings import Surroundings, also, limited
from tests.system.shell import tool
from tests.system.small_disks import XfsDisk, needs_root

PATIENCE = 30.0
BLOCK = 4096
MIB = 1 << 20
BUDGET = 10 * BLOCK


class CountedReads(Journal):
    """Notes how many bytes each read was about."""

    def __init__(self, directory: Path, environment: Environment, *, budget: int) -> None:
        super().__init__(directory, environment, budget=budget)
        self.reads: list[int] = []

    def read(self, segment: int, position: int, length: int) -> bytes | None:
        self.reads.append(length)
        return super().read(segment, position, length)


def make(
    tmp_path: Path, environment: Environment = SYSTEM, budget: int = BUDGET, segment_size: int = 1000
) -> CountedReads:
    limits = replace(environment.limits.of(JournalLimits), segment_size=segment_size)
    return CountedReads(tmp_path / "journal", also(environment, limits), budget=budget)


@pytest.fixture
def journal(tmp_path: Path) -> CountedReads:
    return make(tmp_path)


def on_disk(journal: Journal) -> int:
    """What the disk has to give for the segments: whole blocks."""
    return sum(-(-path.stat().st_size // BLOCK) * BLOCK for path in journal.directory.iterdir())


class _Disk:
    """The disk of `journal`, of which a test says how full it is."""

    def __init__(self, free: int, total: int = 1 << 40) -> None:
        self.free, self.total = free, total
        self.environment = Environment(statvfs=self._facts)

    def _facts(self, path: Path) -> os.statvfs_result:
        return os.statvfs_result((1, 1, self.total, self.free, self.free, 0, 0, 0, 0, 255))


def test_what_is_appended_comes_back_after_a_restart(tmp_path: Path, journal: Journal) -> None:
    places = [(journal.append(b"%d" % number * 300), number) for number in range(9)]
    journal.overwrite(*places[4][0], b"X" * 10)
    journal.close()
    again = make(tmp_path)
    assert again.bytes == journal.bytes == on_disk(journal)
    for place, number in places:
        expected = b"%d" % number * 300
        assert again.read(*place, 300) == (b"X" * 10 + expected[10:] if number == 4 else expected)
    assert len(again.numbers()) == 3
    assert again.append(b"new")[0] not in journal.numbers()


def test_an_append_larger_than_a_segment(journal: Journal) -> None:
    small, large = journal.append(b"small"), journal.append(bytes(5000))
    assert small[0] != large[0]
    assert journal.read(*large, 5000) == bytes(5000)


def test_reading_what_is_not_there(journal: Journal) -> None:
    segment, position = journal.append(b"content")
    assert journal.read(segment, position, 8) is None
    assert journal.read(segment + 1, 0, 1) is None
    assert journal.read(segment, 3, 4) == b"tent"


def test_reading_several_places(journal: CountedReads) -> None:
    """What lies side by side is one read; what is not there takes nothing else with it."""
    places = [(*journal.append(b"%d" % number * 30), 30) for number in range(5)]
    expected = [b"%d" % number * 30 for number in range(5)]
    segment = places[-1][0]
    assert journal.read_all(places) == expected
    assert journal.reads == [150]
    assert journal.read_all([places[1], places[0], *places[3:]]) == [expected[at] for at in (1, 0, 3, 4)]
    assert journal.reads[1:] == [30, 30, 60]
    beyond = (segment, 150, 30)
    assert journal.read_all([*places, beyond]) == [*expected, None]
    assert journal.read_all([(segment + 1, 0, 3), *places]) == [None, *expected]
    assert journal.read_all([]) == []


def test_the_budget_is_a_limit(journal: Journal) -> None:
    journal.append(bytes(BUDGET - BLOCK))
    with pytest.raises(JournalFullError) as caught:
        journal.append(bytes(BLOCK + 1))
    assert caught.value.budget and caught.value.errno == errno.ENOSPC
    journal.append(bytes(BLOCK))
    with pytest.raises(JournalFullError):
        journal.append(b"x")
    journal.append(b"x", within_budget=False)
    assert journal.bytes == BUDGET + BLOCK


def test_the_budget_counts_what_the_disk_gives(journal: Journal) -> None:
    """A segment whose last block is not full takes all of it."""
    while journal.fits(700):
        journal.append(bytes(700))  # a segment each
    assert journal.bytes == on_disk(journal) == BUDGET


def test_blocks_that_are_asked_for_ahead_keep_to_the_budget(tmp_path: Path) -> None:
    journal = make(tmp_path, budget=5 << 19, segment_size=1 << 20)
    while journal.fits(128 << 10):
        journal.append(bytes(128 << 10))
        assert taken(journal) <= journal.budget


def test_a_full_disk_is_an_error_of_the_write_that_meets_it(tmp_path: Path) -> None:
    disk = _Disk(60 << 20)
    journal = make(tmp_path, disk.environment)
    with pytest.raises(JournalFullError) as caught:
        journal.append(b"content")
    assert not caught.value.budget
    with pytest.raises(JournalFullError):  # checked again, though nothing was added
        journal.append(b"content", within_budget=False)
    assert (journal.bytes, journal.numbers()) == (0, set())
    disk.free = 80 << 20
    journal.append(b"content")


def test_a_small_disk_keeps_a_small_reserve(tmp_path: Path) -> None:
    assert make(tmp_path, _Disk(20 << 20, total=256 << 20).environment).free_bytes() == 4 << 20
    assert make(tmp_path, _Disk(20 << 20, total=1 << 40).environment).free_bytes() == -(44 << 20)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_that_stops_half_way_leaves_nothing_behind(journal: Journal, number: int) -> None:
    journal.append(b"before")
    pwrite = os.pwrite
    with mock.patch("os.pwrite", side_effect=[3, OSError(number, "full")]), pytest.raises(JournalFullError):
        journal.append(b"content")
    assert journal.bytes == BLOCK
    with mock.patch("os.pwrite", side_effect=lambda fd, data, at: pwrite(fd, data[:3], at)):
        place = journal.append(b"content")  # short writes are no error
    assert journal.read(*place, 7) == b"content"


def test_a_real_disk_that_is_full(tmp_path: Path) -> None:
    """/dev/full plays the disk: the error is the one of a real write."""
    journal = make(tmp_path)
    segment, _ = journal.append(b"content")
    one = journal._segments[segment]
    saved = os.dup(one.descriptor)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), one.descriptor)
        with pytest.raises(JournalFullError):
            journal.append(b"more")
    os.dup2(saved, one.descriptor)
    os.close(saved)
    assert journal.read(*journal.append(b"more"), 4) == b"more"


def test_dirty_segments_are_never_removed(journal: Journal) -> None:
    places = [journal.append(bytes(600)) for _ in range(4)]
    journal.dirty_pieces[places[1][0]] += 2
    journal.dirty_pieces[places[2][0]] += 1
    journal.dirty_pieces[places[2][0]] -= 1
    assert journal.evictable() == [places[0][0], places[2][0]]  # the fourth is being written
    assert journal.dirty() == [places[1][0]]
    with pytest.raises(ValueError, match="dirty"):
        journal.remove(places[1][0])
    assert journal.remove(places[0][0]) == BLOCK
    assert journal.read(*places[0], 600) is None
    assert journal.bytes == on_disk(journal) == 3 * BLOCK
    journal.seal_active()
    assert journal.evictable() == [places[2][0], places[3][0]]


def test_reading_makes_a_segment_recently_used(journal: Journal) -> None:
    places = [journal.append(bytes(600)) for _ in range(4)]
    journal.read(*places[0], 1)
    assert journal.evictable() == [places[1][0], places[2][0], places[0][0]]


def test_a_number_that_the_database_still_knows_is_not_used_again(tmp_path: Path, journal: Journal) -> None:
    """Its file was lost: extents that name it must not suddenly show other bytes."""
    place = journal.append(b"content")
    journal.close()
    for path in journal.directory.iterdir():
        path.unlink()
    again = make(tmp_path)
    again.dirty_pieces[place[0]] += 1
    assert again.append(b"other")[0] > place[0]
    assert again.read(*place, 7) is None


def test_foreign_files_are_left_alone(tmp_path: Path, journal: Journal) -> None:
    journal.close()
    for name in ("notes.txt", "x.segment", "7.segment.bak"):
        (journal.directory / name).write_bytes(b"precious")
    assert make(tmp_path).numbers() == set()
    assert len(list(journal.directory.iterdir())) == 3


def test_segments_are_private(journal: Journal) -> None:
    journal.append(b"secret")
    assert journal.directory.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in journal.directory.iterdir()] == [0o600]


# -- sync -----------------------------------------------------------------------------------------


def test_what_was_synced_survives_a_power_cut(tmp_path: Path) -> None:
    """Bytes, the names of new segments, and the folder itself."""
    (tmp_path / "state").mkdir()
    (tmp_path / "after").mkdir()
    disk = ForgetfulDisk(tmp_path / "state")
    journal = make(tmp_path / "state", disk.environment)
    places = [journal.append(b"%d" % number * 600) for number in range(3)]
    journal.sync()
    journal.append(b"lost")
    disk.image(tmp_path / "after")
    after = make(tmp_path / "after")
    assert [after.read(*place, 600) for place in places] == [b"%d" % number * 600 for number in range(3)]


def test_what_a_killed_process_wrote_is_synced_by_the_next(tmp_path: Path) -> None:
    journal = make(tmp_path)
    place = journal.append(b"content")
    (tmp_path / "after").mkdir()
    disk = ForgetfulDisk(tmp_path / "journal")
    disk._bytes.clear()
    make(tmp_path, disk.environment).sync()
    disk.image(tmp_path / "after")
    assert (tmp_path / "after" / f"{place[0]:08d}.segment").read_bytes() == b"content"


def test_nothing_left_to_sync_means_that_it_has_been_synced(tmp_path: Path) -> None:
    """A second sync must not return while the first is still at it: a commit would follow."""
    syncing, go_on = threading.Event(), threading.Event()
    synced: list[int] = []

    def slowly(descriptor: int) -> None:
        syncing.set()
        assert go_on.wait(PATIENCE)
        synced.append(descriptor)

    journal = make(tmp_path, Environment(fdatasync=slowly))
    journal.append(b"content")

    def sync_and_count() -> int:
        journal.sync()
        return len(synced)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(journal.sync)
        assert syncing.wait(PATIENCE)
        second = pool.submit(sync_and_count)
        go_on.set()
        first.result(PATIENCE)
        assert second.result(PATIENCE) == 1


def test_appends_go_on_during_a_sync_and_are_in_the_next(tmp_path: Path) -> None:
    synced: list[bytes] = []
    around = Surroundings()
    journal = make(tmp_path, around.environment)

    def note(descriptor: int) -> None:
        synced.append(os.pread(descriptor, 100, 0))
        if len(synced) == 1:
            journal.append(b"second")

    journal.append(b"first")
    around.fdatasync = note
    journal.sync()
    journal.sync()
    assert synced == [b"first", b"firstsecond"]


def test_a_segment_that_goes_during_a_sync_is_no_error(tmp_path: Path) -> None:
    around = Surroundings()
    journal = make(tmp_path, around.environment)
    segment, _ = journal.append(b"content")

    def remove(_: int) -> None:
        journal.remove(segment)

    around.fdatasync = remove
    journal.seal_active()
    journal.sync()
    assert journal.numbers() == set()


def test_a_failed_sync_stays_failed(tmp_path: Path) -> None:
    fdatasync = mock.Mock(side_effect=[OSError(errno.EIO, "broken"), None])
    journal = make(tmp_path, Environment(fdatasync=fdatasync))
    journal.append(b"content")
    with pytest.raises(OSError):
        journal.sync()
    with pytest.raises(OSError, match="broken"):
        journal.sync()


# -- what a record may hold instead of a sync ------------------------------------------------------


def test_what_was_written_since_the_last_sync_can_be_recorded(journal: Journal) -> None:
    assert journal.unrecorded() == []
    first = journal.append(b"first")
    assert journal.unrecorded() is None  # the name of its segment is not durable
    journal.sync()
    assert journal.unrecorded() == []
    second = journal.append(b"second")
    journal.overwrite(*first, b"FIRST")
    assert journal.unrecorded() == [(*second, b"second"), (*first, b"FIRST")]
    journal.note_recorded()
    assert journal.unrecorded() == []
    journal.overwrite(*second, b"2nd")
    assert journal.unrecorded() == [(*second, b"2nd")]


@pytest.mark.parametrize("lengths", [[65537], [60000, 6000], [1] * 65])
def test_much_cannot_be_recorded(journal: Journal, lengths: list[int]) -> None:
    journal.budget = MIB
    journal.append(b"first")
    journal.sync()
    for length in lengths:
        journal.append(bytes(length))
    assert journal.unrecorded() is None
    journal.append(b"little")
    assert journal.unrecorded() is None
    journal.sync()
    assert journal.unrecorded() == []


def test_what_is_just_being_synced_is_recorded_as_well(tmp_path: Path) -> None:
    """Until the sync has returned, nobody knows whether it is durable."""
    around = Surroundings()
    journal = make(tmp_path, around.environment)
    journal.append(b"first")
    journal.sync()
    before = journal.append(b"before")
    seen: list[object] = []

    def look(_: int) -> None:
        during = journal.append(b"during")
        seen.append(journal.unrecorded() == [(*before, b"before"), (*during, b"during")])

    around.fdatasync = look
    journal.sync()
    assert seen == [True]
    assert [data for _, _, data in journal.unrecorded() or []] == [b"during"]


def test_a_segment_that_begins_during_a_sync_has_no_name_yet(tmp_path: Path) -> None:
    around = Surroundings()
    journal = make(tmp_path, around.environment)
    journal.append(b"first")

    def begin(_: int) -> None:
        journal.seal_active()
        journal.append(b"second")

    around.fdatasync = begin
    journal.sync()
    assert journal.unrecorded() is None


def test_recorded_bytes_come_back(tmp_path: Path, journal: Journal) -> None:
    segment, position = journal.append(b"0123456789")
    journal.close()
    os.truncate(tmp_path / "journal" / f"{segment:08d}.segment", 4)
    after = make(tmp_path)
    after.restore([(segment, position + 2, b"ab"), (segment, position + 8, b"yz"), (segment + 1, 0, b"gone")])
    assert after.read(segment, position, 10) == b"01ab\0\0\0\0yz"
    assert after.bytes == BLOCK
    assert after.numbers() == {segment}


# -- holes ----------------------------------------------------------------------------------------

spans = st.tuples(st.integers(0, 99), st.integers(1, 30)).map(lambda one: (one[0], min(sum(one), 100)))


@given(st.lists(spans, max_size=8), st.sampled_from([1, 4, 16]))
def test_dead_ranges_are_whole_blocks_that_nothing_lives_in(live: list[tuple[int, int]], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = make(Path(folder), limited(JournalLimits(block=block)))
        segment, _ = journal.append(bytes(100))
        dead = journal.dead_ranges(segment, live)
    living = {at for start, end in live for at in range(start, end)}
    for start, end in dead:
        assert start % block == end % block == 0
        assert living.isdisjoint(range(start, end))
    covered = {at for start, end in dead for at in range(start, end)}
    for first in range(0, 100 // block * block, block):
        blocks = set(range(first, first + block))
        assert blocks <= covered or blocks & living


def test_holes_give_bytes_back(tmp_path: Path) -> None:
    journal = make(tmp_path, budget=1 << 20, segment_size=1 << 20)
    segment, _ = journal.append(b"x" * (64 << 10))
    journal.sync()
    before = journal.bytes
    freed = journal.punch(segment, [(4096, 12288), (40960, 61440)])
    assert journal.bytes == before - freed
    assert freed in (0, 28672)  # where the disk knows no holes, nothing is given back
    assert journal.read(segment, 12288, 28672) == b"x" * 28672
    assert journal.read(segment, 0, 4096) == b"x" * 4096
    journal.close()
    assert make(tmp_path, budget=1 << 20).bytes == journal.bytes


def test_what_the_disk_keeps_books_with_is_not_given_back(tmp_path: Path) -> None:
    """ext4 takes a block more for a file in many pieces, and gives it back when they have gone."""
    journal = make(tmp_path, budget=1 << 22, segment_size=1 << 22)
    segment, _ = journal.append(os.urandom(1 << 20))
    journal.sync()
    [path] = (tmp_path / "journal").glob("*.segment")
    pieces = range(0, 1 << 20, 2 * BLOCK)
    for at in pieces:
        subprocess.run(["fallocate", "-p", "-o", str(at), "-l", str(BLOCK), str(path)], check=True)
    os.sync()
    assert journal.punch(segment, [(0, 1 << 20)]) == (1 << 20) - len(pieces) * BLOCK
    journal.close()


# -- a disk that does more than it is told --------------------------------------------------------


@pytest.fixture
def xfs(tmp_path: Path) -> Iterator[Path]:
    """XFS takes blocks ahead for files that grow, and gives those of files that go back some time later."""
    tool("mkfs.xfs")
    with XfsDisk(tmp_path / "disk", 300) as disk:
        yield disk.where


def taken(journal: Journal) -> int:
    """What the disk has given for the segments so far."""
    return sum(path.stat().st_blocks * 512 for path in journal.directory.iterdir())


@needs_root
def test_the_disk_gives_no_more_than_is_counted(xfs: Path) -> None:
    journal = make(xfs, budget=200 * MIB, segment_size=32 * MIB)
    for _ in range(70):
        journal.append(os.urandom(MIB + 1))
        assert taken(journal) <= journal.bytes + 2 * MIB  # for the active segment, and one not synced yet
        journal.sync()
    journal.seal_active()
    journal.sync()
    assert taken(journal) == journal.bytes
    journal.close()


@needs_root
def test_what_is_removed_is_free_at_once(xfs: Path) -> None:
    """... or who makes room would see none, and remove more, or give up."""
    journal = make(xfs, budget=200 * MIB, segment_size=32 * MIB)
    segment, _ = journal.append(bytes(32 * MIB))
    journal.seal_active()
    journal.sync()
    before = journal.free_bytes()
    assert journal.remove(segment) == 32 * MIB
    assert journal.free_bytes() - before >= 31 * MIB


def test_what_the_disk_keeps_for_a_segment_is_given_back(tmp_path: Path) -> None:
    """... when it is sealed, the journal closed, or, after a crash, when the next one syncs."""
    journals = [make(tmp_path / name, segment_size=1 * MIB) for name in ("sealed", "closed", "killed")]
    for journal in journals:
        journal.append(b"content")
        journal.sync()
    journals[0].seal_active()
    journals[0].sync()
    journals[1].close()
    make(tmp_path / "killed", segment_size=1 * MIB).sync()
    assert [taken(journal) for journal in journals] == [BLOCK] * 3
