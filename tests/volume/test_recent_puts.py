"""A cloud that acknowledges and does not store is found soon, by what it was given last."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from backends.store import Buffer, Store, StoreWrapper
from hybrisfs.clouds.checkup import CheckupLimits, RecentPuts, RecentPutsLimits
from hybrisfs.dispersal.share import share_name
from hybrisfs.environment import Environment
from tests.volume.device import PATIENCE, Device
from tests.volume.middlemen import faulty, put_before


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Dropping(StoreWrapper):
    """A cloud that acknowledges what *drops* chooses and does not store it: the names are in `dropped`."""

    def __init__(self, store: Store, drops: Callable[[str], bool]) -> None:
        super().__init__(store)
        self._drops = drops
        self.dropped: list[str] = []

    def put(self, name: str, data: Buffer) -> None:
        if self._drops(name):
            self.dropped.append(name)
        else:
            super().put(name, data)


def dropping(device: Device, cloud: Path, drops: Callable[[str], bool]) -> list[str]:
    """The cloud is such a one from now on; the names."""
    return put_before(device, cloud, lambda store: Dropping(store, drops)).dropped


def lying(device: Device) -> set[str]:
    return {one.name for one in device.volume.engine.health() if one.state == "lying"}


def looks(device: Device, clock: Clock) -> RecentPuts:
    volume = device.volume
    expected = volume.maintenance.objects.expected
    return RecentPuts(
        volume.fs, expected, volume.engine.upkeep, volume.sharing.device, Environment(monotonic=clock)
    )


def look_for_minutes(recent: RecentPuts, clock: Clock, minutes: int) -> None:
    for _ in range(minutes):
        clock.now += 60.0
        recent.look()


def fullest(device: Device) -> Path:
    return max(device.clouds, key=lambda cloud: len(list((cloud / "packs").glob("*/*"))))


def counted_on(device: Device) -> set[str]:
    """The objects that clouds have acknowledged and have to keep. What a slow cloud acknowledges when another
    one stands in for it already is none of them."""
    with device.volume.fs.state.transaction() as tx:
        packs = tx.packs.of_device(device.volume.sharing.device, 0)
        names = {share_name(pack.id, index) for pack in packs for index in range(len(pack.placement))}
        return names | {segment.name for segment in tx.segments.ending_after(0)}


def write_until_some_is_dropped(device: Device, dropped: list[str]) -> None:
    """The cloud need not be among the quickest."""
    number = 0
    while counted_on(device).isdisjoint(dropped):
        number += 1
        device.write(f"file{number}", os.urandom(5000))
        device.sync()


def write_some(device: Device, count: int) -> None:
    for number in range(count):
        device.write(f"file{number}", bytes((number,)) * 5000)
        device.sync()


def test_a_cloud_that_stores_nothing_is_found_within_minutes(device: Device) -> None:
    clock = Clock()
    recent = looks(device, clock)
    dropped = dropping(device, device.clouds[0], lambda name: name.startswith(("packs/", "log/")))
    write_until_some_is_dropped(device, dropped)
    look_for_minutes(recent, clock, 4)
    assert lying(device) == {device.clouds[0].name}
    wrong = {one.name for one in device.volume.engine.upkeep.wrong_objects()}
    assert wrong & set(dropped)


def test_a_cloud_that_drops_a_part_of_the_puts_is_found(device: Device) -> None:
    clock, random = Clock(), Random(7)
    recent = looks(device, clock)

    def drops(name: str) -> bool:
        return name.startswith("packs/") and random.random() < 0.15

    dropping(device, device.clouds[1], drops)
    for _ in range(60):  # it need not be among the quickest, and what it drops need not be in the sample
        if lying(device):
            break
        for _ in range(10):
            device.write("file", os.urandom(5000))
            device.sync()
        look_for_minutes(recent, clock, 1)
    assert lying(device) == {device.clouds[1].name}


def test_a_cloud_that_shows_things_late_is_not_accused(device: Device) -> None:
    clock = Clock()
    recent = looks(device, clock)
    write_some(device, 3)
    hidden = fullest(device) / "packs"
    aside = hidden.rename(hidden.with_name("packs-aside"))
    look_for_minutes(recent, clock, 2)
    assert recent.doubted
    assert not lying(device)
    aside.rename(hidden)
    look_for_minutes(recent, clock, 3)
    assert not recent.doubted
    assert not lying(device)


def test_what_was_put_before_a_restart_is_looked_at(device: Device) -> None:
    write_some(device, 6)
    device.close()
    liar = fullest(device)
    shutil.rmtree(liar / "packs")
    device.reopen()
    clock = Clock()
    look_for_minutes(looks(device, clock), clock, 4)
    assert lying(device) == {liar.name}


def test_a_cloud_that_is_away_is_asked_when_it_is_back(device: Device) -> None:
    clock = Clock()
    recent = looks(device, clock)
    write_some(device, 6)
    liar = fullest(device)
    shutil.rmtree(liar / "packs")
    away = liar.rename(liar.with_suffix(".away"))
    look_for_minutes(recent, clock, 3)
    away.rename(liar)
    device.volume.writing.look_at_clouds()
    look_for_minutes(recent, clock, 3)
    assert lying(device) == {liar.name}


def test_few_requests_are_made(device: Device) -> None:
    clock = Clock()
    recent = looks(device, clock)
    write_some(device, 40)
    stores = [faulty(device, cloud) for cloud in device.clouds]

    def asked() -> list[int]:
        return [[call.operation for call in store.calls].count("get_range") for store in stores]

    look_for_minutes(recent, clock, 2)
    first = asked()
    assert 1 <= max(first) <= 16
    look_for_minutes(recent, clock, 10)
    assert asked() == first


def test_the_check_up_does_it_by_itself(tmp_path: Path) -> None:
    limits = [CheckupLimits(interval=0.05, confirm_interval=0.05), RecentPutsLimits(age=0.1)]
    device = Device(tmp_path, limits=limits)
    dropped = dropping(device, device.clouds[0], lambda name: name.startswith("packs/"))
    write_until_some_is_dropped(device, dropped)
    until = time.monotonic() + PATIENCE
    assert device.volume.signals.wait_until(lambda: bool(lying(device)), until, step=0.05)
    device.close()
