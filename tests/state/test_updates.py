"""The log in the database, and the state that must never be ahead of it."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.state.database import Database
from hybrisfs.state.updates import LogRows, UpdateLog
from sync import (
    Accepted,
    Deliver,
    Duplicate,
    Exchange,
    LogState,
    Members,
    Reason,
    Refused,
    Send,
    SignedUpdate,
    Successor,
    VersionVector,
    decode_signed,
)
from tests.sync.support import KEYS, NOON, VOLUME, Device, MemoryLog

KEY = KEYS[0]
MEMBERS = Members([key.public for key in KEYS])
WRITES = [(b"key", b"value")]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "volume.db"
    Database.create(path, VOLUME)
    opened = Database(path, SYSTEM)
    yield opened
    opened.abandon()


def opened(database: Database) -> UpdateLog:
    return UpdateLog(LogRows(database.rows), database.environment, MEMBERS, KEY)


def test_signed_updates_are_a_log_that_others_accept(database: Database) -> None:
    log = opened(database)
    for number in range(3):
        log.sign([(b"key %d" % number, None)], NOON, number)
    log = opened(database)
    log.sign(WRITES, NOON, 3)
    assert [row[:2] for row in log.own_after(0, 10)] == [(1, 0), (2, 1), (3, 2), (4, 3)]
    memory = MemoryLog()
    other = LogState(VOLUME, MEMBERS, memory)
    for data in log.own_between(1, 4):
        outcome = other.accept(decode_signed(data))
        assert isinstance(outcome, Accepted)
        memory.add(outcome)
    assert other.vector == log.state.vector
    assert isinstance(log.state.accept(decode_signed(log.own_between(2, 2)[0])), Duplicate)


def test_lists_of_own_updates(database: Database) -> None:
    log = opened(database)
    sizes = [len(log.sign([(b"key", bytes(10 * number))], NOON, 0).data) for number in range(5)]
    assert [row[2] for row in log.own_after(0, 10)] == sizes
    assert [row[0] for row in log.own_after(2, 2)] == [3, 4]
    assert log.own_after(5, 10) == []
    assert [len(data) for data in log.own_between(2, 3)] == sizes[1:3]


@contextmanager
def full_disk(database: Database, refused: str) -> Iterator[None]:
    """SQLite fails when it comes to do what is *refused*."""
    message = "the disk is full"
    database.rows.execute(
        f"CREATE TEMP TRIGGER full BEFORE {refused} BEGIN SELECT RAISE(ABORT, '{message}'); END"
    )
    with pytest.raises(sqlite3.Error, match=message):
        yield
    database.rows.execute("DROP TRIGGER full")


def test_an_update_that_could_not_be_stored_was_never_signed(database: Database) -> None:
    """The next one would otherwise follow an update that does not exist."""
    log = opened(database)
    first = log.sign(WRITES, NOON, 0)
    with full_disk(database, "INSERT ON log"):
        log.sign(WRITES, NOON, 0)
    second = log.sign(WRITES, NOON, 0)
    assert (second.header.clock, second.header.prev) == (2, first.hash)
    assert opened(database).state.vector == log.state.vector


def forked(database: Database) -> tuple[UpdateLog, list[SignedUpdate], Device]:
    """Device 1 wrote a fork that this database has accepted half of; what comes next; who has all."""
    device = Device(KEYS[1])
    for _ in range(3):
        device.write()
    twin = Device(KEYS[1])
    twin.receive_all(device.order[:1])
    theirs = [twin.write((b"key", b"other")) for _ in range(2)]
    log = opened(database)
    log.sign(WRITES, NOON, 0)
    for update in device.order:
        assert isinstance(log.accept(update.data), Accepted)
    log.sign(WRITES, NOON, 0)
    device.receive_all([decode_signed(data) for data in log.own_between(1, 99)])
    device.receive_all(theirs)
    return log, theirs, device


def test_a_fork_is_dated_by_the_branch_that_began_last(database: Database) -> None:
    log, theirs, device = forked(database)
    assert log.forks() == {}
    for update in theirs:
        assert isinstance(log.accept(update.data), Accepted)
    [(who, moment)] = log.forks().items()
    assert who == device.key.device_id
    assert moment == max(log.moment_of(branch.id, 2) for branch in log.state.branches if branch.parent)


def stored(database: Database) -> dict[tuple[bytes, int], tuple[bytes, VersionVector]]:
    rows = database.rows.execute("SELECT branch, clock, bytes, vector FROM log")
    return {(row[0], row[1]): (row[2], VersionVector.decode(row[3])) for row in rows}


@pytest.mark.parametrize("refused", ["INSERT ON log", "INSERT ON log_branch", "UPDATE OF vector ON log"])
def test_a_fork_that_could_not_be_stored_was_not_accepted(database: Database, refused: str) -> None:
    log, theirs, device = forked(database)
    before = stored(database)
    with full_disk(database, refused):
        log.accept(theirs[0].data)
    assert stored(database) == before
    for update in theirs:
        assert isinstance(log.accept(update.data), Accepted)
    assert log.state.vector == device.state.vector


def test_a_fork_is_stored(database: Database) -> None:
    log, theirs, device = forked(database)
    for update in theirs:
        assert isinstance(log.accept(update.data), Accepted)
    assert stored(database) == {
        stamp: (update.data, vector) for stamp, (update, vector) in device.log.rows.items()
    }
    for one in (log, opened(database)):
        assert one.state.vector == device.state.vector
        assert one.state.history() == device.state.history()
        assert set(one.state.branches) == set(device.state.branches)
        assert {tip.hash for tip in one.tips()} == {tip.hash for tip in device.state.tips()}
    again = opened(database)
    assert all(isinstance(again.accept(update.data), Duplicate) for update in device.order)
    assert len(again.own_after(0, 10)) == 2


def test_what_is_no_update_is_refused(database: Database) -> None:
    outcome = opened(database).accept(b"nonsense")
    assert isinstance(outcome, Refused) and outcome.reason is Reason.MALFORMED


def test_a_device_restored_from_a_backup_goes_on_on_a_branch_of_its_own(database: Database) -> None:
    log = opened(database)
    log.sign(WRITES, NOON, 1)
    former = Device(KEY)
    former.receive_all([decode_signed(log.own_between(1, 1)[0])])
    lost = [former.write((b"key", b"lost")) for _ in range(2)]
    kept = [log.sign(WRITES, NOON, 2) for _ in range(2)]
    for update in lost:
        assert isinstance(log.accept(update.data), Accepted)
    kept.append(log.sign(WRITES, NOON, 3))
    assert kept[-1].header.prev == kept[-2].hash
    assert kept[-1].header.deps == (lost[-1].stamp,)
    for one in (log, opened(database)):
        assert [row[:2] for row in one.own_after(1, 10)] == [(2, 2), (3, 2), (4, 3)]
        assert [row[0] for row in one.own_after(0, 2)] == [1, 2]
        assert one.own_between(2, 4) == [update.data for update in kept]
        assert one.own_between(1, 1) == [former.order[0].data]


def test_a_device_goes_on_from_what_it_is_about_to_ship_whatever_else_comes_back(database: Database) -> None:
    log = opened(database)
    one, other = Device(KEY), Device(KEY)
    first = one.write((b"key", b"first life"))
    others = [other.write((b"key", b"second life")) for _ in range(2)]
    assert isinstance(log.accept(first.data), Accepted)
    log.go_on_through(1)
    for update in others:
        assert isinstance(log.accept(update.data), Accepted)
    with full_disk(database, "INSERT ON log"):
        log.sign(WRITES, NOON, 1)
    assert [row[0] for row in log.own_after(0, 10)] == [1]
    assert log.sign(WRITES, NOON, 1).header.prev == first.hash


def test_what_the_log_state_asks(database: Database) -> None:
    log = opened(database)
    first, second = (log.sign(WRITES, NOON, 0) for _ in range(2))
    me = KEY.device_id
    assert log.hash_of(me, 1) == first.hash
    assert log.hash_of(me, 3) is None
    assert log.update_at(me, 2) == second.data
    assert log.update_at(me, 3) is None
    assert log.vector_of(me, 2) == VersionVector({me: 1})
    assert log.vector_of(KEYS[1].device_id, 1) is None
    assert log.successor_of(me, 1) == Successor(second.hash, second.data)
    assert log.successor_of(me, 2) is None
    assert log.find(second.hash[:16]) == log.own_tip()
    assert log.find(bytes(16)) is None


def connected(*logs: UpdateLog) -> int:
    """Exchange until nothing is on the way; how many messages that took."""
    ends = [Exchange(log, lambda: None) for log in logs]
    arriving = [deque(end.begin()) for end in ends[::-1]]
    count = 0
    while any(arriving):
        for here, (log, end) in enumerate(zip(logs, ends, strict=True)):
            if not arriving[here]:
                continue
            count += 1
            for action in end.receive(arriving[here].popleft()):
                if isinstance(action, Deliver):
                    for data in action.updates:
                        assert isinstance(log.accept(data), Accepted | Duplicate)
                    arriving[1 - here] += end.advanced()
                else:
                    assert isinstance(action, Send)
                    arriving[1 - here].append(action.message)
    return count


def test_logs_in_databases_are_exchanged(database: Database, tmp_path: Path) -> None:
    """Each knows another half of a fork, and one was restored from a backup."""
    ours, _, device = forked(database)
    Database.create(tmp_path / "other.db", VOLUME)
    other = Database(tmp_path / "other.db", SYSTEM)
    theirs = UpdateLog(LogRows(other.rows), other.environment, MEMBERS, KEYS[1])
    fork = [update for update in device.order if update.header.writer != KEY.device_id]
    for update in (fork[0], *fork[3:]):
        assert isinstance(theirs.accept(update.data), Accepted)
    for log in (ours, theirs) * 3:
        log.sign(WRITES, NOON, 0)
    assert connected(ours, theirs) < 20
    assert stored(database) == stored(other)
    assert ours.state.history() == theirs.state.history()
    assert connected(ours, theirs) == 2
    other.abandon()


def test_what_somebody_lacks(database: Database) -> None:
    log, theirs, _ = forked(database)
    everything = [row[0] for row in database.rows.execute("SELECT bytes FROM log ORDER BY number")]
    known = VersionVector()
    assert [row.data for row in log.missing(known, 0, 1 << 20)] == everything
    first = log.missing(known, 0, 1)
    assert [row.data for row in first] == everything[:1]
    assert [row.data for row in log.missing(known, first[0].number, 1 << 20)] == everything[1:]
    assert log.missing(log.state.vector, 0, 1 << 20) == []
    assert log.missing(known, len(everything), 1 << 20) == []
    half = VersionVector({KEY.device_id: 99})
    others = [data for data in everything if decode_signed(data).header.writer != KEY.device_id]
    assert [row.data for row in log.missing(half, 0, 1 << 20)] == others
    newest = log.newest_below(KEYS[1].device_id, 2)
    assert newest is not None and newest.clock == 2 and log.newest_below(bytes(16), 2) is None
    log.accept(theirs[0].data)
    tip = log.find(theirs[0].hash[:16])
    assert tip is not None and log.path(tip) == [(tip.branch, tip.clock), (KEYS[1].device_id, 1)]


def test_what_is_deferred_is_found_and_stored_in_the_end(database: Database) -> None:
    other = Device(KEYS[1])
    updates = [other.write((b"key %d" % number, b"value")).data for number in range(6)]
    stored = "SELECT count(*) FROM log"
    log = opened(database)
    with log.deferred():
        for data in updates[:3]:
            assert isinstance(log.accept(data), Accepted)
        assert database.rows.execute(stored).fetchone() == (1,)  # the first of a branch is stored with it
        assert log.update_at(other.key.device_id, 2) == updates[1]
        assert log.known([decode_signed(updates[2]).hash]) == {decode_signed(updates[2]).hash}
        for data in updates[3:]:
            assert isinstance(log.accept(data), Accepted)
        assert isinstance(log.accept(updates[4]), Duplicate)
    assert database.rows.execute(stored).fetchone() == (6,)
    assert opened(database).state.vector == log.state.vector


def test_what_was_deferred_and_could_not_be_stored_was_not_accepted(database: Database) -> None:
    other = Device(KEYS[1])
    updates = [other.write((b"key %d" % number, b"value")).data for number in range(4)]
    log = opened(database)
    log.accept(updates[0])
    database.rows.execute(
        "CREATE TEMP TRIGGER refuse BEFORE INSERT ON log WHEN new.clock = 3 "
        "BEGIN SELECT raise(ABORT, 'disk full'); END"
    )
    with pytest.raises(sqlite3.DatabaseError), log.deferred():
        for data in updates:
            log.accept(data)
    database.rows.execute("DROP TRIGGER refuse")
    assert log.state.vector == opened(database).state.vector
    assert all(not isinstance(log.accept(data), Refused) for data in updates)
    assert log.state.vector[other.key.device_id] == len(updates)
