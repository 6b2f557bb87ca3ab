"""Who counts as a member, whoever let in whom, and in whatever order that was heard."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.members.kinship import MAX_ADMITTED, Admission, Roster
from sync import MAX_WRITERS

FOUNDER, LAPTOP, LIAR = b"founder", b"laptop", b"liar"
HONEST = {
    FOUNDER: Admission(None, 1),
    LAPTOP: Admission(FOUNDER, 2),
    LIAR: Admission(LAPTOP, 3),
    b"phone": Admission(LAPTOP, 9000),
}


def ghosts(inviter: bytes, count: int, clock: int = 4) -> dict[bytes, Admission]:
    return {b"%s/%d" % (inviter, number): Admission(inviter, clock) for number in range(count)}


def test_all_count_as_long_as_they_are_few() -> None:
    roster = Roster({**HONEST, **ghosts(LIAR, 3)})
    assert roster.counted == {*HONEST, *ghosts(LIAR, 3)}
    assert roster.inviter(LIAR) == LAPTOP and roster.inviter(FOUNDER) is None
    assert set(roster.admitted(LIAR)) == set(ghosts(LIAR, 3))
    assert roster.admitted(LAPTOP)[:2] == [LIAR, b"phone"], "who came sooner, and by fewer, comes first"


def test_a_liar_displaces_nobody_who_came_by_others() -> None:
    roster = Roster({**HONEST, **ghosts(LIAR, 2000, clock=1)})
    assert roster.counted >= set(HONEST), "although these were let in earlier than the phone"
    assert sum(one.startswith(LIAR + b"/") for one in roster.counted) <= MAX_ADMITTED


def test_ghosts_of_ghosts_are_bounded_like_ghosts() -> None:
    chain, inviter = dict[bytes, Admission](), LIAR
    for number in range(3000):
        name = b"chain %d" % number
        chain[name], inviter = Admission(inviter, 4 + number), name
    tree = {name: one for ghost in ghosts(LIAR, 100) for name, one in ghosts(ghost, 30, 5).items()}
    for admissions in (chain, {**ghosts(LIAR, 100), **tree}):
        roster = Roster({**HONEST, **admissions})
        assert roster.counted >= set(HONEST)
        assert len(roster.counted) <= len(HONEST) + MAX_ADMITTED
        assert len(roster.admitted(LIAR)) == len(admissions)


def test_the_founder_may_let_in_as_many_as_a_vector_holds() -> None:
    roster = Roster({FOUNDER: Admission(None, 1), **ghosts(FOUNDER, 1100)})
    assert len(roster.counted) == MAX_WRITERS and FOUNDER in roster.counted


def test_nobody_let_in_who_let_him_in() -> None:
    """A member gives the founder another name, and it is not known any more that he has always been there."""
    renamed = {**HONEST, FOUNDER: Admission(LIAR, 50)}
    roster = Roster(renamed)
    assert roster.inviter(FOUNDER) is None and roster.inviter(LIAR) == LAPTOP
    assert roster.counted == set(HONEST)
    alone = Roster({LIAR: Admission(LIAR, 3), LAPTOP: Admission(b"a stranger", 2)})
    assert alone.counted == {LIAR, LAPTOP} and alone.admitted(LIAR) == []


@given(
    st.dictionaries(
        st.integers(0, 12), st.tuples(st.integers(0, 12) | st.none(), st.integers(1, 9) | st.none())
    ),
    st.integers(0, 4),
    st.randoms(use_true_random=False),
)
def test_the_order_in_which_they_are_heard_of_does_not_matter(
    edges: dict[int, tuple[int | None, int | None]], most: int, order: random.Random
) -> None:
    admissions = {
        bytes((device,)): Admission(None if by is None else bytes((by,)), clock)
        for device, (by, clock) in edges.items()
    }
    shuffled = list(admissions.items())
    order.shuffle(shuffled)
    one, other = Roster(admissions, most), Roster(dict(shuffled), most)
    assert one.counted == other.counted
    for device in admissions:
        assert one.inviter(device) == other.inviter(device)
        assert one.admitted(device) == other.admitted(device)
        assert device not in one.admitted(device)
        inviter = one.inviter(device)
        assert device not in one.counted or inviter is None or inviter in one.counted
