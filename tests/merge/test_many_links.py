"""A file with very many names, and a folder with very many: what is done at one of them must not look at all
others for each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from random import Random
from types import CodeType, FrameType

import pytest

from hybrisfs.environment import Environment, Limits
from hybrisfs.merge.refresh import RefreshLimits
from hybrisfs.state.database import Database
from hybrisfs.state.schema import ROOT_INO
from tests.merge.fleet import Device, Fleet
from tests.merge.view import check_view
from tests.tree.rig import Rig


def calls(work: Callable[[], object], of: CodeType | None = None) -> int:
    """How many calls of functions *work* makes, or of one function: what time it takes, on any machine."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if of is None:
            count += event in ("call", "c_call")
        elif frame.f_code is of:
            count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def steps(database: Database, work: Callable[[], object]) -> int:
    """How many steps SQLite's machine makes for *work*: some for each row that it looks at."""
    count = 0

    def note() -> int:
        nonlocal count
        count += 1
        return 0

    connection = database.rows._connection
    connection.set_progress_handler(note, 1)
    try:
        work()
    finally:
        connection.set_progress_handler(None, 1)
    return count


def cost_of_names(cost: Callable[[Rig, Callable[[], object]], int], count: int) -> list[int]:
    """Of making so many names of one file, of publishing them, and of removing all, each for one name."""
    rig = Rig()
    inode = rig.make(b"f", b"x")
    rig.publish()

    def link() -> None:
        for number in range(count):
            rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"%d" % number)

    def unlink() -> None:
        for number in range(count):
            rig.fs.unlink(rig.tx, ROOT_INO, b"%d" % number)

    costs = [cost(rig, work) // count for work in (link, rig.publish, unlink, rig.publish)]
    rig.close()
    rig.discard()
    return costs


def cost_of_one_more(count: int) -> int:
    """Of publishing one name more of a file that has so many, in steps of SQLite."""
    rig = Rig()
    inode = rig.make(b"f", b"x")
    for number in range(count):
        rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"%d" % number)
    rig.publish()
    rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"one more")
    cost = steps(rig.db, rig.publish)
    rig.close()
    rig.discard()
    return cost


def test_the_cost_of_a_name_does_not_grow_with_the_number_of_names() -> None:
    for cost in (lambda rig, work: calls(work), lambda rig, work: steps(rig.db, work)):
        few, many = cost_of_names(cost, 50), cost_of_names(cost, 400)
        for cheap, dear in zip(few, many, strict=True):
            assert dear < 2 * cheap


def test_an_own_name_more_hardly_looks_at_the_others() -> None:
    assert cost_of_one_more(800) - cost_of_one_more(100) < 20 * 700


def cost_of_arrival(count: int) -> int:
    """What another device's new name for a file costs in a folder with so many others, in steps of SQLite."""
    fleet = Fleet(2)
    ada, bob = fleet.devices
    for number in range(count):
        ada.write(f"{number}", b"x")
    fleet.meet()
    ada.move("0", "another")
    ada.rig.publish()
    cost = steps(bob.rig.db, lambda: fleet.meet())
    assert bob.names() == ada.names()
    fleet.discard()
    return cost


def test_a_name_that_comes_does_not_look_at_the_others_in_its_folder() -> None:
    assert cost_of_arrival(400) < 2 * cost_of_arrival(50)


def test_a_file_that_survived_its_removal_gives_up_that_name_for_a_better_one() -> None:
    fleet = Fleet(2)
    ada, bob = fleet.devices
    ada.write("a", b"x")
    ada.link("a", "b")
    fleet.meet()
    bob.remove("a")
    bob.remove("b")
    bob.rig.publish()
    ada.write("a", b"edited")
    fleet.meet()
    [name] = ada.names()
    ada.link(name, "better")
    fleet.meet()
    assert ada.names() == bob.names() == ["better"]
    assert ada.read("better") == b"edited"
    fleet.discard()


def test_many_names_arrive_elsewhere() -> None:
    fleet = Fleet(2)
    ada, bob = fleet.devices
    ada.write("f", b"x")
    ada.mkdir("d")
    for number in range(50):
        ada.link("f", f"d/{number}")
        ada.link("f", f"{number}")
    fleet.meet()
    for number in range(0, 50, 2):
        bob.remove(f"d/{number}")
        ada.move(f"{number}", f"moved {number}")
    fleet.meet()
    assert ada.tree() == bob.tree()
    assert ada.at("f").nlink == bob.at("f").nlink == 76
    fleet.discard()


@pytest.mark.parametrize("number", range(12))
def test_what_is_not_looked_at_is_shown_as_if_it_were(number: int) -> None:
    """A file with many names, of which each update is about a few, beside all else that may stand there."""
    random = Random(number)
    fleet = Fleet(3, environment=lambda _: Environment(limits=Limits(RefreshLimits(many_names=2))))
    fleet[0].write("f", b"x")
    for folder in "abc":
        fleet[0].mkdir(folder)
        fleet[0].link("f", f"{folder}/f")
    fleet.meet()
    for _ in range(60):
        device = fleet[random.randrange(3)]
        with suppress(OSError):
            _change(device, random)
        device.sign()
        if random.random() < 0.5:
            fleet.send(*random.sample(range(3), 2))
            check_view(fleet[random.randrange(3)])
    fleet.meet()
    assert fleet[0].tree() == fleet[1].tree() == fleet[2].tree()
    for device in fleet.devices:
        check_view(device)
    fleet.discard()


def _change(device: Device, random: Random) -> None:
    names = sorted(device.walk())
    path = random.choice([name for name in names if device.at(name).is_file] or names)
    folders = ["", *(f"{name}/" for name in names if device.at(name).is_directory)]
    to = random.choice(folders) + random.choice("abcfgh")
    match random.randrange(10):
        case 0 | 1 | 2 | 3:
            device.link(path, to)
        case 4 | 5:
            device.move(random.choice(names), to)
        case 6:
            device.remove(random.choice(names))
        case 7:
            device.mkdir(to)
        case 8:
            device.write(to, b"other")
        case _:
            device.rig.fs.attributes.change(
                device.rig.tx, device.at(path), mode=random.choice([0o600, 0o644])
            )
