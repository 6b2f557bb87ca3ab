"""What devices state, agree upon and take in; whose word they take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from msgspec.structs import replace

from hybrisfs.environment import Environment
from hybrisfs.state.checkpoints import CheckpointTable
from sync import Head, Statement
from sync.checkpoint import CHECKPOINTS, Root, checkpoint_name, open_object
from tests.merge.fleet import Device, Fleet
from tests.simulation.cloud import Clouds
from tests.simulation.courier import Courier
from tests.simulation.determinism import SMALL
from tests.tree.rig import SEALER, SEGMENT_KEYS, VOLUME


class Volume:
    """Two devices at rest, and clouds that do not lie."""

    def __init__(self) -> None:
        self.fleet = Fleet(2, environment=lambda _: Environment(limits=SMALL))
        self.clouds = Clouds(Random(1), count=3, f=1, copies=2)
        self.couriers = [Courier(device.rig, self.clouds) for device in self.fleet.devices]
        self.now = 0.0

    def start_again(self, number: int) -> None:
        self.couriers[number] = Courier(self.fleet[number].rig, self.clouds)

    def heads(self) -> dict[bytes, Head]:
        """What each device tells over links, and has on the clouds."""
        heads = [courier.head() for courier in self.couriers]
        for courier, head in zip(self.couriers, heads, strict=True):
            courier.checkpointer.machine.head_put(head.checkpoint)
        return {head.writer: head for head in heads}

    def look(self, *numbers: int, heads: dict[bytes, Head] | None = None) -> None:
        self.now += 100.0
        for number in numbers or (0, 1):
            self.couriers[number].believe_shipped()
            self.couriers[number].checkpointer.look(self.heads() if heads is None else heads, self.now)

    def agreed(self, number: int) -> bytes | None:
        rig = self.fleet[number].rig
        with rig.fs.state.transaction():
            found = CheckpointTable(rig.db.rows).agreed()
        return found.stored.snapshot if found is not None else None

    def names(self) -> set[str]:
        return {name for cloud in self.clouds.all for name in cloud.list(CHECKPOINTS)}


@pytest.fixture
def volume() -> Iterator[Volume]:
    one = Volume()
    one.fleet[0].write("file", b"x" * 100)
    one.fleet.meet()
    yield one
    one.fleet.discard()


@contextmanager
def set_back(volume: Volume, number: int) -> Iterator[Device]:
    """The device goes on from a backup that is made now, after what happens within."""
    device = volume.fleet[number]
    backup = device.saved()
    yield device
    device.restore(backup)
    volume.start_again(number)


def test_a_checkpoint_is_agreed_when_all_have_stated_it(volume: Volume) -> None:
    volume.look(0)
    assert volume.agreed(0) is None
    assert volume.couriers[0].checkpointer.waits_for(volume.heads()) == [volume.fleet[1].key.device_id]
    volume.look()
    volume.look(0)
    assert volume.agreed(0) == volume.agreed(1) is not None
    assert volume.couriers[0].checkpointer.waits_for(volume.heads()) == []


def test_one_device_brings_it_to_the_clouds_and_the_other_finds_it(volume: Volume) -> None:
    for _ in range(4):
        volume.look()
    told = {courier.checkpointer.newest(courier.rig.tx) for courier in volume.couriers}
    assert len(told) == 1 and None not in told
    before = volume.names()
    assert len({name for name in before if "checkpoints/" in name}) > 2
    volume.fleet[1].write("later", b"y")
    volume.fleet.meet()
    for _ in range(6):
        volume.look()
    newest = volume.couriers[0].checkpointer.newest(volume.couriers[0].rig.tx)
    assert newest is not None and newest not in told
    assert checkpoint_name(next(one for one in told if one).root) not in volume.names(), "the old root stays"
    data = volume.clouds.get_object(checkpoint_name(newest.root), 1 << 20, bytes)
    root = Root.decode(open_object(data, newest.root, VOLUME, SEGMENT_KEYS, SEALER.chunk_id))
    assert {checkpoint_name(one.name) for one in (*root.slices, *root.hints)} < volume.names()


def test_another_statement_of_the_same_log_is_an_alarm(volume: Volume) -> None:
    volume.look(0)
    heads = volume.heads()
    key = volume.fleet[1].key
    [other] = [head for head in heads.values() if head.writer == key.device_id]
    false = Statement.of(VOLUME, other.vector, b"?" * 32, key)
    heads[key.device_id] = replace(other, stated=false)
    volume.look(0, heads=heads)
    assert volume.agreed(0) is None
    assert key.device_id.hex() in (volume.couriers[0].checkpointer.machine.alarm or "")
    volume.look()
    volume.look(0)
    assert volume.couriers[0].checkpointer.machine.alarm is None and volume.agreed(0) is not None


def test_a_statement_that_somebody_else_signed_counts_nothing(volume: Volume) -> None:
    volume.look(0)
    mine, theirs = (device.key.device_id for device in volume.fleet.devices)
    heads = volume.heads()
    heads[theirs] = replace(heads[theirs], stated=heads[mine].stated)
    volume.look(0, heads=heads)
    assert volume.agreed(0) is None


@pytest.fixture
def empty() -> Iterator[Volume]:
    """Two devices without a log."""
    one = Volume()
    yield one
    one.fleet.discard()


def test_a_device_that_was_set_back_to_nothing_begins_with_what_it_has_stated(empty: Volume) -> None:
    with set_back(empty, 1):
        empty.fleet[0].write("file", b"other")
        empty.fleet[0].mkdir("folder")
        empty.fleet.meet()
        empty.look()
        empty.look()
        assert empty.agreed(1) is not None
    device = empty.fleet[1]
    device.write("own", b"not lost")
    empty.couriers[1].take_over(empty.couriers[0])
    assert device.bare()
    assert set(device.names()) == {"file", "folder", "own"}
    assert device.read("file") == b"other"
    device.sign()
    empty.fleet[0].receive([data for data in device.log() if data is not None])
    assert empty.fleet[0].registers() == device.registers()
    assert empty.fleet[0].tree() == device.tree()


def test_what_is_changed_after_beginning_with_a_checkpoint_is_not_overwritten(empty: Volume) -> None:
    with set_back(empty, 1):
        empty.fleet[0].write("file", b"before")
        empty.fleet.meet()
        empty.look()
        empty.look()
    device = empty.fleet[1]
    empty.couriers[1].take_over(empty.couriers[0])
    device.write("file", b"here")
    empty.fleet[0].write("file", b"there")
    empty.fleet.send(0, 1)
    empty.fleet.send(1, 0)
    for one in empty.fleet.devices:
        assert {one.read(name) for name in one.names()} == {b"here", b"there"}


def test_a_device_that_was_set_back_takes_in_what_it_has_stated_and_keeps_its_own(volume: Volume) -> None:
    with set_back(volume, 1):
        volume.fleet[0].write("file", b"other")
        volume.fleet[0].mkdir("folder")
        volume.fleet[1].write("late", b"after the backup")
        volume.fleet.meet()
        volume.look()
        volume.look()
        assert volume.agreed(1) is not None
    device = volume.fleet[1]
    device.write("own", b"signed by now")
    device.sign()
    device.write("file", b"not signed yet")
    volume.couriers[1].take_over(volume.couriers[0])
    assert device.bare()
    device.sign()
    volume.fleet[0].receive(device.log())
    for one in volume.fleet.devices:
        found = {one.read(name) for name in one.names() if name != "folder"}
        assert found == {b"other", b"after the backup", b"signed by now", b"not signed yet"}
    assert volume.fleet[0].registers() == device.registers()
    assert volume.fleet[0].tree() == device.tree()
    [forker] = [one for one in device.rig.sharing.devices() if one.forked]
    assert forker.id == device.key.device_id.hex()


def test_a_checkpoint_of_which_nothing_is_lacking_is_left_alone(volume: Volume) -> None:
    volume.look()
    volume.look()
    courier = volume.couriers[1]
    courier.asked.clear()
    for _ in range(9):
        volume.look(1)
    named = {head.checkpoint.root for head in volume.heads().values() if head.checkpoint is not None}
    assert named and courier.asked <= named, "slices were fetched"


def test_what_is_lacking_for_long_is_taken_in_however_near_it_is(volume: Volume) -> None:
    with set_back(volume, 1):
        volume.fleet[0].write("file", b"other")
        volume.fleet.meet()
        for _ in range(4):
            volume.look()
        heads = volume.heads()
    device = volume.fleet[1]
    for number in range(9):
        device.write("own", b"%d" % number)
        device.sign()
    volume.look(1, heads=heads)
    assert not device.bare(), "it is ahead of the checkpoint by its own clock"
    for _ in range(4):
        volume.look(1, heads=heads)
    assert device.bare() and device.read("file") == b"other"


def test_a_fork_that_is_not_known_yet_does_not_hide_what_is_lacking(volume: Volume) -> None:
    """Its updates go by the names of those that were written since: the vector covers the checkpoint's."""
    with set_back(volume, 1):
        volume.fleet[1].write("lost", b"before")
        volume.fleet[1].sign()
        volume.fleet.meet()
        for _ in range(4):
            volume.look()
        heads = {volume.fleet[0].key.device_id: volume.heads()[volume.fleet[0].key.device_id]}
    device = volume.fleet[1]
    device.write("own", b"since")
    device.sign()
    [named] = [head.checkpoint for head in heads.values()]
    assert named is not None
    assert device.rig.updates.state.vector.covers(
        volume.couriers[1].checkpointer.intake._fetching.root(named.root).vector
    )
    for _ in range(6):
        volume.look(1, heads=heads)
    assert device.read("lost") == b"before" and device.read("own") == b"since"


