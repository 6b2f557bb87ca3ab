"""Writes that depend on what is there: the clouds agree on what follows a version (sans-IO).

A condition holds for one version, so a write under a condition takes the next *step* of its time: no other
version can come between the two. Which of several such writes gets the step is decided by Disk Paxos (Gafni
and Lamport 2003), with the names of objects as the blocks of the disks:

1. read the latest version, complete it, and look whether the condition holds
2. put the objects of the new version and the name of a ballot, then list, on a quorum: if no higher ballot is
   there, want what was accepted in the highest ballot before; one's own version if nothing was
3. put the name of what is wanted, with its nonce, then list, on a quorum: if no higher ballot is there, it
   is decided
4. put its proof, as every write does; if it is the version of another client, begin again at 1

On each cloud the list comes after the put. Of the quorums of two ballots one correct cloud has both, so one
of the two sees the other: that is the argument of Disk Paxos, with clouds that hide names among the others.

Plain writes do not take part. One that comes between 1 and 4 takes a higher number: the conditional write
takes place just before it, at a moment after 1, as it was not complete then.

What is before a later version that is complete may be deleted (`Register.clear`), also ballots. Then an
earlier proposer would not see a decision. So nothing is deleted until that version has been complete for
much longer than the ballots of a conditional write may take: `KEPT_SECONDS` and `WRITE_SECONDS`. This needs
clocks that go about as fast, and no clocks that agree.

Conditional writes are not wait-free: others that write the same key under conditions may overtake one again
and again. No protocol over registers can promise more. In practice one of them succeeds, because their
pauses grow at random.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hybrisfs.cloud_registers.names import ZERO_TIME, Accepted, Ballot, Seen, Time, Version
from hybrisfs.cloud_registers.register import Draft, Lists, Part, Register
from hybrisfs.cloud_registers.rounds import Ask, Pause, Protocol, Round, Within, need

__all__ = ["KEPT_SECONDS", "WRITE_SECONDS", "write_if"]

WRITE_SECONDS: Final = 60.0
"""For how long the ballots about one version may go on; putting a large value before that takes its time."""
_SMALL: Final = 64 << 10  # bytes; smaller objects go with the first ballot, in one round
KEPT_SECONDS: Final = 5 * WRITE_SECONDS
"""How long a version has to have been complete when what is before it is deleted."""


def write_if(
    register: Register, draft: Draft, check: Callable[[Version | None], object]
) -> Protocol[Version]:
    """Write a version that follows one for which *check* does not raise. *check* gets None for a key that was
    never written."""
    while True:
        found = yield from register.read(Part.NOTHING)
        before = None if found is None else found.version
        check(before)
        time = (ZERO_TIME if before is None else before.time).after()
        decided = yield from _decide(register, draft, draft.at(time, to_be_proven=True))
        if decided is not None and decided.write == draft.write:
            return decided


def _decide(register: Register, draft: Draft, own: Version) -> Protocol[Version | None]:
    """Have the clouds decide on a version of that time, and complete it. None: a later one is complete."""
    names = register.names
    asks = register.objects(own, draft)
    if draft.size > _SMALL:
        yield [Round(asks, need(register.thresholds.quorum))]
        asks = dict.fromkeys(register.clouds, Ask())
    yield Within(WRITE_SECONDS)
    round_ = attempt = 0
    wanted = False
    while True:
        ballot = Ballot(round_ + 1, draft.write)
        name = (names.of_ballot(own.time, ballot), b"")
        lists = yield from _put_and_list(
            register, {cloud: Ask(puts=(*ask.puts, name)) for cloud, ask in asks.items()}
        )
        asks = dict.fromkeys(register.clouds, Ask())
        later = lists.seen.latest_proven()
        if later is not None and later.time > own.time and not wanted:
            return None
        highest = _highest(lists.seen, own.time)
        if highest == ballot:
            before = max(lists.seen.accepted.get(own.time, ()), default=None)
            chosen = Accepted(ballot, draft.write, draft.nonce)
            if before is not None:
                chosen = before._replace(ballot=ballot)
            wanted = draft.exposed = wanted or chosen.write == draft.write
            accepted = (names.of_accepted(own.time, chosen), b"")
            ask = Ask(puts=(accepted,))
            after = yield from _put_and_list(register, dict.fromkeys(register.clouds, ask))
            highest = _highest(after.seen, own.time)
            lists.seen.merge(after.seen)
            version = _stored(lists.seen, own.time, chosen.write)
            if highest == ballot and version is not None:
                yield from register.prove(version, chosen.nonce)
                return version
        attempt += 1
        round_ = highest.round
        yield Pause(attempt)


def _put_and_list(register: Register, asks: dict[int, Ask]) -> Protocol[Lists]:
    whole = {cloud: Ask(ask.puts, prefix=register.names.prefix) for cloud, ask in asks.items()}
    answers = yield [Round(whole, need(register.thresholds.quorum))]
    return register.lists(answers[0])


def _highest(seen: Seen, time: Time) -> Ballot:
    """The highest ballot about what has this time."""
    accepted = (one.ballot for one in seen.accepted.get(time, ()))
    return max((*seen.ballots.get(time, ()), *accepted), default=Ballot(0, 0))


def _stored(seen: Seen, time: Time, write: int) -> Version | None:
    found = (one for one in seen.versions if one.time == time and one.write == write)
    return next(found, None)
