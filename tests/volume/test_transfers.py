"""Pauses, metered networks and limits of a volume: what stops, what goes on, and what lasts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.settings.transfers import Transfers, TransferSettings
from hybrisfs.stages import Signals
from tests.volume.device import NAME, Device
from tests.volume.test_metered import fake_bus

KIB = 1 << 10
NOON = datetime(2026, 11, 16, 12).timestamp()


@dataclass
class _Rates:
    """A throttle that takes notes."""

    now: list[int | None] = field(default_factory=list)

    def set_rates(self, up: int | None, down: int | None) -> None:
        self.now[:] = up, down


@dataclass
class _World:
    now: float = NOON
    metered: bool = False
    kept: TransferSettings = field(default_factory=TransferSettings)
    rates: _Rates = field(default_factory=_Rates)
    signals: Signals = field(init=False)

    def __post_init__(self) -> None:
        self.signals = Signals(Environment(time_ns=lambda: int(self.now * 1e9)))

    def set(self, *, transfers: TransferSettings) -> None:
        self.kept = transfers

    def transfers(self) -> Transfers:
        made = Transfers(
            self.kept,
            self.rates,  # type: ignore[arg-type]
            self.signals,
            self,
            lambda: self.metered,
        )
        made.look()
        return made


def test_limits_follow_the_timetable() -> None:
    world = _World()
    transfers = world.transfers()
    assert world.rates.now == [None, None]
    transfers.limit("08:00,512k 12:00:30,1M".replace(":30", ""), "10M", None)
    assert world.rates.now == [1024 * KIB, 10240 * KIB]
    world.now = datetime(2026, 11, 17, 7, 59, 58).timestamp()
    assert transfers.look() == pytest.approx(2)
    facts = transfers.facts().up
    assert (facts.rate, facts.then) == (1024 * KIB, 512 * KIB)
    world.now += 2
    transfers.look()
    assert world.rates.now == [512 * KIB, 10240 * KIB]
    transfers.limit("off", None, None)
    assert world.rates.now == [None, 10240 * KIB]
    with pytest.raises(UsageError):
        transfers.limit("off", "nonsense", None)
    with pytest.raises(UsageError):
        transfers.limit(None, None, "panic")
    assert world.rates.now == [None, 10240 * KIB]
    assert world.transfers().facts() == transfers.facts()  # after a restart


def test_a_pause_ends_by_itself_or_when_somebody_resumes() -> None:
    world = _World()
    transfers = world.transfers()
    transfers.pause(5.0)
    assert world.signals.transfers_paused
    assert world.transfers().facts().paused_until == NOON + 5
    assert transfers.look() == 5.0
    world.now += 5
    transfers.look()
    assert not world.signals.transfers_paused
    transfers.pause(None)
    assert world.kept.paused_until == math.inf
    world.now += 1e9
    transfers.look()
    assert transfers.facts().held == "paused"
    transfers.resume()
    assert not world.signals.transfers_paused
    assert world.kept.paused_until is None


def test_a_metered_network_holds_transfers_unless_that_is_unwanted() -> None:
    world = _World()
    transfers = world.transfers()
    world.metered = True
    transfers.look()
    assert world.signals.transfers_paused
    assert transfers.facts().held == "metered"
    transfers.resume()
    assert world.signals.transfers_paused
    transfers.limit(None, None, "ignore")
    assert not world.signals.transfers_paused
    transfers.limit(None, None, "pause")
    assert world.signals.transfers_paused
    world.metered = False
    transfers.look()
    assert not world.signals.transfers_paused


def objects(device: Device, kind: str) -> int:
    return sum(path.is_file() for cloud in device.clouds for path in (cloud / kind).rglob("*"))


def test_a_paused_volume_is_used_as_ever_and_brings_nothing_to_the_clouds(device: Device) -> None:
    device.write("before", b"known to the clouds " * 1000)
    device.sync()
    device.volume.transfers.pause(None)
    packs, heads = objects(device, "packs"), objects(device, "log")
    device.volume.drop_cache()
    assert device.read("before") == b"known to the clouds " * 1000  # what programs read is fetched
    device.write("after", b"new " * 1000)
    assert device.read("after") == b"new " * 1000
    with pytest.raises(HybrisError, match="transfers are paused"):
        device.sync()
    assert not device.volume.uploads.wait(1.0, lambda done, total: None)  # nor when somebody presses
    device.reopen()  # a restart changes nothing in it
    assert device.volume.status().transfers == device.volume.transfers.facts()
    assert device.volume.transfers.facts().held == "paused"
    assert device.read("after") == b"new " * 1000
    assert (objects(device, "packs"), objects(device, "log")) == (packs, heads)
    device.volume.transfers.resume()
    device.sync()
    assert objects(device, "packs") > packs
    assert objects(device, "log") > heads
    assert not VolumeConfig.load(device.home, NAME).transfers.paused_until


def test_nothing_begins_on_a_metered_network(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path / 'bus'}")
    with fake_bus(tmp_path / "bus", 1):
        device.reopen()
        # While the bus is there: the volume asks it again, in a thread of its own.
        assert device.volume.transfers.held == "the network is metered"


def test_a_limit_reaches_the_engine(device: Device) -> None:
    throttle = device.volume.engine.throttle
    assert not throttle.pacer(()).limited
    device.volume.transfers.limit("100M", "200M", None)
    assert throttle.pacer(()).limited
    device.write("file", b"content " * 100_000)
    device.sync()
    assert VolumeConfig.load(device.home, NAME).transfers.up.text == "100M"
