"""What a device may write follows from what it had seen: on all devices alike, in any order of updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hybrisfs.errors import HybrisError
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.removal import Stance, encode_vote, vote_key
from hybrisfs.members.roles import Role, RoleRecord, new_role_key, whose_role
from hybrisfs.merge.authority import RULES, fault, may_write
from hybrisfs.merge.cloud_records import CloudRecord, entries_of
from hybrisfs.registers.node_id import ROOT_ID, new_node_id
from hybrisfs.registers.proposals import Answer, Answers, Proposal, Stage, answers_key, proposal_key
from hybrisfs.registers.tree import Attr, Content, Place, attr_key, content_key, pack_key, place_key
from sync import DecodeError
from sync.update import Write
from tests.merge.fleet import NAMES, Device, Fleet, member_of

NOW = 1_700_000_000 * 10**9
ADA, BOB, CYD, DAN = range(4)
CYD_ID = member_of(CYD).device


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = founded(3)
    yield one
    one.discard()


def founded(count: int) -> Fleet:
    """Devices of which the first has let in the others."""
    fleet = Fleet(count)
    fleet.tell_who_came_by_whom()
    return fleet


def say(device: Device, of: int, role: Role) -> None:
    device.rig.sharing.membership.set_role(NAMES[of], role)


def act_on_removals(device: Device) -> None:
    """What `Sharing.receive` does after it has received."""
    device.rig.sharing.membership.act_on_removals()


def hear(device: Device, updates: Sequence[bytes]) -> None:
    device.receive(updates)
    act_on_removals(device)


def agree(*devices: Device) -> None:
    first, *others = devices
    for other in others:
        assert other.knows() == first.knows()
        assert other.registers() == first.registers()
        assert other.tree() == first.tree()


def lies(fleet: Fleet) -> list[Write]:
    """One write of each kind that no reader makes."""
    node, at = new_node_id(0o100644, NOW), fleet[ADA].at("file").id
    grant = b"\1\0" + bytes(24) + b"\0"
    return [
        (place_key(at, 0), Place(ROOT_ID, b"elsewhere").encode()),
        (attr_key(at), Attr(0o100600, 1, 1, 0, 0).encode()),
        (content_key(at), Content(0, 0, ()).encode()),
        (place_key(node, 0), Place(ROOT_ID, b"new").encode()),
        (attr_key(node), Attr(0o100644, 1, 1, 0, 0).encode()),
        (pack_key(bytes(32)), None),
        (proposal_key(CYD_ID), Proposal(1, (bytes(32),)).encode()),
        (member_key(device_of(ADA)), Member(member_of(ADA).public, "ada", removed=True).encode()),
        (member_key(member_of(5).device), member_of(5).encode()),
        (b"e" + bytes((1, 2, 3, 4)), grant),
        *entries_of({7: CloudRecord("evil", "file:///evil")}, None),
        (new_role_key(device_of(BOB)), RoleRecord(Role.READER).encode()),
    ]


def device_of(number: int) -> bytes:
    return member_of(number).device


def test_a_table_says_for_every_kind_what_readers_write() -> None:
    name = Member(member_of(CYD).public, "new name").encode()
    values = {ord("m"): name}
    keys = {ord("m"): member_key(CYD_ID)}
    allowed = {
        chr(letter)
        for letter in RULES
        if may_write(Role.READER, CYD_ID, keys.get(letter, letter.key(bytes(16))), values.get(letter, b""))
    }
    assert allowed == {"v", "m", "f"}
    assert all(may_write(Role.FULL, CYD_ID, bytes((letter,)), b"") for letter in (*RULES, ord("?")))
    assert not may_write(Role.READER, CYD_ID, b"?unknown", b"")


@pytest.mark.parametrize("change", ["other", "removed", "reserve"])
def test_a_reader_gives_nobody_but_itself_a_name(change: str) -> None:
    of = ADA if change == "other" else CYD
    member = Member(member_of(of).public, "x", change == "removed", change == "reserve")
    assert not may_write(Role.READER, CYD_ID, member_key(member.device), member.encode())


def test_what_no_register_of_a_role_holds() -> None:
    key = new_role_key(CYD_ID)
    assert whose_role(key) == CYD_ID and key != new_role_key(CYD_ID)
    good = RoleRecord(Role.READER, from_first=True)
    assert RoleRecord.decode(good.encode()) == good
    for bad in (b"", b"\1", b"\2\1\0", b"\1\2\0", b"\1\1\2", b"\1\1\0\0"):
        with pytest.raises(DecodeError):
            RoleRecord.decode(bad)
        assert fault(device_of(ADA), key, bad) is not None
    assert fault(device_of(ADA), key, None) is not None
    assert fault(device_of(ADA), key[:-1], good.encode()) is not None
    assert fault(CYD_ID, key, good.encode()) is not None, "nobody says what it may do itself"
    assert fault(device_of(ADA), key, good.encode()) is None


def test_nothing_that_a_reader_signs_counts_but_its_consent_and_its_name(fleet: Fleet) -> None:
    ada, bob, cyd = fleet.devices
    ada.write("file", b"content")
    fleet.meet()
    before = ada.tree()
    say(ada, CYD, Role.READER)
    fleet.send(ADA, CYD)
    registers = ada.registers()
    answers = Answers({bytes(16): Answer(Stage.PROMISED)})
    lawful = [
        (answers_key(CYD_ID), answers.encode()),
        (member_key(CYD_ID), Member(member_of(CYD).public, "renamed").encode()),
    ]
    cyd.rig.updates.sign([*lies(fleet), *lawful], NOW, 0)
    bob.receive(cyd.log())
    ada.receive(cyd.log())
    agree(ada, bob)
    assert ada.tree() == before
    new = ada.registers()
    assert {key for key in new if new[key] != registers.get(key)} == {key for key, _ in lawful}
    assert ada.rig.tx.members.name_of(CYD_ID) == "renamed"
    assert ada.rig.tx.members.removed() == []
    assert ada.rig.tx.registers.roles.overstepped == {CYD_ID}


def test_a_full_member_may_do_again_what_a_reader_may_not(fleet: Fleet) -> None:
    ada, bob, cyd = fleet.devices
    say(ada, CYD, Role.READER)
    fleet.send(ADA, CYD)
    with pytest.raises(OSError, match="Read-only"):
        cyd.write("file", b"as a reader")
    say(ada, CYD, Role.FULL)
    fleet.send(ADA, CYD)
    cyd.write("file", b"as a member")
    fleet.meet()
    assert bob.read("file") == b"as a member"
    agree(*fleet.devices)


def test_a_reader_lets_nobody_write_and_nobody_only_read(fleet: Fleet) -> None:
    ada, bob, cyd = fleet.devices
    say(ada, CYD, Role.READER)
    say(ada, BOB, Role.READER)
    fleet.meet()
    key = new_role_key(device_of(BOB))
    cyd.rig.updates.sign([(key, RoleRecord(Role.FULL).encode())], NOW, 0)
    cyd.rig.updates.sign([(new_role_key(CYD_ID), RoleRecord(Role.FULL).encode())], NOW, 0)
    ada.receive(cyd.log())
    bob.receive(cyd.log())
    assert ada.rig.sharing.signer.role_of(ada.rig.tx, device_of(BOB)) is Role.READER
    assert ada.rig.sharing.signer.role_of(ada.rig.tx, CYD_ID) is Role.READER
    assert bob.rig.sharing.signer.role(bob.rig.tx) is Role.READER
    with pytest.raises(HybrisError, match="only reads"):
        say(bob, CYD, Role.FULL)


def test_of_what_is_said_at_once_that_counts_which_allows_less() -> None:
    fleet = founded(4)
    try:
        ada, bob, cyd, dan = fleet.devices
        say(ada, CYD, Role.READER)
        fleet.meet()
        say(ada, CYD, Role.FULL)
        for device in (bob, dan):
            device.rig.updates.sign([(new_role_key(CYD_ID), RoleRecord(Role.READER).encode())], NOW, 0)
        dan.receive(bob.log())
        log = dan.log()
        ada.receive(log)
        cyd.receive(log)
        fleet.send(ADA, CYD)
        assert ada.rig.sharing.signer.role_of(ada.rig.tx, CYD_ID) is Role.READER
        assert cyd.rig.sharing.signer.role(cyd.rig.tx) is Role.READER
        say(ada, CYD, Role.FULL)  # it has seen both
        assert ada.rig.sharing.signer.role_of(ada.rig.tx, CYD_ID) is Role.FULL
    finally:
        fleet.discard()


def test_what_was_said_of_a_device_is_never_written_anew(fleet: Fleet) -> None:
    """Else nobody could tell later what it might do when."""
    ada, bob, cyd = fleet.devices
    say(ada, CYD, Role.READER)
    fleet.meet()
    (key,) = (key for key in ada.registers() if key[:1] == b"o")
    bob.rig.updates.sign([(key, RoleRecord(Role.FULL).encode())], NOW, 0)
    for one in (ada, cyd):
        one.receive(bob.log())
        assert one.rig.sharing.signer.role_of(one.rig.tx, CYD_ID) is Role.READER
        assert [RoleRecord.decode(value.value or b"").role for value in one.registers()[key]] == [Role.READER]


def test_the_key_of_a_recovery_kit_is_always_full(fleet: Fleet) -> None:
    ada = fleet[ADA]
    reserve = Member(member_of(6).public, "recovery kit", reserve=True)
    with ada.rig.fs.state.transaction():
        ada.rig.tx.members.admit([reserve])
        key = new_role_key(reserve.device)
        ada.rig.sharing.signer.sign(ada.rig.tx, [(key, RoleRecord(Role.READER).encode())], 0)
    assert ada.rig.sharing.signer.role_of(ada.rig.tx, reserve.device) is Role.FULL


@pytest.mark.parametrize("says_itself", [True, False])
def test_whom_a_reader_accuses_signs_again_at_once(fleet: Fleet, says_itself: bool) -> None:
    """A reader has no vote, also of what it said when nobody had heard that it is one."""
    ada, bob, cyd = fleet.devices
    fleet.meet()
    vote = (vote_key(device_of(BOB), CYD_ID), encode_vote(Stance.REMOVE))
    cyd.rig.updates.sign([vote], NOW, 0)
    bob.receive(cyd.log())
    assert not bob.rig.sharing.signer.may_sign(bob.rig.tx)
    if not says_itself:
        say(ada, CYD, Role.READER)
        bob.receive(ada.log())
        assert bob.rig.sharing.signer.may_sign(bob.rig.tx)
        return
    ada.receive(cyd.log())
    say(ada, CYD, Role.READER)
    assert device_of(BOB) in ada.rig.updates.members


def test_work_from_before_a_device_heard_that_it_only_reads_is_kept(fleet: Fleet) -> None:
    ada, bob, cyd = fleet.devices
    fleet.meet()
    say(ada, CYD, Role.READER)
    fleet.send(ADA, BOB)
    cyd.write("offline", b"work")
    cyd.sign()
    before = cyd.log()
    ada.receive(before)
    bob.receive(before)
    assert "offline" not in ada.tree(), "nobody knows yet whether it pretends"
    hear(cyd, ada.log())
    hear(ada, cyd.log())
    hear(bob, cyd.log())
    agree(ada, bob, cyd)
    assert ada.read("offline") == b"work"


def test_who_pretends_not_to_have_heard_is_not_heard(fleet: Fleet) -> None:
    ada, bob, cyd = fleet.devices
    ada.write("file", b"content")
    fleet.meet()
    say(ada, CYD, Role.READER)
    fleet.send(ADA, BOB)
    node = ada.at("file").id
    for number in range(3):
        cyd.rig.updates.sign([(content_key(node), Content(0, 0, ()).encode())], NOW + number, 0)
    for one in (ada, bob):
        one.receive(cyd.log())
        assert one.read("file") == b"content"
    agree(ada, bob)
    after = ada.rig.reopen()  # it knows it after a restart, too
    ada.rig = after
    ada.receive(cyd.log())
    assert ada.read("file") == b"content"


def test_what_another_saw_before_it_heard_of_it_is_kept(fleet: Fleet) -> None:
    ada, bob, cyd = fleet.devices
    fleet.meet()
    cyd.write("seen", b"work")
    fleet.send(CYD, BOB)
    bob.write("other", b"more")
    bob.sign()
    say(ada, CYD, Role.READER)
    ada.receive(cyd.log())
    assert "seen" not in ada.tree()
    ada.receive(bob.log())
    assert ada.read("seen") == b"work"
    bob.receive(ada.log())
    agree(ada, bob)


def test_a_device_takes_back_its_own_work_though_it_has_heard(fleet: Fleet) -> None:
    """It was restored from a backup, and what it had signed since comes from a cloud."""
    ada, _, cyd = fleet.devices
    fleet.meet()
    backup = cyd.saved()
    cyd.write("mine", b"work")
    cyd.sign()
    before = cyd.log()
    cyd.restore(backup)
    say(ada, CYD, Role.READER)
    cyd.receive(ada.log())
    cyd.receive(before)
    assert cyd.read("mine") == b"work"
    act_on_removals(cyd)
    ada.receive(cyd.log())
    assert ada.read("mine") == b"work"


def test_unsigned_work_stays_on_the_device_and_is_signed_when_it_may_write_again(fleet: Fleet) -> None:
    ada, _, cyd = fleet.devices
    fleet.meet()
    cyd.write("unsaved", b"work")
    say(ada, CYD, Role.READER)
    ada.write("other", b"meanwhile")
    ada.sign()
    hear(cyd, ada.log())
    cyd.sign()
    assert cyd.read("unsaved") == b"work" and cyd.read("other") == b"meanwhile"
    assert cyd.rig.fs.changes.unsigned
    ada.receive(cyd.log())
    assert "unsaved" not in ada.tree()
    say(ada, CYD, Role.FULL)
    fleet.send(ADA, CYD)
    fleet.meet()
    assert ada.read("unsaved") == b"work"
    agree(*fleet.devices)


operations = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["write", "write", "full", "reader", "hear"]),
        st.integers(0, 3),
    ),
    max_size=10,
)


@settings(deadline=None, max_examples=20)
@given(operations, st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(script: list[tuple[int, str, int]], random: Random) -> None:
    """Honest devices, that go offline and are made readers meanwhile: all of their work is kept."""
    fleet = founded(4)
    try:
        written: dict[str, bytes] = {}
        for step, (at, what, other) in enumerate(script):
            device = fleet[at]
            try:
                if what == "write":
                    device.write(f"file-{step}", b"%d" % step)
                    device.sign()
                    written[f"file-{step}"] = b"%d" % step
                elif what == "hear":
                    hear(device, shuffled(random, fleet[other].log()))
                elif at != other:
                    say(device, other, Role.FULL if what == "full" else Role.READER)
            except (OSError, HybrisError) as error:
                assert any(words in str(error) for words in ("ead-only", "only reads", "full member"))
        for _ in range(3):
            logs = [device.log() for device in fleet.devices]
            for device in fleet.devices:
                hear(device, shuffled(random, [update for log in logs for update in log]))
        agree(*fleet.devices)
        tree = fleet[ADA].tree()
        assert {path: entry.content for path, entry in tree.items()} == written
    finally:
        fleet.discard()


def shuffled(random: Random, updates: Sequence[bytes]) -> list[bytes]:
    found = list(updates)
    random.shuffle(found)
    return found


@settings(deadline=None, max_examples=20, phases=[Phase.generate])
@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=5),
    st.randoms(use_true_random=False),
)
def test_whatever_a_liar_signs_and_when_the_others_agree(
    script: list[tuple[bool, bool, bool]], random: Random
) -> None:
    """It hears of what is said of it or does not, signs what it may not, and comes to the others in any
    order."""
    fleet = founded(4)
    try:
        ada, bob, cyd, _ = fleet.devices
        ada.write("file", b"content")
        fleet.meet()
        # Full members that remove others are another matter.
        writes = [one for one in lies(fleet) if one[0][0] in b"packs"]
        for step, (reader, hears, forks) in enumerate(script):
            say(ada if step % 2 else bob, CYD, Role.READER if reader else Role.FULL)
            hear(ada, bob.log())
            hear(bob, ada.log())
            if hears:
                cyd.receive(ada.log())
            backup = cyd.saved() if forks else None
            cyd.rig.updates.sign(random.sample(writes, 3), NOW + step, 0)
            update = cyd.log()
            if backup is not None:
                cyd.restore(backup)
            for honest in (ada, bob):
                if random.random() < 0.7:
                    hear(honest, shuffled(random, update))
        for _ in range(3):
            logs = [device.log() for device in (ada, bob)]
            for honest in (ada, bob):
                hear(honest, shuffled(random, [update for log in logs for update in log]))
        agree(ada, bob)
    finally:
        fleet.discard()


@pytest.mark.parametrize("members", [2, 3])
def test_of_two_that_make_readers_of_each_other_the_one_counts_that_let_in_the_other(members: int) -> None:
    fleet = founded(members)
    ada, bob, *_ = fleet.devices
    for device in (ada, bob):
        device.write(device.name, b"before")
        device.sign()
    say(ada, BOB, Role.READER)
    say(bob, ADA, Role.READER)
    meet(fleet)
    assert [one.rig.sharing.signer.role(one.rig.tx) for one in (ada, bob)] == [Role.FULL, Role.READER]
    assert {path: entry.content for path, entry in ada.tree().items()} == {"ada": b"before", "bob": b"before"}
    fleet.discard()


def test_two_of_which_two_others_each_make_readers_go_on_hearing_of_each_other() -> None:
    fleet = founded(4)
    _, bob, cyd, dan = fleet.devices
    for device in (cyd, dan):
        device.write(device.name, b"before")
        device.sign()
    say(cyd, DAN, Role.READER)
    say(dan, CYD, Role.READER)
    for of in (CYD, DAN):
        say(bob, of, Role.READER)
    meet(fleet)
    assert [one.rig.sharing.signer.role(one.rig.tx) for one in (cyd, dan)] == [Role.READER] * 2
    assert {path: entry.content for path, entry in bob.tree().items()} == {"cyd": b"before", "dan": b"before"}
    fleet.discard()


def meet(fleet: Fleet) -> None:
    """All hear of all, and say that they have."""
    for _ in range(4):
        logs = [device.log() for device in fleet.devices]
        for device in fleet.devices:
            hear(device, [update for log in logs for update in log])
    agree(*fleet.devices)