def test_a_fork_that_has_come_to_light_does_not_make_what_is_here_seem_to_be_lacking(volume: Volume) -> None:
    """The vector of a checkpoint that was agreed before that names a branch by the name that it had then. Who
    took that one in would cease to name its successor, which others may need."""
    with set_back(volume, 1):
        volume.fleet[1].write("lost", b"before")
        volume.fleet[1].sign()
        volume.fleet.meet()
        for _ in range(4):
            volume.look()
        before = volume.heads()
        cloud_checkpoint = volume.couriers[1].checkpointer.cloud_checkpoint
        parts = {name: cloud_checkpoint.fetched(name) for name in cloud_checkpoint.parts()}
    volume.fleet[1].write("own", b"since")
    volume.fleet[1].sign()
    volume.fleet.meet()
    for _ in range(8):
        volume.look()
    volume.start_again(0)
    checkpointer = volume.couriers[0].checkpointer
    former, newest = (
        before[volume.fleet[1].key.device_id].checkpoint,
        checkpointer.newest(volume.couriers[0].rig.tx),
    )
    assert former is not None and newest is not None and newest != former
    vector = Root.decode(parts[former.root]).vector
    assert not volume.fleet[0].rig.updates.state.vector.covers(vector)
    volume.couriers[0].at_hand = parts
    for _ in range(6):
        volume.look(0, heads=before)
    assert former.root in volume.couriers[0].asked
    assert checkpointer.newest(volume.couriers[0].rig.tx) == newest


