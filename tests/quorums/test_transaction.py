"""Moments of transactions that chance seldom brings about."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from hybrisfs.quorums.consensus import decide
from hybrisfs.quorums.names import ZERO_TIME, Ballot, Kind, Version, commitment_to
from hybrisfs.quorums.reading import MOMENT, abort, base, read
from hybrisfs.quorums.register import Draft, Part, Register
from hybrisfs.quorums.rounds import Answer, Pause, Protocol, Round, Within
from hybrisfs.quorums.thresholds import POWERSTORE, Thresholds
from hybrisfs.quorums.transaction import Member, Transaction, claim, tidy
from tests.quorums.schedule import NAMES, Cloud, Whole

THRESHOLDS = Thresholds(POWERSTORE, 4, 1, 1)
FIRST = ZERO_TIME.after()


class Rig:
    """Clouds that answer at once, and protocols that go on when a test says so."""

    def __init__(self) -> None:
        self.clouds = [Cloud(Random(0)) for _ in range(4)]
        self.codec = Whole(Random(1))
        self.drafts = 0

    def register(self, key: str = "key") -> Register:
        return Register(NAMES.of_register("box", key.encode()), range(4), THRESHOLDS, self.codec)

    def draft(self) -> Draft:
        self.drafts += 1
        return self.codec.draft(self.drafts, f"v{self.drafts}", 2)

    def run(self, protocol: Protocol[Any]) -> Any:
        return Going(self, protocol).end()

    def tidy(self, commitment: bytes) -> None:
        for cloud in range(4):
            self.run(tidy(self.register().transaction(commitment), commitment, cloud))

    def answers(self, rounds: Sequence[Round]) -> list[dict[int, Answer]]:
        return [
            {number: self.clouds[number].answer(ask) for number, ask in one.asks.items()} for one in rounds
        ]


class Going:
    """A protocol that goes on step by step."""

    def __init__(self, rig: Rig, protocol: Protocol[Any]) -> None:
        self.rig, self.protocol, self.result = rig, protocol, None
        self.over = False
        self._take(lambda: next(protocol))

    def _take(self, step: Any) -> None:
        try:
            self.steps = step()
            while isinstance(self.steps, Pause | Within):
                self.steps = self.protocol.send(())
        except StopIteration as end:
            self.result, self.over = end.value, True

    def go(self, rounds: int) -> Going:
        for _ in range(rounds):
            answers = self.rig.answers(self.steps)
            self._take(lambda answers=answers: self.protocol.send(answers))
        return self

    def end(self) -> Any:
        while not self.over:
            self.go(1)
        return self.result


def claimed(rig: Rig, draft: Draft, key: str = "key") -> Version:
    """The version of a transaction that has got its time; nothing was decided on the transaction."""
    time = rig.run(base(rig.register(key))).time
    decided = rig.run(claim(rig.register(key), draft, time, Kind.JOINT))
    version: Version = decided.version
    return version


def test_an_attempt_is_not_taken_for_the_one_before() -> None:
    """Its version has the same value, and was given the time after its writer had given up."""
    rig = Rig()
    draft = rig.draft()
    before = claimed(rig, draft)
    rig.run(abort(rig.register().transaction(before.commitment), before.commitment))
    again = replace(draft, nonce=b"n" * 16)
    decided = rig.run(claim(rig.register(), again, FIRST, Kind.JOINT))
    assert decided.nonce == again.nonce
    assert decided.version == again.at(FIRST.after(), Kind.JOINT)
    assert rig.run(rig.register().collect()).seen.void == {before}


def test_attempts_have_ballots_of_their_own() -> None:
    rig = Rig()
    draft, seen = rig.draft(), set[Ballot]()
    for nonce in (b"n" * 16, b"m" * 16):
        own = replace(draft, nonce=nonce)
        Going(rig, decide(rig.register(), own, own.at(FIRST, Kind.JOINT))).go(1)
        seen |= rig.run(rig.register().collect()).seen.ballots[FIRST]
    assert len(seen) == 2


def test_a_reader_takes_the_version_that_has_got_its_time() -> None:
    """Before it there is another one of the same transaction, which lost."""
    rig = Rig()
    draft = rig.draft()
    lost = draft.at(FIRST, Kind.JOINT)
    rig.run(one_round(rig.register(), lost, draft))
    won = rig.run(claim(rig.register(), draft, FIRST.after(), Kind.JOINT)).version
    commit(rig, draft)
    assert rig.run(read(rig.register(), Part.VALUE)).version == won


def one_round(register: Register, version: Version, draft: Draft) -> Protocol[None]:
    yield [Round(register.objects(version, draft), lambda answers: len(answers) >= 3)]


def commit(rig: Rig, draft: Draft) -> None:
    """Decide that a transaction takes place; its writer proves nothing."""
    transaction = rig.register().transaction(commitment_to(draft.nonce))
    marker = replace(rig.codec.marker(), nonce=draft.nonce)
    rig.run(decide(transaction, marker, marker.at(MOMENT)))


def test_a_slow_reader_does_not_miss_what_has_ended_and_was_tidied_away() -> None:
    """It has listed the version before that was proven, and finds nothing of the transaction."""
    rig = Rig()
    transaction = Transaction([Member(rig.register(), rig.draft(), lambda found: None)])
    writing = Going(rig, transaction.write()).go(3)
    reading = Going(rig, read(rig.register(), Part.VALUE)).go(1)
    (written,) = writing.end()
    rig.tidy(written.commitment)
    assert reading.end().version == written


def test_a_slow_writer_learns_that_it_was_aborted_though_that_was_tidied_away() -> None:
    """Otherwise it would commit, after a reader has read that it had not."""
    rig = Rig()
    transaction = Transaction([Member(rig.register(), rig.draft(), lambda found: None)])
    writing = Going(rig, transaction.write()).go(4)
    (waiting,) = rig.register().waiting(rig.run(rig.register().collect()))
    assert rig.run(read(rig.register(), Part.VALUE)) is None
    rig.tidy(waiting.commitment)
    (written,) = writing.end()
    assert written.commitment != waiting.commitment
    assert transaction.ended == [waiting.commitment, written.commitment]


def test_of_two_that_depend_on_what_the_other_writes_one_ends() -> None:
    """Each writes one key if the other key has no value."""

    def absent(found: Any) -> None:
        if found is not None:
            raise ValueError("it has a value")

    for early in range(1, 5):
        rig = Rig()
        writers = [
            Going(
                rig,
                Transaction(
                    [
                        Member(rig.register(own), rig.draft(), lambda found: None),
                        Member(rig.register(other), None, absent),
                    ]
                ).write(),
            )
            for own, other in (("one", "other"), ("other", "one"))
        ]
        for one in writers:
            one.go(early)
        for one in writers:
            one.go(4 - early)
        results = []
        for one in writers:
            try:
                results.append(one.end())
            except ValueError:
                results.append(None)
        assert sum(one is not None for one in results) == 1, early
