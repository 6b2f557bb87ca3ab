"""What programs may not know of, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.environment import Environment
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.unseen import SECONDS, NameChange, Unseen
from tests.tree.rig import Rig


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rig(clock: Clock) -> Iterator[Rig]:
    rig = Rig(environment=Environment(monotonic=clock))
    rig.fs.unseen.watch({ROOT_INO}.__contains__)
    yield rig
    rig.abandon()


@pytest.fixture
def unseen(rig: Rig) -> Unseen:
    return rig.fs.unseen


@pytest.fixture
def file(rig: Rig) -> Inode:
    return rig.make(b"file", b"content")


def replaced(rig: Rig, parent: int = ROOT_INO) -> None:
    """Another node has the name now than before."""
    rig.fs.unseen.names_changed(
        rig.tx, [NameChange(parent, b"file", True), NameChange(parent, b"file", False)]
    )


def may(unseen: Unseen, file: Inode) -> tuple[bool, bool, bool]:
    """Whether a program may replace, remove and overwrite what it has not seen."""
    return (
        unseen.may_replace_unseen(ROOT_INO, b"file", file.ino),
        unseen.may_remove_unseen(ROOT_INO, b"file", file.ino),
        unseen.may_overwrite_unseen(file.ino),
    )


def test_nothing_has_come(unseen: Unseen, file: Inode) -> None:
    assert not unseen
    assert may(unseen, file) == (False, False, False)


def test_another_file_has_the_name(rig: Rig, unseen: Unseen, file: Inode) -> None:
    replaced(rig)
    assert unseen.waits(file.ino)
    assert may(unseen, file) == (True, True, True)


def test_a_file_has_another_content(unseen: Unseen, file: Inode) -> None:
    unseen.content_changed(file.ino)
    assert may(unseen, file) == (True, True, True)


def test_a_new_name_is_removed_by_those_only_who_have_seen_it(rig: Rig, unseen: Unseen, file: Inode) -> None:
    rig.fs.unseen.names_changed(rig.tx, [NameChange(ROOT_INO, b"file", False)])
    assert may(unseen, file) == (True, False, True)


def test_a_name_that_was_free_for_a_moment_only_is_not_new(rig: Rig, unseen: Unseen, clock: Clock) -> None:
    unseen.names_changed(rig.tx, [NameChange(ROOT_INO, b"file", True)])
    clock.now += 1
    file = rig.make(b"file", b"content")
    unseen.names_changed(rig.tx, [NameChange(ROOT_INO, b"file", False)])
    assert may(unseen, file) == (True, True, True)


def test_who_has_read_knows(rig: Rig, unseen: Unseen, file: Inode) -> None:
    replaced(rig)
    unseen.read(file.ino)
    assert not unseen
    assert may(unseen, file) == (False, False, False)


def test_one_question_for_attributes_may_be_the_kernels(rig: Rig, unseen: Unseen, file: Inode) -> None:
    replaced(rig)
    unseen.looked(file.ino)
    assert may(unseen, file) == (False, False, True)
    unseen.looked(file.ino)
    assert may(unseen, file) == (False, False, False)


def test_a_listing_shows_new_names_only(rig: Rig, unseen: Unseen, file: Inode, clock: Clock) -> None:
    replaced(rig)
    clock.now += 1
    unseen.listed(ROOT_INO)
    assert may(unseen, file) == (True, False, True)


def test_a_listing_shows_a_new_name(rig: Rig, unseen: Unseen, file: Inode, clock: Clock) -> None:
    rig.fs.unseen.names_changed(rig.tx, [NameChange(ROOT_INO, b"file", False)])
    clock.now += 1
    unseen.listed(ROOT_INO)
    assert may(unseen, file) == (False, False, False)


def test_a_listing_of_before_shows_nothing(rig: Rig, unseen: Unseen, file: Inode, clock: Clock) -> None:
    unseen.content_changed(file.ino)
    unseen.listed(ROOT_INO)
    clock.now += 1
    replaced(rig)
    assert may(unseen, file) == (True, True, True)


def test_after_a_while_all_count_as_seen(rig: Rig, unseen: Unseen, file: Inode, clock: Clock) -> None:
    replaced(rig)
    clock.now += SECONDS - 1
    assert may(unseen, file) == (True, True, True)
    clock.now += 1
    assert may(unseen, file) == (False, False, False)


def test_nothing_is_kept_for_long(rig: Rig, unseen: Unseen, clock: Clock) -> None:
    for number in range(50):
        unseen.content_changed(rig.make(b"%d" % number).ino)
        clock.now += 1
    assert len(unseen._arrivals) <= SECONDS


def test_what_has_come_twice_is_to_be_seen_twice(rig: Rig, unseen: Unseen, file: Inode) -> None:
    replaced(rig)
    unseen.looked(file.ino)
    unseen.content_changed(file.ino)
    assert may(unseen, file) == (True, True, True)


def test_another_file_under_the_name_is_not_meant(rig: Rig, unseen: Unseen, file: Inode) -> None:
    """What a program here has put there it knows."""
    replaced(rig)
    rig.make(b"own", b"content")
    rig.fs.rename(rig.tx, ROOT_INO, b"own", ROOT_INO, b"file", 0)
    own = rig.find(b"file")
    assert may(unseen, own) == (False, False, False)


def test_a_file_is_no_better_known_by_another_name(rig: Rig, unseen: Unseen, file: Inode) -> None:
    replaced(rig)
    unseen.renamed(file.ino, (ROOT_INO, b"file"), (ROOT_INO, b"other"))
    assert unseen.may_remove_unseen(ROOT_INO, b"other", file.ino)
    assert not unseen.may_remove_unseen(ROOT_INO, b"file", file.ino)


def test_nobody_knows_names_in_a_directory_that_nobody_has_seen(rig: Rig, unseen: Unseen) -> None:
    folder = rig.mkdir(b"folder")
    rig.make(b"file", b"content", folder)
    replaced(rig, folder)
    assert not unseen


def test_without_programs_everything_is_seen(rig: Rig, unseen: Unseen, file: Inode) -> None:
    replaced(rig)
    unseen.watch(None)
    assert may(unseen, file) == (False, False, False)
    replaced(rig)
    unseen.content_changed(file.ino)
    assert not unseen


def test_what_comes_into_a_directory_that_the_kernel_has_just_forgotten(
    rig: Rig, unseen: Unseen, clock: Clock
) -> None:
    folder = rig.fs.make(rig.tx, ROOT_INO, b"folder", 0o40755, 1, 1)
    file = rig.make(b"file", b"content", folder.ino)
    for seconds, seen in ((SECONDS - 1, True), (SECONDS + 1, False)):
        unseen.forgotten(folder.ino)
        clock.now += seconds
        unseen.names_changed(rig.tx, [NameChange(folder.ino, b"file", False)])
        assert unseen.may_replace_unseen(folder.ino, b"file", file.ino) == seen
        clock.now += SECONDS
