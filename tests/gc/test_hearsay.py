"""What members only say of packs: where chunks are, that packs have ended, where a checkpoint has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.environment import SYSTEM
from hybrisfs.merge.packs import Placement
from hybrisfs.registers.tree import PackedChunk, PackRecord
from hybrisfs.registers.values import Stamp
from hybrisfs.write.pack import is_ending
from tests.checkpoint.test_adoption import adopt, snapshot_of
from tests.gc.support import Collecting, check_shown, two_devices
from tests.gc.test_consent import advance, pack_of
from tests.merge.fleet import Device, Fleet
from tests.tree.rig import SEALER, Rig
from tests.volume.test_fsck_devices import problems

CONTENT = b"content " * 100
NOWHERE = bytes(range(32))
EARLY = Stamp(1, b"L" * 16)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Two devices that know of a file of the first."""
    fleet = two_devices()
    fleet[0].write("file", CONTENT)
    fleet.meet()
    yield fleet
    for device in fleet.devices:
        check_shown(device)
        assert problems(device) == []
    fleet.discard()


def hear(device: Device, *placements: Placement) -> None:
    with device.rig.fs.state.transaction() as tx:
        device.rig.sharing.arrivals.place(tx, placements)


def claim(device: Device, content: bytes) -> PackRecord:
    """A record that says where the chunk with this content is; it is not there."""
    identity = next(one for one, data in device.rig.plaintexts.items() if data == content)
    return PackRecord(1, 2, b"\0\1", [PackedChunk(identity, 5, 60, len(content))])


def row(device: Device, content: bytes) -> tuple[object, ...]:
    identity = next(one for one, data in device.rig.plaintexts.items() if data == content)
    found: tuple[object, ...] = device.rig.db.rows.execute(
        "SELECT p.id, c.length, c.segment IS NULL, c.proven FROM chunk c "
        "LEFT JOIN pack p ON p.number = c.pack WHERE c.id = ?",
        (identity,),
    ).fetchone()
    return found


def has_ended(rig: Rig, pack: bytes) -> bool:
    found = rig.tx.packs.find(pack)
    return found is not None and found.has_ended


def settled(fleet: Fleet) -> None:
    for _ in range(3):
        for number in (0, 1):
            while advance(fleet[number]):
                pass
            fleet.send(number, 1 - number)


# -- the end ---------------------------------------------------------------------------------------


def test_a_pack_that_is_said_to_be_gone_is_read_and_nothing_new_relies_on_it(fleet: Fleet) -> None:
    victim, pack = fleet[0], pack_of(fleet[0], CONTENT)
    hear(victim, Placement(pack, None, EARLY, hearsay=True))
    victim.rig.room.drop_all()
    assert victim.read("file") == CONTENT
    victim.write("equal", CONTENT)
    victim.sign()
    assert pack_of(victim, CONTENT) != pack
    assert len(victim.rig.clouds.packs) == 2
    victim.rig = victim.rig.reopen()
    victim.rig.room.drop_all()
    assert victim.read("equal") == CONTENT
    assert pack in victim.rig.clouds.packs


def test_a_pack_that_is_said_to_be_gone_may_go_when_all_agree(fleet: Fleet) -> None:
    victim, pack = fleet[0], pack_of(fleet[0], CONTENT)
    hear(victim, Placement(pack, None, EARLY, hearsay=True))
    victim.remove("file")
    fleet.meet()
    assert Collecting(victim).look() == 1
    settled(fleet)
    assert pack not in victim.rig.clouds.packs
    assert victim.rig.db.rows.execute("SELECT n, doubted FROM pack WHERE id = ?", (pack,)).fetchone() == (
        0,
        0,
    )


def test_an_unknown_pack_that_is_said_to_be_gone_is_no_leftover(fleet: Fleet) -> None:
    """Its id is not used, its shares are deleted when all agree, and nobody votes for its end unheard."""
    victim = fleet[1]
    hear(victim, Placement(NOWHERE, None, EARLY, hearsay=True))
    assert is_ending(victim.rig.fs, NOWHERE)
    assert not has_ended(victim.rig, NOWHERE)
    victim.rig.clouds.packs[NOWHERE] = next(iter(victim.rig.clouds.packs.values()))
    unnamed, _ = Collecting(victim).orphans.look(victim.rig.commit, 1, 0, lambda: True)
    assert NOWHERE in unnamed.orphans
    assert not [one for one in unnamed.leftovers if one.pack == NOWHERE]
    del victim.rig.clouds.packs[NOWHERE]