def agree_alone(volume: Volume) -> None:
    """The first device thinks that it is the only one, and agrees with itself."""
    first, second = volume.fleet.devices
    first.write("file", b"other")
    first.sign()
    with first.rig.fs.state.transaction():
        first.rig.db.rows.execute("UPDATE member SET state = 2 WHERE device = ?", (second.key.device_id,))
    volume.look(0)
    volume.look(0)
    assert volume.agreed(0) is not None


def test_who_has_a_log_takes_nobody_else_s_word(volume: Volume) -> None:
    with set_back(volume, 1):
        agree_alone(volume)
    volume.couriers[1].take_over(volume.couriers[0])
    assert not volume.fleet[1].bare()
    assert volume.fleet[1].read("file") == b"x" * 100


def test_nobody_takes_in_what_only_others_have_stated(empty: Volume) -> None:
    agree_alone(empty)
    empty.couriers[1].take_over(empty.couriers[0])
    assert not empty.fleet[1].bare()
    assert empty.fleet[1].names() == []


def test_who_was_let_in_takes_the_word_of_who_let_him_in(empty: Volume) -> None:
    test_nobody_takes_in_what_only_others_have_stated(empty)
    device = empty.fleet[1]
    with device.rig.fs.state.transaction():
        device.rig.db.rows.set_meta("inviter", empty.fleet[0].key.device_id)
    empty.couriers[1].take_over(empty.couriers[0])
    assert device.bare() and device.read("file") == b"other"


