"""Texts that were changed in different places are merged by a stage, and what it leaves to a person."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.environment import Environment
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.volume.decisions import Conflicts
from hybrisfs.volume.unasked import LARGEST_UNASKED, Unasked, UnaskedLimits
from tests.merge.fleet import Device, Fleet
from tests.surroundings import Surroundings, limited
from tests.tree.unlocked import unlocked
from tests.volume.test_merging import (
    ADAS,
    BEFORE,
    BOBS,
    BOTH,
    PATH,
    begun,
    by_rename,
    earlier,
    in_place,
    merging_of,
    tree,
)

LIMITS: Final = UnaskedLimits(look=1.0, rest=30.0, turn=60.0)
AT_ONCE: Final = UnaskedLimits(look=1.0, rest=0.0, turn=0.0)


class Merger:
    """The stage of one device, whose work a test has it do."""

    def __init__(self, device: Device, environment: Environment) -> None:
        def wait_signed(_: float) -> bool:
            device.sign()
            return True

        fs: FileSystem = device.rig.fs
        self.device = device
        self.conflicts = Conflicts(fs)
        merging = merging_of(fs, device.rig.fetcher, wait_signed, lambda _: False)
        self.stage = Unasked(fs, merging)
        self.stage.limits = environment.limits.of(UnaskedLimits)

    def merges(self) -> list[str]:
        """What it merges now."""
        before = len(self.stage.merged)
        self.stage.step()
        return [one.path for one in self.stage.merged[before:]]


class Group:
    """Devices of one clock, and their stages."""

    def __init__(self, count: int, limits: UnaskedLimits = LIMITS) -> None:
        self.around = Surroundings(limited(limits))
        self.fleet = Fleet(count, environment=lambda _: self.around.environment)
        self.mergers = [Merger(device, self.around.environment) for device in self.fleet.devices]

    def after(self, seconds: float) -> list[list[str]]:
        """What each merges so many seconds later."""
        self.around.passed += seconds
        return [one.merges() for one in self.mergers]


@pytest.fixture
def group() -> Iterator[Group]:
    group = Group(2)
    yield group
    group.fleet.discard()


def edited(group: Group, adas: bytes = ADAS, bobs: bytes = BOBS, before: bytes = BEFORE) -> None:
    """Two devices have changed the file, and know of each other's change."""
    begun(group.fleet, before)
    in_place(group.fleet[0], adas)
    in_place(group.fleet[1], bobs)
    group.fleet.meet()


def rested(group: Group) -> list[list[str]]:
    """What each merges when all have had the time."""
    group.after(0.0)
    return group.after(LIMITS.rest + LIMITS.turn)


# -- what is merged, and by whom -----------------------------------------------------------------


def test_one_device_merges_what_has_rested_and_the_versions_stay(group: Group) -> None:
    edited(group)
    assert group.after(0.0) == [[], []]
    assert group.after(LIMITS.rest - 1) == [[], []]
    assert sorted(group.after(1.0)) == [[], [PATH]]
    assert tree(group.fleet) == {PATH: BOTH}
    assert group.after(3600.0) == [[], []]
    for device in group.fleet.devices:
        assert {ADAS, BOBS, BEFORE, BOTH} <= set(earlier(device))


def test_a_look_that_takes_long_is_not_repeated_soon(group: Group) -> None:
    def waiting() -> Iterator[object]:
        group.around.passed += 20.0
        yield from ()

    merging: Any = SimpleNamespace(waiting=waiting)
    stage = Unasked(group.fleet[0].rig.fs, merging)
    assert 60.0 < stage.step().least < 600.0


def test_the_other_device_merges_when_the_first_does_not(group: Group) -> None:
    edited(group)
    [quick] = [one for one, found in zip(group.mergers, rested_once(group), strict=True) if found]
    late = group.mergers[1 - group.mergers.index(quick)]
    group.around.passed += LIMITS.turn
    assert late.merges() == [PATH]
    assert tree(group.fleet) == {PATH: BOTH}  # both have, and found the same


def rested_once(group: Group) -> list[list[str]]:
    group.after(0.0)
    return group.after(LIMITS.rest)


def test_what_changes_again_rests_again(group: Group) -> None:
    begun(group.fleet)
    in_place(group.fleet[0], ADAS)
    in_place(group.fleet[1], BOBS)
    group.fleet[0].sign()
    group.fleet.send(1, 0)
    ada = group.mergers[0]
    assert ada.merges() == []
    group.around.passed += LIMITS.rest + LIMITS.turn - 1
    in_place(group.fleet[1], BOBS + b"more\n")
    group.fleet.send(1, 0)
    assert ada.merges() == []
    group.around.passed += LIMITS.rest - 1
    assert ada.merges() == []
    group.around.passed += 1 + LIMITS.turn
    assert ada.merges() == [PATH]
    assert tree(group.fleet) == {PATH: BOTH + b"more\n"}


def test_lists_at_whose_end_both_have_written(group: Group) -> None:
    edited(group, b"milk\nbread\n", b"milk\napples\n", b"milk\n")
    rested(group)
    [content] = tree(group.fleet).values()
    assert sorted(content.split(b"\n")) == [b"", b"apples", b"bread", b"milk"]


def test_a_program_that_does_not_know_the_merged_text_leaves_it_beside(group: Group) -> None:
    edited(group)
    for device in group.fleet.devices:
        device.rig.fs.unseen.watch(lambda _: True)
    [device] = [one.device for one, found in zip(group.mergers, rested_once(group), strict=True) if found]
    device.rig.sharing.sparing.before_overwrite(device.rig.tx, device.at(PATH), 0)
    in_place(device, b"saved by an editor that had the text before\n")
    assert BOTH in tree(group.fleet).values()


