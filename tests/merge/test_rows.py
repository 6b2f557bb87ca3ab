"""Names as other devices change them: a listing that is under way misses none and has none twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.names import RENAME_EXCHANGE
from tests.merge.fleet import Device, Fleet


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2)
    yield fleet
    fleet.discard()


def _order(device: Device) -> list[tuple[int, bytes]]:
    return [(number, name) for number, name, _ in device.rig.fs.names.list(device.rig.tx, ROOT_INO, 0, 1000)]


def test_a_name_keeps_its_number_when_another_device_gives_it_to_another_file(fleet: Fleet) -> None:
    for name in ("first", "between", "last"):
        fleet[0].write(name, name.encode())
    fleet.meet()
    before = _order(fleet[1])
    fleet[0].write("new", b"saved")
    fleet[0].move("new", "first")
    fleet.meet()
    assert fleet[1].read("first") == b"saved"
    assert _order(fleet[1]) == before
    fleet[0].rig.fs.rename(fleet[0].rig.tx, ROOT_INO, b"first", ROOT_INO, b"last", RENAME_EXCHANGE)
    fleet.meet()
    assert fleet[1].read("last") == b"saved"
    assert _order(fleet[1]) == before
