"""Writes that depend on what is there: the clouds agree on what follows a version (sans-IO).

A condition holds for one version, so a write under a condition takes the next *step* of its time: no other
version can come between the two. Which of several such writes gets the step is decided by `consensus`:

1. read the latest version, complete it, and look whether the condition holds
2. have the clouds decide which version has the next step
3. put its proof, as every write does; if it is the version of another client, begin again at 1
4. if it is of a transaction (`transaction`) that does not take place, nothing follows by it: go on at 2 with
   the step after it

Plain writes do not take part. One that comes between 1 and 3 takes a higher number: the conditional write
takes place just before it, at a moment after 1, as it was not complete then.
"""

from __future__ import annotations

from collections.abc import Callable

from hybrisfs.quorums.consensus import Decided, decide
from hybrisfs.quorums.names import Kind, Time, Version
from hybrisfs.quorums.reading import base, collect
from hybrisfs.quorums.register import Draft, Found, Register
from hybrisfs.quorums.rounds import Protocol

__all__ = ["claim", "write_if"]


def write_if(register: Register, draft: Draft, check: Callable[[Found | None], object]) -> Protocol[Version]:
    """Write a version that follows one for which *check* does not raise. *check* gets None for a key that was
    never written."""
    while True:
        found, time = yield from base(register)
        check(found)
        decided = yield from claim(register, draft, time, Kind.PROVEN)
        if decided is not None:
            yield from register.prove(*decided)
            return decided.version


def claim(register: Register, draft: Draft, time: Time, kind: Kind) -> Protocol[Decided | None]:
    """Have *draft* follow what was found (`reading.Base`), with nothing between them that takes place. None:
    another one does, or a later one is complete. It is yet to be proven."""
    while True:
        own = draft.at(time, kind)
        decided = yield from decide(register, draft, own)
        if decided is None or decided.version == own:
            return decided
        if decided.version.kind is not Kind.JOINT:
            yield from register.prove(*decided)
            return None
        other = decided.version.commitment
        if kind is Kind.JOINT and own.commitment > other:
            lists = yield from register.transaction(other).collect()
            if not lists.seen.proofs:
                return None  # of two transactions that meet, one waits for the other, not both
        latest = register.latest((yield from collect(register)))
        if latest is not None and latest.time >= time:
            return None
        yield from register.declare_void(decided.version)
        time = time.after()