def test_somebody_who_has_signed_where_it_is_knows_better(fleet: Fleet) -> None:
    victim = fleet[1]
    record = PackRecord(1, 2, b"\0\1", claim(victim, CONTENT).chunks)
    hear(victim, Placement(NOWHERE, None, Stamp(9, b"L" * 16), hearsay=True))
    hear(victim, Placement(NOWHERE, record.encode(), Stamp(2, b"L" * 16)))
    assert victim.rig.tx.packs.number_of(NOWHERE) is not None
    victim.rig.room.drop_all()
    assert victim.read("file") == CONTENT


# -- claims ----------------------------------------------------------------------------------------


def test_a_claim_unpins_nothing_that_only_this_device_has(fleet: Fleet) -> None:
    victim = fleet[0]
    victim.rig.clouds.down = True
    victim.write("mine", b"only here")
    assert victim.rig.publish(everything=True)
    hear(victim, Placement(NOWHERE, claim(victim, b"only here").encode(), EARLY))
    assert row(victim, b"only here") == (None, len(b"only here"), False, 0)
    victim.rig.room.drop_all()
    assert victim.read("mine") == b"only here"
    victim.rig.clouds.down = False
    victim.sign()
    assert pack_of(victim, b"only here") in victim.rig.clouds.packs


def test_what_another_device_has_put_for_us_is_read_once_and_not_put_again(fleet: Fleet) -> None:
    first, second = fleet.devices
    first.rig.clouds.down = True
    first.write("same", b"equal content")
    assert first.rig.publish(everything=True)
    first.rig.clouds.down = False
    second.write("same too", b"equal content")
    second.sign()
    first.receive(second.log())
    assert row(first, b"equal content")[0] is None
    puts = first.rig.clouds.puts
    first.sign()
    assert first.rig.clouds.puts == puts
    assert pack_of(first, b"equal content") == pack_of(second, b"equal content")
    assert row(first, b"equal content")[3] == 1


def test_of_two_places_the_true_one_is_found(fleet: Fleet) -> None:
    """The claim of a pack that does not exist has come first, with a length of its own."""
    first, second = fleet.devices
    first.write("new", b"new content")
    first.sign()
    false = claim(first, b"new content")
    chunk = false.chunks[0]._replace(length=3)
    hear(second, Placement(NOWHERE, PackRecord(1, 2, b"\0\1", [chunk]).encode(), EARLY))
    fleet.send(0, 1)
    assert second.read("new") == b"new content"
    assert pack_of(second, b"new content") == pack_of(first, b"new content")


def test_a_chunk_whose_pack_is_lost_stays_here_whoever_claims_it(fleet: Fleet) -> None:
    victim = fleet[0]
    with victim.rig.fs.state.transaction() as tx:
        (number,) = victim.rig.db.rows.execute("SELECT number FROM pack").fetchone()
        (chunk,) = victim.rig.db.rows.execute("SELECT number FROM chunk WHERE pack = ?", (number,)).fetchone()
        tx.chunks.set_aside(number)
    hear(victim, Placement(NOWHERE, claim(victim, CONTENT).encode(), EARLY))
    assert row(victim, CONTENT)[0] is None
    victim.rig.room.drop_all()
    assert victim.read("file") == CONTENT
    victim.rig.fetcher.prove([chunk])
    assert pack_of(victim, CONTENT) in victim.rig.clouds.packs


def test_what_was_written_and_removed_is_still_known_to_be_where_another_has_put_it(fleet: Fleet) -> None:
    first, second = fleet.devices
    first.rig.clouds.down = True
    first.write("same", b"equal content")
    assert first.rig.publish(everything=True)
    first.rig.clouds.down = False
    second.write("same too", b"equal content")
    second.sign()
    pack = pack_of(second, b"equal content")
    hear(first, Placement(pack, PackRecord(*_record(second, pack)).encode(), EARLY))
    first.remove("same")
    while first.rig.publish(everything=True):
        pass
    with first.rig.fs.state.log_transaction() as tx:
        tx.chunks.drop_unwanted()
    first.receive(second.log())
    assert first.read("same too") == b"equal content"


def _record(device: Device, pack: bytes) -> tuple[int, int, bytes, list[PackedChunk]]:
    number, k, n, placement = device.rig.db.rows.execute(
        "SELECT number, k, n, placement FROM pack WHERE id = ?", (pack,)
    ).fetchone()
    rows = device.rig.db.rows.execute(
        "SELECT id, offset, sealed, length FROM chunk WHERE pack = ?", (number,)
    )
    return k, n, placement, [PackedChunk(*one) for one in rows]


