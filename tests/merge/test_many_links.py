"""A file with very many names: what is done at one of them must not look at all others for each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from hybrisfs.store.schema import ROOT_INO
from tests.filesystem.rig import Rig
from tests.merge.fleet import Fleet


def calls(work: Callable[[], object]) -> int:
    """How many calls of functions *work* makes: what time it takes, on any machine."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def cost_of_names(count: int) -> tuple[int, int]:
    """Of publishing so many names of one file, and of one name more."""
    rig = Rig()
    inode = rig.make(b"f", b"x")
    rig.publish()
    for number in range(count):
        rig.fs.link(inode.ino, ROOT_INO, b"%d" % number)
    all_names = calls(rig.publish)
    rig.fs.link(inode.ino, ROOT_INO, b"one more")
    one_more = calls(rig.publish)
    rig.close()
    rig.discard()
    return all_names, one_more


def test_the_cost_of_a_name_does_not_grow_with_the_number_of_names() -> None:
    few, many = cost_of_names(50), cost_of_names(200)
    for cheap, dear in zip(few, many, strict=True):
        assert dear < 6 * cheap  # four times as many names


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
