"""What is known of packs: what this device put, what others say, and which of it counts."""

from __future__ import annotations

from hybrisfs.registers.tree import PackRecord
from hybrisfs.registers.values import Stamp
from hybrisfs.state.packs import KeptPack, Pack
from tests.tree.rig import Rig

FIRST, SECOND, THIRD = (bytes([number]) * 32 for number in (1, 2, 3))
MINE, THEIRS = bytes(16), b"\x01" * 16


def found(rig: Rig, pack: bytes) -> Pack:
    known = rig.tx.packs.find(pack)
    assert known is not None
    return known


def test_what_was_put_here_is_proven_and_what_is_told_is_not(rig: Rig) -> None:
    packs = rig.tx.packs
    put = packs.put(FIRST, 1, 2, b"\x01\x02", Stamp(5, MINE))
    told = packs.learn([(SECOND, PackRecord(2, 3, b"\x01\x02\x03", ()), Stamp(6, THEIRS))])
    assert found(rig, FIRST) == Pack(put, FIRST, 1, 2, b"\x01\x02", 5, MINE, proven=True, doubted=False)
    assert not found(rig, SECOND).proven
    assert packs.numbers([FIRST, SECOND, THIRD]) == {FIRST: put, **told}
    assert packs.newest() == told[SECOND]
    assert packs.find(THIRD) is None and packs.placement(THIRD) == b""


def test_who_puts_the_same_pack_again_keeps_its_number(rig: Rig) -> None:
    packs = rig.tx.packs
    number = packs.learn([(FIRST, PackRecord(1, 2, b"\x01\x02", ()), Stamp(5, THEIRS))])[FIRST]
    assert packs.put(FIRST, 1, 2, b"\x03\x04", Stamp(6, MINE)) == number
    assert found(rig, FIRST).placement == b"\x03\x04" and found(rig, FIRST).proven


def test_the_later_word_counts_unless_one_overrules(rig: Rig) -> None:
    packs = rig.tx.packs
    number = packs.put(FIRST, 1, 2, b"\x01\x02", Stamp(5, MINE))
    earlier, other = PackRecord(1, 2, b"\x03\x04", ()), PackRecord(2, 3, b"\x03\x04\x05", ())
    assert packs.learn_again(FIRST, earlier, Stamp(4, THEIRS), overrules=False) == number
    assert found(rig, FIRST).placement == b"\x01\x02"
    assert packs.learn_again(FIRST, earlier, Stamp(4, THEIRS), overrules=True) == number
    assert found(rig, FIRST).placement == b"\x03\x04" and not found(rig, FIRST).proven
    assert packs.learn_again(FIRST, other, Stamp(9, THEIRS), overrules=True) is None
    assert found(rig, FIRST).stamp == Stamp(4, THEIRS)


def test_an_ended_pack_is_one_no_more_and_a_doubted_one_may_be_told_of(rig: Rig) -> None:
    packs, chunks = rig.tx.packs, rig.tx.chunks
    number = packs.put(FIRST, 1, 2, b"\x01\x02", Stamp(5, MINE))
    assert packs.number_of(FIRST) == number and not found(rig, FIRST).has_ended
    chunks.end_pack(FIRST, 6, MINE)
    assert packs.number_of(FIRST) is None and packs.numbered(number) is None and found(rig, FIRST).has_ended
    chunks.doubt_pack(SECOND, 7, THEIRS)
    assert packs.number_of(SECOND) is None and not found(rig, SECOND).has_ended
    assert packs.doubted() == {found(rig, SECOND).number}
    assert packs.learn_again(SECOND, PackRecord(1, 1, b"\x01", ()), Stamp(8, THEIRS), overrules=False)
    assert packs.number_of(SECOND) is not None


def test_packs_are_found_by_cloud_and_by_who_told_of_them(rig: Rig) -> None:
    packs, device = rig.tx.packs, rig.updates.device
    first = packs.put(FIRST, 1, 2, b"\x01\x02", Stamp(5, device))
    second = packs.put(SECOND, 1, 2, b"\x02\x03", Stamp(6, THEIRS))
    rig.db.rows.execute("INSERT INTO log_branch VALUES (?, ?, NULL, 0)", (THEIRS, THIRD[:16]))
    assert [one.id for one in packs.on_cloud(2, 0, 10)] == [FIRST, SECOND]
    assert [one.id for one in packs.on_cloud(2, first, 10)] == [SECOND]
    assert [packs.count_on_cloud(cloud) for cloud in (1, 2, 3, 4)] == [1, 2, 1, 0]
    assert [one.id for one in packs.of_device(THIRD[:16], 0)] == [SECOND]
    assert packs.kept_after(first, 10) == [KeptPack(second, THIRD[:16], 1, b"\x02\x03", 0, 0)]
    assert packs.is_named_by(SECOND, THEIRS) and not packs.is_named_by(SECOND, device)
    packs.move(FIRST, b"\x01\x04", Stamp(7, device))
    assert found(rig, FIRST).is_at(1, 4) and not found(rig, FIRST).is_at(2, 4)


def test_days_on_which_a_pack_was_read_count_together_within_a_month(rig: Rig) -> None:
    packs, day = rig.tx.packs, 86_400 * 10**9
    number = packs.put(FIRST, 4, 5, bytes(range(5)), Stamp(5, rig.updates.device))

    def use() -> tuple[int, int]:
        [found] = packs.kept_after(0, 10)
        return found.used, found.reads

    packs.were_met([number], 100 * day)
    packs.were_met([number], 101 * day)
    assert use() == (100, 0)
    for moment, reads in [(100.5, 1), (100.9, 1), (130, 2), (160, 3), (191, 1)]:
        packs.were_read([number], int(moment * day))
        assert use() == (int(moment), reads)
    packs.were_met([number], 200 * day)
    assert use() == (191, 1)
