"""Devices that have made different things of one log notice it: over links and through the clouds."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.peers.settings import PeerSettings
from hybrisfs.registers.tree import attr_key
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.sharing.agreement import AgreementLimits
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.write.ship import ShipLimits
from tests.volume.device import ALONE, NAME, PATIENCE, Device, Second

CONTENT = b"content" * 1000
LIMITS = [
    CheckpointLimits(look_seconds=0.2),
    ShipLimits(state_seconds=1.0),
    AgreementLimits(quiet_seconds=1.0),
]
"""It is quiet soon, and states are compared at once."""


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    first = Device(tmp_path / "first", limits=LIMITS)
    connect(first, ALONE)
    second = Second(tmp_path / "second", first)
    first.write("file", CONTENT)
    first.sync()
    wait(lambda: hears_of_file(second))
    second.write("answer", CONTENT[::-1])
    second.sync()
    yield first, second
    second.close()
    first.close()


def connect(device: Device, links: PeerSettings) -> None:
    device.close()
    replace(VolumeConfig.load(device.home, NAME), links=links).save(device.home)
    device.reopen()


def link(first: Device, second: Device) -> None:
    """Have the second find the first."""
    port = first.volume.links.port
    assert port is not None
    connect(second, PeerSettings(discover=False, addresses=(("127.0.0.1", port),)))
    wait(lambda: bool(second.volume.links.status()))


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def hears_of_file(device: Device) -> bool:
    device.volume.signals.look_around()
    with device.volume.fs.state.transaction() as tx:
        return device.volume.fs.lookup(tx, ROOT_INO, b"file") is not None


def flip_a_bit(device: Device) -> None:
    """In the attributes of a file that is shown, while the daemon is down."""
    with device.volume.fs.state.transaction() as tx:
        inode = device.volume.fs.lookup(tx, ROOT_INO, b"file")
        assert inode is not None
        key = attr_key(inode.id)
    device.close()
    with closing(sqlite3.connect(device.state / "volume.db")) as db:
        [(value,)] = db.execute("SELECT value FROM register WHERE key = ?", (key,)).fetchall()
        flipped = value[:-1] + bytes([value[-1] ^ 1])
        db.execute("UPDATE register SET value = ? WHERE key = ?", (flipped, key))
        db.commit()


def warned(device: Device, of: str) -> bool:
    device.volume.signals.look_around()
    warnings = device.volume.status(look=False).warnings
    assert isinstance(warnings, list)
    return any(f"{of} and this machine have made different things" in one for one in warnings)


def test_a_flipped_bit_is_noticed_on_both_sides_of_a_link(devices: tuple[Device, Device]) -> None:
    first, second = devices
    own = first.volume.sharing.membership.own_name
    flip_a_bit(second)
    second.reopen()
    link(first, second)
    wait(lambda: warned(first, "second") and warned(second, own))


def test_equal_states_are_no_alarm_and_known_to_be_equal(devices: tuple[Device, Device]) -> None:
    first, second = devices
    link(first, second)

    def compared() -> bool:
        agreements = [device.volume.sharing.agreement for device in (first, second)]
        with first.volume.fs.state.transaction() as one, second.volume.fs.state.transaction() as other:
            claims = [agreement.claim(tx) for agreement, tx in zip(agreements, (one, other), strict=True)]
        heard = [head.state for one in agreements for head in one._claims.values()]
        return None not in claims and claims[0] == claims[1] and heard == claims

    wait(compared)
    for device in devices:
        assert not device.volume.sharing.agreement.disagreeing


def test_a_flipped_bit_is_noticed_through_the_clouds(devices: tuple[Device, Device]) -> None:
    first, second = devices
    own = first.volume.sharing.membership.own_name
    flip_a_bit(second)
    second.reopen()
    wait(lambda: warned(first, "second") and warned(second, own))


def test_the_alarm_ends_when_both_have_made_the_same(devices: tuple[Device, Device]) -> None:
    first, second = devices
    flip_a_bit(second)
    second.reopen()
    wait(lambda: warned(first, "second"))
    flip_a_bit(second)  # back
    second.reopen()
    wait(lambda: not warned(first, "second"))
