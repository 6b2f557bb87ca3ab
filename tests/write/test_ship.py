"""The shipper: data before the metadata that names it, durable before either, and always the same bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.environment import SYSTEM
from hybrisfs.members.members import Member
from hybrisfs.members.removal import Stance, encode_vote, vote_key
from hybrisfs.parts import open_shipping
from hybrisfs.registers.tree import Content, content_key
from hybrisfs.registers.values import Stamp
from hybrisfs.state.database import Database
from hybrisfs.state.updates import LogRows, UpdateLog
from hybrisfs.write.ship import ShipLimits
from sync import (
    DeviceKey,
    Head,
    LogOnClouds,
    LogSegment,
    Members,
    SegmentId,
    decode_head,
    decode_segment,
    head_name,
)
from tests.state.disk import ForgetfulDisk
from tests.state.test_chunks import CONTENT, spoil
from tests.tree.replay import Reader
from tests.tree.rig import DEVICE, SEGMENT_KEYS, VOLUME, Rig
from tests.write.support import PutAll, Unknown

KEY = SEGMENT_KEYS
OTHER = DeviceKey.from_seed(b"\x08" * 32)


class Log:
    """What the clouds hold of the log, in the order of the puts."""

    def __init__(self, rig: Rig) -> None:
        self.puts: list[tuple[str, bytes]] = []
        self.attempts: list[tuple[str, bytes]] = []
        self.failures = 0
        self.refused = ""
        """The object that the clouds do not take."""
        self.before_put: Callable[[str, bytes], object] = lambda name, data: None
        """Called before they take an object."""
        self.serve(rig)

    def serve(self, rig: Rig) -> None:
        self.rig = rig
        self.clouds = PutAll(self.put)
        unknown = Unknown()
        shipping = open_shipping(rig.local, rig.fetcher, rig.links, self.clouds, unknown, unknown)
        self.shipper, self.uploads = shipping.shipper, shipping.uploads

    def put(self, name: str, data: bytes) -> tuple[int, ...]:
        self.before_put(name, data)
        self.attempts.append((name, data))
        if self.failures:
            self.failures -= 1
            raise CloudsUnavailable(name, {})
        if name == self.refused:
            raise CloudsUnavailable(name, {})
        self.puts.append((name, data))
        return 0, 1

    def ship(self) -> None:
        """All that may be shipped."""
        self.rig.signals.begin_flush()
        self.shipper.limits = replace(self.shipper.limits, first_retry=0.0)
        self.shipper._delay = 0.0
        while self.shipper._ship_one():
            pass
        self.rig.signals.end_flush()

    def segments(self) -> list[LogSegment]:
        return [
            decode_segment(data, name, VOLUME, KEY) for name, data in self.puts if name.startswith("log/")
        ]

    def clocks(self) -> list[int]:
        return [update.header.clock for segment in self.segments() for update in segment.updates]

    def heads(self) -> list[Head]:
        name = head_name(DEVICE.device_id)
        return [decode_head(data, VOLUME, DEVICE.public, KEY) for put, data in self.puts if put == name]


@pytest.fixture
def log(rig: Rig) -> Log:
    return Log(rig)


def newest(rig: Rig) -> int:
    clock: int = rig.db.rows.execute("SELECT ifnull(max(clock), 0) FROM log").fetchone()[0]
    return clock


def test_an_update_waits_for_the_chunks_that_it_names(rig: Rig, log: Log) -> None:
    rig.publish()
    rig.make(b"file", b"content")
    rig.publish()
    log.ship()
    assert log.clocks() == [1]
    rig.pack()
    log.ship()
    assert log.clocks() == [1, 2, 3]
    assert rig.fs.changes.pending_nodes(rig.tx) == 0


def test_an_accused_device_waits_for_no_chunks(rig: Rig, log: Log) -> None:
    """It may not sign where they are, and those who can veto the accusation are to hear what it signs."""
    rig.make(b"file", b"content")
    rig.publish()
    rig.tx.members.admit([Member(OTHER.public, "other")])
    minutes, vote = rig.tx.registers.minutes, vote_key(DEVICE.device_id, OTHER.device_id)
    minutes.note(Stamp(1, OTHER.device_id), vote, encode_vote(Stance.SUSPEND))
    assert rig.tx.is_suspended()
    log.ship()
    assert log.clocks() == [1]
    minutes.note(Stamp(2, OTHER.device_id), vote, encode_vote(Stance.KEEP))
    assert not rig.tx.is_suspended()
    rig.make(b"another", b"content, too")
    rig.publish()
    log.ship()
    assert log.clocks() == [1]


def test_nothing_overtakes_an_update_that_waits(rig: Rig, log: Log) -> None:
    rig.make(b"one", b"content")
    rig.publish()
    rig.mkdir(b"folder")
    rig.publish()
    log.ship()
    assert log.clocks() == []


def test_segments_form_a_chain_across_restarts(rig: Rig, log: Log) -> None:
    for number in range(3):
        rig.mkdir(b"%d" % number)
        rig.publish()
        log.ship()
        rig = rig.reopen()
        log.serve(rig)
    assert [len(one.updates) for one in log.segments()] == [1, 1, 1]
    segments = log.segments()
    ids = [SegmentId.of(one.updates[0].header.clock, one.updates[-1].hash) for one in segments]
    assert [one.previous for one in segments] == [None, *ids[:2]]
    assert log.heads()[-1].on_clouds == LogOnClouds(3, ids[2], 3)
    rows = rig.db.rows.execute(
        "SELECT first, last, name, size, placement FROM log_segment ORDER BY first"
    ).fetchall()
    shipped = [(name, len(data)) for name, data in log.puts if name.startswith("log/")]
    assert [(row[2], row[3]) for row in rows] == shipped
    assert all(row[4] == b"\0\1" for row in rows)
    rig.discard()


def test_nothing_leaves_the_device_that_a_power_cut_could_take_back(tmp_path: Path) -> None:
    """Neither a segment nor a head: the device would sign the same clocks once more and fork itself."""
    disk = ForgetfulDisk(tmp_path)
    rig = Rig(tmp_path, environment=disk.environment)
    disk.watch(tmp_path)
    log = Log(rig)

    def cut_the_power(name: str, data: bytes) -> None:
        rig.mkdir(b"meanwhile %d" % len(log.puts))
        rig.publish()  # signed, but not durable
        with tempfile.TemporaryDirectory() as folder:
            disk.image(Path(folder))
            database = Database(Path(folder) / "volume.db", SYSTEM)
            stored = UpdateLog(LogRows(database.rows), database.environment, Members([DEVICE.public]), DEVICE)
            if name.startswith("log/"):
                for update in decode_segment(data, name, VOLUME, KEY).updates:
                    assert stored.hash_of(DEVICE.device_id, update.header.clock) == update.hash
            else:
                head = decode_head(data, VOLUME, DEVICE.public, KEY)
                assert head.newest is not None
                assert stored.hash_of(DEVICE.device_id, head.newest.clock) == head.newest.hash
            database.abandon()

    log.before_put = cut_the_power
    rig.mkdir(b"folder")
    rig.publish()
    rig.signals.begin_flush()
    for _ in range(3):
        assert log.shipper._ship_one()
    assert len(log.heads()) == 3
    rig.discard()


@pytest.mark.parametrize("failures", [1, 2])
def test_what_failed_is_tried_again_with_the_same_bytes(rig: Rig, log: Log, failures: int) -> None:
    rig.mkdir(b"one")
    rig.publish()
    log.failures = failures
    log.ship()
    assert not log.heads()
    rig.mkdir(b"two")
    rig.publish()
    while len(log.heads()) < 2:
        log.ship()
    names = [name for name, _ in log.attempts]
    for name in set(names):
        if name.startswith("log/"):
            assert len({data for other, data in log.attempts if other == name}) == 1
    assert log.clocks() == [1, 2]


def test_a_head_that_failed_is_announced_after_its_segment_once_more(rig: Rig, log: Log) -> None:
    rig.mkdir(b"one")
    rig.publish()
    log.refused = head_name(DEVICE.device_id)
    log.ship()
    log.refused = ""
    assert (len(log.segments()), len(log.heads())) == (1, 0)
    assert rig.db.rows.shipped_clock() == 0
    log.ship()
    assert log.puts[0] == log.puts[1]
    assert len(log.heads()) == 1
    assert rig.db.rows.shipped_clock() == 1


def test_a_full_disk_keeps_the_log_at_home(rig: Rig, log: Log) -> None:
    rig.mkdir(b"one")
    rig.publish()
    rig.journal.free = -1
    log.ship()
    assert not log.attempts
    rig.journal.free = None
    log.ship()
    assert log.clocks() == [1]


def test_what_is_pending_is_shipped_after_a_crash(rig: Rig, log: Log) -> None:
    rig.make(b"file", b"content")
    rig.publish()
    rig.pack()
    rig.commit()
    rig = rig.crashed()
    log.serve(rig)
    log.ship()
    assert log.clocks() == [1, 2]
    rig = rig.crashed()  # shipped, but the record of it is lost
    log.serve(rig)
    rig.mkdir(b"folder")
    rig.publish()
    log.ship()
    assert log.clocks() == [1, 2, 1, 2, 3]
    last = log.heads()[-1].on_clouds
    assert last is not None and last.segments == 1
    rig.abandon()


def test_a_device_restored_from_before_it_shipped_overwrites_nothing(rig: Rig, log: Log) -> None:
    """The backup holds an update that was signed but not shipped: the device goes on from there twice."""
    rig.mkdir(b"shared")
    rig.publish()
    rig.commit()
    backup = rig.crashed(leave=False)
    rig.mkdir(b"before")
    rig.publish()
    log.ship()
    log.serve(backup)
    backup.mkdir(b"after")
    backup.publish()
    log.ship()
    assert log.clocks() == [1, 2, 1, 2]
    names = [name for name, _ in log.puts if name.startswith("log/")]
    assert len(set(names)) == 2
    first, second = log.segments()
    assert first.updates[0] == second.updates[0] and first.updates[1] != second.updates[1]
    for one in (first, second):
        for update in one.updates:
            rig.updates.accept(update.data)
    assert len(rig.updates.state.tips()) == 2, "both branches can be joined"
    backup.abandon()


def test_a_long_log_is_shipped_in_pieces(rig: Rig, log: Log) -> None:
    log.shipper.limits = ShipLimits(segment_bytes=1000)
    for number in range(10):
        rig.mkdir(b"%d" % number)
        rig.publish()
    log.ship()
    assert log.clocks() == list(range(1, 11))
    assert 3 < len(log.segments()) < 10


def test_updates_wait_a_while_for_more(rig: Rig, log: Log) -> None:
    rig.mkdir(b"one")
    rig.publish()
    assert not log.shipper._ship_one()
    log.shipper.limits = ShipLimits(linger_seconds=0.0)
    assert log.shipper._ship_one()


def test_a_lost_chunk_does_not_hold_up_the_log(rig: Rig, log: Log) -> None:
    rig.make(b"bad", CONTENT)
    rig.publish()
    rig.make(b"good", b"content")
    rig.publish()
    spoil(rig)
    log.ship()
    assert log.clocks() == []
    rig.pack()
    log.ship()
    assert log.clocks() == list(range(1, newest(rig) + 1))


def test_dropping_the_cache_drops_no_version_that_was_signed(rig: Rig, log: Log) -> None:
    """The file has been overwritten since, but the update that names the old bytes goes to the clouds."""
    inode = rig.make(b"file", b"old content")
    rig.publish()
    handle = rig.fs.open(rig.tx, inode.ino, 2)
    rig.fs.write(rig.tx, inode, 0, b"new content")
    rig.fs.release(rig.tx, handle)
    rig.publish()
    rig.room.drop_all()
    rig.pack()
    log.ship()
    reader = Reader()
    held = {entry.chunk_id for pack in rig.clouds.packs.values() for entry in pack.entries}
    for update in reader.catch_up(rig.db):
        for key, value in update.writes:
            if key == content_key(inode.id) and value is not None:
                assert {run.chunk for run in Content.decode(value).runs} <= held
    assert len(log.clocks()) == newest(rig)
