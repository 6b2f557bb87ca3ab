"""No member alone takes rights from another one; of whom it counts, and when others agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hybrisfs.errors import HybrisError
from hybrisfs.members.lineage import let_in
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.role_table import MOST_WORDS, Roles
from hybrisfs.members.roles import Role, RoleRecord, new_role_key
from hybrisfs.registers.tree import Content, content_key
from sync import DeviceKey, Members, VersionVector, decode_signed
from sync.update import Write
from tests.merge.fleet import NAMES, Device, Fleet, member_of
from tests.simulation.watchdog import Watchdog
from tests.sync.publisher import Publisher

NOW = 1_700_000_000 * 10**9
ADA, BOB, CYD, DAN, EVE = range(5)
IDS = [member_of(number).device for number in range(len(NAMES))]
AMID = 3
READER, FULL = RoleRecord(Role.READER).encode(), RoleRecord(Role.FULL).encode()


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Ada has let in all others."""
    one = Fleet(4)
    one.tell_who_came_by_whom()
    yield one
    one.discard()


def sign(device: Device, *writes: Write) -> None:
    """Also what no correct program signs."""
    device.rig.updates.sign(list(writes), NOW, 0)
    device.receive(device.log())


def say(device: Device, of: int, role: Role) -> None:
    device.rig.sharing.membership.set_role(NAMES[of], role)


def role_of(device: Device, of: int) -> Role:
    return device.rig.sharing.signer.role_of(device.rig.tx, IDS[of])


def proposed(device: Device, of: int) -> list[str]:
    return [one.by for one in device.rig.sharing.roles.proposed(IDS[of])]


def roles(device: Device, count: int = 4) -> list[Role]:
    return [role_of(device, of) for of in range(count)]