# -- hints -----------------------------------------------------------------------------------------


def test_hints_unpin_nothing_and_end_nothing(fleet: Fleet) -> None:
    first, second = fleet.devices
    first.write("new", b"new content")
    assert first.rig.publish(everything=True)
    second.receive(first.log())
    with second.rig.fs.state.transaction() as tx:  # it came over a link
        chunks = tx.chunks
        (number,) = second.rig.db.rows.execute("SELECT number FROM chunk WHERE pack = 0").fetchone()
        chunks.keep(number, b"new content")
    hear(second, Placement(NOWHERE, claim(second, b"new content").encode(), EARLY, hearsay=True))
    assert row(second, b"new content")[0] is None
    second.rig.room.drop_all()
    assert second.read("new") == b"new content"
    pack = pack_of(second, CONTENT)
    hear(second, Placement(pack, None, Stamp(99, b"L" * 16), hearsay=True))
    assert second.rig.tx.packs.number_of(pack) is not None
    assert second.read("file") == CONTENT
    first.rig.pack()
    fleet.meet()
    assert row(second, b"new content")[0] is None  # it is kept until it was read
    Collecting(second).look()
    assert pack_of(second, b"new content") == pack_of(first, b"new content")


# -- votes -----------------------------------------------------------------------------------------


def test_a_pack_is_needed_until_the_one_that_took_its_place_was_read(fleet: Fleet) -> None:
    victim, pack = fleet[1], pack_of(fleet[0], CONTENT)
    record = claim(victim, CONTENT)
    hear(victim, Placement(NOWHERE, record.encode(), EARLY))
    with victim.rig.fs.state.transaction() as tx:
        (former,) = victim.rig.db.rows.execute("SELECT number FROM pack WHERE id = ?", (pack,)).fetchone()
        (new,) = victim.rig.db.rows.execute("SELECT number FROM pack WHERE id = ?", (NOWHERE,)).fetchone()
        chunk = record.chunks[0]
        tx.chunks.repacked(chunk.id, former, new, chunk.offset, chunk.sealed, proven=False)
    first = Collecting(fleet[0])
    assert first.participant.propose([_number(fleet[0], pack)]) == 1
    while advance(fleet[0]):
        pass
    fleet.send(0, 1)
    while advance(victim):
        pass
    fleet.send(1, 0)
    book = Collecting(victim).assembly.book()
    (listed,) = book.lists
    assert book.answer(victim.key.device_id, listed.id).refused == (0,)
    settled(fleet)
    assert pack in victim.rig.clouds.packs
    victim.rig.room.drop_all()
    assert victim.read("file") == CONTENT


def _number(device: Device, pack: bytes) -> int:
    (number,) = device.rig.db.rows.execute("SELECT number FROM pack WHERE id = ?", (pack,)).fetchone()
    return int(number)


# -- who begins with a checkpoint ------------------------------------------------------------------


def test_who_begins_with_a_checkpoint_knows_what_stands_and_no_ends(fleet: Fleet, tmp_path: Path) -> None:
    """The end of a pack that is told of afterwards counts: what had been said so far is in the checkpoint."""
    ended, standing = pack_of(fleet[0], CONTENT), b"gone as well"
    fleet[0].write("more", standing)
    fleet.meet()
    fleet[0].remove("file")
    fleet.meet()
    assert Collecting(fleet[0]).look() == 1
    settled(fleet)
    assert ended not in fleet.clouds.packs
    fleet[0].remove("more")
    fleet.meet()
    pack = pack_of(fleet[0], standing)
    assert Collecting(fleet[0]).look() == 1
    for sender, receiver in ((0, 1), (1, 0)):
        while Collecting(fleet[sender]).step():
            pass
        fleet.send(sender, receiver)
    newcomer = Device(5, fleet.clouds, fleet[0].rig.plaintexts)
    try:
        with newcomer.rig.fs.state.transaction():
            newcomer.rig.tx.members.admit([one.member for one in (*fleet.devices, newcomer)])
            newcomer.rig.updates.set_members(newcomer.rig.tx.members.keys())
        snapshots = LocalSnapshots(tmp_path, SEALER, SYSTEM)
        adopt(newcomer, snapshots, snapshot_of(fleet[0], snapshots))
        packs = newcomer.rig.tx.packs
        assert is_ending(newcomer.rig.fs, ended)
        assert not has_ended(newcomer.rig, ended)
        assert packs.number_of(pack) is not None
        settled(fleet)
        newcomer.receive(fleet[0].log())
        assert has_ended(newcomer.rig, pack)
    finally:
        newcomer.rig.abandon()
