"""Making room: only what exists elsewhere goes, and the database knows it before."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.read.evict import RoomLimits, Shortage
from hybrisfs.state.journal import RESERVE, JournalFullError
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.write.chunk import Chunker
from hybrisfs.write.cut import FileSnapshot
from hybrisfs.write.publish import Publisher
from tests.surroundings import limited
from tests.system.small_disks import memory_disk, needs_root
from tests.tree.invariants import check_accounts, check_chunks
from tests.tree.replay import Reader, read_content
from tests.tree.rig import SMALL_BLOCKS, Rig, small_chunks

PATIENCE = 30.0
DISK_BLOCK = 4096
SIZE = 4000  # of each file: 10 to a segment of 40,000 bytes
SEGMENT = 10 * DISK_BLOCK  # what the disk gives for that


def within(*limits: object) -> pytest.MarkDecorator:
    """The test's `rig` has these limits."""
    return pytest.mark.parametrize("rig", [limited(*limits)], ids=["small"], indirect=True)


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    environment = getattr(request, "param", SYSTEM)
    one = Rig(segment_size=10 * SIZE, budget=100 * SIZE, environment=environment)
    yield one
    one.discard()


def content(name: bytes) -> bytes:
    return (name + b" ") * (SIZE // (len(name) + 1)) + b"." * (SIZE % (len(name) + 1))


def fill(rig: Rig, *names: bytes) -> None:
    for name in names:
        rig.make(name, content(name))


def cached(rig: Rig, *names: bytes) -> None:
    """Files that the clouds hold."""
    fill(rig, *names)
    rig.publish()
    rig.pack()


NAMES = [b"file %02d" % number for number in range(30)]


def test_what_no_cloud_has_stays(rig: Rig) -> None:
    cached(rig, *NAMES[:10])
    fill(rig, *NAMES[10:20])
    rig.publish()
    fill(rig, *NAMES[20:])
    before = rig.journal.bytes
    freed, kept = rig.room.drop_all()
    assert (freed, kept) == (SEGMENT, before - SEGMENT)
    rig.clouds.down = True
    for name in NAMES[10:]:
        assert rig.read(rig.find(name)) == content(name)
    check_accounts(rig, [])


def test_the_least_recently_used_goes_first(rig: Rig) -> None:
    cached(rig, *NAMES)
    rig.make(b"active", b"x")
    rig.read(rig.find(NAMES[0]))
    assert rig.room.evict(1) == SEGMENT
    rig.clouds.down = True
    assert rig.read(rig.find(NAMES[0])) == content(NAMES[0])
    assert rig.read(rig.find(NAMES[25])) == content(NAMES[25])


def test_the_database_forgets_before_the_file_goes(rig: Rig) -> None:
    cached(rig, *NAMES)
    rig.journal.seal_active()
    rig.commit()
    paths = sorted(rig.journal.directory.iterdir())
    sizes = [path.stat().st_size for path in paths]
    opened = [path.open("rb") for path in paths]
    synced: list[list[int]] = []
    fdatasync = rig.around.fdatasync

    def note(descriptor: int) -> None:
        synced.append([path.stat().st_size for path in paths])
        fdatasync(descriptor)

    rig.around.fdatasync = note
    rig.room.drop_all()
    assert synced
    assert all(before == sizes for before in synced), "nothing has gone until that is durable"
    assert not any(path.exists() for path in paths)
    assert [os.fstat(one.fileno()).st_size for one in opened] == [0, 0, 0], "though somebody reads them"
    for one in opened:
        one.close()
    rig = rig.crashed()
    for name in NAMES:
        assert rig.read(rig.find(name)) == content(name)
    rig.abandon()


def broken(rig: Rig) -> None:
    """From now on the disk makes nothing durable."""
    rig.commit()
    rig.around.fdatasync = mock.Mock(side_effect=OSError(5, "broken disk"))


def test_an_eviction_that_cannot_be_committed_removes_nothing(rig: Rig) -> None:
    cached(rig, *NAMES)
    before = sorted(rig.journal.numbers())
    broken(rig)
    with pytest.raises(OSError, match="broken disk"):
        rig.room.drop_all()
    assert sorted(rig.journal.numbers()) == before
    for name in NAMES:
        assert rig.read(rig.find(name)) == content(name)


@needs_root
def test_a_disk_too_full_for_a_commit_is_helped_all_the_same(tmp_path: Path) -> None:
    """Gigabytes of cache could go, but no commit fits to say so: what the last one has on the clouds may."""
    with memory_disk(tmp_path / "disk", 32) as disk:
        rig = Rig(disk / "volume", segment_size=10 * SIZE, budget=100 * SIZE)
        cached(rig, *NAMES[:20])
        fill(rig, *NAMES[20:])
        rig.publish()
        rig.commit()
        rig.pack()  # on the clouds, but a crash would forget that
        rig.journal.seal_active()
        others = disk / "others"
        others.write_bytes(bytes(rig.journal.free_bytes(RESERVE // 5)))
        assert rig.room.evict(1 << 40) == 2 * SEGMENT
        with pytest.raises(JournalFullError):
            rig.room.evict(1 << 40)
        others.unlink()
        rig = rig.crashed()
        rig.clouds.down = True
        for name in NAMES[20:]:
            assert rig.read(rig.find(name)) == content(name)
        rig.clouds.down = False
        for name in NAMES[:20]:
            assert rig.read(rig.find(name)) == content(name)
        rig.abandon()


def test_the_number_of_a_lost_segment_never_comes_to_mean_other_bytes(rig: Rig) -> None:
    """It was removed although no commit fitted to say so, and a crash came before the next one."""
    cached(rig, *NAMES[:10])
    rig.commit()
    rig.journal.seal_active()
    rig.journal.free = -1
    with pytest.raises(JournalFullError):
        rig.commit()
    assert rig.room.evict(1 << 40) == SEGMENT
    again = rig.crashed()
    fill(again, b"other")
    rows = again.tx.execute("SELECT DISTINCT segment FROM chunk WHERE segment IS NOT NULL").fetchall()
    assert rows and again.journal.numbers().isdisjoint(segment for (segment,) in rows)
    for name in NAMES[:10]:
        assert again.read(again.find(name)) == content(name)
    again.discard()


@within(SMALL_BLOCKS)
def test_dead_bytes_of_a_dirty_segment_are_given_back(rig: Rig) -> None:
    """One small file that waits for the clouds must not keep a whole segment."""
    cached(rig, *NAMES[:5])
    rig.make(b"pending", content(b"pending"))
    fill(rig, *NAMES[5:8])
    for name in NAMES[5:8]:
        rig.fs.unlink(rig.tx, ROOT_INO, name)
    rig.publish()
    assert rig.room.evict(1 << 40) > 0
    check_accounts(rig, [])
    check_chunks(rig)
    rig.clouds.down = True
    assert rig.read(rig.find(b"pending")) == content(b"pending")
    rig.clouds.down = False
    for name in NAMES[:5]:
        assert rig.read(rig.find(name)) == content(name)


@within(small_chunks(512), SMALL_BLOCKS)
def test_what_is_being_chunked_is_not_given_back(rig: Rig) -> None:
    class Meddling(Chunker):
        """Right before and after a file is cut into chunks, it is overwritten, and room is wanted."""

        def chunk(self, snapshot: FileSnapshot) -> bytes:
            handle = rig.fs.open(rig.tx, inode.ino, os.O_WRONLY)
            rig.fs.write(rig.tx, inode, 0, bytes(SIZE))
            rig.fs.release(rig.tx, handle)
            rig.room.evict(1 << 40)
            value = super().chunk(snapshot)
            rig.room.evict(1 << 40)
            return value

    inode = rig.make(b"file", content(b"file"))
    chunker = Meddling(rig.fs, rig.fetcher)
    sharing = rig.sharing
    Publisher(rig.fs, chunker, sharing.signer, sharing.receiver, rig.signals).publish_round()
    check_chunks(rig)
    assert rig.read(inode) == bytes(SIZE)
    reader = Reader()
    reader.catch_up(rig.db)
    published = reader.nodes[inode.id].content
    assert published is not None
    assert read_content(published, rig.plaintexts.__getitem__) == content(b"file")


@within(small_chunks(512), SMALL_BLOCKS)
def test_chunks_that_are_about_to_be_named_are_not_dropped(rig: Rig) -> None:
    inode = rig.make(b"file", content(b"file"))
    rig.namer.before = lambda: rig.room.evict(1 << 40)
    rig.publish()
    check_accounts(rig, [])
    check_chunks(rig)
    assert rig.read(inode) == content(b"file")


def test_in_a_shortage_overwritten_versions_go(rig: Rig) -> None:
    inode = rig.make(b"file", content(b"old"))
    rig.publish()
    handle = rig.fs.open(rig.tx, inode.ino, os.O_WRONLY | os.O_TRUNC)
    rig.fs.write(rig.tx, inode, 0, content(b"new"))
    rig.fs.release(rig.tx, handle)
    rig.publish()
    assert rig.unpacked() == 2
    rig.room.drop_all()
    assert rig.unpacked() == 2
    rig.room.evict(1 << 40)
    assert rig.unpacked() == 1
    assert rig.read(inode) == content(b"new")
    check_accounts(rig, [])


def test_waiting_for_room_evicts(rig: Rig) -> None:
    cached(rig, *NAMES)
    rig.journal.budget = rig.journal.bytes
    with pytest.raises(JournalFullError):
        fill(rig, b"more")
    rig.fs.unlink(rig.tx, ROOT_INO, b"more")
    assert rig.room.wait_for_room(SIZE)
    assert rig.room.shortage() is None
    fill(rig, b"more")


def test_waiting_for_room_waits_for_uploads() -> None:
    waiting = threading.Event()

    def wait(condition: threading.Condition, done: Callable[[], bool], seconds: float | None) -> bool:
        waiting.set()
        return condition.wait_for(done, seconds)

    rig = Rig(segment_size=10 * SIZE, budget=100 * SIZE, environment=Environment(wait=wait))
    fill(rig, *NAMES)
    rig.publish()
    rig.journal.budget = rig.journal.bytes
    waiting.clear()
    with ThreadPoolExecutor(1) as pool:
        fits = pool.submit(rig.room.wait_for_room, SIZE)
        assert waiting.wait(PATIENCE)
        assert not fits.done()
        rig.pack()
        assert fits.result(PATIENCE) is True
    rig.discard()


def test_nobody_waits_for_what_cannot_come(rig: Rig) -> None:
    fill(rig, *NAMES)
    rig.publish()
    rig.journal.budget = rig.journal.bytes
    assert rig.room.shortage() is None
    rig.clouds.down = True
    assert not rig.room.wait_for_room(SIZE)
    assert rig.room.shortage() is Shortage.CACHE
    rig.clouds.down = False
    rig.journal.budget += 2 * SIZE
    assert rig.room.shortage() is None
    rig.journal.budget -= 2 * SIZE
    assert rig.room.shortage() is None, "nobody was refused since"
    rig.signals.stop()
    assert not rig.room.wait_for_room(SIZE)


@pytest.mark.parametrize("rig", [limited(RoomLimits(patience_seconds=0.0))], indirect=True)
def test_nobody_waits_for_longer_than_the_limit_says(rig: Rig) -> None:
    fill(rig, *NAMES)
    rig.publish()
    rig.journal.budget = rig.journal.bytes
    assert not rig.room.wait_for_room(SIZE)


def test_room_is_made_ahead_of_those_who_write(rig: Rig) -> None:
    cached(rig, *NAMES)
    rig.journal.budget = rig.journal.bytes
    rig.room.step()
    assert rig.journal.bytes <= 0.9 * rig.journal.budget


def test_open_files_are_read_anew_after_the_cache_was_dropped(rig: Rig) -> None:
    before = rig.fs.cache_generation
    rig.room.drop_all()
    assert rig.fs.cache_generation > before


def pin(rig: Rig, *names: bytes) -> None:
    for name in names:
        rig.fs.pins.add(rig.tx, rig.find(name))


@within(SMALL_BLOCKS)
def test_what_is_pinned_stays_and_the_rest_of_its_segment_goes(rig: Rig) -> None:
    cached(rig, *NAMES)
    pin(rig, NAMES[3], NAMES[4], NAMES[15])
    freed, kept = rig.room.drop_all()
    assert freed + kept == 30 * SIZE
    assert kept <= 7 * DISK_BLOCK  # with the blocks at the edges, and at the ends of two segments
    assert rig.room.drop_all() == (0, kept)
    rig = rig.crashed()
    rig.clouds.down = True
    for name in (NAMES[3], NAMES[4], NAMES[15]):
        assert rig.read(rig.find(name)) == content(name)
    with pytest.raises(ChunkUnavailable):
        rig.read(rig.find(NAMES[5]))
    rig.clouds.down = False
    for name in NAMES:
        assert rig.read(rig.find(name)) == content(name)
    check_accounts(rig, [])
    rig.abandon()


@within(SMALL_BLOCKS)
def test_what_is_unpinned_goes_like_the_rest(rig: Rig) -> None:
    cached(rig, *NAMES[:10])
    pin(rig, NAMES[3])
    rig.room.drop_all()
    assert rig.room.evict(1) == 0
    rig.fs.pins.remove(rig.tx, rig.find(NAMES[3]))
    assert rig.room.evict(1) > 0  # although its segment was looked at just now
    assert rig.journal.bytes == 0


@within(SMALL_BLOCKS)
def test_dirty_segments_are_not_looked_through_again_and_again(rig: Rig) -> None:
    cached(rig, *NAMES)
    pin(rig, *NAMES[:10])
    rig.room.drop_all()
    rig.room.evict(1, shortage=False)
    statements: list[str] = []
    rig.db.connection.set_trace_callback(statements.append)
    rig.room.evict(1, shortage=False)
    assert statements and not [one for one in statements if "pin" in one or "file_chunk" in one]


@within(SMALL_BLOCKS)
def test_pinned_chunks_beside_what_waits_for_the_clouds_stay(rig: Rig) -> None:
    cached(rig, *NAMES[:5])
    rig.make(b"pending", content(b"pending"))
    rig.publish()
    pin(rig, NAMES[2])
    assert rig.room.evict(1 << 40) >= 4 * SIZE - 3 * DISK_BLOCK
    rig.clouds.down = True
    assert rig.read(rig.find(NAMES[2])) == content(NAMES[2])
    assert rig.read(rig.find(b"pending")) == content(b"pending")


@within(SMALL_BLOCKS)
def test_single_chunks_are_evicted_and_their_neighbours_are_not(rig: Rig) -> None:
    cached(rig, *NAMES[:22])
    fill(rig, b"pending")
    rig.publish()
    before = rig.journal.bytes
    rows = rig.db.rows.execute("SELECT number, segment FROM chunk ORDER BY number").fetchall()
    numbers = [number for number, _ in rows]
    assert rows[20][1] == rows[21][1] == rows[22][1]  # beside what must stay
    # A whole segment, one chunk each of two others, and one that must stay.
    gone = [*numbers[10:20], numbers[3], numbers[20], numbers[22]]
    assert rig.room.evict_chunks(gone) == 12 * SIZE
    assert before - rig.journal.bytes >= 10 * SIZE
    rig = rig.crashed()
    rig.clouds.down = True
    for name in (*NAMES[:3], *NAMES[4:10], NAMES[21], b"pending"):
        assert rig.read(rig.find(name)) == content(name)
    for name in (NAMES[3], NAMES[20]):
        with pytest.raises(ChunkUnavailable):
            rig.read(rig.find(name))
    rig.clouds.down = False
    for name in NAMES[:22]:
        assert rig.read(rig.find(name)) == content(name)
    check_accounts(rig, [])
    rig.abandon()


def test_what_has_just_been_fetched_is_evicted_from_memory_too(rig: Rig) -> None:
    cached(rig, NAMES[0])
    rig.room.drop_all()
    rig.read(rig.find(NAMES[0]))
    [number] = rig.db.rows.execute("SELECT number FROM chunk").fetchone()
    assert rig.room.evict_chunks([number]) == SIZE
    rig.clouds.down = True
    with pytest.raises(ChunkUnavailable):
        rig.read(rig.find(NAMES[0]))


def test_chunks_that_cannot_be_forgotten_durably_keep_their_bytes(rig: Rig) -> None:
    cached(rig, *NAMES[:10])
    before = rig.journal.bytes
    numbers = [
        number for (number,) in rig.db.rows.execute("SELECT number FROM chunk ORDER BY number").fetchall()
    ]
    broken(rig)
    with pytest.raises(OSError, match="broken disk"):
        rig.room.evict_chunks(numbers)
    assert rig.journal.bytes == before
