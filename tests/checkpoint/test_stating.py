"""When a device states what it has: whether it rests, is alone, or is about to let somebody in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from msgspec.structs import replace

from hybrisfs.environment import Environment, Limits
from hybrisfs.state.checkpoints import CheckpointTable
from tests.merge.fleet import Fleet
from tests.simulation.cloud import Clouds
from tests.simulation.courier import Courier
from tests.simulation.determinism import SMALL_CHECKPOINTS

RESTLESS = 600.0


def busy_devices(count: int, restless: float) -> Fleet:
    """Devices that are never quiet; they state something after so many seconds all the same."""
    limits = replace(SMALL_CHECKPOINTS, quiet_seconds=1e9, restless_seconds=restless)
    return Fleet(count, environment=lambda _: Environment(limits=Limits(limits)))


class Busy:
    """Devices that never rest, and whose clouds tell of what they have when the test says so."""

    def __init__(self, count: int) -> None:
        self.fleet = busy_devices(count, RESTLESS)
        clouds = Clouds(Random(1), count=3, f=1, copies=2)
        self.couriers = [Courier(device.rig, clouds) for device in self.fleet.devices]
        self.checkpointer = self.couriers[0].checkpointer
        self.now = 0.0

    def work(self) -> None:
        """The first device signs something, and all hear of it."""
        self.fleet[0].write("file", b"%f" % self.now)
        self.fleet.meet()

    def ship(self) -> None:
        """The first device's clouds have all that it has signed."""
        self.couriers[0].believe_shipped()

    def look(self) -> bytes | None:
        """A second later: the vector that the first device states."""
        self.now += 1.0
        self.checkpointer.look({}, self.now)
        with self.fleet[0].rig.fs.state.transaction() as tx:
            statement = self.checkpointer.statement(tx)
        return None if statement is None else statement.vector.encode()

    def vector(self) -> bytes:
        """All that the first device has accepted."""
        return self.fleet[0].rig.updates.state.vector.encode()


@contextmanager
def busy(count: int) -> Iterator[Busy]:
    one = Busy(count)
    try:
        one.work()
        one.ship()
        yield one
    finally:
        one.fleet.discard()


@pytest.fixture
def alone() -> Iterator[Busy]:
    """One device, which has stated something already."""
    with busy(1) as one:
        assert one.look() == one.vector()
        one.work()
        one.ship()
        yield one


def test_a_lone_device_states_something_now_and_then_though_it_never_rests(alone: Busy) -> None:
    assert alone.look() != alone.vector()
    alone.now += RESTLESS
    assert alone.look() == alone.vector()
    assert alone.checkpointer.is_current()


def test_a_lone_device_that_lets_somebody_in_does_so_at_once(alone: Busy) -> None:
    assert alone.look() != alone.vector()
    alone.checkpointer.machine.hurry()
    assert alone.look() == alone.vector()
    assert alone.checkpointer.is_current()
    alone.work()
    alone.ship()
    assert alone.look() != alone.vector(), "it is asked for once"


def test_a_device_that_lets_somebody_in_does_so_though_little_has_come(alone: Busy) -> None:
    machine = alone.checkpointer.machine
    machine.limits = replace(machine.limits, least_share=1e9)
    alone.now += RESTLESS
    assert alone.look() != alone.vector()
    machine.hurry()
    assert alone.look() == alone.vector()


class BusyFleet:
    """Devices all of which write all the time, and hear of what the others write somewhat later."""

    def __init__(self, count: int, restless: float = RESTLESS) -> None:
        self.fleet = busy_devices(count, restless)
        clouds = Clouds(Random(1), count=3, f=1, copies=2)
        self.couriers = [Courier(device.rig, clouds) for device in self.fleet.devices]
        self.now = 0.0
        self.written = 0

    def step(self) -> None:
        """A minute later: all have written, have heard of what was written before, and look."""
        self.now += 60.0
        logs = [device.log() for device in self.fleet.devices]
        heads = {head.writer: head for head in (courier.head() for courier in self.couriers)}
        for number, (device, courier) in enumerate(zip(self.fleet.devices, self.couriers, strict=True)):
            for log in logs:
                device.receive(log)
            self.written += 1
            device.write(f"file {number}", b"%d" % self.written)
            device.sign()
            courier.believe_shipped()
            courier.checkpointer.look(heads, self.now)

    def look(self, number: int, *, hurried: bool = False) -> None:
        """A second later: one of them looks. *hurried*: somebody may be let in by it."""
        self.now += 1.0
        heads = {head.writer: head for head in (courier.head() for courier in self.couriers)}
        self.couriers[number].believe_shipped()
        if hurried:
            self.couriers[number].checkpointer.machine.hurry()
        self.couriers[number].checkpointer.look(heads, self.now)

    def agreed(self) -> set[bytes | None]:
        """The newest snapshots that the devices have agreed upon."""
        found = set()
        for device in self.fleet.devices:
            with device.rig.fs.state.transaction():
                newest = CheckpointTable(device.rig.db.rows).agreed()
            found.add(None if newest is None else newest.stored.snapshot)
        return found


