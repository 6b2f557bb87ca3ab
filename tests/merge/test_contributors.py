"""What a contributor may write follows from what it had seen: on all devices alike, in any order."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hybrisfs.api.devices import Proposal
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kinds import MEMBER, PLACE
from hybrisfs.members.areas import Area, Grounds, new_assignment
from hybrisfs.members.roles import MAX_AREAS, Rights, Role, RoleRecord, new_role_key
from hybrisfs.merge.authority import RULES, fault, may_write
from hybrisfs.registers.node_id import ROOT_ID, born_in, kind_of, made_at, new_node_id
from hybrisfs.registers.tree import (
    Attr,
    Content,
    PackedChunk,
    PackRecord,
    Place,
    assignment_key,
    attr_key,
    content_key,
    pack_key,
    place_key,
    rewritten_key,
)
from sync import DecodeError
from sync.writes import Write
from tests.members.test_roles import agree, founded, hear, lies, shuffled
from tests.merge.fleet import NAMES, Device, Fleet, member_of

NOW = 1_700_000_000 * 10**9
ADA, BOB, CYD = range(3)
CYD_ID = member_of(CYD).device
AREA, FOLDER = Area(b"area", bytes(15) + b"\1"), bytes(15) + b"\1"


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = founded(3)
    yield one
    one.discard()


def limit(device: Device, of: int, *folders: str, assigned: Sequence[str] | None = None) -> tuple[Area, ...]:
    """Have a device say that another one is limited to folders, and assign what is in them, or only the files
    *assigned*."""
    sharing = device.rig.sharing
    with device.rig.fs.lock:
        areas = sharing.shared_folders.choose(folders)
    sharing.membership.set_role(NAMES[of], Role.CONTRIBUTOR, areas)
    if assigned is None:
        sharing.shared_folders.assign(areas)
    for path in assigned or ():
        with device.rig.fs.lock:
            sharing.signer.sign([new_assignment(device.at(path).id, areas[0].id)], 0)
    return areas


def say(device: Device, of: int, role: Role) -> None:
    device.rig.sharing.membership.set_role(NAMES[of], role)


def shared(fleet: Fleet) -> Area:
    """A folder `in` with a file and a folder, a file in another folder and one in none; Cyd is limited to the
    first."""
    ada = fleet[ADA]
    for folder in ("in", "out", "in/deep"):
        ada.mkdir(folder)
    ada.write("in/file", b"inside")
    ada.write("out/file", b"outside")
    ada.write("file", b"outside, too")
    fleet.meet()
    (area,) = limit(ada, CYD, "in")
    fleet.meet()
    return area


def refused(number: int) -> pytest.RaisesExc[OSError]:
    return pytest.raises(OSError, check=lambda error: error.errno == number)


def signed(liar: Device, *writes: Write) -> list[bytes]:
    liar.rig.updates.sign(writes, NOW, 0)
    return liar.log()


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
        lambda: fs.attributes.change(cyd.at("out"), mode=0o700),
        lambda: fs.attributes.change(cyd.at("in"), mode=0o700),
        lambda: fs.set_xattr(cyd.at("out/file"), b"user.x", b"y", 0),
        lambda: fs.truncate(cyd.at("out/file"), 0),
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
        ("file", "is no folder"),
        ("/", "whole volume"),
        ("a", "inside the other"),
        ("a/b/c", "inside the other"),
    ):
        with pytest.raises(UsageError, match=why):
            limit(ada, BOB, folder)
    with pytest.raises(UsageError, match="inside the other"):
        limit(ada, BOB, "d", "a/b/c")
    assert len(limit(ada, BOB, "d", "/a/b/")) == 2
    assert not ada.rig.sharing.signer.rights_of(member_of(BOB).device).areas.isdisjoint(
        ada.rig.sharing.signer.rights_of(CYD_ID).areas
    )
    fleet.meet()
    for device in (fleet[BOB], fleet[CYD]):
        with pytest.raises(HybrisError, match="some folders"):
            say(device, ADA, Role.READER)


# -- liars ---------------------------------------------------------------------------------------------


def contributors_lies(fleet: Fleet, area: Area) -> list[Write]:
    """Writes that a contributor might like to make, none of which counts."""
    cyd = fleet[CYD]
    inside, outside = cyd.at("in/file").id, cyd.at("out/file").id
    folder, elsewhere = cyd.at("in").id, cyd.at("out").id
    node, free = new_node_id(0o100644, NOW, area.id), new_node_id(0o100644, NOW)
    forged = new_node_id(0o100644, NOW, b"else")
    kept = [one for one in lies(fleet) if one[0][0] not in b"k"]
    return [
        *kept,
        (place_key(inside, 0), Place(elsewhere, b"moved out").encode()),
        (place_key(inside, 7), Place(elsewhere, b"a link outside").encode()),
        (place_key(node, 0), Place(elsewhere, b"new outside").encode()),
        (place_key(outside, 0), Place(folder, b"stolen").encode()),
        (place_key(outside, 0), Place(elsewhere, b"file", removed=True).encode()),
        (place_key(folder, 0), Place(elsewhere, b"moved").encode()),
        (place_key(free, 0), Place(folder, b"free").encode()),
        (place_key(forged, 0), Place(folder, b"forged").encode()),
        (attr_key(folder), Attr(0o040000, 1, 1, 0, 0).encode()),
        (content_key(outside), Content(0, 0, ()).encode()),
        new_assignment(outside, area.id),
        (new_role_key(CYD_ID), RoleRecord(Role.FULL).encode()),
    ]


def test_nothing_that_a_contributor_signs_outside_of_its_folder_counts(fleet: Fleet) -> None:
    area = shared(fleet)
    ada, bob, cyd = fleet.devices
    before, registers = ada.tree(), ada.registers()
    lawful = (attr_key(cyd.at("in/file").id), Attr(0o100600, 1, 1, 0, 0).encode())
    log = signed(cyd, *dict([*contributors_lies(fleet, area), lawful]).items())
    log = signed(cyd, (content_key(cyd.at("out/file").id), Content(0, 0, ()).encode()))
    bob.receive(log)
    ada.receive(log)
    agree(ada, bob)
    assert ada.tree() == before
    new = ada.registers()
    assert {key for key in new if new[key] != registers.get(key)} == {lawful[0]}
    assert ada.rig.sharing.registers.roles.overstepped == {CYD_ID}


def test_an_assignment_counts_from_when_it_was_seen(fleet: Fleet) -> None:
    """Whoever hears of it before the work of a contributor that has not judges like the others."""
    ada, bob, cyd = fleet.devices
    ada.mkdir("in")
    ada.write("in/file", b"content")
    fleet.meet()
    areas = limit(ada, CYD, "in", assigned=[])
    fleet.meet()
    node = cyd.at("in/file").id
    log = signed(cyd, (content_key(node), Content(0, 0, ()).encode()))
    ada.rig.sharing.shared_folders.assign(areas)
    ada.receive(log)
    bob.receive(ada.log())
    agree(ada, bob)
    assert ada.read("in/file") == b"content"
    cyd.receive(ada.log())
    log = signed(cyd, (content_key(node), Content(0, 0, ()).encode()))
    ada.receive(log)
    bob.receive(log)
    agree(ada, bob)
    assert ada.read("in/file") == b""


def test_an_assignment_is_never_written_anew(fleet: Fleet) -> None:
    """Else nobody could tell later since when it was there; also before anybody has a role."""
    ada, bob, cyd = fleet.devices
    ada.write("file", b"content")
    fleet.meet()
    write = new_assignment(ada.at("file").id, AREA.id)
    first = signed(ada, write)
    for one in (bob, cyd):
        one.receive(first)
    registers = bob.registers()
    again = signed(bob, write)
    ada.receive(again)
    cyd.receive(again)
    assert cyd.registers() == registers
    assert len(cyd.registers()[write[0]]) == 1


def test_of_several_that_limit_a_device_at_once_what_all_allow_counts() -> None:
    """One that has let it in, and two that have not and agree."""
    fleet = founded(4)
    ada, bob, cyd, dan = fleet.devices
    for folder in ("one", "two"):
        ada.mkdir(folder)
    fleet.meet()
    one, two = limit(ada, CYD, "one", "two")
    fleet.meet()
    for device, areas in ((ada, (one,)), (bob, (one, two)), (dan, (one, two))):
        record = RoleRecord(Role.CONTRIBUTOR, areas=areas)
        with device.rig.fs.lock:
            device.rig.sharing.signer.sign([(new_role_key(CYD_ID), record.encode())], 0)
    exchange(Random(1), fleet.devices)
    agree(*fleet.devices)
    assert cyd.rig.sharing.signer.rights == Rights(Role.CONTRIBUTOR, frozenset((one,)))
    fleet.discard()


def test_two_that_limit_a_device_to_the_same_folder_agree() -> None:
    """Neither has let it in: what the first one says is a proposal, and the second names the same areas."""
    fleet = founded(4)
    ada, bob, cyd, dan = fleet.devices
    ada.mkdir("in")
    ada.write("in/file", b"content")
    fleet.meet()
    set_role(bob, CYD, "in")
    fleet.meet()
    assert bob.rig.sharing.roles.proposed(CYD_ID) == [Proposal("bob", "contributor", ["in"])]
    assert not cyd.rig.fs.borders.folders
    ada.move("in/file", "moved")  # it has no effect yet
    fleet.meet()
    set_role(dan, CYD, "in")
    fleet.meet()
    assert cyd.rig.sharing.signer.role is Role.CONTRIBUTOR
    assert not bob.rig.sharing.roles.proposed(CYD_ID)
    with refused(errno.EACCES):
        cyd.write("moved", b"mine")
    cyd.write("in/new", b"contributed")
    fleet.meet()
    agree(*fleet.devices)
    assert bob.read("in/new") == b"contributed"
    fleet.discard()


def set_role(device: Device, of: int, folder: str) -> None:
    """What `device role` does."""
    sharing = device.rig.sharing
    rights = sharing.shared_folders.rights([folder], reader=False, device=member_of(of).device)
    sharing.roles.set(NAMES[of], rights)


def test_work_from_before_a_contributor_heard_is_kept(fleet: Fleet) -> None:
    shared(fleet)
    ada, bob, cyd = fleet.devices
    say(ada, CYD, Role.READER)
    fleet.send(ADA, BOB)
    cyd.write("in/offline", b"work")
    cyd.sign()
    ada.receive(cyd.log())
    assert "in/offline" not in ada.tree(), "nobody knows yet whether it pretends"
    hear(cyd, ada.log())
    hear(ada, cyd.log())
    hear(bob, ada.log())
    agree(*fleet.devices)
    assert bob.read("in/offline") == b"work"


def test_who_pretends_not_to_have_heard_that_it_is_limited_is_not_heard(fleet: Fleet) -> None:
    ada, bob, cyd = fleet.devices
    ada.mkdir("in")
    ada.write("file", b"content")
    fleet.meet()
    limit(ada, CYD, "in")
    fleet.send(ADA, BOB)
    log = signed(cyd, (content_key(ada.at("file").id), Content(0, 0, ()).encode()))
    for one in (ada, bob):
        one.receive(log)
        assert one.read("file") == b"content"
    agree(ada, bob)


@pytest.mark.parametrize("first", [Role.READER, Role.CONTRIBUTOR])
def test_who_was_never_a_full_member_has_not_one_more_go_when_its_limits_change(
    fleet: Fleet, first: Role
) -> None:
    """It signs as if it had heard of nothing, and owns up to having heard of its new limits."""
    ada, bob, cyd = fleet.devices
    for folder in ("in", "also"):
        ada.mkdir(folder)
    ada.write("file", b"content")
    fleet.send(ADA, BOB)
    beginning = cyd.saved()
    with ada.rig.fs.lock:
        areas = ada.rig.sharing.shared_folders.choose(["in"]) if first is Role.CONTRIBUTOR else ()
        record = RoleRecord(first, from_first=True, areas=areas)
        ada.rig.sharing.signer.sign([(new_role_key(CYD_ID), record.encode())], 0)
    fleet.send(ADA, BOB)
    node = ada.at("file").id
    limit(ada, CYD, "in", "also")
    fleet.send(ADA, BOB)
    cyd.receive(ada.log())
    knowing = signed(cyd, (attr_key(cyd.at("in").id), Attr(0o040700, 1, 1, 0, 0).encode()))
    cyd.restore(beginning)
    pretending = signed(cyd, (content_key(node), Content(0, 0, ()).encode()))
    for one in (ada, bob):
        for log in (pretending, knowing, pretending):
            one.receive(log)
        assert one.read("file") == b"content"
    agree(ada, bob)


# -- packs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
def test_what_a_contributor_says_of_the_packs_of_others_is_passed_over(fleet: Fleet, first: bool) -> None:
    shared(fleet)
    ada, bob, cyd = fleet.devices
    pack, chunks = bytes(31) + b"\1", [PackedChunk(bytes(32), 0, 100, 90)]
    key = pack_key(pack)
    honest, lie = (PackRecord(1, 1, bytes((cloud,)), chunks).encode() for cloud in (1, 2))
    ours = signed(ada, (key, honest))
    signed(cyd, (member_free := attr_key(cyd.at("in/file").id), Attr(0o100600, 1, 1, 0, 0).encode()))
    theirs = signed(cyd, (key, lie))  # with a higher clock
    assert member_free
    for log in (theirs, ours) if first else (ours, theirs):
        bob.receive(log)
    placement = bob.rig.db.execute("SELECT placement FROM pack WHERE id = ?", (pack,)).fetchone()
    assert placement == (b"\1",)
    bob.receive(signed(cyd, (key, None)))
    assert bob.rig.db.execute("SELECT n FROM pack WHERE id = ?", (pack,)).fetchone() == (1,)


# -- any order -----------------------------------------------------------------------------------------

operations = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["write", "write", "write", "full", "limit", "limit", "reader", "hear"]),
        st.integers(0, 2),
    ),
    max_size=10,
)


@settings(deadline=None, max_examples=20)
@given(operations, st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(script: list[tuple[int, str, int]], random: Random) -> None:
    """Honest devices that are limited and set free while they are away: all of their work is kept."""
    fleet = founded(3)
    try:
        fleet[ADA].mkdir("in")
        fleet.meet()
        written: dict[str, bytes] = {}
        for step, (at, what, other) in enumerate(script):
            device = fleet[at]
            try:
                if what == "write":
                    path = f"{'in/' if random.random() < 0.7 else ''}file-{step}"
                    device.write(path, b"%d" % step)
                    device.sign()
                    written[path] = b"%d" % step
                elif what == "hear":
                    hear(device, shuffled(random, fleet[other].log()))
                elif at != other and what == "limit":
                    limit(device, other, "in")
                elif at != other:
                    say(device, other, Role.FULL if what == "full" else Role.READER)
            except OSError as error:
                assert error.errno in (errno.EROFS, errno.EACCES)
            except HybrisError as error:
                assert "only" in str(error) or "full member" in str(error)
        exchange(random, fleet.devices)
        agree(*fleet.devices)
        tree = fleet[ADA].tree()
        assert {path: one.content for path, one in tree.items() if path != "in"} == written
    finally:
        fleet.discard()


@settings(deadline=None, max_examples=20, phases=[Phase.generate])
@given(
    st.lists(
        st.tuples(st.sampled_from(["limit", "full", "reader"]), st.booleans(), st.booleans()), max_size=5
    ),
    st.randoms(use_true_random=False),
)
def test_whatever_a_liar_signs_and_when_the_others_agree(
    script: list[tuple[str, bool, bool]], random: Random
) -> None:
    """It hears of what is said of it or does not, signs what it may not, forks, and comes to the others in
    any order."""
    fleet = founded(3)
    try:
        ada, bob, cyd = fleet.devices
        area = shared(fleet)
        writes = [one for one in contributors_lies(fleet, area) if one[0][0] in b"pac"]
        node = new_node_id(0o100644, NOW, area.id)
        writes += [
            (place_key(node, 0), Place(area.folder, b"made").encode()),
            (attr_key(node), Attr(0o100644, 1, 1, 0, 0).encode()),
            (content_key(cyd.at("in/file").id), Content(0, 0, ()).encode()),
            (place_key(cyd.at("in/deep").id, 0), Place(area.folder, b"renamed").encode()),
        ]
        for step, (role, hears, forks) in enumerate(script):
            honest = ada if step % 2 else bob
            if role == "limit":
                honest.rig.sharing.membership.set_role("cyd", Role.CONTRIBUTOR, (area,))
            else:
                say(honest, CYD, Role.FULL if role == "full" else Role.READER)
            hear(ada, bob.log())
            hear(bob, ada.log())
            if hears:
                cyd.receive(ada.log())
            backup = cyd.saved() if forks else None
            update = signed(cyd, *dict(random.sample(writes, 4)).items())
            if backup is not None:
                cyd.restore(backup)
            for honest in (ada, bob):
                if random.random() < 0.7:
                    hear(honest, shuffled(random, update))
        exchange(random, [ada, bob])
        agree(ada, bob)
    finally:
        fleet.discard()


def exchange(random: Random, devices: Sequence[Device]) -> None:
    for _ in range(6):
        logs = [device.log() for device in devices]
        for device in devices:
            hear(device, shuffled(random, [update for log in logs for update in log]))
