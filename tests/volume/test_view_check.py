"""The check of the view: quiet whatever programs do and whatever waits to be signed, and not blind then."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant

from tests.merge.fleet import Fleet
from tests.merge.test_machine import TreeOfMany
from tests.merge.view import what_fsck_says
from tests.surroundings import limited
from tests.tree.rig import SMALL_BLOCKS, small_chunks
from tests.volume.test_fsck_devices import circle, folders, namesakes, undead, versions

_EXAMPLES: Final = int(os.environ.get("HYBRISFS_TREE_EXAMPLES", "25"))


class SoundTreeOfMany(TreeOfMany):
    """All devices are looked at after each step."""

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "world"):
            for device in self.world.fleet.devices:
                assert what_fsck_says(device) == []


SoundTreeOfMany.TestCase.settings = settings(
    max_examples=_EXAMPLES, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSoundTreeOfMany = SoundTreeOfMany.TestCase


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2, environment=lambda _: limited(small_chunks(64), SMALL_BLOCKS))
    yield fleet
    fleet.discard()


DAMAGE: Final = [
    (namesakes, "DELETE FROM place WHERE wanted IS NOT NULL", "is missing"),
    (versions, "UPDATE place SET wanted = x'61' WHERE wanted IS NOT NULL", ""),
    (folders, "DELETE FROM place WHERE name = x'31'", "is missing"),
    (undead, "UPDATE place SET name = x'61' WHERE name = CAST('file' AS BLOB)", "not the one signed"),
    (circle, "UPDATE place SET name = x'61' WHERE name = CAST('one' AS BLOB)", "not the one signed"),
]


@pytest.mark.parametrize(("scene", "statement", "words"), DAMAGE)
@pytest.mark.parametrize("waits", [False, True])
def test_names_that_are_not_plain(
    fleet: Fleet, scene: Callable[[Fleet], None], statement: str, words: str, *, waits: bool
) -> None:
    """*waits*: whether another change waits to be signed."""
    scene(fleet)
    fleet.meet()
    device = fleet[0]
    if waits:
        device.write("another", b"not signed yet")
    assert what_fsck_says(device) == []
    assert device.rig.db.rows.execute(statement).rowcount
    found = what_fsck_says(device)
    assert any(words in one for one in found), found


def test_as_one_with_another_folder_while_a_change_waits(fleet: Fleet) -> None:
    folders(fleet)
    fleet.meet()
    device = fleet[0]
    device.write("another", b"not signed yet")
    device.rig.db.rows.execute("UPDATE joined SET ino = 1")
    assert all("is missing" in one for one in what_fsck_says(device))


def test_a_version_that_stands_elsewhere_while_a_change_waits(fleet: Fleet) -> None:
    versions(fleet)
    fleet.meet()
    device = fleet[0]
    device.write("another", b"not signed yet")
    device.rig.db.rows.execute("UPDATE place SET wanted = x'61' WHERE wanted IS NOT NULL")
    [problem] = what_fsck_says(device)
    assert "does not stand beside that" in problem


def test_the_name_of_a_conflict_copy_is_the_one_that_all_devices_give_it(fleet: Fleet) -> None:
    namesakes(fleet)
    fleet.meet()
    device = fleet[0]
    device.rig.db.rows.execute(
        "UPDATE place SET name = CAST('file (conflict, cyd, 2026-01-01)' AS BLOB) WHERE wanted IS NOT NULL"
    )
    [problem] = what_fsck_says(device)
    assert "it should be b'file (conflict, " in problem


def test_an_update_that_wrote_a_name_is_found_after_its_branch_got_another_name(fleet: Fleet) -> None:
    device, other = fleet.devices
    device.write("first", b"1")
    fleet.meet()
    backup = device.saved()
    device.write("lost", b"2")
    device.sign()
    other.receive(device.log())
    device.restore(backup)
    device.write("second", b"3")
    device.sign()
    query = "SELECT stamp FROM place WHERE name = CAST('second' AS BLOB)"
    (stamp,) = device.rig.db.rows.execute(query).fetchone()
    device.receive(other.log())  # the fork comes to light
    device.rig.db.rows.execute("UPDATE place SET stamp = ? WHERE name = CAST('first' AS BLOB)", (stamp,))
    branch = (
        "SELECT w.branch FROM writer w JOIN log l ON l.branch = w.branch WHERE w.number = ? AND l.clock = ?"
    )
    assert device.rig.db.rows.execute(branch, (stamp & 0xFFFF, stamp >> 16)).fetchone() is None
    assert what_fsck_says(device) == []
