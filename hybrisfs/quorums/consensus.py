"""Which of several versions gets a time: Disk Paxos (Gafni and Lamport 2003), with the names of objects as
the blocks of the disks (sans-IO).

1. put the objects of a version and the name of a ballot, then list, on a quorum: if no higher ballot is
   there, want what was accepted in the highest ballot before; one's own version if nothing was
2. put the name of what is wanted, with its nonce, then list, on a quorum: if no higher ballot is there, it
   is decided

On each cloud the list comes after the put. Of the quorums of two ballots one correct cloud has both, so one
of the two sees the other: that is the argument of Disk Paxos, with clouds that hide names among the others.

What is before a later version that is complete may be deleted (`Register.clear`), also ballots. Then an
earlier proposer would not see a decision. So nothing is deleted until that version has been complete for
much longer than the ballots of a write may take: `KEPT_SECONDS` and `WRITE_SECONDS`. This needs clocks that
go about as fast, and no clocks that agree. Where ballots go earlier, the proof of what was decided stays.

No protocol over registers is sure to end while others propose. In practice one of them succeeds, because
their pauses grow at random.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hybrisfs.quorums.names import Accepted, Ballot, Seen, Time, Version, commitment_to
from hybrisfs.quorums.register import Draft, Lists, Register
from hybrisfs.quorums.rounds import Ask, Pause, Protocol, Round, Within, need

__all__ = ["KEPT_SECONDS", "WRITE_SECONDS", "Decided", "decide"]

WRITE_SECONDS: Final = 60.0
"""For how long the ballots about one version may go on; putting a large value before that takes its time."""
KEPT_SECONDS: Final = 5 * WRITE_SECONDS
"""How long a version has to have been complete when what is before it is deleted."""
_SMALL: Final = 64 << 10  # bytes; smaller objects go with the first ballot, in one round


class Decided(NamedTuple):
    """The version that has the time, and the nonce that proves it. A quorum has its objects."""

    version: Version
    nonce: bytes


def decide(register: Register, draft: Draft, own: Version) -> Protocol[Decided | None]:
    """Have the clouds decide on a version that has the time of *own*, which *draft* makes. It is yet to be
    proven. None: a later version is complete, and *own* has not been wanted."""
    names = register.names
    asks = register.objects(own, draft)
    if draft.size > _SMALL:
        yield [Round(asks, need(register.thresholds.quorum))]
        asks = dict.fromkeys(register.clouds, Ask())
    yield Within(WRITE_SECONDS)
    round_ = attempt = 0
    wanted = False
    proposer = int.from_bytes(own.commitment[:8])  # nobody else's, nor that of another attempt
    while True:
        ballot = Ballot(round_ + 1, proposer)
        name = (names.of_ballot(own.time, ballot), b"")
        lists = yield from _put_and_list(
            register, {cloud: Ask(puts=(*ask.puts, name)) for cloud, ask in asks.items()}
        )
        asks = dict.fromkeys(register.clouds, Ask())
        seen = lists.seen
        decided = _proven(seen, own.time)
        if decided is not None:
            return decided
        later = seen.latest_proven()
        if later is not None and later.time > own.time and not wanted:
            return None
        highest = _highest(seen, own.time)
        if highest == ballot:
            before = max(seen.accepted.get(own.time, ()), default=None)
            chosen = Accepted(ballot, draft.write, draft.nonce)
            if before is not None:
                chosen = before._replace(ballot=ballot)
            wanted = draft.exposed = wanted or chosen.nonce == draft.nonce
            accepted = (names.of_accepted(own.time, chosen), b"")
            ask = Ask(puts=(accepted,))
            after = yield from _put_and_list(register, dict.fromkeys(register.clouds, ask))
            highest = _highest(after.seen, own.time)
            seen.merge(after.seen)
            decided = _proven(seen, own.time)
            if decided is not None:
                return decided
            version = _stored(seen, own.time, chosen)
            if highest == ballot and version is not None:
                return Decided(version, chosen.nonce)
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


def _proven(seen: Seen, time: Time) -> Decided | None:
    """What was decided on, if it is proven already."""
    found = ((one, nonce) for one, nonce in seen.proofs.items() if one.time == time)
    return next((Decided(*one) for one in found), None)


def _stored(seen: Seen, time: Time, accepted: Accepted) -> Version | None:
    wanted = (time, accepted.write, commitment_to(accepted.nonce))
    return next((one for one in seen.versions if (one.time, one.write, one.commitment) == wanted), None)
