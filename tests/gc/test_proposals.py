"""Proposals and answers as they travel, and what counts as agreed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.registers.proposals import MAX_PACKS, Answer, Answers, Book, Proposal, Stage, Stray
from sync import DecodeError

ADA, BOB, CYD = b"a" * 16, b"b" * 16, b"c" * 16
PACKS = (b"1" * 32, b"2" * 32)
packs = st.lists(st.binary(min_size=32, max_size=32), max_size=4, unique=True).map(tuple)
answers = st.dictionaries(
    st.binary(min_size=16, max_size=16),
    st.builds(
        Answer,
        st.sampled_from([Stage.PROMISED, Stage.AGREED]),
        st.sets(st.integers(0, MAX_PACKS - 1), max_size=5).map(lambda found: tuple(sorted(found))),
    ),
    max_size=4,
)


strays = st.lists(
    st.builds(Stray, st.binary(min_size=32, max_size=32), st.integers(0, 31), st.integers(0, 255)),
    max_size=3,
    unique=True,
).map(tuple)


@given(
    st.builds(
        lambda serial, ids, cut, shares: Proposal(serial, ids[:cut], ids[cut:], shares),
        st.integers(0, 1 << 62),
        packs,
        st.integers(0, 4),
        strays,
    )
)
def test_proposals_travel(proposal: Proposal) -> None:
    assert Proposal.decode(proposal.encode()) == proposal
    with pytest.raises(DecodeError):
        Proposal.decode(proposal.encode() + b"\0")


@given(answers)
def test_answers_travel(found: dict[bytes, Answer]) -> None:
    assert Answers.decode(Answers(found).encode()) == Answers(found)


@given(st.binary(max_size=200))
def test_what_strangers_write_is_refused_or_kept_as_it_is(data: bytes) -> None:
    for kind in (Proposal, Answers):
        try:
            assert kind.decode(data).encode() == data
        except DecodeError:
            continue


def said(stage: Stage, *refused: int) -> bytes:
    return Answers({Proposal(1, PACKS).id_for(ADA): Answer(stage, refused)}).encode()


def book(**votes: list[bytes | None]) -> Book:
    devices = {"ada": ADA, "bob": BOB, "cyd": CYD}
    return Book(
        [ADA, BOB],
        {ADA: [Proposal(1, PACKS).encode()]},
        {devices[name]: values for name, values in votes.items()},
    )


def test_all_members_must_have_promised_before_one_agrees() -> None:
    [listed] = book().lists
    assert book().due(ADA, listed.id) is Stage.PROMISED
    promised = said(Stage.PROMISED)
    assert book(ada=[promised]).due(ADA, listed.id) is Stage.PROMISED
    assert book(ada=[promised], bob=[promised]).due(ADA, listed.id) is Stage.AGREED


def test_what_one_refuses_stays() -> None:
    [listed] = book().lists
    agreed = said(Stage.AGREED)
    assert book(ada=[agreed], bob=[said(Stage.PROMISED)]).agreed(listed) is None
    assert book(ada=[agreed], bob=[said(Stage.AGREED, 0)]).agreed(listed) == listed.without({0})
    assert book(ada=[agreed], bob=[agreed], cyd=[said(Stage.AGREED, 1)]).agreed(listed) == listed


def test_a_forked_device_agrees_with_all_its_branches() -> None:
    [listed] = book().lists
    agreed = said(Stage.AGREED)
    assert book(ada=[agreed], bob=[agreed, said(Stage.PROMISED)]).agreed(listed) is None
    assert book(ada=[agreed], bob=[agreed, None]).agreed(listed) is None
    assert book(ada=[agreed], bob=[agreed, said(Stage.AGREED, 1)]).agreed(listed) == listed.without({1})


def test_what_a_stranger_proposed_is_not_answered() -> None:
    left = Book([BOB], {ADA: [Proposal(1, PACKS).encode()], CYD: [b"nonsense"]}, {})
    assert left.lists == []
    assert [one.proposer for one in left.proposed] == [ADA]