@pytest.fixture(params=[2, 3, 5])
def busy_fleet(request: pytest.FixtureRequest) -> Iterator[BusyFleet]:
    one = BusyFleet(request.param)
    yield one
    one.fleet.discard()


def test_devices_that_never_rest_do_not_state_anything_at_once(busy_fleet: BusyFleet) -> None:
    for _ in range(int(RESTLESS // 60) - 1):
        busy_fleet.step()
    assert all(courier.checkpointer.statement(courier.rig.tx) is None for courier in busy_fleet.couriers)


def test_devices_that_never_rest_agree_nevertheless_and_again(busy_fleet: BusyFleet) -> None:
    seen: list[set[bytes | None]] = []
    for _ in range(3):
        for _ in range(20):
            busy_fleet.step()
            if len(agreed := busy_fleet.agreed()) == 1 and agreed != {None} and agreed not in seen:
                break
        else:
            pytest.fail(f"they have not agreed once more, after {len(seen)} times")
        seen.append(agreed)


def test_an_invitation_has_devices_that_never_rest_agree_at_once(busy_fleet: BusyFleet) -> None:
    busy_fleet.step()
    busy_fleet.couriers[1].checkpointer.machine.hurry()
    for _ in range(3):
        busy_fleet.step()
    assert len(agreed := busy_fleet.agreed()) == 1 and agreed != {None}


def test_what_a_device_cannot_find_again_it_does_not_state(busy_fleet: BusyFleet) -> None:
    busy_fleet.step()
    busy_fleet.couriers[1].checkpointer.machine.hurry()
    for courier in busy_fleet.couriers:
        courier.checkpointer.machine.limits = replace(courier.checkpointer.machine.limits, past_bytes=100)
    for _ in range(3):
        busy_fleet.step()
    assert busy_fleet.agreed() == {None}
    assert busy_fleet.couriers[0].checkpointer.statement(busy_fleet.couriers[0].rig.tx) is None


def test_who_has_looked_back_states_what_has_come_since_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing has come between the one statement and the other."""
    two = BusyFleet(2, restless=1e9)
    try:
        for number in (1, 2):
            two.fleet[0].write("file", b"%d" % number)
            two.fleet[0].sign()
            if number == 2:  # the other device has this too when it hears of a statement of the first
                two.fleet.meet()
            two.look(0, hurried=number == 1)
        for number in (1, 0, 1):
            two.look(number)
        assert len(two.agreed()) == 1
        two.look(0, hurried=True)
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                two.look(1)
        assert caplog.text.count("stated snapshot") == 1
        for number in (0, 1):
            two.look(number)
            assert two.couriers[number].checkpointer.is_current()
    finally:
        two.fleet.discard()


def test_what_the_clouds_lack_is_stated_when_they_have_it(
    alone: Busy, caplog: pytest.LogCaptureFixture
) -> None:
    alone.work()
    before = alone.vector()
    alone.checkpointer.machine.hurry()
    assert alone.look() is None
    alone.work()
    alone.now += RESTLESS
    with caplog.at_level(logging.INFO):
        assert alone.look() is None
    assert "stated snapshot" not in caplog.text
    assert alone.checkpointer.waits_for({}) == []
    alone.ship()
    machine = alone.checkpointer.machine
    machine.limits = replace(machine.limits, restless_seconds=1e9)
    assert alone.look() == before
    assert alone.checkpointer.newest(alone.fleet[0].rig.tx) is not None
