"""The packer: what becomes a pack, when it is sent, and what a crash or a bad disk costs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.pack import EncodedPack
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.environment import Environment
from hybrisfs.registers.tree import PackRecord, pack_key
from hybrisfs.stages import Stage, Wake
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.write.pack import PackLimits
from sync import OneKey
from tests.state.test_chunks import CONTENT, spoil
from tests.tree.invariants import check_accounts, check_chunks
from tests.tree.replay import Reader
from tests.tree.rig import SEALER, FakeClouds, Rig

PATIENCE = 30.0


def publish(rig: Rig, count: int, size: int = 100) -> list[bytes]:
    """So many files, each of one chunk that is like no other."""
    names = [b"%d" % number for number in range(count)]
    for name in names:
        rig.make(name, (b"content of %s " % name * size)[:size])
    rig.publish()
    return names


def test_many_small_files_cost_one_pack(rig: Rig) -> None:
    names = publish(rig, 50)
    rig.pack()
    assert (rig.clouds.puts, rig.unpacked()) == (1, 0)
    assert rig.room.drop_all()[1] == 0
    for name in names:
        assert rig.read(rig.find(name)) == (b"content of %s " % name * 100)[:100]


def test_a_pack_waits_a_while_for_more(rig: Rig) -> None:
    publish(rig, 1)
    rig.packer.pack_round()
    assert rig.clouds.puts == 0
    rig.packer.limits = PackLimits(linger_seconds=0.0)
    rig.packer.pack_round()
    assert rig.clouds.puts == 1


def test_a_full_pack_does_not_wait(rig: Rig) -> None:
    rig.make(b"file", bytes(range(256)) * 40)
    rig.packer.limits = PackLimits(target_bytes=300)
    publish(rig, 20)
    rig.packer.pack_round()
    assert rig.clouds.puts > 1


def test_memory_is_given_back_when_nothing_more_is_gathered() -> None:
    trimmed: list[int] = []
    rig = Rig(environment=Environment(trim=lambda: trimmed.append(rig.clouds.puts)))
    publish(rig, 5)
    rig.packer.pack_round()
    assert not trimmed
    rig.pack()
    assert trimmed == [1]
    rig.make(b"file", b"something else")
    rig.publish()
    rig.clouds.before_put = lambda _: setattr(rig.packer, "_builder", rig.packer._maker.builder())
    rig.pack(deferred=False)
    assert rig.clouds.puts == 2 and trimmed == [1]


def test_where_chunks_are_is_signed(rig: Rig) -> None:
    publish(rig, 5)
    rig.pack()
    reader = Reader()
    reader.catch_up(rig.db)
    (pack,) = rig.clouds.packs.values()
    value = reader.registers[pack_key(pack.pack_id)]
    assert value is not None
    record = PackRecord.decode(value)
    assert (record.k, record.n, record.placement) == (pack.k, pack.n, bytes(range(pack.n)))
    rows = rig.db.rows.execute("SELECT id, offset, sealed, length FROM chunk ORDER BY number").fetchall()
    assert [(one.id, one.offset, one.sealed, one.length) for one in record.chunks] == rows
    check_accounts(rig, [])


def test_a_crash_between_upload_and_record_costs_an_upload(rig: Rig) -> None:
    """Chunks stay pinned until the record is there; the same pack is then made again."""
    names = publish(rig, 5)
    rig.commit()
    crashed: list[Rig] = []
    rig.clouds.after_put = lambda _: crashed.append(rig.crashed(leave=False))
    rig.pack()
    rig.clouds.after_put = lambda _: None
    survivor = crashed[0]
    assert len(rig.clouds.packs) == 1
    assert survivor.unpacked() == 5
    survivor.pack()
    assert survivor.unpacked() == 0
    assert len(rig.clouds.packs) == 1
    survivor.room.drop_all()
    assert survivor.read(survivor.find(names[3])).startswith(b"content of 3")
    survivor.abandon()


def test_a_pack_waits_for_the_clouds(rig: Rig) -> None:
    publish(rig, 3)
    packs: list[EncodedPack] = []

    def refuse_thrice(pack: EncodedPack) -> None:
        packs.append(pack)
        if len(packs) < 4:
            raise CloudsUnavailable("pack", {})

    rig.packer.limits = PackLimits(first_retry=0.0)
    rig.clouds.before_put = refuse_thrice
    rig.pack()
    assert (rig.unpacked(), len(packs)) == (0, 4)
    assert all(pack is packs[0] for pack in packs)


def test_stopping_waits_for_no_cloud(rig: Rig) -> None:
    publish(rig, 3)
    rig.clouds.down = True
    tried = threading.Event()
    rig.clouds.before_put = lambda _: tried.set()
    rig.signals.begin_flush()
    rig.packer.limits = PackLimits(first_retry=1e6)
    with ThreadPoolExecutor(1) as pool:
        stage = Stage("pack", rig.packer.step, rig.signals.waiting(Wake.CHUNKS), finish=rig.packer.finish)
        body = pool.submit(stage.run, rig.signals, lambda error: False)
        assert tried.wait(PATIENCE)
        rig.signals.stop()
        body.result(PATIENCE)
    assert rig.unpacked() == 3


@pytest.mark.parametrize("damage", ["altered", "gone", "unreadable"])
def test_a_rotten_chunk_stops_no_other(rig: Rig, damage: str) -> None:
    rig.make(b"bad", CONTENT)
    [segment] = rig.journal.numbers()
    rig.journal.seal_active()
    names = publish(rig, 3)
    number = spoil(rig)
    if damage == "gone":
        os.truncate(rig.journal.directory / f"{segment:08d}.segment", 0)

    def unreadable(length: int) -> None:
        if damage == "unreadable" and length == len(CONTENT):
            raise OSError(5, "unreadable")

    rig.journal.before_read = unreadable
    rig.pack()
    rig.journal.before_read = lambda _: None
    assert rig.unpacked() == 1
    assert rig.tx.chunks.lost == {number}
    rig.room.drop_all()
    for name in names:
        assert rig.read(rig.find(name))
    assert rig.find(b"bad").size == len(CONTENT)


def test_lost_content_that_is_written_again_is_uploaded(rig: Rig) -> None:
    bad = rig.make(b"bad", CONTENT)
    rig.publish()
    spoil(rig)
    rig.pack()
    assert rig.unpacked() == 1
    rig.make(b"again", CONTENT)
    rig.publish()
    rig.pack()
    assert (rig.unpacked(), rig.tx.chunks.lost) == (0, set())
    rig.room.drop_all()
    assert rig.read(bad) == CONTENT
    check_chunks(rig)


def test_a_chunk_that_is_dropped_while_it_is_under_way(rig: Rig) -> None:
    """Nobody wants it any more; what takes its place must not pass for uploaded."""
    rig.make(b"file", CONTENT)
    rig.publish()

    def drop(_: EncodedPack) -> None:
        rig.fs.unlink(rig.tx, ROOT_INO, b"file")
        rig.tx.chunks.drop_unwanted()
        rig.make(b"new", b"new content")
        rig.publish()

    rig.clouds.before_put = drop
    rig.pack()
    rig.clouds.before_put = lambda _: None
    assert rig.unpacked() == 1
    check_accounts(rig, [])
    rig.pack()
    assert rig.unpacked() == 0
    rig.room.drop_all()
    assert rig.read(rig.find(b"new")) == b"new content"


def test_a_chunk_that_is_taken_over_once_more_while_it_waits(rig: Rig) -> None:
    """It is in the pack already; the next one must not be left behind for it."""
    publish(rig, 2)
    rig.packer.pack_round()
    for (number,) in rig.db.rows.execute("SELECT number FROM chunk").fetchall():
        rig.tx.chunks.take_over(number)
    rig.packer.pack_round()
    rig.pack()
    assert (rig.clouds.puts, rig.unpacked(), rig.tx.chunks.taken_over) == (1, 0, set())


def test_a_chunk_that_is_taken_over_before_its_turn_is_packed_once(rig: Rig) -> None:
    publish(rig, 1)
    [(number,)] = rig.db.rows.execute("SELECT number FROM chunk").fetchall()
    rig.tx.chunks.take_over(number)
    rig.pack()
    assert (rig.unpacked(), rig.tx.chunks.taken_over) == (0, set())


def test_a_chunk_that_is_dropped_and_written_again_while_it_waits(rig: Rig) -> None:
    rig.make(b"file", CONTENT)
    rig.publish()
    rig.packer.pack_round()
    rig.fs.unlink(rig.tx, ROOT_INO, b"file")
    rig.tx.chunks.drop_unwanted()
    rig.make(b"again", CONTENT)
    rig.publish()
    rig.packer.pack_round()
    rig.pack()
    assert rig.unpacked() == 0
    rig.room.drop_all()
    assert rig.read(rig.find(b"again")) == CONTENT


class _FailsOnce(Sealer):
    """Does not seal the second chunk at first."""

    seals = 0

    def seal_all(self, chunks: Sequence[tuple[bytes, bytes]]) -> Iterator[bytes]:
        for sealed in super().seal_all(chunks):
            self.seals += 1
            if self.seals == 2:
                raise OSError("once")
            yield sealed


def test_a_round_that_fails_leaves_nothing_behind() -> None:
    rig = Rig(sealer=_FailsOnce(OneKey(b"d" * 32), b"i" * 32))
    publish(rig, 5)
    with pytest.raises(OSError, match="once"):
        rig.packer.step()
    rig.packer.step()
    rig.pack()
    assert rig.unpacked() == 0
    rig.discard()


def test_a_pack_that_cannot_be_recorded_is_packed_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    publish(rig, 3)
    rig.packer.limits = PackLimits(last_retry=0.0)
    rig.clouds.before_put = lambda _: rig.db.rows.execute("PRAGMA query_only = 1")
    rig.pack()
    assert (rig.unpacked(), len(caplog.records)) == (3, 1)
    rig.db.rows.execute("PRAGMA query_only = 0")
    rig.clouds.before_put = lambda _: None
    rig.pack()
    assert rig.unpacked() == 0


def test_a_chunk_that_is_dropped_before_it_is_read_is_not_called_lost(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.make(b"file", CONTENT)
    rig.publish()
    rig.commit()

    def drop(_: int) -> None:
        rig.fs.unlink(rig.tx, ROOT_INO, b"file")
        for _ in range(2):  # the chunk, then its segment
            rig.room.evict(1 << 40)

    rig.journal.before_read = drop
    rig.pack()
    assert rig.fs.lookup(rig.tx, ROOT_INO, b"file") is None
    assert not rig.tx.chunks.lost
    assert not caplog.records


def test_large_packs_are_erasure_coded_and_small_ones_copied() -> None:
    rig = Rig(clouds=FakeClouds(), segment_size=4 << 20)
    noise = b"".join(SEALER.chunk_id(b"%d" % number) for number in range(1 << 16))
    rig.make(b"large", noise)
    rig.publish()
    rig.pack()
    rig.make(b"small", b"small")
    rig.publish()
    rig.pack()
    assert sorted((pack.k, pack.n) for pack in rig.clouds.packs.values()) == [(1, 2), (2, 3)]
    rig.room.drop_all()
    assert rig.read(rig.find(b"large")) == noise
    assert rig.read(rig.find(b"small")) == b"small"
    rig.abandon()
