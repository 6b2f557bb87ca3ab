"""Every row of the table of what happens concurrently, on two or three devices."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import pytest

from hybrisfs.state.schema import ROOT_INO
from tests.merge.fleet import Fleet
from tests.tree.rig import small_chunks
from tests.tree.unlocked import unlocked


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(3)
    yield fleet
    fleet.discard()


def check_same(fleet: Fleet) -> dict[str, bytes]:
    trees = [device.tree() for device in fleet.devices]
    assert trees[0] == trees[1] == trees[2]
    return {path: entry.content for path, entry in trees[0].items()}


def test_what_one_writes_the_others_see(fleet: Fleet) -> None:
    fleet[0].mkdir("folder")
    fleet[0].write("folder/file", b"content")
    fleet.meet()
    assert check_same(fleet) == {"folder": b"", "folder/file": b"content"}
    fleet[1].write("folder/file", b"changed")
    fleet[1].move("folder", "renamed")
    fleet.meet()
    assert check_same(fleet) == {"renamed": b"", "renamed/file": b"changed"}
    fleet[2].remove("renamed/file")
    fleet[2].remove("renamed")
    fleet.meet()
    assert check_same(fleet) == {}


def test_two_edits_of_one_file(fleet: Fleet) -> None:
    fleet[0].write("file.txt", b"first")
    fleet.meet()
    fleet[0].write("file.txt", b"ada's")
    fleet[1].write("file.txt", b"bob's")
    fleet.meet()
    tree = check_same(fleet)
    assert len(tree) == 2
    [copy] = tree.keys() - {"file.txt"}
    assert copy.startswith("file (conflict, ") and copy.endswith(").txt")
    assert {tree["file.txt"], tree[copy]} == {b"ada's", b"bob's"}


def test_edit_and_delete(fleet: Fleet) -> None:
    fleet[0].write("file", b"first")
    fleet.meet()
    fleet[0].write("file", b"edited")
    fleet[1].remove("file")
    fleet.meet()
    assert check_same(fleet) == {"file": b"edited"}


@pytest.mark.parametrize("number", range(3))
def test_what_was_edited_and_deleted_gets_another_name(fleet: Fleet, number: int) -> None:
    test_edit_and_delete(fleet)
    fleet[number].link("file", "second")
    fleet.meet()
    assert set(check_same(fleet).values()) == {b"edited"}


def test_two_files_created_under_one_name(fleet: Fleet) -> None:
    fleet[0].write("file", b"ada's")
    fleet[1].write("file", b"bob's")
    fleet.meet()
    tree = check_same(fleet)
    assert len(tree) == 2 and set(tree.values()) == {b"ada's", b"bob's"}


def test_equal_files_are_no_conflict(fleet: Fleet) -> None:
    fleet[0].write("file", b"same")
    fleet[1].write("file", b"same")
    fleet.meet()
    assert check_same(fleet) == {"file": b"same"}
    fleet[2].write("file", b"other")
    fleet.meet()
    assert check_same(fleet) == {"file": b"other"}


@pytest.mark.parametrize("change", ["move", "chmod"])
def test_equal_files_that_become_one_keep_what_another_device_overwrites(fleet: Fleet, change: str) -> None:
    """It had kept a copy, which is the equal file that goes."""
    fleet[0].write("file", b"content")
    fleet.meet()
    cyd, bob = fleet[2], fleet[1].rig.fs
    inode = cyd.at("file")
    cyd.rig.fs.unseen.watch(lambda _: True)
    cyd.rig.fs.unseen.content_changed(inode.ino)
    cyd.rig.sharing.sparing.before_overwrite(cyd.rig.tx, inode, 0)
    cyd.rig.fs.unseen.watch(None)
    cyd.sign()
    fleet.send(2, 1)
    assert fleet[1].names() == ["file"]
    if change == "move":
        fleet[1].move("file", "moved")
    else:
        bob.attributes.change(fleet[1].rig.tx, fleet[1].at("file"), mode=0o600)
    fleet[1].sign()
    cyd.write("file", b"overwritten")
    fleet.meet()
    assert {b"content", b"overwritten"} <= set(check_same(fleet).values())


def test_equal_symbolic_links_become_one_on_all_devices(fleet: Fleet) -> None:
    """They have no content, and no device signs any for them."""
    for device in fleet.devices[:2]:
        fs = device.rig.fs
        fs.make(unlocked(fs), ROOT_INO, b"link", stat.S_IFLNK | 0o777, 1, 1, target=b"target")
    fleet.meet()
    fleet[0].move("link", "moved")
    fleet.meet()
    assert list(check_same(fleet)) == ["moved"]
    assert fleet[0].registers() == fleet[1].registers()


def test_two_folders_created_under_one_name(fleet: Fleet) -> None:
    for number in (0, 1):
        fleet[number].mkdir("folder")
        fleet[number].write(f"folder/{number}", b"x")
    fleet.meet()
    assert set(check_same(fleet)) == {"folder", "folder/0", "folder/1"}
    fleet[2].move("folder", "renamed")
    fleet.meet()
    assert set(check_same(fleet)) == {"renamed", "renamed/0", "renamed/1"}
    for path in ("renamed/0", "renamed/1", "renamed"):
        fleet[0].remove(path)
    fleet.meet()
    assert check_same(fleet) == {}


def test_a_folder_that_parts_from_another_has_the_attributes_of_its_own(fleet: Fleet) -> None:
    ada, bob, cyd = fleet.devices
    bob.mkdir("folder")
    bob.sign()
    fleet.send(1, 0)
    for number in range(3):
        cyd.mkdir(f"{number}")
        cyd.sign()
    cyd.mkdir("folder")
    cyd.sign()
    ada.rig.fs.attributes.change(ada.rig.tx, ada.at("folder"), mode=0o700)
    fleet.send(2, 0)
    cyd.move("folder", "elsewhere")
    cyd.sign()
    bob.rig.fs.attributes.set_xattr(bob.rig.tx, bob.at("folder"), b"user.x", b"bob's", 0)
    bob.sign()
    fleet.send(1, 0)
    fleet.send(2, 0)
    fleet.meet()
    check_same(fleet)
    records = [
        device.rig.fs.attributes.record(device.rig.tx, device.at("folder")) for device in fleet.devices
    ]
    assert records[0] == records[1] == records[2]


def test_something_put_into_a_folder_that_was_deleted(fleet: Fleet) -> None:
    fleet[0].mkdir("outer")
    fleet[0].mkdir("outer/inner")
    fleet.meet()
    fleet[0].remove("outer/inner")
    fleet[0].remove("outer")
    fleet[1].write("outer/inner/file", b"x")
    fleet.meet()
    assert set(check_same(fleet)) == {"outer", "outer/inner", "outer/inner/file"}


def test_two_moves_of_one_node(fleet: Fleet) -> None:
    fleet[0].write("file", b"x")
    fleet.meet()
    fleet[0].move("file", "ada")
    fleet[1].move("file", "bob")
    fleet.meet()
    assert len(check_same(fleet)) == 1


def test_moves_that_close_a_cycle(fleet: Fleet) -> None:
    fleet[0].mkdir("one")
    fleet[0].mkdir("two")
    fleet[0].write("one/file", b"1")
    fleet[0].write("two/file", b"2")
    fleet.meet()
    fleet[0].move("one", "two/one")
    fleet[1].move("two", "one/two")
    fleet.meet()
    tree = check_same(fleet)
    assert sorted(content for content in tree.values() if content) == [b"1", b"2"]
    assert set(tree) in (
        {"one", "one/file", "one/two", "one/two/file"},
        {"two", "two/file", "two/one", "two/one/file"},
    )


def test_an_unsigned_edit_meets_another(fleet: Fleet) -> None:
    fleet[0].write("file", b"first")
    fleet.meet()
    fleet[0].write("file", b"ada's")
    fleet[1].write("file", b"bob's, not signed")
    fleet.send(0, 1)
    assert fleet[1].read("file") == b"ada's"
    fleet.meet()
    tree = check_same(fleet)
    assert set(tree.values()) == {b"ada's", b"bob's, not signed"}


def test_saving_a_file_keeps_the_other_version(fleet: Fleet) -> None:
    test_two_edits_of_one_file(fleet)
    [copy] = set(fleet[2].names()) - {"file.txt"}
    lost = fleet[2].read(copy)
    fleet[2].write("file.txt", b"merged")
    fleet.meet()
    tree = check_same(fleet)
    assert tree["file.txt"] == b"merged" and lost in tree.values()
    for path in [path for path in tree if path != "file.txt"]:
        fleet[0].remove(path)
    fleet.meet()
    assert check_same(fleet) == {"file.txt": b"merged"}


def test_deleting_the_copy_settles_the_conflict(fleet: Fleet) -> None:
    test_two_edits_of_one_file(fleet)
    [copy] = set(fleet[2].names()) - {"file.txt"}
    winner = fleet[2].read("file.txt")
    fleet[2].remove(copy)
    fleet.meet()
    assert check_same(fleet) == {"file.txt": winner}


def test_changing_the_copy_makes_a_file_of_it(fleet: Fleet) -> None:
    test_two_edits_of_one_file(fleet)
    [copy] = set(fleet[2].names()) - {"file.txt"}
    winner = fleet[2].read("file.txt")
    fleet[2].write(copy, b"on its own now")
    fleet.meet()
    assert check_same(fleet) == {"file.txt": winner, copy: b"on its own now"}


def test_the_other_copies_stay_when_one_is_deleted(fleet: Fleet) -> None:
    fleet[0].write("file", b"first")
    fleet.meet()
    for number in range(3):
        fleet[number].write("file", b"version %d" % number)
    fleet.meet()
    doomed, kept = sorted(set(fleet[0].names()) - {"file"})
    lasting = {fleet[0].read("file"), fleet[0].read(kept)}
    fleet[0].remove(doomed)
    fleet.meet()
    assert set(check_same(fleet).values()) == lasting


def test_what_is_written_to_an_open_file_after_another_changed_it_becomes_a_copy(fleet: Fleet) -> None:
    fleet[0].write("file", b"first")
    fleet.meet()
    fs = fleet[0].rig.fs
    handle = fs.open(unlocked(fs), fleet[0].at("file").ino, os.O_RDWR)
    fleet[1].write("file", b"changed elsewhere")
    fleet.meet()
    assert fleet[0].content(fs.handle(handle)) == b"first"
    fs.write(unlocked(fs), fs.handle(handle), 5, b" and more")
    fs.release(unlocked(fs), handle)
    fleet.meet()
    assert sorted(check_same(fleet).values()) == [b"changed elsewhere", b"first and more"]


def test_what_is_written_to_an_open_file_after_another_deleted_it_is_kept(fleet: Fleet) -> None:
    fleet[0].mkdir("folder")
    fleet[0].write("folder/file", b"first")
    fleet.meet()
    fs = fleet[0].rig.fs
    handle = fs.open(unlocked(fs), fleet[0].at("folder/file").ino, os.O_RDWR)
    fleet[1].remove("folder/file")
    fleet[1].remove("folder")
    fleet.meet()
    assert check_same(fleet) == {}
    fs.write(unlocked(fs), fs.handle(handle), 0, b"again")
    fleet.meet()
    assert check_same(fleet) == {"folder": b"", "folder/file": b"again"}
    fs.release(unlocked(fs), handle)


@pytest.mark.parametrize("heard", [False, True])
def test_an_open_file_stays_in_the_folders_that_another_removed(fleet: Fleet, heard: bool) -> None:
    """Whether the program writes before its device hears of it, or after that."""
    for folder in ("a", "a/b", "a/b/c"):
        fleet[0].mkdir(folder)
    fleet[0].write("a/b/c/file", b"first")
    fleet[0].write("a/b/other", b"closed")
    fleet.meet()
    fs = fleet[0].rig.fs
    handle = fs.open(unlocked(fs), fleet[0].at("a/b/c/file").ino, os.O_RDWR)
    for path in ("a/b/c/file", "a/b/c", "a/b/other", "a/b"):
        fleet[1].remove(path)
    fleet[1].sign()
    if heard:
        fleet[0].receive(fleet[1].log())
        assert fleet[0].names() == ["a"]
    fs.write(unlocked(fs), fs.handle(handle), 0, b"again")
    if not heard:
        fleet[0].receive(fleet[1].log())
    assert fleet[0].names() == ["a", "a/b", "a/b/c", "a/b/c/file"]
    fs.release(unlocked(fs), handle)
    fleet.meet()
    assert check_same(fleet) == {"a": b"", "a/b": b"", "a/b/c": b"", "a/b/c/file": b"again"}


def test_folders_that_live_again_for_an_open_file_are_one_with_those_in_their_place(fleet: Fleet) -> None:
    fleet[0].mkdir("a")
    fleet[0].mkdir("a/b")
    fleet[0].write("a/b/file", b"first")
    fleet.meet()
    fs = fleet[0].rig.fs
    handle = fs.open(unlocked(fs), fleet[0].at("a/b/file").ino, os.O_RDWR)
    for path in ("a/b/file", "a/b"):
        fleet[1].remove(path)
    fleet[1].move("a", "elsewhere")
    fleet[1].mkdir("elsewhere/b")
    fleet[1].write("elsewhere/b/file", b"another")
    fleet.meet()
    fs.write(unlocked(fs), fs.handle(handle), 0, b"again")
    fs.release(unlocked(fs), handle)
    fleet.meet()
    tree = check_same(fleet)
    [copy] = tree.keys() - {"elsewhere", "elsewhere/b", "elsewhere/b/file"}
    assert copy.startswith("elsewhere/b/file (conflict, ")
    assert {tree["elsewhere/b/file"], tree[copy]} == {b"another", b"again"}


@pytest.mark.parametrize("again", [False, True])
def test_folders_that_live_again_until_a_file_is_signed_elsewhere_are_gone_then(
    fleet: Fleet, again: bool
) -> None:
    """Also when the device stops before it signs."""
    fleet[0].mkdir("a")
    fleet[0].mkdir("a/b")
    fleet[0].write("a/b/file", b"first")
    fleet.meet()
    fs = fleet[0].rig.fs
    handle = fs.open(unlocked(fs), fleet[0].at("a/b/file").ino, os.O_RDWR)
    for path in ("a/b/file", "a/b", "a"):
        fleet[1].remove(path)
    fleet[1].mkdir("a")
    fleet[1].mkdir("a/b")
    fleet.meet()
    fs.write(unlocked(fs), fs.handle(handle), 0, b"again")
    fs.release(unlocked(fs), handle)
    nameless = "SELECT id FROM node WHERE ino <> ? AND ino NOT IN (SELECT ino FROM place)"
    assert not fleet[0].rig.db.rows.execute(nameless, (ROOT_INO,)).fetchall()
    if again:
        fleet[0].rig = fleet[0].rig.reopen()
    fleet.meet()
    assert check_same(fleet) == {"a": b"", "a/b": b"", "a/b/file": b"again"}
    for device in fleet.devices:
        assert not device.rig.db.rows.execute("SELECT id FROM joined").fetchall()


def test_an_open_file_that_nobody_writes_to_does_not_come_back(fleet: Fleet) -> None:
    fleet[0].write("file", b"first")
    fleet.meet()
    handle = fleet[0].rig.fs.open(fleet[0].rig.tx, fleet[0].at("file").ino, os.O_RDWR)
    fleet[1].remove("file")
    fleet.meet()
    fleet[0].rig.fs.release(fleet[0].rig.tx, handle)
    fleet.meet()
    assert check_same(fleet) == {}


def test_two_who_each_leave_a_file_its_other_name_do_not_lose_it(fleet: Fleet) -> None:
    fleet[0].write("one", b"x")
    fleet[0].link("one", "two")
    fleet.meet()
    fleet[0].remove("one")
    fleet[1].remove("two")
    fleet.meet()
    assert set(check_same(fleet).values()) == {b"x"}
    fleet[2].remove(*fleet[2].names())
    fleet.meet()
    assert check_same(fleet) == {}


def test_an_edit_stays_when_one_name_is_removed_here_and_both_elsewhere(fleet: Fleet) -> None:
    """Nobody who removed its last name had seen the edit; the removal here is signed after that is known."""
    fleet[0].write("one", b"content")
    fleet[0].link("one", "two")
    fleet.meet()
    fleet[0].write("one", b"edited")
    fleet[0].sign()
    fleet[0].remove("one")
    fleet[1].remove("one")
    fleet[1].remove("two")
    fleet[1].sign()
    fleet.send(1, 0)
    fleet.meet()
    assert list(check_same(fleet).values()) == [b"edited"]


def test_a_file_edited_under_its_second_name_and_then_removed_is_gone(fleet: Fleet) -> None:
    fleet[0].write("one", b"x")
    fleet[0].link("one", "two")
    fleet.meet()
    fleet[0].remove("one")
    fleet[0].sign()
    fleet[0].write("two", b"y")
    fleet[0].sign()
    fleet[0].remove("two")
    fleet.meet()
    assert check_same(fleet) == {}


def test_who_had_to_give_way_gets_the_name_when_it_is_free(fleet: Fleet) -> None:
    fleet[0].write("file", b"ada's")
    fleet[1].mkdir("file")
    fleet.meet()
    fleet[2].move("file", "folder")
    fleet.meet()
    assert check_same(fleet) == {"file": b"ada's", "folder": b""}


def test_joined_folders_part_again(fleet: Fleet) -> None:
    fleet[0].mkdir("a")
    fleet.meet()
    fleet[0].write("a/x", b"0")
    fleet[1].move("a", "b")
    fleet[2].mkdir("b")
    fleet[2].write("b/x", b"2")
    fleet.send(2, 1)
    fleet[0].move("a", "c")
    fleet.meet()
    tree = check_same(fleet)
    assert {name for name in tree if "/" not in name} in ({"b"}, {"b", "c"})
    assert set(tree.values()) == {b"", b"0", b"2"}


def test_a_newly_written_list_of_a_long_file_that_was_never_read_here(fleet: Fleet) -> None:
    fleet[0].rig.chunker.limits = small_chunks(64)
    fleet[0].write("long", bytes(range(200)) * 10)
    fleet.meet()
    fleet[1].move("long", "renamed")
    fleet.meet()
    assert check_same(fleet) == {"renamed": bytes(range(200)) * 10}


def test_what_is_removed_here_does_not_come_back_with_other_attributes(fleet: Fleet) -> None:
    fleet[0].write("file", b"x")
    fleet.meet()
    fleet[1].rig.fs.attributes.change(fleet[1].rig.tx, fleet[1].at("file"), mode=0o600)
    fleet[0].remove("file")
    fleet.devices[1].sign()
    fleet[0].receive(fleet[1].log())
    assert fleet[0].names() == []
    fleet.meet()
    assert check_same(fleet) == {}


def test_an_open_file_is_changed_and_deleted_at_once(fleet: Fleet) -> None:
    fleet[0].write("file", b"first")
    fleet.meet()
    fs = fleet[0].rig.fs
    handle = fs.open(unlocked(fs), fleet[0].at("file").ino, os.O_RDWR)
    fleet[1].write("file", b"second")
    fleet[1].sign()
    fleet[1].remove("file")
    fleet.meet()
    assert check_same(fleet) == {}
    assert fleet[0].content(fs.handle(handle)) == b"first"
    fs.release(unlocked(fs), handle)


def test_a_conflict_name_that_becomes_free_is_taken_on_all_devices(fleet: Fleet) -> None:
    fleet[0].write("file", b"ada's")
    fleet[1].write("file", b"bob's")
    fleet.meet()
    [copy] = set(check_same(fleet)) - {"file"}
    for name in (copy, "file"):
        fleet[0].remove(name)
    fleet.meet()
    fleet[2].write(copy, b"cyd's own, under that very name")
    fleet[0].write("file", b"ada's again")
    fleet[1].write("file", b"bob's again")
    fleet.meet()
    assert len(check_same(fleet)) == 3
    fleet[2].remove(copy)
    fleet.meet()
    assert set(check_same(fleet)) == {copy, "file"}


def test_what_was_made_before_a_backup_and_signed_after_it_can_be_removed(fleet: Fleet) -> None:
    """The device that is set back takes it for unsigned, until it hears of its own update."""
    ada, bob, _ = fleet.devices
    ada.mkdir("folder")
    ada.rig.fs.make(ada.rig.tx, ROOT_INO, b"link", stat.S_IFLNK | 0o777, 1, 1, target=b"target")
    backup = ada.saved()
    fleet.send(0, 1)
    ada.restore(backup)
    ada.receive(bob.log())
    ada.remove("folder")
    ada.move("link", "moved")
    ada.remove("moved")
    fleet.send(0, 1)
    assert bob.names() == ada.names() == []
    assert bob.registers() == ada.registers()


def test_a_copy_follows_its_file_that_is_renamed_before_anything_else_comes(fleet: Fleet) -> None:
    """What comes may have the names in the folder arranged again: the copy must not go with the former
    name."""
    one, two = fleet[0], fleet[1]
    one.write("notes", b"first")
    one.write("plan", b"something else")
    fleet.meet()
    one.write("notes", b"by one")
    two.write("notes", b"by two")
    fleet.meet()
    assert len(one.names()) == 3
    one.move("notes", "renamed")  # not signed yet
    two.move("plan", "plans")
    two.sign()
    one.receive(two.log())
    assert len(one.names()) == 3
    fleet.meet()
    assert one.tree() == two.tree()
    assert {one.read(name) for name in one.names()} == {b"by one", b"by two", b"something else"}