# -- what is not -----------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDONLY])
@pytest.mark.parametrize("beside", [False, True])
def test_what_a_program_has_open(group: Group, flags: int, beside: bool) -> None:
    edited(group)
    opened = []
    for merger in group.mergers:
        fs, [conflict] = merger.device.rig.fs, merger.conflicts.all()
        ino = merger.device.at(conflict.path if beside else PATH).ino
        opened.append((fs, fs.open(unlocked(fs), ino, flags)))
    assert rested(group) == [[], []]
    for fs, handle in opened:
        fs.release(unlocked(fs), handle)
    assert group.after(LIMITS.rest - 1) == [[], []]
    assert sorted(group.after(1.0)) == [[], [PATH]]


def unchanged(group: Group) -> None:
    before = tree(group.fleet)
    assert rested(group) == [[], []]
    assert group.after(3600.0) == [[], []]
    assert tree(group.fleet) == before


@pytest.mark.parametrize("where", ["", "docs", "docs/deep", "docs/deep/notes"])
def test_where_a_label_forbids_it(group: Group, where: str) -> None:
    first, second = group.fleet.devices
    first.mkdir("docs")
    first.mkdir("docs/deep")
    first.write("docs/deep/notes", BEFORE)
    first.rig.fs.labels.add(first.rig.tx, first.at(where), ["merge=off"])
    group.fleet.meet()
    in_place(first, ADAS, "docs/deep/notes")
    in_place(second, BOBS, "docs/deep/notes")
    group.fleet.meet()
    unchanged(group)
    for device in group.fleet.devices:
        device.rig.fs.labels.remove(device.rig.tx, device.at(where), ["merge=off"])
    group.fleet.meet()
    rested(group)
    assert tree(group.fleet)["docs/deep/notes"] == BOTH


@pytest.mark.parametrize(
    "bobs",
    [
        BEFORE.replace(b"line 1\n", b"bob's\n"),
        b"\0" + BOBS,
        b"\xff" + BOBS,
        BOBS + b"a long line\n" * (LARGEST_UNASKED // 12 + 1),
    ],
)
def test_changes_that_meet_and_what_is_no_text_or_large(group: Group, bobs: bytes) -> None:
    edited(group, bobs=bobs)
    unchanged(group)


def test_files_that_both_have_made(group: Group) -> None:
    in_place(group.fleet[0], ADAS)
    in_place(group.fleet[1], BOBS)
    group.fleet.meet()
    unchanged(group)


def test_different_merges_of_the_same_versions(group: Group) -> None:
    """Whoever made them: nobody merges them in turn."""
    edited(group)
    merging = [merging_of(one.device.rig.fs, one.device.rig.fetcher, _true, _true) for one in group.mergers]
    for number, one in enumerate(merging):
        one.settle(PATH, one.compare(PATH).mark, BOTH + b"by %d\n" % number)
    group.fleet.meet()
    unchanged(group)


def _true(_: float) -> bool:
    return True


def test_a_reader_merges_nothing(group: Group) -> None:
    edited(group)
    for device in group.fleet.devices:
        device.rig.fs.read_only = True
    assert rested(group) == [[], []]


def test_what_cannot_be_fetched_waits(group: Group) -> None:
    edited(group)
    for device in group.fleet.devices:
        device.rig.room.drop_all()
    group.fleet.clouds.down = True
    assert rested(group) == [[], []]
    group.fleet.clouds.down = False
    assert rested(group) != [[], []]
    assert tree(group.fleet) == {PATH: BOTH}


# -- any lives of a file ---------------------------------------------------------------------------


@given(st.data())
def test_all_devices_come_to_the_same_and_to_rest_and_lose_nothing(data: st.DataObject) -> None:
    """Programs on three devices add lines to any version and take lines away, and each device merges as soon
    as it can, without waiting for its turn. What nobody has taken away is there in the end."""
    group = Group(3, AT_ONCE)
    try:
        fleet = group.fleet
        begun(fleet)
        added: set[bytes] = set()
        taken: set[bytes] = set()
        for number in range(data.draw(st.integers(2, 14))):
            which = data.draw(st.integers(0, 2))
            device = fleet[which]
            match data.draw(st.sampled_from(["add", "add", "add", "take", "send", "send", "sign", "merge"])):
                case "add":
                    path, lines = _any_version(device, data.draw)
                    added.add(b"token %d" % number)
                    lines.insert(data.draw(st.integers(0, len(lines) - 1)), b"token %d" % number)
                    data.draw(st.sampled_from([in_place, by_rename]))(device, b"\n".join(lines), path)
                case "take":
                    path, lines = _any_version(device, data.draw)
                    if len(lines) > 1:
                        taken.add(lines.pop(data.draw(st.integers(0, len(lines) - 2))))
                        in_place(device, b"\n".join(lines), path)
                case "send":
                    fleet.send(data.draw(st.integers(0, 2)), which)
                case "sign":
                    device.sign()
                case _:
                    group.mergers[which].merges()
        assert _comes_to_rest(group)
        found = b"\n".join(tree(fleet).values()).split(b"\n")
        assert added - taken <= set(found)
    finally:
        group.fleet.discard()


def _any_version(device: Device, draw: Callable[[st.SearchStrategy[str]], str]) -> tuple[str, list[bytes]]:
    path = draw(st.sampled_from(sorted(device.tree())))
    return path, device.read(path).split(b"\n")


def _comes_to_rest(group: Group) -> bool:
    """Whether nobody merges any more after a few rounds in which all merge at the same time, and meet."""
    for _ in range(4):
        group.fleet.meet()
        if group.after(1.0) == [[], [], []]:
            return True
    return False
