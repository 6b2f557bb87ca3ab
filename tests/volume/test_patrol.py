"""All that is on the clouds is checked within so many days, a little at a time."""

from __future__ import annotations

import pytest

from hybrisfs.clouds.patrol import Patrol
from hybrisfs.environment import Environment
from hybrisfs.state.packs import PackPlace
from tests.volume.device import Device

DAY = 86_400
PACKS = 40


class Clock:
    def __init__(self) -> None:
        self.days = 20_000.0

    def __call__(self) -> int:
        return round(self.days * DAY * 1e9)


class Watched:
    """A patrol, and the numbers of the packs that it looked at on a cloud."""

    def __init__(self, device: Device, days: int) -> None:
        self.device, self.days, self.clock = device, days, Clock()
        self.seen: list[int] = []
        self.answers = True
        self.restart()

    def restart(self) -> None:
        state = self.device.volume.fs.state
        self.patrol = Patrol(state, Environment(time_ns=self.clock), self.days)

    def check(self, cloud: int = 0) -> list[int]:
        """The packs that are looked at now."""
        begun = len(self.seen)
        self.patrol.check(cloud, self._look)
        return self.seen[begun:]

    def _look(self, pack: PackPlace) -> bool:
        if self.answers:
            self.seen.append(pack.number)
        return self.answers


def on_cloud(device: Device, cloud: int) -> set[int]:
    with device.volume.fs.state.transaction() as tx:
        packs = tx.packs.of_device(device.volume.sharing.device, 0)
    return {pack.number for pack in packs if cloud in pack.placement}


@pytest.fixture
def watched(device: Device) -> Watched:
    number = 0
    while number < PACKS or len(on_cloud(device, 0)) <= PACKS // 4:  # others may seem faster for a while
        device.write(f"file {number}", number.to_bytes(2) * 2500)
        device.sync()
        number += 1
    return Watched(device, 10)


def test_a_round_takes_the_days_that_it_may(watched: Watched) -> None:
    expected = sorted(on_cloud(watched.device, 0))
    assert watched.check() == [], "the round begins now"
    for half_days in range(1, 21):
        watched.clock.days += 0.5
        watched.check()
        assert abs(len(watched.seen) - len(expected) * half_days / 20) <= PACKS / 10, "a little at a time"
    assert watched.seen == expected
    facts = watched.patrol.facts(0)
    assert (facts.since, facts.before, facts.share) == (20_010 * DAY, 20_000 * DAY, 0.0)
    watched.clock.days += 10
    assert watched.check() == expected, "the next round"


def test_a_restart_goes_on_where_it_was(watched: Watched) -> None:
    watched.check()
    watched.clock.days += 5
    first = watched.check()
    watched.restart()
    watched.clock.days += 5
    assert first + watched.check() == sorted(on_cloud(watched.device, 0))
    assert first


def test_a_cloud_that_is_away_is_checked_when_it_is_back(watched: Watched) -> None:
    watched.check()
    watched.check(1)
    watched.answers = False
    watched.clock.days += 100
    assert watched.check() == []
    watched.answers = True
    assert watched.check(1) == sorted(on_cloud(watched.device, 1)), "others are not held up"
    assert watched.check() == sorted(on_cloud(watched.device, 0))


def test_what_comes_during_a_round_belongs_to_it(watched: Watched) -> None:
    watched.check()
    watched.clock.days += 9
    watched.check()
    for number in range(10):
        watched.device.write(f"later {number}", bytes((number, 1)) * 5000)
        watched.device.sync()
    watched.clock.days += 1
    watched.check()
    assert watched.seen == sorted(on_cloud(watched.device, 0))


def test_fewer_days_hold_at_once(watched: Watched) -> None:
    watched.check()
    watched.clock.days += 1
    watched.patrol.days = 1
    assert watched.check() == sorted(on_cloud(watched.device, 0))


def test_a_clock_that_was_ahead_holds_nothing_up(watched: Watched) -> None:
    watched.clock.days += 5000
    watched.check()
    watched.clock.days -= 5000
    watched.check()
    watched.clock.days += 10
    assert watched.check() == sorted(on_cloud(watched.device, 0))


def test_what_an_idle_volume_costs(watched: Watched) -> None:
    facts = watched.patrol.facts(0)
    assert facts.requests == pytest.approx(len(on_cloud(watched.device, 0)) * 3)
    watched.patrol.days = 90
    assert watched.patrol.facts(0).requests == pytest.approx(facts.requests / 9)


def test_an_old_share_that_is_lost_is_found(device: Device) -> None:
    """It is neither the newest, nor, most likely, one that a sample hits."""
    for number in range(PACKS):
        device.write(f"file {number}", bytes((number,)) * 5000)
        device.sync()
    device.reopen()  # so that no pack is so new that it may not be shown yet
    numbers = sorted(on_cloud(device, 0))
    with device.volume.fs.state.transaction() as tx:
        pack = tx.packs.numbered(numbers[len(numbers) // 3])
        tx.add_meta("patrol 0", f"{device.volume.environment.time() - 89 * DAY!r} 0 0.0")
    assert pack is not None
    [share] = device.clouds[0].glob(f"packs/*/*{pack.id.hex()}*")
    share.unlink()
    device.volume.checkup.refresh(60.0, thoroughly=True)
    wrong = {one.name for one in device.volume.engine.upkeep.wrong_objects()}
    assert any(pack.id.hex() in name for name in wrong)