def test_the_head_names_what_is_on_the_clouds_until_its_successor_is_there(volume: Volume) -> None:
    """A device that is let in meanwhile, or finds the head of one that is gone, has that to begin with."""
    for _ in range(4):
        volume.look()
    checkpointer = volume.couriers[0].checkpointer
    named = checkpointer.newest(volume.couriers[0].rig.tx)
    assert named is not None
    volume.fleet[1].write("later", b"y")
    volume.fleet.meet()
    before = volume.agreed(0)
    volume.clouds.full = True
    for _ in range(4):
        volume.look()
    volume.clouds.full = False
    assert volume.agreed(0) != before
    assert checkpointer.newest(volume.couriers[0].rig.tx) == named and checkpointer.cloud_checkpoint.parts()
    assert checkpointer.cloud_checkpoint.part(checkpointer.cloud_checkpoint.parts()[0]) is not None
    for _ in range(6):
        volume.look()
    assert checkpointer.newest(volume.couriers[0].rig.tx) not in (None, named)


def test_devices_that_were_all_set_back_go_on_naming_the_checkpoint_that_their_heads_named(
    volume: Volume,
) -> None:
    """What it covers may be in no segment any more (simulator seed 380788)."""
    with set_back(volume, 0), set_back(volume, 1):
        volume.fleet[0].write("file", b"other")
        volume.fleet.meet()
        for _ in range(4):
            volume.look()
        for courier in volume.couriers:
            courier.look()
            courier.flush()
        named = volume.couriers[0].checkpointer.newest(volume.couriers[0].rig.tx)
        assert named is not None
    for courier in volume.couriers:
        courier.look()
        assert courier.checkpointer.newest(courier.rig.tx) is None
    assert {head.checkpoint for head in volume.heads().values()} == {named}
    for _ in range(8):
        volume.look()
    for device, courier in zip(volume.fleet.devices, volume.couriers, strict=True):
        assert device.read("file") == b"other"
        assert courier.checkpointer.newest(courier.rig.tx) == named
    volume.fleet[1].write("later", b"y")
    volume.fleet.meet()
    for _ in range(6):
        volume.look()
    assert {head.checkpoint for head in volume.heads().values()}.isdisjoint({named, None})


def test_who_agrees_alone_waits_for_nobody_s_turn(volume: Volume) -> None:
    """... although a device that comes before it has been let in since."""
    volume.couriers.sort(key=lambda courier: -int.from_bytes(courier.rig.updates.device))
    volume.fleet.devices.sort(key=lambda device: -int.from_bytes(device.key.device_id))
    volume.clouds.full = True
    agree_alone(volume)
    volume.clouds.full = False
    first, second = volume.fleet.devices
    with first.rig.fs.state.transaction():
        first.rig.db.rows.execute("UPDATE member SET state = 0 WHERE device = ?", (second.key.device_id,))
        first.rig.db.rows.membership += 1
    volume.start_again(0)
    volume.look(0)
    assert volume.couriers[0].checkpointer.newest(volume.couriers[0].rig.tx) is not None
