"""Nothing that a contributor signs beyond its folders counts, in whatever order it comes."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hybrisfs.api.devices import Proposal
from hybrisfs.errors import HybrisError
from hybrisfs.members.roles import Area, Rights, Role, RoleRecord, new_assignment, new_role_key
from hybrisfs.registers.node_id import new_node_id
from hybrisfs.registers.tree import (
    Attr,
    Content,
    PackedChunk,
    PackRecord,
    Place,
    attr_key,
    content_key,
    pack_key,
    place_key,
)
from sync.update import Write
from tests.members.test_roles import agree, founded, hear, lies, shuffled
from tests.merge.fleet import NAMES, Device, Fleet, member_of
from tests.merge.limits import (
    ADA,
    AREA,
    BOB,
    CYD,
    CYD_ID,
    NOW,
    fleet,
    limit,
    refused,
    say,
    shared,
    signed,
)

__all__ = ["fleet"]


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
    assert ada.rig.tx.registers.roles.overstepped == {CYD_ID}


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
        with device.rig.fs.state.transaction():
            device.rig.sharing.signer.sign(device.rig.tx, [(new_role_key(CYD_ID), record.encode())], 0)
    exchange(Random(1), fleet.devices)
    agree(*fleet.devices)
    assert cyd.rig.sharing.signer.rights(cyd.rig.tx) == Rights(Role.CONTRIBUTOR, frozenset((one,)))
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
    assert cyd.rig.sharing.signer.role(cyd.rig.tx) is Role.CONTRIBUTOR
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
    with ada.rig.fs.state.transaction() as tx:
        areas = ada.rig.sharing.shared_folders.choose(tx, ["in"]) if first is Role.CONTRIBUTOR else ()
        record = RoleRecord(first, from_first=True, areas=areas)
        ada.rig.sharing.signer.sign(ada.rig.tx, [(new_role_key(CYD_ID), record.encode())], 0)
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
    placement = bob.rig.db.rows.execute("SELECT placement FROM pack WHERE id = ?", (pack,)).fetchone()
    assert placement == (b"\1",)
    bob.receive(signed(cyd, (key, None)))
    assert bob.rig.db.rows.execute("SELECT n FROM pack WHERE id = ?", (pack,)).fetchone() == (1,)


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
