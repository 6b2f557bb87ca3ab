"""An end of a pack counts when all had agreed, as the update that says so had seen: whatever came later."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Final

import pytest

from hybrisfs.members.members import Member, member_key
from hybrisfs.members.minutes import End, Minutes
from hybrisfs.registers.proposals import Answer, Answers, Proposal, Stage, answers_key, proposal_key
from hybrisfs.registers.values import Stamp
from sync import Rename, VersionVector
from tests.merge.fleet import member_of
from tests.tree.rig import Rig

ADA, BOB, CYD = (member_of(number) for number in range(3))
PACK, OTHER, ORPHAN = b"p" * 32, b"q" * 32, b"o" * 32
LISTED: Final = Proposal(1, (PACK, OTHER), (ORPHAN,))
NOTHING: Final = Proposal(2, ())


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Its log is empty: each device's branch is the device itself."""
    rig = Rig()
    rig.db.rows.executemany(
        "INSERT INTO log_branch (id, device, parent, above) VALUES (?, ?, NULL, 0)",
        [(one.device, one.device) for one in (ADA, BOB, CYD)],
    )
    yield rig
    rig.abandon()


def at(clock: int, member: Member) -> Stamp:
    return Stamp(clock, member.device)


def seen(**clocks: int) -> VersionVector:
    devices = {"ada": ADA, "bob": BOB, "cyd": CYD}
    return VersionVector({devices[name].device: clock for name, clock in clocks.items()})


def said(stage: Stage, *refused: int) -> bytes:
    return Answers({LISTED.id_for(ADA.device): Answer(stage, refused)}).encode()


def never(_: bytes, __: int) -> None:
    """Nobody has seen what another branch says."""


def judged(minutes: Minutes, vector: VersionVector, author: Member = ADA) -> list[str]:
    """What becomes of the two packs and the orphan."""
    ends = minutes.judge(author.device, vector, (PACK, OTHER, ORPHAN), never)
    return [ends[pack].name for pack in (PACK, OTHER, ORPHAN)]


AGREED, EMPTY, DOUBTFUL = ([one.name] * 3 for one in (End.AGREED, End.EMPTY, End.DOUBTFUL))


def talk(minutes: Minutes) -> None:
    """Ada proposes, and both agree."""
    minutes.note(at(1, ADA), member_key(ADA.device), ADA.encode())
    minutes.note(at(1, ADA), member_key(BOB.device), BOB.encode())
    minutes.note(at(2, ADA), proposal_key(ADA.device), LISTED.encode())
    minutes.note(at(3, ADA), answers_key(ADA.device), said(Stage.AGREED))
    minutes.note(at(4, BOB), answers_key(BOB.device), said(Stage.AGREED))


def test_all_must_have_agreed(rig: Rig) -> None:
    minutes = rig.tx.registers.minutes
    talk(minutes)
    assert judged(minutes, seen(ada=3, bob=4)) == AGREED
    assert judged(minutes, seen(ada=3, bob=3)) == EMPTY
    assert judged(minutes, seen(ada=2, bob=4)) == EMPTY
    assert judged(minutes, seen(ada=3, bob=4), author=BOB) == EMPTY


def test_a_promise_is_not_enough_and_what_one_refuses_stays(rig: Rig) -> None:
    minutes = rig.tx.registers.minutes
    talk(minutes)
    minutes.note(at(5, BOB), answers_key(BOB.device), said(Stage.PROMISED))
    minutes.note(at(6, BOB), answers_key(BOB.device), said(Stage.AGREED, 1, 2))
    assert judged(minutes, seen(ada=3, bob=5)) == EMPTY
    assert judged(minutes, seen(ada=3, bob=6)) == ["AGREED", "EMPTY", "EMPTY"]


def test_what_was_said_later_does_not_matter(rig: Rig) -> None:
    """The proposal is followed by another one, the answers are dropped: the end may come after that."""
    minutes = rig.tx.registers.minutes
    talk(minutes)
    minutes.note(at(8, ADA), proposal_key(ADA.device), NOTHING.encode())
    minutes.note(at(9, ADA), answers_key(ADA.device), Answers({}).encode())
    minutes.note(at(9, BOB), answers_key(BOB.device), Answers({}).encode())
    assert judged(minutes, seen(ada=7, bob=8)) == AGREED
    assert judged(minutes, seen(ada=8, bob=8)) == EMPTY  # it was withdrawn before


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_arrival_does_not_matter(rig: Rig, order: tuple[int, ...]) -> None:
    minutes = rig.tx.registers.minutes
    talk(minutes)
    later = [
        (at(5, CYD), answers_key(CYD.device), Answers({}).encode()),
        (at(6, BOB), answers_key(BOB.device), Answers({}).encode()),
        (at(7, BOB), member_key(CYD.device), CYD.encode()),
    ]
    for number in order:
        minutes.note(*later[number])
    assert judged(minutes, seen(ada=3, bob=4)) == AGREED
    assert judged(minutes, seen(ada=3, bob=7)) == EMPTY
    assert judged(minutes, seen(ada=3, bob=4, cyd=5)) == EMPTY


