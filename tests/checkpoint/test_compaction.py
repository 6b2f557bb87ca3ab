"""What devices drop when one checkpoint has taken the place of another, when they do not, and who deletes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

import pytest
from msgspec.structs import replace

from hybrisfs.members.members import Member
from hybrisfs.state.checkpoints import CheckpointTable
from sync import Head, parse_segment_name
from sync.checkpoint import CHECKPOINTS
from tests.merge.fleet import Device, Fleet
from tests.simulation.cloud import Clouds, Mood
from tests.simulation.courier import Courier
from tests.simulation.determinism import Clocks, environments


class Volume:
    """Devices that hear of each other through clouds only, none of which lies, in virtual time."""

    def __init__(self, clocks: Clocks, count: int = 2) -> None:
        self.clocks = clocks
        self.fleet = Fleet(count, environment=environments(1, clocks))
        self.clouds = Clouds(Random(1), count=3, f=1, copies=2)
        self.couriers = [Courier(device.rig, self.clouds) for device in self.fleet.devices]

    def device(self, number: int) -> bytes:
        return self.fleet[number].key.device_id

    def exchange(self, *numbers: int) -> None:
        """Sign, ship and fetch what there is."""
        for _ in range(2):
            self.clocks.pass_by(50.0)
            for number in numbers or range(len(self.couriers)):
                self.fleet[number].sign()
                self.couriers[number].look()
                self.couriers[number].flush()

    def rest(self, *numbers: int, rounds: int = 6) -> None:
        """What there is to be done about checkpoints is done, among these devices."""
        for _ in range(rounds):
            self.exchange(*numbers)
            for number in numbers or range(len(self.couriers)):
                self.look(number)
        self.exchange(*numbers)

    def look(self, number: int, heads: dict[bytes, Head] | None = None) -> None:
        found = dict(self.couriers[number].puller.heads()) if heads is None else heads
        self.couriers[number].checkpointer.look(found, self.clocks.monotonic(number))

    def step(self, name: str, *numbers: int) -> None:
        """Something is written, and a checkpoint made of it."""
        self.fleet[numbers[0] if numbers else 0].write(name, name.encode() * 20)
        self.rest(*numbers)

    def segments(self, device: bytes | None = None) -> set[str]:
        names = {name for cloud in self.clouds.all for name in cloud.list("log/")}
        return {name for name in names if device in (None, parse_segment_name(name)[0])}

    def recorded(self, number: int) -> set[str]:
        return {name for (name,) in self.fleet[number].rig.db.rows.execute("SELECT name FROM log_segment")}

    def is_alike(self) -> bool:
        one, *others = self.fleet.devices
        return all(one.registers() == two.registers() and one.tree() == two.tree() for two in others)

    def end(self) -> None:
        self.fleet.discard()


@contextmanager
def living(count: int) -> Iterator[Volume]:
    one = Volume(Clocks(), count)
    yield one
    one.end()


@pytest.fixture
def volume() -> Iterator[Volume]:
    with living(2) as one:
        yield one


def bare(device: Device) -> int:
    return len(device.bare())


def checkpoint(device: Device) -> bytes:
    agreed = CheckpointTable(device.rig.db.rows).agreed()
    assert agreed is not None and agreed.deposited is not None
    return agreed.stored.snapshot


def test_the_second_checkpoint_lets_go_of_what_the_first_covers(volume: Volume) -> None:
    volume.step("one")
    covered = {number: volume.recorded(number) for number in (0, 1)}
    assert covered[0] and not bare(volume.fleet[0])
    volume.step("two")
    for number in (0, 1):
        assert bare(volume.fleet[number])
        assert volume.recorded(number) == volume.segments(volume.device(number))
    assert not volume.segments(volume.device(0)) & covered[0]
    assert volume.is_alike()
    volume.step("three")
    assert volume.is_alike() and len(volume.segments()) <= 4


def test_the_newest_own_segment_stays_and_can_be_made_again(volume: Volume) -> None:
    """Heads lead to it; a device that writes nothing keeps it for long."""
    for number in range(4):
        volume.step(f"file {number}")
    [kept] = volume.recorded(1)
    assert volume.couriers[1].puller.heads()[volume.device(1)].on_clouds is not None
    first = parse_segment_name(kept)[1].first
    rig = volume.fleet[1].rig
    query = "SELECT count(*) FROM log WHERE device = ? AND clock >= ? AND bytes IS NULL"
    (dropped,) = rig.db.rows.execute(query, (volume.device(1), first)).fetchone()
    assert dropped == 0 and bare(volume.fleet[1])


def test_nothing_is_dropped_before_all_name_the_second(volume: Volume) -> None:
    volume.step("one")
    volume.fleet[0].write("two", b"2")
    volume.exchange()
    first = checkpoint(volume.fleet[0])
    for _ in range(4):  # device 1 has stated the second, and does not know that it is agreed
        volume.look(0)
        volume.exchange()
        volume.couriers[1].checkpointer._state()
        volume.exchange()
    assert checkpoint(volume.fleet[0]) != first
    assert not bare(volume.fleet[0])
    volume.rest()
    assert bare(volume.fleet[0])


def test_nothing_is_dropped_while_the_second_is_not_on_enough_clouds(volume: Volume) -> None:
    volume.step("one")
    before = volume.segments()
    volume.clouds.in_doubt = True
    volume.step("two")
    volume.clouds.in_doubt = False
    assert not bare(volume.fleet[0]) and before <= volume.segments()
    volume.rest()
    assert bare(volume.fleet[0])


def test_what_clouds_have_lost_of_it_is_put_there_again_before(volume: Volume) -> None:
    volume.step("one")
    volume.fleet[0].write("two", b"2")
    deposited = False
    for _ in range(6):
        volume.exchange()
        for number in (0, 1):
            volume.look(number)
            told = volume.couriers[number].checkpointer.newest(volume.couriers[number].rig.tx)
            if told is not None and volume.couriers[number].checkpointer.is_current() and not deposited:
                deposited = True
                assert not bare(volume.fleet[0])
                volume.clouds.all[0].delete_all(CHECKPOINTS)
                volume.clouds.all[1].delete_all(CHECKPOINTS)
    assert deposited and bare(volume.fleet[0])
    parts = volume.couriers[0].checkpointer.cloud_checkpoint.parts()
    listed = [cloud.list(CHECKPOINTS) for cloud in volume.clouds.all]
    for part in parts:
        assert sum(f"{CHECKPOINTS}{part.hex()}" in names for names in listed) >= 2


def test_who_has_something_to_ship_states_nothing(volume: Volume) -> None:
    volume.exchange()
    volume.fleet[0].write("later", b"x")
    volume.clouds.set_moods(Mood.DOWN, volume.clouds.numbers)
    volume.fleet[0].sign()
    for _ in range(3):
        volume.clocks.pass_by(100.0)
        volume.look(0)
    assert volume.couriers[0].checkpointer.statement(volume.couriers[0].rig.tx) is None
    volume.clouds.set_moods(Mood.WELL, volume.clouds.numbers)
    volume.rest()
    assert volume.couriers[0].checkpointer.statement(volume.couriers[0].rig.tx) is not None


def test_a_cloud_that_was_away_is_cleaned_later(volume: Volume) -> None:
    volume.step("one")
    volume.clouds.set_moods(Mood.DOWN, [2])
    volume.step("two")
    left = [name for name in volume.clouds.all[2].list("log/") if name not in _all_recorded(volume)]
    assert bare(volume.fleet[0])
    volume.clouds.set_moods(Mood.WELL, [2])
    volume.clocks.pass_by(3600.0)
    volume.rest()
    assert left and set(volume.clouds.all[2].list("log/")) <= _all_recorded(volume)


def _all_recorded(volume: Volume) -> set[str]:
    return {name for number in range(len(volume.couriers)) for name in volume.recorded(number)}


def test_segments_that_no_record_names_go_too(volume: Volume) -> None:
    """As clouds leave them that delete later than they say, a crash between two steps, or a device that was
    restored."""
    volume.step("one")
    volume.clouds.keep_all = True
    volume.step("two")
    volume.clouds.keep_all = False
    assert volume.segments(volume.device(0)) > volume.recorded(0)
    for number in (0, 1):
        volume.couriers[number] = Courier(volume.fleet[number].rig, volume.clouds)
    volume.rest()
    assert volume.segments(volume.device(0)) == volume.recorded(0)


def test_what_a_device_has_shipped_since_its_head_does_not_push_out_what_it_counts(volume: Volume) -> None:
    """Its author would find it missing, and accuse the clouds that have done as they were asked."""
    for name in ("one", "two", "three"):
        volume.fleet[0].write(name, name.encode())
        volume.exchange()
    heads = dict(volume.couriers[1].puller.heads())
    head = heads[volume.device(0)]
    assert head.on_clouds is not None and head.on_clouds.segments > 1
    volume.fleet[0].write("four", b"four")
    volume.exchange()
    assert len(volume.recorded(0)) > head.on_clouds.segments
    with volume.fleet[1].rig.fs.state.transaction() as tx:
        covered = tx.updates.state.vector
    assert volume.couriers[1].checkpointer.cloud_checkpoint._compactor.run(covered, heads)
    assert volume.recorded(0) == volume.segments(volume.device(0))


def test_the_member_with_the_lowest_id_deletes_what_removed_devices_wrote() -> None:
    with living(3) as volume:
        order = sorted(range(3), key=volume.device)
        gone, low, high = order[1], order[0], order[2]
        volume.fleet[gone].write("of the removed", b"kept" * 30)
        volume.rest()
        _remove(volume, volume.fleet[gone].member, low, high)
        [theirs] = volume.segments(volume.device(gone))
        volume.fleet[low].write("one", b"1")
        for _ in range(6):
            volume.exchange(low, high)
            volume.look(high)
            assert theirs in volume.segments(), "the other one has deleted it"
        assert bare(volume.fleet[high]) == 0
        volume.rest(low, high)
        assert bare(volume.fleet[high]) and not volume.segments(volume.device(gone))
        relayer = volume.couriers[low]._shipper._relayer
        assert relayer is not None
        statements: list[str] = []
        volume.fleet[low].rig.db.connection.set_trace_callback(statements.append)
        assert [relayer.due(now, 1 << 60) for now in (1e6, 2e6)] == [None, None]
        read = [one for one in statements if " bytes FROM log" in one]
        assert statements and not read, "what is bare is not relayed"
        assert volume.fleet[high].read("of the removed") == b"kept" * 30
        assert volume.fleet[high].registers() == volume.fleet[low].registers()


def _remove(volume: Volume, member: Member, *told: int) -> None:
    """These devices know that it was removed. (Without another epoch: there is nobody who hands out keys.)"""
    for number in told:
        rig = volume.fleet[number].rig
        with rig.fs.state.transaction():
            rig.tx.members.admit([replace(member, removed=True)])
            rig.updates.set_members(rig.tx.members.writers())


def test_no_head_names_old_segments_of_its_own_chain_because_they_were_dropped(volume: Volume) -> None:
    """It has seen its own heads of before: what they led to, its chain leads to. What a head names, nobody
    deletes for one that may not delete."""
    for name in ("one", "two", "three"):
        volume.step(name)
    seen = {one.segment for one in volume.couriers[0].puller.earlier_heads().segments}
    heads = volume.couriers[1].puller.heads()
    assert len(seen) > 1 and bare(volume.fleet[0])
    assert all(heads[volume.device(number)].relayed == () for number in (0, 1))


def test_what_was_relayed_is_deleted_by_its_author(volume: Volume) -> None:
    """It stands under the author's name; who has relayed it forgets that it did."""
    author, relayer = volume.fleet[0], volume.fleet[1]
    author.write("one", b"1" * 100)
    author.sign()
    relayer.receive(author.log())
    _relay(volume, 1)
    relayed = volume.segments(volume.device(0))
    assert relayed
    volume.rest()
    volume.step("two")
    volume.step("three")
    assert not relayed & volume.segments() or relayed & volume.recorded(0)
    assert not relayer.rig.db.rows.execute("SELECT name FROM relayed_segment").fetchall()
    assert volume.is_alike()


