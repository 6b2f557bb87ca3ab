"""The record of packs: all of it or nothing, and nothing of it left to be signed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hybrisfs.dispersal.pack import EncodedPack, Redundancy
from hybrisfs.registers.tree import PackedChunk, PackRecord
from hybrisfs.write.pack import record_packs
from sync import decode_signed
from tests.tree.rig import Rig

PLACEMENT = bytes((0, 1))


def packs_of(rig: Rig, count: int) -> list[tuple[EncodedPack, bytes]]:
    placed = []
    for number in range(count):
        data = random.Random(number).randbytes(100)
        builder = rig.packs.builder()
        identity = rig.packs.sealer.chunk_id(data)
        builder.add(identity, len(data), rig.packs.sealer.seal(identity, data))
        placed.append((rig.packs.finish(rig.fs, builder), PLACEMENT))
    return placed


def unsigned(rig: Rig) -> list[bytes]:
    return [key for key in rig.fs.changes.unsigned if key[:1] == b"k"]


def test_several_packs_are_recorded_in_one_update(rig: Rig) -> None:
    told: list[Sequence[PackedChunk]] = []
    placed = packs_of(rig, 3)
    with rig.fs.state.transaction():
        assert record_packs(
            rig.fs, rig.sharing.signer, placed, lambda _, number, some: told.append(some), [(b"w", b"")]
        )
        assert not unsigned(rig), "nothing is signed again"
        tip = rig.updates.own_tip()
        assert tip is not None
        data = rig.updates.update_at(tip.branch, tip.clock)
    assert data is not None
    writes = dict(decode_signed(data).writes)
    assert writes.keys() == {b"w", *(b"k" + pack.pack_id for pack, _ in placed)}
    assert [len(some) for some in told] == [1, 1, 1]
    assert {PackRecord.decode(writes[b"k" + pack.pack_id] or b"").placement for pack, _ in placed} == {
        PLACEMENT
    }


def test_a_pack_that_is_to_end_takes_the_others_with_it(rig: Rig) -> None:
    placed = packs_of(rig, 2)
    with rig.fs.state.transaction() as tx:
        tx.execute("INSERT INTO pack (id, k, n, placement) VALUES (?, 1, 0, x'')", (placed[1][0].pack_id,))
        assert not record_packs(rig.fs, rig.sharing.signer, placed, lambda *_: None)
        assert tx.execute("SELECT count(*) FROM pack WHERE n > 0").fetchone() == (0,)
        assert not unsigned(rig)


def test_how_packs_are_written_may_change_at_any_time(rig: Rig) -> None:
    rig.packs.redundancy = Redundancy(2, 1)
    [(pack, _)] = packs_of(rig, 1)
    assert (pack.k, pack.n) == (1, 3)
