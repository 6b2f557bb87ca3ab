"""The metadata store: conditional updates, reads that never go back, lists, containers, crashes."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError, HybrisError, NewerFormatError
from hybrisfs.kv.database import SCHEMA_VERSION
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    NoSuchContainerError,
)
from hybrisfs.kv.metadata import Change, Garbage, Owed
from hybrisfs.kv.record import ABSENT, PRESENT, Condition, KeyMetadata, Timestamp, leaving
from hybrisfs.kv.repetition import Repetition, pack_writes
from hybrisfs.kv.rmds import DeviceMetadata
from tests.kv.rig import new_database

REPOSITORY = Path(__file__).resolve().parents[2]
CHECKSUM = b"c" * 16


def entry(sn: int, write: int) -> KeyMetadata:
    return KeyMetadata(sn, write, 100, 129, 1, (0, 1), (CHECKSUM,))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return new_database(tmp_path)


@pytest.fixture
def metadata(path: Path) -> Iterator[DeviceMetadata]:
    store = DeviceMetadata(path, SYSTEM)
    store.create_container("box")
    yield store
    store.close()


@pytest.fixture
def box(metadata: DeviceMetadata) -> int:
    return metadata.container("box")


def test_only_a_higher_timestamp_wins(metadata: DeviceMetadata, box: int) -> None:
    place = (box, b"key")
    assert metadata.read(place) is None
    assert metadata.update([Change(place, entry(2, 7))])
    for lower in (entry(1, 9), entry(2, 6), entry(2, 7)):
        assert not metadata.update([Change(place, lower)])
        assert metadata.read(place) == entry(2, 7)
    # Of two writes that knew of the same value the second one gets a version of its own.
    assert metadata.update([Change(place, entry(2, 8))]) == [entry(3, 8)]
    assert metadata.update([Change(place, KeyMetadata(4, 9))])
    assert metadata.read(place) == KeyMetadata(4, 9)
    assert not metadata.update([Change(place, entry(4, 8))])


def test_a_change_without_a_number_follows_whatever_is_there(metadata: DeviceMetadata, box: int) -> None:
    place = (box, b"key")
    assert metadata.update([Change(place, entry(0, 7))]) == [entry(1, 7)]
    assert metadata.update([Change(place, entry(0, 3))]) == [entry(2, 3)]
    assert metadata.read(place) == entry(2, 3)


def test_conditions_are_checked_in_the_step_that_makes_the_changes(
    metadata: DeviceMetadata, box: int
) -> None:
    a, b = (box, b"a"), (box, b"b")
    with pytest.raises(ConditionNotMetError, match="box/a has no value, not any"):
        metadata.update([Change(b, entry(0, 1))], {a: PRESENT})
    metadata.update([Change(a, entry(0, 2)), Change(b, entry(0, 3))], {a: ABSENT})
    for wrong in (ABSENT, Condition(version=2), Condition(tag=Timestamp(1, 3))):
        with pytest.raises(ConditionNotMetError) as caught:
            metadata.update([Change(b, entry(0, 4))], {b: PRESENT, a: wrong})
        assert caught.value.found == entry(1, 2)._replace(conditional=True)
        assert "box/a has version 1 (tag 1-2, 100 bytes)" in str(caught.value)
        assert metadata.read(b) == entry(1, 3)
    right = {a: Condition(version=1), b: Condition(tag=Timestamp(1, 3))}
    deleted = KeyMetadata(2, 5, conditional=True)
    assert metadata.update([Change(b, KeyMetadata(0, 5))], right) == [deleted]
    with pytest.raises(ConditionNotMetError):
        metadata.update([Change(b, entry(0, 6))], {b: PRESENT})
    with metadata.listing(box, b"") as pages:
        assert [one.key for page in pages for one in page] == [b"a"]
    made = metadata.update([Change(b, entry(0, 7))], {b: ABSENT})
    assert made == [metadata.read(b)] == [entry(3, 7)._replace(conditional=True)]


def test_what_was_written_under_a_condition_is_not_preceded_by_what_it_did_not_see(
    metadata: DeviceMetadata, box: int
) -> None:
    place = (box, b"key")
    metadata.update([Change(place, entry(0, 2))], {place: ABSENT})
    assert metadata.update([Change(place, entry(1, 1))]) == [entry(2, 1)]
    metadata.update([Change(place, entry(0, 3))], {place: PRESENT})
    assert metadata.update([Change(place, entry(1, 1))]) is None


def test_a_transaction_is_made_as_a_whole_or_not_at_all(metadata: DeviceMetadata, box: int) -> None:
    a, b = (box, b"a"), (box, b"b")
    metadata.update([Change(a, entry(5, 1))])
    assert not metadata.update([Change(b, entry(1, 2)), Change(a, entry(4, 3))])
    assert (metadata.read(a), metadata.read(b)) == (entry(5, 1), None)
    assert metadata.update([Change(b, entry(1, 4)), Change(a, entry(6, 5))])
    assert (metadata.read(a), metadata.read(b)) == (entry(6, 5), entry(1, 4))


def test_everything_is_there_after_opening_again(path: Path, metadata: DeviceMetadata, box: int) -> None:
    metadata.update([Change((box, b"key"), entry(1, metadata.new_write()))])
    store_id, write = metadata.store_id, metadata.new_write()
    metadata.intend([Garbage(write, 3)])
    metadata.close()
    again = DeviceMetadata(path, SYSTEM)
    assert again.store_id == store_id
    assert again.container("box") == box
    assert again.read((box, b"key")) == entry(1, 1)
    assert again.garbage(0, 10) == [Garbage(write, 3)]
    assert again.new_write() > write
    again.close()


def test_what_is_replaced_becomes_garbage_in_the_same_commit(metadata: DeviceMetadata, box: int) -> None:
    place = (box, b"key")
    metadata.intend([Garbage(1, 1), Garbage(2, 1)])
    metadata.update([Change(place, entry(1, 1))])
    assert metadata.garbage(0, 10) == [Garbage(2, 1)]
    metadata.update([Change(place, entry(2, 2))])
    assert metadata.garbage(0, 10) == [Garbage(1, 1)]
    metadata.update([Change(place, KeyMetadata(3, 3))])
    assert metadata.garbage(0, 10) == [Garbage(1, 1), Garbage(2, 1)]
    assert metadata.garbage(1, 10) == [Garbage(2, 1)]
    metadata.forget_garbage([1, 2], [Owed(5, 1, 1)])
    assert metadata.garbage(0, 10) == []
    assert metadata.owing().keys() == {5}
    assert metadata.owed(5, 10) == [Owed(5, 1, 1)]
    since = metadata.owing()[5]
    assert abs(since - time.time()) < 3600
    metadata.forget_garbage([], [Owed(5, 2, 1)])
    metadata.forget_owed([Owed(5, 1, 1)])
    assert metadata.owing() == {5: since}
    metadata.forget_owed([Owed(5, 2, 1)])
    assert metadata.owing() == {}


def test_what_is_due_to_be_deleted_again(metadata: DeviceMetadata) -> None:
    """Also what is due so late that the clock must have been ahead."""
    moments = (30, 20, 99, 10)
    rows = [Repetition(cloud, due, 1, pack_writes([(due, 1)])) for cloud in (1, 4) for due in moments]
    metadata.forget_garbage([], [], rows)
    assert metadata.first_repetitions() == {1: 10, 4: 10}
    due = metadata.repetitions(4, 21, 50, 9)
    assert [(one.cloud, one.due) for one in due] == [(4, 10), (4, 20), (4, 99)]
    assert metadata.repetitions(4, 21, 50, 1) == due[:1]
    metadata.repeat([one.number for one in due], [Repetition(4, 40, 2, b"")])
    assert metadata.first_repetitions() == {1: 10, 4: 30}
    assert [one.due for one in metadata.repeated(0, 9)] == [30, 20, 99, 10, 30, 40]
    assert metadata.repeated(due[-1].number, 9)[0].times == 2


def test_lists_leave_tombstones_out_and_go_on_where_they_ended(metadata: DeviceMetadata, box: int) -> None:
    metadata.create_container("other")
    keys = [b"a", b"a/1", b"a/2", b"a\xff", b"b", "ä".encode(), b"\xff\xff"]
    for number, key in enumerate(keys):
        metadata.update([Change((box, key), entry(1, number + 1))])
        metadata.update([Change((metadata.container("other"), key + b"x"), entry(1, number + 100))])
    metadata.update([Change((box, b"a/1"), KeyMetadata(2, 50))])

    def listed(prefix: bytes, after: bytes | None = None) -> list[bytes]:
        with metadata.listing(box, prefix, after, most=2) as pages:
            return [one.key for page in pages for one in page]

    left = sorted(set(keys) - {b"a/1"})
    assert listed(b"") == left
    assert listed(b"a") == [b"a", b"a/2", b"a\xff"]
    assert listed(b"a\xff") == [b"a\xff"]
    assert listed(b"\xff") == [b"\xff\xff"]
    assert listed(b"", after=left[1]) == left[2:]
    assert listed(b"a", after=b"a/2") == [b"a\xff"]
    assert listed(b"b", after=b"a") == [b"b"]


def test_all_pages_of_a_list_are_of_one_moment(metadata: DeviceMetadata, box: int) -> None:
    metadata.update([Change((box, b"%04d" % number), entry(1, 1 + number)) for number in range(1200)])
    with metadata.listing(box, b"", most=500) as pages:
        metadata.update(
            [Change((box, b"0000"), KeyMetadata(2, 5000)), Change((box, b"9999"), entry(1, 5001))]
        )
        found = [next(pages)]
        metadata.update(
            [Change((box, b"9999"), KeyMetadata(2, 5002)), Change((box, b"0000"), entry(3, 5003))]
        )
        found += pages
    assert [len(page) for page in found] == [500, 500, 200]
    assert [one.key for page in found for one in page] == [b"%04d" % number for number in range(1200)]


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_list_that_has_ended_holds_nothing_any_more(
    path: Path, metadata: DeviceMetadata, box: int, interrupted: bool
) -> None:
    metadata.update([Change((box, b"%d" % number), entry(1, 1 + number)) for number in range(5)])
    with suppress(ZeroDivisionError), metadata.listing(box, b"", most=2) as pages:
        next(pages)
        if interrupted:
            raise ZeroDivisionError
    metadata.update([Change((box, b"later"), entry(1, 9))])
    with closing(sqlite3.connect(path)) as connection:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0


def test_who_reads_a_list_slowly_keeps_nobody_waiting(metadata: DeviceMetadata, box: int) -> None:
    metadata.update([Change((box, b"%d" % number), entry(1, 1 + number)) for number in range(5)])
    with ExitStack() as slow:
        lists = [slow.enter_context(metadata.listing(box, b"", most=2)) for _ in range(20)]
        assert all(len(next(pages)) == 2 for pages in lists)
        assert len(list(metadata.values())) == 5
        metadata.update([Change((box, b"later"), entry(1, 9))])
        metadata.close()
        with pytest.raises(HybrisError, match="closed"):
            next(lists[0])
    with pytest.raises(HybrisError, match="closed"), metadata.listing(box, b""):
        pass


def test_containers(metadata: DeviceMetadata, box: int) -> None:
    with pytest.raises(ContainerExistsError):
        metadata.create_container("box")
    metadata.update([Change((box, b"key"), entry(1, 1))])
    with pytest.raises(ContainerInUseError):
        metadata.delete_container("box")
    metadata.update([Change((box, b"key"), KeyMetadata(2, 2))])
    metadata.delete_container("box")
    assert metadata.containers() == []
    with pytest.raises(NoSuchContainerError):
        metadata.delete_container("box")
    metadata.create_container("box")
    assert metadata.container("box") != box
    with pytest.raises(NoSuchContainerError, match="has just been deleted"):  # a write that began before
        metadata.update([Change((box, b"key"), entry(9, 9))])
    with metadata.listing(metadata.container("box"), b"") as pages:
        assert list(pages) == []


def test_readers_never_go_back(metadata: DeviceMetadata, box: int) -> None:
    """Also not when what they read is now in memory and now in the database."""
    place = (box, b"key")
    over = threading.Event()

    def read() -> int:
        newest = 0
        while not over.is_set():
            found = metadata.read(place)
            sn = 0 if found is None else found.sn
            assert sn >= newest
            newest = sn
        return newest

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for sn in range(1, 50):
            assert metadata.update([Change(place, entry(sn, sn))])
            if sn % 7 == 0:
                metadata._recent.begin([place])  # as if it had been forgotten
                metadata._recent.end({})
        over.set()
        assert max(reader.result() for reader in readers) <= 49


def test_watches_are_told_of_their_key_only(metadata: DeviceMetadata, box: int) -> None:
    told: list[int] = []
    with (
        metadata.watch((box, b"a"), lambda: told.append(1)),
        metadata.watch((box, b"b"), lambda: told.append(2)),
    ):
        metadata.update([Change((box, b"a"), entry(1, 1))])
        assert told == [1]
        metadata.update([Change((box, b"a"), entry(1, 1))])  # no change
        metadata.update([Change((box, b"b"), entry(1, 2)), Change((box, b"a"), entry(2, 3))])
        assert sorted(told) == [1, 1, 2]
    metadata.update([Change((box, b"a"), entry(3, 4))])
    assert len(told) == 3


def test_metadata_take_little_room(metadata: DeviceMetadata, path: Path, box: int) -> None:
    """At most 60 bytes per key beyond the key itself, all of SQLite's overhead included, in random order."""
    count, key_size = 20_000, 24
    keys = [b"%024x" % random.getrandbits(96) for _ in range(count)]
    metadata.update([Change((box, key), entry(1, number + 1_000_000)) for number, key in enumerate(keys)])
    metadata.close()
    with sqlite3.connect(path) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    assert ((pages - free) * size) / count - key_size <= 60