def _relay(volume: Volume, number: int) -> None:
    courier = volume.couriers[number]
    relayer = courier._shipper._relayer
    assert relayer is not None
    time_ns = 1 << 60
    for now in (0.0, 1000.0):
        segment = relayer.due(now, time_ns)
    assert segment is not None
    relayer.done(segment, bytes(volume.clouds.put_object(segment.name, segment.data)))


def test_a_device_that_was_away_finds_all_that_came_after_the_checkpoint(volume: Volume) -> None:
    volume.step("one")
    volume.step("two")
    names: Sequence[str] = [f"while away {number}" for number in range(5)]
    for name in names:
        volume.step(name, 0)
    assert volume.couriers[0].checkpointer.waits_for(volume.couriers[0].puller.heads()) in (
        [],
        [volume.device(1)],
    )
    volume.rest()
    assert set(names) <= set(volume.fleet[1].names())
    assert volume.is_alike()


def test_a_device_that_was_set_back_ends_equal_with_all_it_alone_has(volume: Volume) -> None:
    """What it lacks is nowhere in full any more: it takes in the checkpoint that it has stated."""
    volume.fleet[1].write("before", b"b" * 50)
    volume.exchange()
    backup = volume.fleet[1].saved()
    for name in ("one", "two", "three"):
        volume.step(name)
    volume.fleet[1].restore(backup)
    shutil.rmtree(backup)
    volume.couriers[1] = Courier(volume.fleet[1].rig, volume.clouds)
    assert volume.fleet[1].names() == ["before"] and bare(volume.fleet[0])
    volume.fleet[1].write("own", b"only here")
    volume.rest(rounds=12)
    assert volume.is_alike()
    assert volume.fleet[0].names() == ["before", "one", "own", "three", "two"]
    assert volume.fleet[0].read("own") == b"only here"
    volume.step("after", 1, 0)
    volume.step("and on", 0, 1)
    assert volume.is_alike()


def test_nothing_goes_that_a_suspended_device_may_lack_when_it_comes_back() -> None:
    """The others agree without it, and it takes in no checkpoint that it has not stated (simulator seed
    531708)."""
    with living(3) as volume:
        volume.step("of all")
        accused = volume.device(2).hex()
        volume.fleet[0].rig.sharing.membership.remove(accused)
        volume.fleet[2].write("of the suspended", b"kept" * 30)
        agreed = set()
        for name in ("one", "two", "three"):
            volume.step(name, 0, 1)
            agreed.add(checkpoint(volume.fleet[0]))
        assert volume.device(2) in volume.fleet[1].rig.tx.members.suspended
        assert len(agreed) == 3 and not bare(volume.fleet[0]) and not bare(volume.fleet[1])
        volume.fleet[1].rig.sharing.membership.keep(accused)
        volume.rest()
        assert volume.is_alike()
        assert {"of all", "of the suspended", "one", "two", "three"} <= set(volume.fleet[2].names())
        volume.step("four")
        volume.step("five")
        assert volume.is_alike() and all(bare(device) for device in volume.fleet.devices)
