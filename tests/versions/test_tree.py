"""The tree of any moment is what everybody saw then."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator

import pytest

from tests.merge.fleet import Device, Entry, Fleet
from tests.tree.rig import SMALL_BLOCKS, small_chunks
from tests.versions.support import Clock, past_tree


@pytest.fixture
def fleet(clock: Clock) -> Iterator[Fleet]:
    fleet = clock.fleet(2, small_chunks(64), SMALL_BLOCKS)
    yield fleet
    fleet.discard()


def seen(device: Device) -> dict[str, Entry]:
    """What is there now, with the links of folders as the past tells them."""
    return {
        path: Entry(one.kind, one.content, 1) if stat.S_ISDIR(one.kind) else one
        for path, one in device.tree().items()
    }


def test_every_state_comes_back(fleet: Fleet, clock: Clock) -> None:
    """Changes of all kinds, by both devices, some at the same time."""
    one, two = fleet[0], fleet[1]

    def begin() -> None:
        one.mkdir("d")
        one.write("d/file", b"first")
        one.write("other", b"x" * 5000)  # of so many chunks that lists of them are chunks, too

    def both_edit() -> None:
        one.write("d/file", b"by one")
        two.write("d/file", b"by two")

    def both_make() -> None:
        one.mkdir("same")
        one.write("same/of one", b"1")
        two.mkdir("same")
        two.write("same/of two", b"2")
        one.write("name", b"one's")
        two.write("name", b"two's")

    steps: list[Callable[[], None]] = [
        begin,
        lambda: two.write("d/file", b"second"),
        lambda: one.move("d", "e"),
        lambda: one.link("other", "e/linked"),
        lambda: two.write("other", b"y" * 3000),
        both_make,
        lambda: one.move("e", "d"),
        both_edit,
        lambda: one.remove("d/linked"),
        lambda: two.remove("other"),
        lambda: one.write("other", b"made anew"),
        lambda: two.write("saved", b"z"),
        lambda: two.move("saved", "other"),
    ]
    states: dict[int, dict[str, Entry]] = {clock.tick(): {}}
    for step in steps:
        step()
        fleet.meet()
        fleet.meet()
        assert seen(one) == seen(two)
        states[clock.now] = seen(one)
        clock.tick(60)
    for moment, state in states.items():
        for device in fleet.devices:
            assert past_tree(device, moment) == state
            if state:
                assert past_tree(device, moment + 30 * 10**9) == state


def test_a_clock_that_is_behind_changes_no_order(fleet: Fleet, clock: Clock) -> None:
    """An update counts after what it depends on, whatever the writer's clock says."""
    one, two = fleet[0], fleet[1]
    one.write("file", b"old")
    fleet.meet()
    before = clock.tick(3600)
    one.write("file", b"new")
    fleet.meet()
    then = clock.tick()
    clock.now -= 86400 * 10**9  # this clock is a day behind
    two.write("file", b"newest")
    two.sign()
    clock.now = then + 3600 * 10**9
    fleet.meet()
    for device in fleet.devices:
        assert past_tree(device, before)["file"].content == b"old"
        assert past_tree(device, then - 1)["file"].content == b"old"
        assert past_tree(device, then)["file"].content == b"newest"  # that came after it


def test_a_clock_years_ahead_does_not_carry_others_along(fleet: Fleet, clock: Clock) -> None:
    one, two = fleet[0], fleet[1]
    one.write("file", b"old")
    one.write("other", b"old")
    fleet.meet()
    start = clock.tick(3600)
    clock.now += 10 * 366 * 86400 * 10**9
    one.write("file", b"from the future")
    one.sign()
    clock.now = start + 3600 * 10**9
    two.receive(one.log())
    two.write("other", b"new")
    two.sign()
    moment = clock.tick()
    assert past_tree(two, moment)["other"].content == b"new"
    assert past_tree(two, moment)["file"].content == b"from the future"
    assert past_tree(two, start - 1) == {}
