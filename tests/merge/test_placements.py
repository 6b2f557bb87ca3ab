"""Shares that several devices move at the same time: all devices come to look for them at one place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from hybrisfs.clouds.pack_repair import PackMender, PackRenewer
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.share import share_name
from hybrisfs.dispersal.upkeep import Repair
from hybrisfs.environment import SYSTEM
from hybrisfs.write.pack import PackMaker
from tests.dispersal.fakes import CALM, FakeStore
from tests.merge.fleet import Device, Fleet
from tests.tree.rig import SEALER, TABLES

CLOUDS = range(5)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(3)
    fleet[0].write("file", b"content" * 1000)
    fleet.meet()
    fleet.meet()
    yield fleet
    fleet.discard()


def placements(device: Device) -> dict[bytes, bytes]:
    return dict(device.rig.db.rows.execute("SELECT id, placement FROM pack").fetchall())


def move(device: Device, fleet: Fleet, down: Sequence[int]) -> list[Repair]:
    """Repair the only pack while this device finds the given clouds down."""
    ((pack, placement),) = placements(device).items()
    stores = [FakeStore(number) for number in CLOUDS]
    for index, cloud in enumerate(placement):
        stores[cloud].objects[share_name(pack, index)] = fleet.clouds.packs[pack].shares[index]
    for number in down:
        stores[number].behaviour = "down"
    clouds = [Cloud(number, f"c{number}", store) for number, store in enumerate(stores)]
    engine = Engine(clouds, 1, SEALER, TABLES, timing=CALM, environment=SYSTEM)
    rig = device.rig
    try:
        signer, signals = rig.sharing.signer, rig.signals
        maker = PackMaker(SEALER, TABLES, Redundancy(1, 1), engine)
        renewer = PackRenewer(rig.fs, signer, signals, maker, rig.fetcher)
        mender = PackMender(rig.fs, signer, signals, engine.upkeep, TABLES, renewer)
        return mender.mend(pack, writable=CLOUDS, move=True)
    finally:
        engine.close()


def test_a_move_reaches_the_other_devices(fleet: Fleet) -> None:
    ((pack, before),) = placements(fleet[0]).items()
    (repair,) = move(fleet[1], fleet, [before[0]])
    assert repair.now_at is not None
    assert repair.now_at not in before
    fleet.meet()
    after = placements(fleet[1])[pack]
    assert after != before
    assert after[1:] == before[1:]
    assert [placements(device) for device in fleet.devices] == [{pack: after}] * 3


@pytest.mark.parametrize("first", [0, 1])
def test_devices_that_move_a_share_at_once_agree(fleet: Fleet, first: int) -> None:
    ((pack, before),) = placements(fleet[0]).items()
    spare = [cloud for cloud in CLOUDS if cloud not in before]
    move(fleet[0], fleet, [before[0], *spare[1:]])
    move(fleet[1], fleet, [before[0], *spare[:-1]])
    own = [placements(device)[pack][0] for device in fleet.devices[:2]]
    assert own == [spare[0], spare[-1]]
    logs = [device.log() for device in fleet.devices]
    fleet[2].receive(logs[first])
    fleet[2].receive(logs[1 - first])
    fleet.meet()
    found = {placements(device)[pack] for device in fleet.devices}
    assert len(found) == 1


def test_an_earlier_statement_does_not_undo_a_later_one(fleet: Fleet) -> None:
    ((pack, before),) = placements(fleet[0]).items()
    move(fleet[0], fleet, [before[0]])
    moved = placements(fleet[0])[pack]
    move(fleet[0], fleet, [moved[1]])
    fleet.meet()
    last = placements(fleet[0])[pack]
    assert last not in (before, moved)
    fleet.meet()
    assert [placements(device)[pack] for device in fleet.devices] == [last] * 3
