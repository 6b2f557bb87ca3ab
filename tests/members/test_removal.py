"""What votes come to: a pure function of the set of votes, by which no member alone ends another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import permutations
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.members.kinship import Admission, Roster
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.removal import (
    Cast,
    Facts,
    Stance,
    Verdict,
    decode_vote,
    effects,
    encode_vote,
    judge,
    vote_key,
)
from hybrisfs.merge.authority import fault
from hybrisfs.registers.values import Stamp
from sync import DecodeError
from tests.merge.fleet import member_of
from tests.tree.rig import Rig

KEEP, SUSPEND, REMOVE = Stance.KEEP, Stance.SUSPEND, Stance.REMOVE
ADA, BOB, CYD, DAN, EVE, KIT, PUPPET, OTHER = (bytes((letter,)) * 16 for letter in b"abcdekpo")

Votes = Iterable[tuple[bytes, bytes, Stance]]
"""Accused, voter, stance, in the order of their clocks."""
STAR: Final = {ADA: None, BOB: ADA, CYD: ADA, DAN: ADA}


def verdict(
    inviters: Mapping[bytes, bytes | None],
    votes: Votes,
    *,
    kits: Iterable[bytes] = (),
    proven: Iterable[bytes] = (),
    late: Iterable[bytes] = (),
) -> Verdict:
    """Who was let in first is named first, and whoever lets in somebody has seen all before."""
    order = list(inviters)
    roster = Roster({one: Admission(by, order.index(one)) for one, by in inviters.items()})
    cast = {
        (accused, voter): Cast(stance, 100 + clock) for clock, (accused, voter, stance) in enumerate(votes)
    }

    def saw(later: bytes, earlier: bytes) -> bool:
        return order.index(earlier) < order.index(later)

    return judge(Facts(roster, set(kits), cast, set(proven), saw, lambda one, _: one in late))


def test_without_votes_nothing_happens() -> None:
    assert verdict(STAR, ()) == Verdict(frozenset(), {})


def test_one_member_suspends_one_and_ends_nobody() -> None:
    found = verdict(STAR, [(BOB, DAN, REMOVE), (ADA, DAN, REMOVE), (CYD, DAN, REMOVE)])
    assert not found.ended and found.suspended == {BOB: (DAN,)}


def test_of_what_is_vetoed_the_next_counts() -> None:
    votes = [(BOB, DAN, REMOVE), (ADA, DAN, REMOVE), (CYD, DAN, SUSPEND)]
    assert verdict(STAR, [*votes, (BOB, CYD, KEEP)]).suspended == {ADA: (DAN,)}
    assert not verdict(STAR, [*votes, (BOB, CYD, KEEP), (ADA, CYD, KEEP)]).suspended


def test_who_vetoes_has_answered_what_is_said_of_himself() -> None:
    votes = [(BOB, DAN, REMOVE), (ADA, DAN, REMOVE), (BOB, ADA, KEEP)]
    assert not verdict(STAR, votes).suspended
    assert verdict(STAR, [*votes[:1], (BOB, ADA, KEEP), (ADA, DAN, REMOVE)]).suspended == {ADA: (DAN,)}
    thief = [(DAN, ADA, REMOVE), (PUPPET, ADA, REMOVE), (PUPPET, DAN, KEEP)]
    assert verdict({**STAR, PUPPET: DAN}, thief).suspended == {DAN: (ADA,)}, "the first is not answered so"


@pytest.mark.parametrize("voter", [BOB, DAN])
def test_the_accused_and_the_accuser_veto_nothing(voter: bytes) -> None:
    votes = [(BOB, DAN, REMOVE)] if voter == BOB else [(BOB, DAN, SUSPEND)]
    assert verdict(STAR, [*votes, (BOB, BOB, KEEP)]).suspended == {BOB: (DAN,)}


def test_whom_the_accused_let_in_vetoes_nothing_but_where_that_goes_for_the_accuser_too() -> None:
    puppets = {**STAR, PUPPET: DAN}
    assert verdict(puppets, [(DAN, BOB, REMOVE), (DAN, PUPPET, KEEP)]).suspended == {DAN: (BOB,)}
    # Of the founder all others are such: without their veto a thief would lock it out.
    assert not verdict(STAR, [(ADA, DAN, REMOVE), (ADA, BOB, KEEP)]).suspended


def test_who_leaves_is_gone_and_nobody_vetoes_that() -> None:
    votes = [(BOB, BOB, REMOVE), (BOB, ADA, KEEP), (BOB, KIT, KEEP)]
    found = verdict({**STAR, KIT: None}, votes, kits=[KIT])
    assert found == Verdict(frozenset({BOB}), {})
    assert verdict(STAR, [(BOB, BOB, SUSPEND)]) == verdict(STAR, ()), "that is not word of leaving"


def test_who_has_left_cannot_be_suspended_as_well() -> None:
    found = verdict(STAR, [(BOB, ADA, REMOVE), (BOB, BOB, REMOVE), (CYD, ADA, REMOVE)])
    assert found.ended == {BOB} and found.suspended == {CYD: (ADA,)}


def test_whom_one_removed_who_left_later_stays_away() -> None:
    two = {ADA: None, BOB: ADA}
    assert verdict(two, [(BOB, ADA, REMOVE), (ADA, ADA, REMOVE)]).ended == {ADA, BOB}
    votes = [(DAN, BOB, REMOVE), (DAN, CYD, REMOVE), (BOB, BOB, REMOVE)]
    assert verdict(STAR, votes).ended == {BOB, DAN}


def test_who_has_left_is_not_asked_afterwards() -> None:
    three = {ADA: None, BOB: ADA, CYD: ADA}
    left = (BOB, BOB, REMOVE)
    assert verdict(three, [left, (CYD, ADA, REMOVE)]).ended == {BOB, CYD}
    early = verdict(three, [(CYD, ADA, REMOVE), left])
    assert early.ended == {BOB} and early.suspended == {CYD: (ADA,)}, "it could have vetoed that"
    vetoed = verdict(three, [(CYD, BOB, KEEP), left, (CYD, ADA, REMOVE)])
    assert vetoed.ended == {BOB} and not vetoed.suspended


def test_two_that_are_independent_end_a_member() -> None:
    assert verdict(STAR, [(DAN, BOB, REMOVE), (DAN, CYD, REMOVE)]).ended == {DAN}
    assert verdict(STAR, [(ADA, BOB, REMOVE), (ADA, CYD, REMOVE)]).ended == {ADA}
    assert not verdict(STAR, [(DAN, BOB, REMOVE), (DAN, CYD, SUSPEND)]).ended


def test_a_veto_does_not_undo_what_two_have_ended() -> None:
    assert verdict(STAR, [(DAN, BOB, REMOVE), (DAN, CYD, REMOVE), (DAN, ADA, KEEP)]).ended == {DAN}


def test_who_let_in_the_second_needs_another_one() -> None:
    chain = {ADA: None, BOB: ADA, CYD: BOB, DAN: ADA, EVE: ADA}
    assert not verdict(chain, [(DAN, BOB, REMOVE), (DAN, CYD, REMOVE)]).ended


@pytest.mark.parametrize("thief", [ADA, BOB, DAN])
def test_two_puppets_are_no_two(thief: bytes) -> None:
    """Also those of the founder, who has let in everybody."""
    members = {**STAR, PUPPET: thief, OTHER: thief, EVE: PUPPET}
    victim = next(one for one in (CYD, BOB) if one != thief)
    votes = [(victim, one, REMOVE) for one in (thief, PUPPET, OTHER, EVE)]
    found = verdict(members, votes)
    assert not found.ended and set(found.suspended) == {victim}


def test_all_others_end_a_member() -> None:
    assert verdict({ADA: None, BOB: ADA}, [(BOB, ADA, REMOVE)]).ended == {BOB}
    assert verdict({ADA: None, BOB: ADA}, [(ADA, BOB, REMOVE)]).ended == {ADA}
    three = {ADA: None, BOB: ADA, CYD: ADA}
    assert not verdict(three, [(CYD, ADA, REMOVE)]).ended
    assert verdict(three, [(CYD, ADA, REMOVE), (CYD, BOB, REMOVE)]).ended == {CYD}


def test_who_comes_later_does_not_bring_back_who_was_ended() -> None:
    members = {ADA: None, BOB: ADA, CYD: ADA}
    assert not verdict(members, [(BOB, ADA, REMOVE)]).ended
    assert verdict(members, [(BOB, ADA, REMOVE)], late=[CYD]).ended == {BOB}


def test_the_removal_of_a_kit_does_not_keep_from_that_of_a_device() -> None:
    members = {**STAR, KIT: ADA, OTHER: ADA}
    votes = [(KIT, BOB, REMOVE), (OTHER, BOB, REMOVE), (DAN, BOB, REMOVE), (CYD, BOB, REMOVE)]
    assert set(verdict(members, votes, kits=[KIT, OTHER]).suspended) == {KIT, DAN}


def test_who_was_let_in_before_it_was_heard_is_asked() -> None:
    """Nobody can tell whether the admission came first, or the one that it let in hides behind that."""
    votes = [(BOB, ADA, REMOVE)]
    assert verdict({ADA: None, BOB: ADA}, votes).ended == {BOB}
    puppets = {ADA: None, BOB: ADA, PUPPET: BOB}
    assert verdict(puppets, votes) == Verdict(frozenset(), {BOB: (ADA,)})


def test_the_founder_of_a_chain_does_not_end_all_others() -> None:
    chain = {ADA: None, BOB: ADA, CYD: BOB, PUPPET: ADA}
    found = verdict(chain, [(BOB, ADA, REMOVE), (CYD, ADA, REMOVE), (BOB, PUPPET, REMOVE)])
    assert not found.ended and set(found.suspended) == {BOB}


def test_who_was_ended_is_not_waited_for() -> None:
    votes = [(DAN, BOB, REMOVE), (DAN, CYD, REMOVE), (CYD, ADA, REMOVE), (CYD, BOB, REMOVE)]
    assert verdict(STAR, votes).ended == {DAN, CYD}


def test_a_proof_and_one_vote_end_a_member() -> None:
    assert verdict(STAR, [(DAN, BOB, REMOVE)], proven=[DAN]).ended == {DAN}
    assert verdict(STAR, [(DAN, BOB, SUSPEND)], proven=[DAN]).suspended == {DAN: (BOB,)}
    assert not verdict(STAR, [(DAN, BOB, KEEP)], proven=[DAN]).suspended


def test_accusations_with_a_proof_all_count() -> None:
    votes = [(BOB, ADA, SUSPEND), (CYD, ADA, SUSPEND), (DAN, ADA, SUSPEND)]
    assert set(verdict(STAR, votes, proven=[CYD, DAN]).suspended) == {BOB, CYD, DAN}


def test_the_first_kit_decides() -> None:
    members = {**STAR, KIT: ADA, EVE: DAN}
    assert verdict(members, [(DAN, KIT, REMOVE)], kits=[KIT]).ended == {DAN}
    both = [(DAN, BOB, REMOVE), (DAN, CYD, REMOVE), (DAN, KIT, KEEP)]
    assert verdict(members, both, kits=[KIT]) == Verdict(frozenset(), {})
    assert verdict(members, [(DAN, EVE, REMOVE), (DAN, KIT, SUSPEND)], kits=[KIT, EVE]).suspended


def test_a_kit_of_the_thief_neither_ends_nor_keeps() -> None:
    members = {**STAR, KIT: ADA, EVE: DAN}
    assert not verdict(members, [(ADA, EVE, REMOVE)], kits=[KIT, EVE]).ended
    assert verdict(members, [(DAN, KIT, REMOVE), (DAN, EVE, KEEP)], kits=[KIT, EVE]).ended == {DAN}


def test_a_kit_undoes_what_the_other_of_two_devices_did() -> None:
    members = {ADA: None, BOB: ADA, KIT: ADA}
    coup = (ADA, BOB, REMOVE)
    assert verdict(members, [coup], kits=[KIT]).ended == {ADA}
    assert verdict(members, [coup, (ADA, KIT, KEEP)], kits=[KIT]) == Verdict(frozenset(), {})
    assert verdict(members, [coup, (BOB, KIT, REMOVE)], kits=[KIT]).ended == {BOB}, "whose vote is void then"


def test_whom_the_accused_let_in_goes_with_it_where_an_older_one_is_left() -> None:
    members = {**STAR, PUPPET: DAN, OTHER: PUPPET}
    votes = [(one, ADA, REMOVE) for one in (DAN, PUPPET, OTHER)]
    assert set(verdict(members, votes).suspended) == {DAN, PUPPET, OTHER}
    chain = {ADA: None, BOB: ADA, CYD: BOB, DAN: BOB}  # nobody would be left
    assert set(verdict(chain, [(one, ADA, REMOVE) for one in (BOB, CYD, DAN)]).suspended) == {BOB}
    puppets = {**chain, PUPPET: ADA}  # who is younger than those, and may be the thief's
    assert set(verdict(puppets, [(one, ADA, REMOVE) for one in (BOB, CYD, DAN)]).suspended) == {BOB}


@given(st.data())
def test_whatever_one_member_and_its_puppets_sign_another_one_stays(data: st.DataObject) -> None:
    honest = [ADA, BOB, CYD, DAN][: data.draw(st.integers(3, 4))]
    members: dict[bytes, bytes | None] = {ADA: None}
    for one in honest[1:]:
        members[one] = data.draw(st.sampled_from(list(members)))
    thief = data.draw(st.sampled_from(honest))
    band = [thief]
    for puppet in (PUPPET, OTHER, EVE)[: data.draw(st.integers(0, 3))]:
        members[puppet] = data.draw(st.sampled_from(band))
        band.append(puppet)
    votes = data.draw(
        st.lists(
            st.tuples(st.sampled_from(list(members)), st.sampled_from(band), st.sampled_from(Stance)),
            max_size=20,
        )
    )
    found = verdict(members, votes)
    others = set(honest) - {thief}
    assert not found.ended & others, "nobody is removed for good by one member"
    by_thief = {one for one in others if thief in found.suspended.get(one, ())}
    assert len(by_thief) <= len(others) - 1, "one is left"


@given(st.data())
def test_a_vote_makes_the_members_that_the_verdict_says(data: st.DataObject) -> None:
    devices = st.sampled_from([ADA, BOB, CYD, DAN])
    stances = st.sampled_from(Stance)
    votes = data.draw(st.lists(st.tuples(devices, devices, stances), max_size=6))
    voter, stance = data.draw(devices), data.draw(stances)
    accused = data.draw(st.lists(devices, min_size=1, max_size=2, unique=True))
    before = verdict(STAR, votes)
    after = verdict(STAR, [*votes, *((one, voter, stance) for one in accused)])
    found = effects(before, after, stance, [*accused, EVE], [EVE])
    assert found.final - {EVE} == after.ended & set(accused)
    assert found.leaving - {EVE} == after.out
    assert (before.out | after.out) - found.returning == after.out, "they are members again"
    assert not found.returning & found.leaving
    assert ({EVE} <= found.final) is ({EVE} <= found.leaving) is (stance is REMOVE)


def test_a_vote_is_written_by_its_voter_alone() -> None:
    assert fault(ADA, vote_key(BOB, ADA), encode_vote(REMOVE)) is None
    for writer, key, value in (
        (BOB, vote_key(BOB, ADA), encode_vote(REMOVE)),
        (ADA, vote_key(BOB, ADA), b"\1\3"),
        (ADA, vote_key(BOB, ADA), b"\2\0"),
        (ADA, vote_key(BOB, ADA), None),
        (ADA, b"x" + ADA, encode_vote(KEEP)),
    ):
        assert fault(writer, key, value) is not None
    with pytest.raises(DecodeError):
        decode_vote(b"\1\0\0")


NAMES: Final = [member_of(number) for number in range(4)]
IDS: Final = [one.device for one in NAMES]


def heard(told: Iterable[tuple[Stamp, bytes, bytes]]) -> Verdict:
    """What follows when updates arrive so."""
    rig = Rig()
    try:
        rig.db.rows.executemany(
            "INSERT INTO log_branch (id, device, parent, above) VALUES (?, ?, NULL, 0)",
            [(one, one) for one in IDS],
        )
        rig.db.rows.execute("DELETE FROM member")  # of the rig's own device, which is none of these
        minutes = rig.tx.registers.minutes
        for clock, member in enumerate(NAMES):
            minutes.note(Stamp(clock + 1, IDS[0]), member_key(member.device), member.encode())
        for stamp, key, value in told:
            minutes.note(stamp, key, value)
        return rig.tx.hearing.outcome.verdict
    finally:
        rig.abandon()


def said(votes: Iterable[tuple[int, int, Stance]]) -> list[tuple[Stamp, bytes, bytes]]:
    return [
        (Stamp(10 + clock, IDS[voter]), vote_key(IDS[accused], IDS[voter]), encode_vote(stance))
        for clock, (accused, voter, stance) in enumerate(votes)
    ]


def test_any_order_of_arrival_gives_the_same() -> None:
    removed = Member(NAMES[2].public, "", removed=True)
    told = [
        *said([(1, 3, REMOVE), (1, 2, KEEP), (0, 3, REMOVE), (1, 3, SUSPEND)]),
        (Stamp(20, IDS[0]), member_key(IDS[2]), removed.encode()),
    ]
    expected = heard(told)
    assert expected.suspended == {IDS[0]: (IDS[3],), IDS[2]: (IDS[0],)}
    for order in permutations(told):
        assert heard(order) == expected


def test_what_somebody_says_of_a_member_later_does_not_take_back_the_vote_of_another() -> None:
    removed = Member(NAMES[2].public, "", removed=True).encode()
    votes = [(Stamp(20 + at, IDS[at]), member_key(IDS[2]), removed) for at in (0, 1)]
    assert heard(votes).suspended == {IDS[2]: (IDS[0], IDS[1])}
    assert heard([*votes, (Stamp(30, IDS[3]), member_key(IDS[2]), NAMES[2].encode())]) == heard(votes)
    assert heard([*votes, (Stamp(30, IDS[3]), member_key(IDS[2]), removed)]).ended == {IDS[2]}
