"""A device that is set back to a backup: what all wrote is found, and no honest cloud is accused."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from sync import Head, decode_head, decode_segment, head_name, parse_segment_name
from tests.merge.fleet import Device, Fleet
from tests.simulation.cloud import Clouds, Mood
from tests.simulation.courier import Courier
from tests.simulation.determinism import Clocks, environments
from tests.tree.rig import SEGMENT_KEYS, VOLUME

LOSING, HONEST, OTHER = range(3)
_YEAR = 365 * 86_400.0


class Volume:
    """Two devices and three clouds, one of which keeps nothing, in virtual time."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.fleet = Fleet(2, environment=environments(7, clocks))
        self.ada, self.bob = self.fleet.devices
        self.clouds = Clouds(Random(7), count=3, f=1, copies=2)
        self.clouds.liars = frozenset({LOSING})
        self.clouds.set_moods(Mood.LOSING, [LOSING])
        self._couriers: dict[str, Courier] = {}

    def courier(self, device: Device) -> Courier:
        """What the device's daemon has for the clouds; another one after each restart."""
        found = self._couriers.get(device.name)
        if found is None or found.rig is not device.rig:
            found = self._couriers[device.name] = Courier(device.rig, self.clouds)
        return found

    def away(self, *numbers: int) -> None:
        """These clouds are down now, and no others."""
        for number, cloud in enumerate(self.clouds.all):
            usual = Mood.LOSING if number == LOSING else Mood.WELL
            cloud.mood = Mood.DOWN if number in numbers else usual

    def ship(self, device: Device) -> None:
        """Sign and ship all there is."""
        self.clocks.pass_by(1.0)
        device.sign()
        self.courier(device).flush()

    def look(self, device: Device) -> None:
        """Look at all clouds, and take in what is found."""
        self.clocks.pass_by(400.0)
        self.courier(device).look()

    def live_on(self) -> None:
        """Both do what they do, for hours."""
        for _ in range(12):
            for device in (self.ada, self.bob):
                self.look(device)
                self.ship(device)

    def take_segments(self) -> list[dict[str, list[bytes]]]:
        """Remove all segments from all clouds; what each had."""
        taken = []
        for cloud in self.clouds.all:
            names = [name for name in cloud._versions if name.startswith("log/")]
            taken.append({name: cloud._versions.pop(name) for name in names})
        return taken

    def give_back(self, taken: list[dict[str, list[bytes]]]) -> None:
        for cloud, objects in zip(self.clouds.all, taken, strict=True):
            cloud._versions.update(objects)

    def head_on(self, cloud: int, device: Device) -> Head | None:
        """What the cloud has as the device's head."""
        data = self.clouds.all[cloud].get(head_name(device.key.device_id))
        return None if data is None else decode_head(data, VOLUME, device.key.public, SEGMENT_KEYS)


def tip_of(device: Device) -> bytes:
    """The hash of the newest update of its own chain."""
    tip = device.rig.updates.own_tip()
    assert tip is not None
    return tip.hash


@pytest.fixture
def volume() -> Iterator[Volume]:
    made = Volume(Clocks())
    yield made
    made.fleet.discard()


def test_a_head_is_not_overwritten_on_a_cloud_that_was_away_until_it_was_looked_at(volume: Volume) -> None:
    ada, bob = volume.ada, volume.bob
    backup = ada.saved()
    volume.away(OTHER)
    volume.look(ada)
    ada.write("late", b"after the backup")
    volume.ship(ada)
    before = volume.head_on(HONEST, ada)
    assert before is not None

    volume.away(HONEST)
    ada.restore(backup)
    volume.look(ada)
    ada.write("new", b"after the restoration")
    volume.ship(ada)
    assert volume.head_on(OTHER, ada) is not None
    volume.away()
    ada.write("newer", b"when all clouds are back")
    volume.ship(ada)
    assert volume.head_on(HONEST, ada) == before, "it may lead to what is found nowhere else"
    volume.live_on()
    assert volume.head_on(HONEST, ada) != before
    for device in (ada, bob):
        assert device.read("late") == b"after the backup"
        assert device.read("new") == b"after the restoration"
    assert not volume.clouds.accused


def test_what_a_head_led_to_is_named_again_while_it_cannot_be_had(volume: Volume) -> None:
    ada, bob = volume.ada, volume.bob
    backup = ada.saved()
    volume.look(ada)
    ada.write("late", b"after the backup")
    volume.ship(ada)
    held = volume.take_segments()
    assert any(held)

    ada.restore(backup)
    volume.look(ada)
    ada.write("new", b"after the restoration")
    volume.ship(ada)
    volume.give_back(held)
    volume.look(bob)
    assert bob.read("late") == b"after the backup"
    assert not volume.clouds.accused


