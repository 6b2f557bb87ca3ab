"""A device gets another name while conflict copies are called after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.merge.fleet import Fleet
from tests.merge.view import check_view


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(3)
    try:
        yield fleet
    finally:
        fleet.discard()


def _conflict(fleet: Fleet) -> None:
    """Two files under one name, and two versions of one file."""
    fleet[0].write("edited", b"before")
    fleet.meet()
    for device in fleet.devices[:2]:
        device.write("made", device.name.encode())
        device.write("edited", device.name.encode())
    fleet.meet()


@pytest.mark.parametrize("renamed", ["ada", "bob"])
@pytest.mark.parametrize("by", [0, 1, 2])
def test_conflict_copies_are_called_after_it_on_all_devices(fleet: Fleet, renamed: str, by: int) -> None:
    _conflict(fleet)
    before = fleet[0].names()
    fleet[by].rig.sharing.membership.rename(renamed, "xerxes")
    check_view(fleet[by])
    fleet.meet()
    for device in fleet.devices:
        check_view(device)
        assert device.names() == sorted(name.replace(renamed, "xerxes") for name in before)
