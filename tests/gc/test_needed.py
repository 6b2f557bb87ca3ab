"""What an upload left on the clouds without a record is read from there when nobody else has it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pytest

from hybrisfs.gc.rewrite import NeededOrphans
from tests.gc.support import Collecting, FakeUpkeep, check_shown, cut_short, two_devices
from tests.gc.test_orphans import confer
from tests.merge.fleet import Fleet, NotHereError
from tests.volume.test_fsck_devices import problems

CONTENT = os.urandom(30_000)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Two devices. The first one uploads a file, the second one hears of it, and then the first one is set
    back to a backup of before: nobody knows where the bytes are."""
    fleet = two_devices()
    fleet[0].write("kept", b"kept content")
    fleet.meet()
    backup = fleet[0].saved()
    fleet[0].write("new", CONTENT)
    cut_short(fleet[0])
    fleet[1].receive(fleet[0].log())
    fleet[0].restore(backup)
    yield fleet
    fleet.discard()


def check_there(fleet: Fleet) -> None:
    fleet.meet()
    for device in fleet.devices:
        assert device.read("new") == CONTENT
        check_shown(device)
        assert problems(device) == []


@pytest.mark.parametrize("finder", [0, 1])
def test_what_nobody_else_has_is_found_on_the_clouds(fleet: Fleet, finder: int) -> None:
    with pytest.raises(NotHereError):
        fleet[1].read("new")
    fleet[0].receive(fleet[1].log())
    Collecting(fleet[finder]).bring_lacking()
    assert fleet[finder].read("new") == CONTENT
    fleet[finder].sign()
    check_there(fleet)


def test_whoever_agrees_to_the_end_of_an_orphan_has_looked_in_it_first(fleet: Fleet) -> None:
    """The one that proposes has not heard of the file, as the second device has been away for long."""
    orphans = set(fleet.clouds.packs)
    assert Collecting(fleet[0]).look_for_orphans() > 0
    confer(fleet)
    named = {pack for (pack,) in fleet[1].rig.db.rows.execute("SELECT id FROM pack WHERE n > 0")}
    assert not orphans <= set(fleet.clouds.packs), "the orphans are gone"
    assert named <= set(fleet.clouds.packs)
    check_there(fleet)


def test_it_is_looked_for_after_longer_and_longer_pauses_while_nobody_has_it(fleet: Fleet) -> None:
    fleet.clouds.packs.clear()
    looks: list[float] = []
    collecting = Collecting(fleet[1])

    def listed() -> dict[bytes, list[tuple[int, int]]]:
        looks.append(now)
        return collecting.unnamed()

    for now in (float(second) for second in range(0, 400, 10)):
        collecting.needed.look_again(listed, now)
    assert looks == [0.0, 60.0, 180.0]
    collecting.needed.rest()
    now = 400.0
    collecting.needed.look_again(listed, now)
    assert looks[3:] == [400.0], "what comes to be lacking later is looked for at once"


def test_names_that_one_cloud_makes_up_keep_nobody_from_what_is_there(fleet: Fleet) -> None:
    collecting, asked = Collecting(fleet[1]), list[bytes]()

    class Shares(FakeUpkeep):
        def table(self, cloud: int, pack_id: bytes, index: int) -> object:  # type: ignore[override]
            asked.append(pack_id)
            return super().table(cloud, pack_id, index)

    rig = fleet[1].rig
    needed = NeededOrphans(rig.fs, Shares(rig.clouds), rig.clouds, rig.signals)  # type: ignore[arg-type]
    made_up = {number.to_bytes(32, "big"): [(0, 0)] for number in range(3000)}
    real: dict[bytes, Sequence[tuple[int, int]]] = {pack: [(0, 0), (1, 1)] for pack in collecting.unnamed()}
    needed.look_again(lambda: made_up | real, 0.0)
    assert fleet[1].read("new") == CONTENT
    assert len(asked) < 1100
    fleet[1].sign()
    check_there(fleet)