def test_another_branch_of_its_own_that_no_cloud_has_is_brought_there(volume: Volume) -> None:
    """It came back by a link from a device that is set back, too, before that one has relayed it."""
    ada, bob = volume.ada, volume.bob
    volume.look(ada)
    ada.write("early", b"before the backup")
    volume.ship(ada)
    volume.look(bob)
    early = ada.rig.updates.state.vector.highest
    backups = [device.saved() for device in (ada, bob)]
    ada.write("late", b"after the backup")
    volume.fleet.send(0, 1)
    ada.restore(backups[0])
    volume.look(ada)
    ada.write("new", b"after the restoration")
    volume.ship(ada)
    ada.receive(bob.log())
    ada.rig = ada.rig.reopen()
    bob.restore(backups[1])
    volume.live_on()
    assert bob.read("late") == b"after the backup"
    assert ada.registers() == bob.registers()
    [(name,)] = ada.rig.db.rows.execute(
        "SELECT name FROM relayed_segment WHERE device = ?", (ada.key.device_id,)
    )
    assert parse_segment_name(name)[1].first == early + 1, "what both branches begin with is there already"


@pytest.mark.parametrize("longer", [0, 2])
@pytest.mark.parametrize("first", [0, 1])
def test_a_device_that_is_set_back_twice_goes_on_with_the_life_that_it_has_shipped(
    volume: Volume, first: int, longer: int
) -> None:
    """It comes to hear of both lives before it signs anything in the third."""
    ada, bob = volume.ada, volume.bob
    volume.look(ada)
    ada.write("early", b"before the backup")
    volume.ship(ada)
    volume.look(bob)
    backups = [device.saved() for device in (ada, bob)]
    lives = []
    for life in range(2):
        for number in range(1 + (life != first) * longer):
            ada.write(f"{life} {number}", b"written in life %d" % life)
            ada.sign()
        lives.append(ada.log())
        ada.restore(backups[0])
    volume.look(ada)
    ada.receive(lives[first])
    volume.ship(ada)
    last = tip_of(ada)
    ada.receive(lives[1 - first])
    assert tip_of(ada) == last
    ada.rig.commit()
    ada.rig = ada.rig.reopen()
    assert tip_of(ada) == last
    for _ in range(3):
        volume.look(ada)
        volume.ship(ada)
        volume.clocks.pass_by(1000.0)
    assert volume.head_on(HONEST, ada) and volume.head_on(OTHER, ada)
    bob.restore(backups[1])
    volume.look(bob)
    volume.look(bob)
    assert len(bob.names()) == 3 + longer
    assert {number for number, _ in volume.clouds.accused} <= {LOSING}


def test_what_a_checkpoint_has_told_the_names_of_is_led_to_as_before(volume: Volume) -> None:
    """The log has it then, but no segment of what is signed from now on will hold it."""
    ada, bob = volume.ada, volume.bob
    backups = [device.saved() for device in (ada, bob)]
    volume.look(ada)
    ada.write("early", b"before the checkpoint")
    volume.ship(ada)
    volume.look(bob)
    volume.ship(bob)
    for _ in range(3):
        for device in (ada, bob):
            volume.look(device)
            volume.courier(device).look_at_checkpoints()
            volume.ship(device)
    ada.restore(backups[0])
    volume.courier(ada).take_over(volume.courier(bob))
    assert ada.bare()
    volume.look(ada)
    ada.write("late", b"after the checkpoint")
    volume.ship(ada)
    held = volume.clouds.all[HONEST]._versions | volume.clouds.all[OTHER]._versions
    newest = max(name for name in held if name.startswith(f"log/{ada.key.device_id.hex()}/"))
    assert decode_segment(held[newest][-1], newest, VOLUME, SEGMENT_KEYS).previous is not None
    bob.restore(backups[1])
    for _ in range(6):
        volume.look(bob)
    assert bob.names() == ["early", "late"]


def test_a_clock_set_right_after_a_restoration_accuses_nobody(volume: Volume) -> None:
    ada, bob = volume.ada, volume.bob
    volume.look(ada)
    ada.write("early", b"before the backup")
    volume.ship(ada)
    volume.look(bob)
    backup = ada.saved()
    volume.clocks.set_ahead(0, _YEAR)
    bob.write("of bob", b"what ada had seen")
    volume.ship(bob)
    volume.look(ada)
    volume.ship(ada)
    volume.clocks.pass_by(1000.0)
    volume.ship(ada)  # a beacon that covers it
    volume.look(bob)

    volume.clocks.set_ahead(0, 0.0)
    volume.away(LOSING)
    ada.restore(backup)
    volume.take_segments()
    volume.look(ada)
    volume.clocks.pass_by(1000.0)
    volume.ship(ada)
    head = volume.head_on(HONEST, ada)
    assert head is not None and not head.vector.covers(bob.rig.updates.state.vector)
    volume.look(bob)
    assert not volume.clouds.accused
