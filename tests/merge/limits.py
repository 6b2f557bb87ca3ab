"""Devices of a fleet of which one is limited to folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from hybrisfs.members.roles import Area, Role, new_assignment
from sync.update import Write
from tests.members.test_roles import founded
from tests.merge.fleet import NAMES, Device, Fleet, member_of

__all__ = [
    "ADA",
    "AREA",
    "BOB",
    "CYD",
    "CYD_ID",
    "FOLDER",
    "NOW",
    "fleet",
    "limit",
    "refused",
    "say",
    "shared",
    "signed",
]

NOW = 1_700_000_000 * 10**9
ADA, BOB, CYD = range(3)
CYD_ID = member_of(CYD).device
AREA, FOLDER = Area(b"area", bytes(15) + b"\1"), bytes(15) + b"\1"


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = founded(3)
    yield one
    one.discard()


def limit(device: Device, of: int, *folders: str, assigned: Sequence[str] | None = None) -> tuple[Area, ...]:
    """Have a device say that another one is limited to folders, and assign what is in them, or only the files
    *assigned*."""
    sharing = device.rig.sharing
    with device.rig.fs.state.transaction() as tx:
        areas = sharing.shared_folders.choose(tx, folders)
    sharing.membership.set_role(NAMES[of], Role.CONTRIBUTOR, areas)
    if assigned is None:
        sharing.shared_folders.assign(areas)
    for path in assigned or ():
        with device.rig.fs.state.transaction() as tx:
            sharing.signer.sign(tx, [new_assignment(device.at(path).id, areas[0].id)], 0)
    return areas


def say(device: Device, of: int, role: Role) -> None:
    device.rig.sharing.membership.set_role(NAMES[of], role)


def shared(fleet: Fleet) -> Area:
    """A folder `in` with a file and a folder, a file in another folder and one in none; Cyd is limited to the
    first."""
    ada = fleet[ADA]
    for folder in ("in", "out", "in/deep"):
        ada.mkdir(folder)
    ada.write("in/file", b"inside")
    ada.write("out/file", b"outside")
    ada.write("file", b"outside, too")
    fleet.meet()
    (area,) = limit(ada, CYD, "in")
    fleet.meet()
    return area


def refused(number: int) -> pytest.RaisesExc[OSError]:
    return pytest.raises(OSError, check=lambda error: error.errno == number)


def signed(liar: Device, *writes: Write) -> list[bytes]:
    liar.rig.updates.sign(writes, NOW, 0)
    return liar.log()
