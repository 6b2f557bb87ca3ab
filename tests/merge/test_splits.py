"""An edit that is not signed when another device's comes stands beside that, in conflict on all devices."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

import pytest

from hybrisfs.merge.rules import Contender, judge
from hybrisfs.registers.values import Stamp
from hybrisfs.tree.residency import State
from hybrisfs.volume.decisions import Conflicts
from tests.merge.fleet import Device, Fleet
from tests.merge.view import check_view
from tests.tree.unlocked import unlocked
from tests.versions.support import past_tree


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2)
    yield fleet
    fleet.discard()


def conflicts(device: Device) -> dict[str, str]:
    """The name for whose sake each stands that is in conflict."""
    found = Conflicts(device.rig.fs).all()
    return {str(one.path): str(one.of) for one in found}


def met(fleet: Fleet) -> dict[str, bytes]:
    """What all see once they have heard of all; all list the same conflicts."""
    fleet.meet()
    for device in fleet.devices:
        check_view(device)
        assert conflicts(device) == conflicts(fleet[0])
        assert device.tree() == fleet[0].tree()
    return {path: one.content for path, one in fleet[0].tree().items() if stat.S_ISREG(one.kind)}


def split(fleet: Fleet, theirs: str, ours: str, path: str = "file.txt") -> str:
    """Bob edits a file, and before he has signed that hears of ada's edit; where his is now."""
    before = conflicts(fleet[1])
    fleet[1].write(path, ours.encode())
    fleet[0].write(path, theirs.encode())
    fleet.send(0, 1)
    [copy] = conflicts(fleet[1]).keys() - before.keys()
    return copy


@pytest.fixture
def begun(fleet: Fleet) -> Fleet:
    fleet[0].write("file.txt", b"first")
    fleet.meet()
    return fleet


def test_it_is_in_conflict_at_once_and_on_all_devices(begun: Fleet) -> None:
    copy = split(begun, "ada's", "bob's")
    assert copy.startswith("file (conflict, bob, ") and copy.endswith(").txt")
    assert begun[1].read("file.txt") == b"ada's" and begun[1].read(copy) == b"bob's"
    assert met(begun) == {"file.txt": b"ada's", copy: b"bob's"}
    assert conflicts(begun[0]) == conflicts(begun[1]) == {copy: "file.txt"}


def test_each_edit_that_is_split_off_gets_a_name_of_its_own(begun: Fleet) -> None:
    expected: dict[str, bytes] = {}
    for number in range(3):
        expected[split(begun, f"ada's {number}", f"bob's {number}")] = b"bob's %d" % number
        begun[1].sign()
    assert met(begun) == {"file.txt": b"ada's 2", **expected}
    assert conflicts(begun[0]) == dict.fromkeys(expected, "file.txt")


def test_edits_that_are_split_off_before_anything_is_signed(begun: Fleet) -> None:
    copies = [split(begun, f"ada's {number}", f"bob's {number}") for number in range(3)]
    found = met(begun)
    assert conflicts(begun[0]) == dict.fromkeys(copies, "file.txt")
    assert found.pop("file.txt") == b"ada's 2"
    assert sorted(found.values()) == [b"bob's 0", b"bob's 1", b"bob's 2"]


def test_what_is_split_off_from_one_that_was_split_off_leaves_it_its_name(begun: Fleet) -> None:
    copy = split(begun, "ada's", "bob's")
    met(begun)
    other = split(begun, "ada's too", "bob's too", copy)
    assert met(begun) == {"file.txt": b"ada's", copy: b"ada's too", other: b"bob's too"}
    begun[0].remove("file.txt")
    assert met(begun) == {"file.txt": b"ada's too", copy: b"bob's too"}


@pytest.mark.parametrize("wanted", [1, 2])
def test_it_makes_way_for_who_is_called_as_it_is_shown(begun: Fleet, wanted: int) -> None:
    copy = split(begun, "ada's", "bob's")
    names = [copy, copy.replace(").txt", " 2).txt")][:wanted]
    for name in names:
        begun[0].write(name, f"ada's {name}".encode())
    begun.send(0, 1)
    [other] = conflicts(begun[1])
    assert begun[1].read(other) == b"bob's"
    assert met(begun) == {
        "file.txt": b"ada's",
        other: b"bob's",
        **{name: f"ada's {name}".encode() for name in names},
    }
    assert conflicts(begun[0]) == {other: "file.txt"}


def test_a_new_file_that_left_its_name_to_a_folder_makes_way_again(fleet: Fleet) -> None:
    fleet[1].write("same", b"bob's")
    fleet[0].mkdir("same")
    fleet.send(0, 1)
    [copy] = conflicts(fleet[1])
    fleet[0].write(copy, b"ada's")
    fleet.send(0, 1)
    [other] = conflicts(fleet[1])
    assert met(fleet) == {copy: b"ada's", other: b"bob's"}


def test_the_same_edit_is_no_conflict(begun: Fleet) -> None:
    split(begun, "the same", "the same")
    assert met(begun) == {"file.txt": b"the same"}
    assert conflicts(begun[0]) == {}