def test_a_thief_makes_a_reader_of_nobody(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    lie = [(new_role_key(one), READER) for one in (IDS[ADA], IDS[BOB], IDS[CYD])]
    early = [(new_role_key(one), RoleRecord(Role.READER, from_first=True).encode()) for one in IDS[:3]]
    dan.rig.updates.sign([*lie, *early], NOW, 0)
    for one in (ada, bob, cyd):
        one.receive(dan.log())
        one.write(one.name, b"work")
    fleet.meet()
    for one in (ada, bob, cyd):
        assert roles(one) == [Role.FULL] * 4
        assert proposed(one, BOB) == ["dan"]
        assert {path: entry.content for path, entry in one.tree().items()} == dict.fromkeys(
            NAMES[:3], b"work"
        )
    say(ada, DAN, Role.READER)
    assert role_of(ada, DAN) is Role.READER


def test_whoever_let_it_in_says_so_alone_and_whoever_let_in_that_one() -> None:
    fleet = Fleet(4)
    try:
        fleet.tell_who_came_by_whom({BOB: ADA, CYD: BOB, DAN: ADA})
        ada, bob, cyd, dan = fleet.devices
        say(bob, CYD, Role.READER)
        assert role_of(bob, CYD) is Role.READER
        say(ada, CYD, Role.FULL)
        say(ada, CYD, Role.READER)
        assert role_of(ada, CYD) is Role.READER
        say(dan, BOB, Role.READER)
        say(cyd, BOB, Role.READER)
        assert role_of(dan, BOB) is role_of(cyd, BOB) is Role.FULL
    finally:
        fleet.discard()


def test_two_that_are_independent_say_so(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    say(bob, ADA, Role.READER)
    fleet.meet()
    assert role_of(dan, ADA) is Role.FULL and proposed(dan, ADA) == ["bob"]
    say(dan, ADA, Role.READER)
    fleet.send(DAN, CYD)
    for one in (dan, cyd):
        assert role_of(one, ADA) is Role.READER and proposed(one, ADA) == []
    ada.rig.updates.sign([(content_key(ada.at("").id), Content(0, 0, ()).encode())], NOW, 0)
    before = cyd.knows()
    cyd.receive(ada.log())
    assert cyd.knows() == before, "it pretends not to have heard"
    ada.receive(cyd.log())
    assert ada.rig.fs.read_only


def test_puppets_agree_with_nobody() -> None:
    """Who lets in another one that says the same is still one."""
    fleet = Fleet(5)
    try:
        fleet.tell_who_came_by_whom({BOB: ADA, CYD: ADA, DAN: BOB, EVE: BOB})
        for at in (BOB, DAN, EVE):
            say(fleet[at], CYD, Role.READER)
            say(fleet[at], ADA, Role.READER)
        fleet.meet()
        assert roles(fleet[ADA], 3) == [Role.FULL] * 3
        assert proposed(fleet[ADA], CYD) == ["bob", "dan", "eve"]
    finally:
        fleet.discard()


def test_no_claim_to_have_let_in_a_device_helps(fleet: Fleet) -> None:
    ada, bob, cyd, _ = fleet.devices
    claims = [let_in(one, IDS[CYD]) for one in (IDS[ADA], IDS[BOB])]
    sign(cyd, *claims, (new_role_key(IDS[BOB]), READER), (new_role_key(IDS[ADA]), READER))
    for one in (ada, bob):
        one.receive(cyd.log())
        assert roles(one, 3) == [Role.FULL] * 3


def test_who_lost_its_rights_gets_them_back_from_nobody_that_it_let_in() -> None:
    fleet = Fleet(4)
    try:
        fleet.tell_who_came_by_whom({BOB: ADA, CYD: BOB, DAN: ADA})
        ada, _, cyd, dan = fleet.devices
        say(ada, BOB, Role.READER)
        fleet.meet()
        with pytest.raises(HybrisError, match="has let it in"):
            say(cyd, BOB, Role.FULL)
        sign(cyd, (new_role_key(IDS[BOB]), FULL))
        fleet.meet()
        for one in fleet.devices:
            assert role_of(one, BOB) is Role.READER
        say(dan, BOB, Role.FULL)
        assert role_of(dan, BOB) is Role.FULL, "any other full member says that"
    finally:
        fleet.discard()


def test_whoever_said_it_takes_it_back(fleet: Fleet) -> None:
    """Also those that the device has let in, or nobody could help the founder of a volume."""
    ada, bob, cyd, _ = fleet.devices
    say(bob, ADA, Role.READER)
    fleet.meet()
    say(cyd, ADA, Role.READER)
    fleet.meet()
    assert role_of(ada, ADA) is Role.READER
    with pytest.raises(HybrisError, match="has let it in"):
        say(fleet[DAN], ADA, Role.FULL)
    say(bob, ADA, Role.FULL)
    fleet.meet()
    for one in fleet.devices:
        assert role_of(one, ADA) is Role.FULL and proposed(one, ADA) == ["cyd"]
    say(cyd, ADA, Role.FULL)
    assert proposed(cyd, ADA) == []


def test_a_proposal_that_was_refused_is_to_be_made_anew(fleet: Fleet) -> None:
    _, bob, _cyd, dan = fleet.devices
    say(bob, CYD, Role.READER)
    fleet.send(BOB, CYD)
    fleet.meet()
    say(fleet[ADA], CYD, Role.FULL)
    fleet.meet()
    assert proposed(dan, CYD) == []
    say(dan, CYD, Role.READER)
    assert role_of(dan, CYD) is Role.FULL and proposed(dan, CYD) == ["dan"]
    fleet.send(DAN, BOB)
    say(bob, CYD, Role.READER)
    assert role_of(bob, CYD) is Role.READER


def test_who_agrees_before_it_hears_that_another_refused_has_agreed(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    say(bob, CYD, Role.READER)
    fleet.send(BOB, ADA)
    fleet.send(BOB, DAN)
    say(ada, CYD, Role.FULL)
    say(dan, CYD, Role.READER)
    for first, second in ((ada.log(), dan.log()), (dan.log(), ada.log())):
        cyd.receive(first)
        cyd.receive(second)
        assert role_of(cyd, CYD) is Role.READER


def test_a_word_counts_only_with_what_was_seen_before(fleet: Fleet) -> None:
    """What an update might hold follows from what it had seen, also later."""
    ada, bob, cyd, dan = fleet.devices
    say(bob, CYD, Role.READER)
    fleet.meet()
    before = cyd.rig.updates.state.vector
    say(dan, CYD, Role.READER)
    fleet.meet()
    log = cyd.rig.updates
    for one in (ada, cyd):
        found = one.rig.tx.registers.roles
        assert found.role(IDS[CYD], before, log.vector_of) is Role.FULL
        assert found.role(IDS[CYD], log.state.vector, log.vector_of) is Role.READER
        assert found.role(IDS[CYD], VersionVector(), log.vector_of) is Role.FULL


def test_only_the_newest_words_of_an_author_count(fleet: Fleet) -> None:
    """Or who says much takes much time from everybody."""
    ada, bob, *_ = fleet.devices
    say(bob, CYD, Role.READER)
    for _ in range(MOST_WORDS):
        sign(bob, (new_role_key(IDS[CYD]), FULL))
    say(fleet[DAN], CYD, Role.READER)
    fleet.meet()
    assert role_of(ada, CYD) is Role.FULL


def test_what_a_thief_and_its_puppets_say_takes_time_like_its_bytes(fleet: Fleet) -> None:
    _, bob, cyd, _ = fleet.devices
    puppets = [DeviceKey.from_seed(bytes((9, number)) * 16) for number in range(24)]
    admitted = [(member_key(one.device_id), Member(one.public, "puppet").encode()) for one in puppets]
    sign(cyd, *admitted, *(let_in(one.device_id, IDS[CYD]) for one in puppets))
    members = Members([*(member_of(number).public for number in range(4)), *(one.public for one in puppets)])
    log = cyd.log()
    for puppet in puppets:
        liar = Publisher(puppet, members)
        for data in cyd.log():
            liar.receive(decode_signed(data))
        log += [liar.write(*((new_role_key(one), READER) for one in IDS[:2])).data for _ in range(MOST_WORDS)]
    with Watchdog(lambda: [bob.rig.db.rows._connection], 100_000, 0).watch("what they say"):
        bob.receive(log)
    assert roles(bob, 2) == [Role.FULL] * 2 and len(proposed(bob, ADA)) == len(puppets)


scripts = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from(["reader", "full", "hear"])),
    min_size=2,
    max_size=14,
)


# Dan limits Eve, and is limited by Eve, Bob and Ada. It hears of Eve's word last of all.
RIVALS = [
    (BOB, ADA, "reader"), (DAN, ADA, "reader"), (ADA, BOB, "hear"), (CYD, ADA, "reader"),
    (DAN, EVE, "reader"), (ADA, DAN, "reader"), (DAN, ADA, "full"), (BOB, DAN, "reader"),
    (EVE, DAN, "reader"),
]  # fmt: skip


REPEATED = [
    (EVE, CYD, "reader"), (DAN, CYD, "reader"), (DAN, BOB, "reader"), (EVE, ADA, "hear"),
    (CYD, EVE, "reader"), (CYD, ADA, "reader"), (EVE, CYD, "reader"), (CYD, ADA, "full"), (EVE, DAN, "hear"),
]  # fmt: skip


def test_a_word_that_is_said_again_parts_nobody() -> None:
    all_decide_alike(REPEATED, [CYD, CYD, ADA, CYD], Random(36695))


@pytest.mark.parametrize("seed", [3, 8, 9])
def test_two_that_limit_each_other_and_are_limited_by_others_decide_alike(seed: int) -> None:
    all_decide_alike(RIVALS, [ADA, BOB, ADA, DAN], Random(seed))


@settings(deadline=None, max_examples=25, phases=[Phase.generate])
@given(scripts, st.lists(st.integers(0, 3), min_size=4, max_size=4), st.integers(0, 1 << 32))
def test_all_decide_alike_in_any_order(
    script: list[tuple[int, int, str]], inviters: list[int], seed: int
) -> None:
    all_decide_alike(script, inviters, Random(seed))


def all_decide_alike(script: list[tuple[int, int, str]], inviters: list[int], random: Random) -> None:
    """Whatever members sign of each other, and whoever has heard of it: with the log, and with the registers
    alone."""
    fleet = Fleet(5)
    try:
        fleet.tell_who_came_by_whom({at: min(by, at - 1) for at, by in enumerate(inviters, 1)})
        for at, of, what in script:
            if what == "hear":
                fleet[at].receive(shuffled(random, fleet[of].log()))
            elif at != of:
                record = READER if what == "reader" else FULL
                with suppress(HybrisError), fleet[at].rig.fs.state.transaction():  # it only reads by now
                    fleet[at].rig.sharing.signer.sign(fleet[at].rig.tx, [(new_role_key(IDS[of]), record)], 0)
        for turn in range(8):
            logs = [device.log() for device in fleet.devices]
            for number, device in enumerate(fleet.devices):
                device.receive(shuffled(random, [update for log in logs for update in log]))
                device.rig.sharing.membership.act_on_removals()
                if turn == AMID:  # what they sign later vouches for what they had heard
                    name = Member(member_of(number).public, NAMES[number]).encode()
                    with suppress(HybrisError), device.rig.fs.state.transaction():
                        device.rig.sharing.signer.sign(device.rig.tx, [(member_key(IDS[number]), name)], 0)
        first, *others = fleet.devices
        for other in others:
            assert other.knows() == first.knows()
            assert other.registers() == first.registers()
            assert roles(other, 5) == roles(first, 5)
        assert Roles(first.rig.db.rows).readers() == {
            one for one, role in zip(IDS, roles(first, 5), strict=False) if role is Role.READER
        }
    finally:
        fleet.discard()


def shuffled(random: Random, updates: list[bytes]) -> list[bytes]:
    found = list(updates)
    random.shuffle(found)
    return found