def test_who_is_asked(rig: Rig) -> None:
    minutes = rig.tx.registers.minutes
    talk(minutes)
    minutes.note(at(5, BOB), member_key(CYD.device), CYD.encode())
    assert judged(minutes, seen(ada=3, bob=5)) == EMPTY
    kit = Member(CYD.public, "cyd", reserve=True)
    minutes.note(at(6, BOB), member_key(CYD.device), kit.encode())
    assert judged(minutes, seen(ada=3, bob=6)) == EMPTY  # no member becomes a reserve
    removed = Member(CYD.public, "cyd", removed=True)
    minutes.note(at(7, BOB), member_key(CYD.device), removed.encode())
    assert judged(minutes, seen(ada=3, bob=7)) == EMPTY  # as somebody may still veto that
    minutes.note(at(8, ADA), member_key(CYD.device), removed.encode())
    assert judged(minutes, seen(ada=8, bob=7)) == AGREED
    minutes.note(at(9, BOB), member_key(CYD.device), CYD.encode())
    assert judged(minutes, seen(ada=8, bob=9)) == AGREED  # and none that was removed comes back


def test_nobody_asks_a_recovery_kit(rig: Rig) -> None:
    minutes = rig.tx.registers.minutes
    talk(minutes)
    minutes.note(at(5, BOB), member_key(CYD.device), Member(CYD.public, "kit", reserve=True).encode())
    assert judged(minutes, seen(ada=3, bob=5)) == AGREED


def test_a_forked_device_has_agreed_when_all_its_branches_say_so(rig: Rig) -> None:
    minutes = rig.tx.registers.minutes
    talk(minutes)
    branch = b"branch of bob..."
    rig.db.rows.execute("INSERT INTO log_branch VALUES (?, ?, ?, 3)", (branch, BOB.device, BOB.device))
    minutes.note(Stamp(4, branch), answers_key(BOB.device), said(Stage.PROMISED))
    both = VersionVector({ADA.device: 3, BOB.device: 4, branch: 4})
    assert judged(minutes, both) == EMPTY
    assert judged(minutes, seen(ada=3, bob=4)) == AGREED
    minutes.note(Stamp(5, branch), answers_key(BOB.device), said(Stage.AGREED, 0))
    both = VersionVector({ADA.device: 3, BOB.device: 4, branch: 5})
    assert judged(minutes, both) == ["EMPTY", "AGREED", "AGREED"]

    def knows_the_other(writer: bytes, clock: int) -> VersionVector | None:
        return seen(bob=4) if (writer, clock) == (branch, 5) else None

    minutes.note(Stamp(5, branch), answers_key(BOB.device), said(Stage.AGREED))
    assert minutes.judge(ADA.device, both, (PACK,), knows_the_other) == {PACK: End.AGREED}


def test_branches_are_renamed(rig: Rig) -> None:
    minutes = rig.tx.registers.minutes
    talk(minutes)
    branch = b"branch of bob..."
    rig.db.rows.execute("INSERT INTO log_branch VALUES (?, ?, ?, 3)", (branch, BOB.device, BOB.device))
    minutes.rename(Rename(BOB.device, 3, branch))
    assert judged(minutes, seen(ada=3, bob=4)) == EMPTY
    assert judged(minutes, VersionVector({ADA.device: 3, branch: 4})) == AGREED


def test_what_a_checkpoint_has_told_is_known_from_there_on(rig: Rig) -> None:
    minutes = rig.tx.registers.minutes
    for stamp, key, value in (
        (at(1, ADA), member_key(BOB.device), BOB.encode()),
        (at(2, ADA), proposal_key(ADA.device), LISTED.encode()),
        (at(3, ADA), answers_key(ADA.device), said(Stage.AGREED)),
        (at(5, BOB), answers_key(BOB.device), said(Stage.AGREED)),
    ):
        minutes.note(stamp, key, value, begins=True)
    assert judged(minutes, seen(ada=3, bob=5)) == AGREED
    assert judged(minutes, seen(ada=3, bob=4)) == DOUBTFUL
    minutes.note(at(6, BOB), answers_key(BOB.device), said(Stage.AGREED, 0, 1, 2))
    assert judged(minutes, seen(ada=3, bob=6)) == EMPTY


def test_old_minutes_are_let_go(rig: Rig) -> None:
    minutes = rig.tx.registers.minutes
    talk(minutes)
    for clock in range(5, 100):
        minutes.note(at(clock, BOB), answers_key(BOB.device), Answers({}).encode())
        minutes.note(at(clock, BOB), member_key(BOB.device), Member(BOB.public, f"bob {clock}").encode())
    assert rig.db.rows.execute("SELECT count(*) FROM said").fetchone()[0] < 30
    assert judged(minutes, seen(ada=3, bob=4)) == DOUBTFUL
    assert judged(minutes, seen(ada=3, bob=99)) == EMPTY


def test_nonsense_is_silence(rig: Rig) -> None:
    minutes = rig.tx.registers.minutes
    talk(minutes)
    minutes.note(at(5, BOB), answers_key(BOB.device), b"nonsense")
    assert judged(minutes, seen(ada=3, bob=5)) == EMPTY
    minutes.note(at(6, ADA), proposal_key(ADA.device), b"nonsense")
    assert judged(minutes, seen(ada=6, bob=4)) == EMPTY
    minutes.note(at(7, ADA), member_key(CYD.device), b"nonsense")
    assert judged(minutes, seen(ada=5, bob=4)) == AGREED