def test_what_is_closed_says_so(metadata: DeviceMetadata) -> None:
    metadata.close()
    metadata.close()
    with pytest.raises(HybrisError, match="closed"):
        metadata.create_container("late")


def test_who_goes_over_all_values_meanwhile_is_told_of_the_end(metadata: DeviceMetadata, box: int) -> None:
    """There are more than are read at a time."""
    metadata.update([Change((box, b"%d" % number), entry(1, 1 + number)) for number in range(3000)])
    going = metadata.values()
    assert next(going).place == (box, b"0")
    metadata.close()
    for _ in range(9):  # more often than there are connections
        with pytest.raises(HybrisError, match="closed"):
            list(metadata.values())
    with pytest.raises(HybrisError, match="closed"):
        list(going)


def test_other_files_are_refused(path: Path, tmp_path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(NewerFormatError):
        DeviceMetadata(path, SYSTEM)
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(os.urandom(8192))
    with pytest.raises(DamagedError):
        DeviceMetadata(garbage, SYSTEM)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_database_of_an_earlier_format_is_brought_up_to_date(
    path: Path, metadata: DeviceMetadata, box: int, version: int
) -> None:
    metadata.update([Change((box, b"a"), entry(1, 1)), Change((box, b"b"), entry(1, 2))])
    metadata.update([Change((box, b"b"), KeyMetadata(2, 3))])
    metadata.forget_garbage([], [Owed(5, 1, 1)])
    metadata.close()
    with sqlite3.connect(path) as connection:
        for table in ("held", "owing", "repetition")[version - 1 :]:
            connection.execute(f"DROP TABLE {table}")
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    again = DeviceMetadata(path, SYSTEM)
    assert [again.held(cloud) for cloud in range(3)] == [1, 1, 0]
    assert again.read((box, b"a")) == entry(1, 1)
    assert again.owing().keys() == {5}
    again.forget_owed([Owed(5, 1, 1)], [Repetition(5, 10, 1, pack_writes([(1, 1)]))])
    assert again.first_repetitions() == {5: 10}
    again.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    connection.close()


def test_how_many_values_a_cloud_has_is_always_known(path: Path, metadata: DeviceMetadata, box: int) -> None:
    moved = entry(1, 1)._replace(placement=(1, 2), moved=9)
    metadata.update([Change((box, b"a"), entry(1, 1)), Change((box, b"b"), entry(1, 2))])
    assert metadata.move((box, b"a"), entry(1, 1), moved)
    assert not metadata.move((box, b"a"), entry(1, 1), moved)
    assert [metadata.held(cloud) for cloud in range(4)] == [1, 2, 1, 0]
    assert metadata.garbage(0, 9) == [Garbage(1, 1)]
    metadata.update([Change((box, b"a"), KeyMetadata(2, 10))])
    assert metadata.garbage(0, 9) == [Garbage(1, 1), Garbage(9, 1)]
    metadata.close()
    again = DeviceMetadata(path, SYSTEM)
    assert [again.held(cloud) for cloud in range(4)] == [1, 1, 0, 0]
    assert again.new_write() == 11
    again.close()


def test_a_damaged_record_is_an_error_of_its_key(path: Path, metadata: DeviceMetadata, box: int) -> None:
    metadata.update([Change((box, b"good"), entry(1, 1)), Change((box, b"bad"), entry(1, 2))])
    metadata.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entry SET record = substr(record, 1, 9) WHERE key = ?", (b"bad",))
    connection.close()
    again = DeviceMetadata(path, SYSTEM)
    with pytest.raises(DamagedError):
        again.read((box, b"bad"))
    with pytest.raises(DamagedError):
        again.update([Change((box, b"bad"), entry(2, 3))])
    assert again.read((box, b"good")) == entry(1, 1)
    again.close()


CRASHING = """
import sys, threading
from pathlib import Path
from hybrisfs.environment import SYSTEM
from hybrisfs.kv.metadata import Change
from hybrisfs.kv.rmds import DeviceMetadata
from tests.kv.test_rmds import entry

metadata = DeviceMetadata(Path(sys.argv[1]), SYSTEM)
box = metadata.container("box")
saying = threading.Lock()

def client(number):
    for sn in range(1, 1 << 30):
        pair = [(box, b"%d-left" % number), (box, b"%d-right" % number)]
        assert metadata.update([Change(place, entry(sn, metadata.new_write())) for place in pair])
        with saying:
            print(number, sn, flush=True)

for number in range(4):
    threading.Thread(target=client, args=(number,)).start()
"""


@pytest.mark.parametrize("acknowledged", [1, 251])
def test_killed_in_the_middle_of_commits(
    path: Path, metadata: DeviceMetadata, box: int, acknowledged: int
) -> None:
    """What was acknowledged is there, transactions are whole, and no number of a write comes twice."""
    metadata.close()
    process = subprocess.Popen(
        [sys.executable, "-c", CRASHING, str(path)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout as lines:
        said = [next(lines) for _ in range(acknowledged)]
        process.send_signal(signal.SIGKILL)
        said += list(lines)
    newest = {int(number): int(sn) for number, sn in (line.split() for line in said if line.endswith("\n"))}
    again = DeviceMetadata(path, SYSTEM)
    highest = 0
    for number in range(4):
        left, right = (again.read((box, b"%d-%s" % (number, side))) for side in (b"left", b"right"))
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            assert left.sn == right.sn >= newest.get(number, 0)
            highest = max(highest, left.write, right.write)
        else:
            assert number not in newest
    assert again.new_write() > highest
    again.close()


def test_nobody_writes_to_a_container_that_has_been_copied(metadata: DeviceMetadata, box: int) -> None:
    """The write would be lost. It began when the container had its name still."""
    place = (box, b"key")
    made = metadata.update([Change(place, entry(0, 1))])
    assert made is not None
    metadata.rename_container("box", leaving("box", "mark"))
    with pytest.raises(NoSuchContainerError):
        metadata.update([Change(place, entry(0, 2))])
    assert not metadata.move(place, made[0], made[0]._replace(moved=3))
    assert metadata.read(place) == made[0]
    with pytest.raises(NoSuchContainerError):
        metadata.read((box, b"none"))
    metadata.discard_container(leaving("box", "mark"))
    assert (metadata.containers(), metadata.count(), metadata.held(0)) == ([], 0, 0)
    assert [one.write for one in metadata.garbage(0, 10)] == [made[0].write]