def test_programs_go_on_writing_to_what_they_have_open(begun: Fleet) -> None:
    fs = begun[1].rig.fs
    handle = fs.open(unlocked(fs), begun[1].at("file.txt").ino, os.O_RDWR)
    fs.write(unlocked(fs), fs.handle(handle), 5, b", bob's")
    begun[0].write("file.txt", b"ada's")
    begun.send(0, 1)
    [copy] = conflicts(begun[1])
    fs.write(unlocked(fs), fs.handle(handle), 12, b" too")
    assert begun[1].at(copy) is fs.handle(handle)
    assert met(begun) == {"file.txt": b"ada's", copy: b"first, bob's too"}
    fs.write(unlocked(fs), fs.handle(handle), 16, b", and more")
    fs.release(unlocked(fs), handle)
    assert met(begun) == {"file.txt": b"ada's", copy: b"first, bob's too, and more"}


def test_what_is_written_to_an_open_file_that_another_has_changed_is_in_conflict(begun: Fleet) -> None:
    fs = begun[1].rig.fs
    handle = fs.open(unlocked(fs), begun[1].at("file.txt").ino, os.O_RDWR)
    begun[0].write("file.txt", b"ada's")
    begun.send(0, 1)
    assert conflicts(begun[1]) == {}
    fs.write(unlocked(fs), fs.handle(handle), 5, b", bob's")
    [copy] = conflicts(begun[1])
    fs.release(unlocked(fs), handle)
    assert met(begun) == {"file.txt": b"ada's", copy: b"first, bob's"}
    assert conflicts(begun[0]) == {copy: "file.txt"}


def test_the_file_keeps_what_else_is_not_signed_of_its_names(begun: Fleet) -> None:
    begun[1].move("file.txt", "renamed.txt")
    begun[1].link("renamed.txt", "linked.txt")
    begun[1].write("renamed.txt", b"bob's")
    begun[0].write("file.txt", b"ada's")
    begun.send(0, 1)
    [copy] = conflicts(begun[1])
    assert met(begun) == {"renamed.txt": b"ada's", "linked.txt": b"ada's", copy: b"bob's"}
    assert conflicts(begun[0]) == {copy: "renamed.txt"}
    assert begun[0].at("linked.txt") is begun[0].at("renamed.txt")


def test_it_gets_the_name_when_that_is_free(begun: Fleet) -> None:
    split(begun, "ada's", "bob's")
    met(begun)
    begun[0].remove("file.txt")
    assert met(begun) == {"file.txt": b"bob's"}
    assert conflicts(begun[1]) == {}


def test_it_leaves_the_name_to_a_file_that_is_saved_by_renaming(begun: Fleet) -> None:
    copy = split(begun, "ada's", "bob's")
    begun[0].write("temporary", b"ada's next")
    begun[0].move("temporary", "file.txt")
    assert met(begun) == {"file.txt": b"ada's next", copy: b"bob's"}
    assert conflicts(begun[1]) == {copy: "file.txt"}


def test_it_stays_in_conflict_when_it_is_edited_after_another_has_removed_it(begun: Fleet) -> None:
    copy = split(begun, "ada's", "bob's")
    met(begun)
    begun[0].remove(copy)
    begun[1].write(copy, b"bob's next")
    found = met(begun)
    assert found.pop("file.txt") == b"ada's" and list(found.values()) == [b"bob's next"]
    assert conflicts(begun[0]) == dict.fromkeys(found, "file.txt")


def test_it_is_no_conflict_under_another_name(begun: Fleet) -> None:
    copy = split(begun, "ada's", "bob's")
    begun[1].move(copy, "mine.txt")
    assert met(begun) == {"file.txt": b"ada's", "mine.txt": b"bob's"}
    assert conflicts(begun[0]) == {}


def test_it_is_in_conflict_after_a_restart(begun: Fleet) -> None:
    copy = split(begun, "ada's", "bob's")
    begun[1].rig.commit()
    begun[1].rig = begun[1].rig.crashed()
    assert conflicts(begun[1]) == {copy: "file.txt"}
    assert met(begun) == {"file.txt": b"ada's", copy: b"bob's"}


def test_what_programs_ask_for_says_that_it_is_in_conflict(begun: Fleet) -> None:
    copy = split(begun, "ada's", "bob's")
    met(begun)
    for device in begun.devices:
        assert device.rig.reading.residency.state(device.rig.tx, device.at(copy)) is State.CONFLICT


def test_the_past_shows_it_as_the_present_did(begun: Fleet) -> None:
    copy = split(begun, "ada's", "bob's")
    met(begun)
    (moment,) = begun[1].rig.db.rows.execute("SELECT max(moment) FROM log").fetchone()
    begun[0].remove(copy)
    begun[0].remove("file.txt")
    met(begun)
    for device in begun.devices:
        seen = past_tree(device, moment)
        assert {path: one.content for path, one in seen.items()} == {"file.txt": b"ada's", copy: b"bob's"}


def _ranked(*contenders: Contender) -> Sequence[Contender]:
    return [one.node for one in judge(contenders)]


def test_who_yields_comes_after_all_who_do_not_and_the_first_of_them_first() -> None:
    def contender(number: int, *, yields: bool, is_directory: bool = False) -> Contender:
        identity = bytes([number]) * 16
        return Contender(identity, 0, Stamp(number, b"writer"), is_directory, yields, None)

    old, new = contender(1, yields=False), contender(2, yields=False)
    folder = contender(3, yields=False, is_directory=True)
    first, second = contender(4, yields=True), contender(5, yields=True)
    assert _ranked(second, old, first, folder, new) == [folder, new, old, first, second]
