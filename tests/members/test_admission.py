"""Who let whom in cannot be claimed by a third, nor chosen by the one that came."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.environment import SYSTEM
from hybrisfs.members.kinship import Admission
from hybrisfs.members.lineage import Word, admission_of, came_by, check_admission, let_in
from hybrisfs.members.member_table import MemberTable
from hybrisfs.members.members import Member
from hybrisfs.merge.authority import fault
from hybrisfs.state.database import Database
from sync import DecodeError, DeviceKey, Write

FOUNDER, LAPTOP, THIEF, PUPPET = (
    Member(DeviceKey.from_seed(bytes([number]) * 32).public, name)
    for number, name in enumerate(("founder", "laptop", "thief", "puppet"), 1)
)
A, B, M, P = (one.device for one in (FOUNDER, LAPTOP, THIEF, PUPPET))
HONEST = [
    (came_by(A, None), 1),
    (let_in(M, A), 2),
    (came_by(M, A), 3),
    (let_in(B, A), 4),
    (came_by(B, A), 5),
    (let_in(P, M), 6),
]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    Database.create(tmp_path / "volume.db", b"v" * 16)
    one = Database(tmp_path / "volume.db", SYSTEM)
    yield one
    one.abandon()


def table(database: Database, written: list[tuple[Write, int]]) -> MemberTable:
    """What the registers make of four members, each heard of from the founder."""
    database.rows.execute("DELETE FROM register")
    database.rows.execute("DELETE FROM member")
    for (key, value), clock in written:
        database.rows.execute("INSERT INTO register VALUES (?, ?, 1, ?)", (key, clock, value))
    members = MemberTable(database.rows)
    members.introduce([FOUNDER, LAPTOP, THIEF, PUPPET])
    return members


def test_both_say_it(database: Database) -> None:
    members = table(database, HONEST)
    assert [members.inviter_of(one) for one in (A, B, M, P)] == [None, A, A, M]
    assert {one.device for one in members.admitted_by(A)} == {B, M, P}


def test_who_was_let_in_by_another_cannot_be_claimed(database: Database) -> None:
    """The thief has kept silent since it came, so that its word has the lower clock."""
    members = table(database, [*HONEST, (let_in(B, M), 3), (let_in(A, M), 2)])
    assert members.inviter_of(B) == A
    assert members.inviter_of(A) is None, "what both say comes first, and the rest would make a circle"
    assert {one.device for one in members.admitted_by(M)} == {P}


@pytest.mark.parametrize("chosen", [B, None])
def test_nobody_chooses_who_let_it_in(database: Database, chosen: bytes | None) -> None:
    members = table(database, [*HONEST, (came_by(P, chosen), 7)])
    assert members.inviter_of(P) == M


def test_a_removal_lets_nobody_in(database: Database) -> None:
    members = table(database, [])
    members.admit([Member(FOUNDER.public, "founder", removed=True)], B, 9)
    assert members.inviter_of(A) is None


def test_news_count_once_they_are_told_of(database: Database) -> None:
    members = table(database, [])
    assert members.inviter_of(B) is None
    for key, value in (let_in(B, A), came_by(B, A)):
        database.rows.execute("INSERT INTO register VALUES (?, 5, 1, ?)", (key, value))
    members.words_changed()
    assert members.inviter_of(B) == A


def test_each_writes_its_own_word() -> None:
    assert fault(A, *let_in(B, A)) is None and fault(B, *came_by(B, A)) is None
    assert "only that machine" in str(fault(M, *let_in(B, A)))
    assert "only that machine" in str(fault(A, *came_by(B, A)))
    for (key, value), wrong in (
        (let_in(B, A), b"\1" + A),
        (came_by(B, A), b"\1"),
        (came_by(B, A), b"\2" + A),
    ):
        assert value != wrong
        with pytest.raises(DecodeError):
            check_admission(key, wrong)
        assert fault(key[17:], key, wrong) is not None


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), max_size=12),
    st.integers(0, 3) | st.none(),
    st.randoms(use_true_random=False),
)
def test_the_order_in_which_words_come_does_not_matter(
    said: list[tuple[int, int, int]], heard: int | None, order: random.Random
) -> None:
    devices = (A, B, M, P)
    found = [
        Word(devices[author], clock, devices[inviter] if devices[author] == P else None)
        for author, inviter, clock in said
    ]
    before = Admission(None if heard is None else devices[heard], 5)
    one = admission_of(P, before, found)
    order.shuffle(found)
    assert admission_of(P, before, found) == one
    others = {word.author for word in found} - {P}
    assert one.by in others or one.by == before.by
    assert not one.confirmed or any(word == Word(P, word.clock, one.by) for word in found)
