"""What a contributor may write follows from what it had seen, on all devices alike."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable

import pytest

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kinds import MEMBER, PLACE
from hybrisfs.members.roles import MAX_AREAS, Area, Grounds, Role, RoleRecord, new_assignment, new_role_key
from hybrisfs.merge.authority import RULES, fault, may_write
from hybrisfs.registers.node_id import ROOT_ID, born_in, kind_of, made_at, new_node_id
from hybrisfs.registers.tree import (
    Content,
    Place,
    assignment_key,
    content_key,
    pack_key,
    place_key,
    rewritten_key,
)
from sync import DecodeError
from tests.members.test_roles import agree, hear
from tests.merge.fleet import Fleet, member_of
from tests.merge.limits import (
    ADA,
    AREA,
    BOB,
    CYD,
    CYD_ID,
    FOLDER,
    NOW,
    fleet,
    limit,
    refused,
    say,
    shared,
    signed,
)
from tests.tree.unlocked import unlocked

__all__ = ["fleet"]


# -- forms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("area", [None, b"\0\1\2\xff"])
@pytest.mark.parametrize("kind", [stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK])
def test_the_id_of_a_node_tells_its_area(area: bytes | None, kind: int) -> None:
    node = new_node_id(kind | 0o600, NOW, area)
    assert (born_in(node), kind_of(node), made_at(node)) == (area, kind, NOW)
    assert node != new_node_id(kind | 0o600, NOW, area)


def test_ids_of_earlier_versions_tell_no_area() -> None:
    assert born_in(ROOT_ID) is None
    assert born_in(b"\x41" + bytes(15)) is None


def test_what_no_register_of_a_contributor_holds() -> None:
    areas = tuple(Area(bytes((0, 0, 0, number)), bytes(16)) for number in range(MAX_AREAS + 1))
    key = new_role_key(CYD_ID)
    for good in (areas[:1], areas[:MAX_AREAS]):
        record = RoleRecord(Role.CONTRIBUTOR, areas=good)
        assert RoleRecord.decode(record.encode()) == record
        assert fault(member_of(ADA).device, key, record.encode()) is None
    for wrong in ((), areas, areas[1::-1], (areas[0], areas[0])):
        with pytest.raises(DecodeError):
            RoleRecord.decode(RoleRecord(Role.CONTRIBUTOR, areas=wrong).encode())
    for role in (Role.READER, Role.CONTRIBUTOR):
        value = RoleRecord(role, areas=areas[:1]).encode()
        for bad in (value + b"\0", value[:-1]):
            assert fault(member_of(ADA).device, key, bad) is not None


def test_what_no_assignment_holds() -> None:
    key, value = new_assignment(FOLDER, AREA.id)
    assert fault(CYD_ID, key, value) is None
    for bad in (None, b"", b"\2", b"\1\0"):
        assert fault(CYD_ID, key, bad) is not None
    assert fault(CYD_ID, key[:-1], value) is not None


# -- the table -----------------------------------------------------------------------------------------


def test_a_table_says_for_every_kind_what_contributors_write() -> None:
    node = new_node_id(stat.S_IFREG, NOW, AREA.id)
    keys = {PLACE: place_key(node, 0)}
    values = {PLACE: Place(FOLDER, b"x").encode()}
    grounds = Grounds([AREA], lambda keys: ())

    def allowed(role: Role) -> set[str]:
        return {
            chr(kind)
            for kind in RULES
            if kind != MEMBER
            and may_write(role, CYD_ID, keys.get(kind, kind.key(node)), values.get(kind, b""), grounds)
        }

    assert allowed(Role.CONTRIBUTOR) - allowed(Role.READER) == {"p", "a", "c", "l", "k"}
    assert allowed(Role.READER) <= allowed(Role.CONTRIBUTOR)
    assert not may_write(Role.CONTRIBUTOR, CYD_ID, b"?unknown", b"", grounds)
    assert not may_write(Role.CONTRIBUTOR, CYD_ID, pack_key(bytes(32)), None, grounds)
    assert not may_write(Role.CONTRIBUTOR, CYD_ID, rewritten_key(bytes(32)), b"", grounds)


def test_a_place_counts_between_nodes_of_one_area() -> None:
    other = Area(b"else", bytes(15) + b"\2")
    inside, elsewhere = (new_node_id(stat.S_IFDIR, NOW, area.id) for area in (AREA, other))
    given_to = new_node_id(stat.S_IFDIR, NOW)
    free = new_node_id(stat.S_IFDIR, NOW)
    grounds = Grounds([AREA, other], {assignment_key(given_to, AREA.id)}.intersection)

    def counts(node: bytes, place: Place) -> bool:
        return may_write(Role.CONTRIBUTOR, CYD_ID, place_key(node, 0), place.encode(), grounds)

    for parent in (FOLDER, inside, given_to):
        child = new_node_id(stat.S_IFREG, NOW, AREA.id)
        assert counts(child, Place(parent, b"x")) and counts(child, Place(parent, b"x", removed=True))
        assert counts(child, Place(parent, b"x", former=FOLDER))
        assert not counts(child, Place(parent, b"x", former=free)), "there it stands should folders go round"
        assert not counts(free, Place(parent, b"x"))
    for parent in (ROOT_ID, free, elsewhere, other.folder):
        assert not counts(inside, Place(parent, b"x"))
        assert not counts(inside, Place(parent, b"x", removed=True)), "somebody may bring it back there"
    assert counts(given_to, Place(FOLDER, b"x")) and counts(elsewhere, Place(other.folder, b"x"))
    assert not counts(FOLDER, Place(ROOT_ID, b"x")), "the folder itself"


# -- honest devices ------------------------------------------------------------------------------------


def test_a_contributor_works_in_its_folder_as_a_full_member_does(fleet: Fleet) -> None:
    shared(fleet)
    ada, bob, cyd = fleet.devices
    cyd.write("in/file", b"changed by cyd")
    cyd.write("in/deep/new", b"made by cyd")
    cyd.mkdir("in/own")
    cyd.move("in/deep/new", "in/own/moved")
    cyd.link("in/file", "in/own/link")
    fleet.meet()
    agree(*fleet.devices)
    assert ada.read("in/own/link") == b"changed by cyd" and bob.read("in/own/moved") == b"made by cyd"
    ada.write("in/own/moved", b"changed by ada")
    fleet.meet()
    cyd.write("in/own/moved", b"changed again")
    cyd.remove("in/own/link")
    cyd.remove("in/deep")
    fleet.meet()
    agree(*fleet.devices)
    assert bob.read("in/own/moved") == b"changed again" and "in/deep" not in bob.tree()


def test_a_contributor_changes_nothing_elsewhere(fleet: Fleet) -> None:
    shared(fleet)
    cyd = fleet[CYD]
    before = cyd.tree()
    fs = cyd.rig.fs
    changes: list[Callable[[], object]] = [
        lambda: cyd.write("out/file", b"mine"),
        lambda: cyd.write("out/new", b"mine"),
        lambda: cyd.write("new", b"mine"),
        lambda: cyd.remove("out/file"),
        lambda: cyd.mkdir("out/deep"),
        lambda: cyd.move("out/file", "in/stolen"),
        lambda: cyd.move("in/file", "out/lost"),
        lambda: cyd.move("in/file", "out/file"),
        lambda: cyd.move("in", "gone"),
        lambda: cyd.remove("in"),
        lambda: cyd.link("in/file", "out/link"),
        lambda: cyd.link("out/file", "in/link"),
        lambda: fs.attributes.change(unlocked(fs), cyd.at("out"), mode=0o700),
        lambda: fs.attributes.change(unlocked(fs), cyd.at("in"), mode=0o700),
        lambda: fs.set_xattr(unlocked(fs), cyd.at("out/file"), b"user.x", b"y", 0),
        lambda: fs.truncate(unlocked(fs), cyd.at("out/file"), 0),
    ]
    for change in changes:
        with pytest.raises(
            OSError, check=lambda error: error.errno in (errno.EACCES, errno.EXDEV, errno.ENOTEMPTY)
        ):
            change()
    assert cyd.tree() == before
    assert not fs.changes.unsigned


def test_nothing_is_moved_across_the_border_of_a_shared_folder(fleet: Fleet) -> None:
    """So what leaves it is a copy, which the contributor does not reach."""
    shared(fleet)
    ada = fleet[ADA]
    for path, to in (
        ("in/file", "out/moved"),
        ("out/file", "in/moved"),
        ("in/file", "out/file"),
        ("out", "in/o"),
    ):
        with refused(errno.EXDEV):
            ada.move(path, to)
    with refused(errno.EXDEV):
        ada.link("in/file", "out/link")
    with refused(errno.EXDEV):
        ada.link("out/file", "in/link")
    ada.move("in/file", "in/deep/file")
    ada.move("in", "out/in")
    fleet.meet()
    fleet[CYD].write("out/in/deep/file", b"where the folder is now")
    fleet.meet()
    agree(*fleet.devices)
    say(ada, CYD, Role.FULL)
    ada.move("out/in/deep/file", "free")
    fleet.meet()
    assert fleet[BOB].read("free") == b"where the folder is now", "nobody is limited any more"


def test_a_folder_that_was_nobodys_for_a_while_is_another_area_afterwards(fleet: Fleet) -> None:
    area = shared(fleet)
    ada, _, cyd = fleet.devices
    say(ada, CYD, Role.FULL)
    ada.move("in/file", "out/secret")
    (again,) = limit(ada, CYD, "in")
    assert again.folder == area.folder and again.id != area.id
    fleet.meet()
    with refused(errno.EACCES):
        cyd.write("out/secret", b"mine")
    node = cyd.at("out/secret").id
    log = signed(cyd, (content_key(node), Content(0, 0, ()).encode()))
    ada.receive(log)
    assert ada.read("out/secret") == b"inside"


def test_two_contributors_to_one_folder_work_together(fleet: Fleet) -> None:
    area = shared(fleet)
    ada, bob, cyd = fleet.devices
    assert limit(ada, BOB, "in") == (area,)
    fleet.meet()
    bob.write("in/new", b"made by bob")
    fleet.meet()
    cyd.write("in/new", b"changed by cyd")
    fleet.meet()
    assert ada.read("in/new") == b"changed by cyd"
    agree(*fleet.devices)


def test_what_came_into_the_folder_unheard_of_is_assigned_when_it_is_said_again(fleet: Fleet) -> None:
    ada, bob, cyd = fleet.devices
    ada.mkdir("in")
    fleet.meet()
    limit(ada, CYD, "in")
    bob.write("in/stray", b"made by bob")
    fleet.meet()
    with refused(errno.EACCES):
        cyd.write("in/stray", b"changed by cyd")
    bob.move("in/stray", "in/renamed")
    assert limit(ada, CYD, "in")
    fleet.meet()
    cyd.write("in/renamed", b"changed by cyd")
    fleet.meet()
    assert bob.read("in/renamed") == b"changed by cyd"
    agree(*fleet.devices)


def test_conflicting_saves_in_the_folder_make_files_of_the_folder(fleet: Fleet) -> None:
    area = shared(fleet)
    ada, _, cyd = fleet.devices
    ada.write("in/file", b"ada's")
    cyd.write("in/file", b"cyd's")
    fleet.meet()
    fleet.meet()
    agree(*fleet.devices)
    (copy,) = (path for path in cyd.names() if path.startswith("in/file "))
    assert {cyd.read("in/file"), cyd.read(copy)} == {b"ada's", b"cyd's"}
    cyd.write(copy, b"settled by cyd")
    cyd.sign()
    assert born_in(cyd.at(copy).id) == area.id
    fleet.meet()
    agree(*fleet.devices)
    assert ada.read(copy) == b"settled by cyd"
    assert not cyd.rig.fs.changes.unsigned


def test_what_waits_unsigned_elsewhere_holds_up_nothing_in_the_folder(fleet: Fleet) -> None:
    ada, bob, cyd = fleet.devices
    ada.mkdir("in")
    ada.write("in/old", b"old")
    ada.write("file", b"everybody's")
    fleet.meet()
    cyd.write("file", b"unsigned")
    cyd.write("elsewhere", b"unsigned")
    limit(ada, CYD, "in")
    hear(cyd, ada.log())
    cyd.remove("in/old")
    cyd.write("in/new", b"contributed")
    fleet.meet()
    assert bob.tree().keys() == {"file", "in", "in/new"} and bob.read("file") == b"everybody's"
    assert cyd.read("elsewhere") == b"unsigned"
    say(ada, CYD, Role.FULL)
    fleet.meet()
    fleet.meet()
    agree(*fleet.devices)
    assert bob.read("elsewhere") == b"unsigned"


def test_who_cannot_be_limited_to_what(fleet: Fleet) -> None:
    ada, _, _ = fleet.devices
    for folder in ("a", "a/b", "a/b/c", "d"):
        ada.mkdir(folder)
    ada.write("file", b"")
    fleet.meet()
    limit(ada, CYD, "a/b")
    for folder, why in (
        ("none", "no folder"),
        ("file", "is not a folder"),
        ("/", "whole volume"),
        ("a", "inside the other"),
        ("a/b/c", "inside the other"),
    ):
        with pytest.raises(UsageError, match=why):
            limit(ada, BOB, folder)
    with pytest.raises(UsageError, match="inside the other"):
        limit(ada, BOB, "d", "a/b/c")
    assert len(limit(ada, BOB, "d", "/a/b/")) == 2
    assert not ada.rig.sharing.signer.rights_of(ada.rig.tx, member_of(BOB).device).areas.isdisjoint(
        ada.rig.sharing.signer.rights_of(ada.rig.tx, CYD_ID).areas
    )
    fleet.meet()
    for device in (fleet[BOB], fleet[CYD]):
        with pytest.raises(HybrisError, match="some folders"):
            say(device, ADA, Role.READER)
