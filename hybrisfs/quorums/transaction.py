"""Writes that depend on what is there, and writes of several registers at one moment (sans-IO).

All versions of a transaction have one commitment: the hash of one nonce. They are complete when that is
revealed, so a *commit* proves all of them at once. Whether it comes to that is decided in a register of the
transaction (`consensus`), where its writer proposes the nonce, and others an abort.

1. read all keys, complete them, and look whether the conditions hold
2. *claim*: for each key that is written, have the clouds decide that its version follows what was read, as
   a conditional write does. Then all versions are on quorums.
3. *look*: list all keys again; if a later version is complete, or a key that is not written has another one
   than that of 1, the transaction aborts, and begins again at 1 with another nonce
4. *commit*: decide, in the register of the transaction, that it takes place
5. put the proofs of all versions, and of the decision

A client that meets a version which is not proven, and later than all that are (`reading.settle`), looks into
the register of the transaction, and aborts it after some seconds. Plain writes take no notice.

The transaction takes place at M, the moment when step 3 begins:

* A read that begins after M sees its version, as a quorum has it, and waits for the decision. A read that
  does not see the version began before M, and takes place before M.
* A write under a condition that follows the same version has lost at 2. One that follows the version of the
  transaction waits for the decision.
* A later plain write was not complete at M, or 3 would have seen it. It takes place after M, whether its
  writer has seen the transaction or not.
* Of two transactions that claim the same key, one aborts itself, and the other one waits. Of two that depend
  on what the other one writes, each claims before it looks. So one of them sees the other one at 3, and waits
  for its end, or ends it.

All conditions hold at M, and no reader sees a part of the transaction.

A version that was claimed in vain keeps its time. It is declared *void*: the next writer begins after it, and
no reader asks what became of it.

The decision may be deleted when all versions are proven on quorums: nobody needs it any more. A client that
looks for it late, and aborts in vain, lists the key again before it believes the abort. The proof of an abort
stays for ever, as a version that was claimed may stay as long (`tidy`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hybrisfs.quorums.consensus import Decided, decide
from hybrisfs.quorums.names import Kind, Time, Version, commitment_to
from hybrisfs.quorums.reading import MOMENT, Base, abort, base, collect, settle
from hybrisfs.quorums.register import Draft, Found, Register
from hybrisfs.quorums.rounds import Ask, Pause, Protocol, Round, RoundFailedError, need, side_by_side

__all__ = ["Member", "Transaction", "claim", "tidy", "write_if"]


# -- conditional writes: the clouds agree on what follows a version --------------------------------------
# A condition holds for one version, so a write under a condition takes the next *step* of its time: no other
# version can come between the two. Which of several such writes gets the step is decided by `consensus`:
#
# 1. read the latest version, complete it, and look whether the condition holds
# 2. have the clouds decide which version has the next step
# 3. put its proof, as every write does; if it is the version of another client, begin again at 1
# 4. if it is of a transaction that does not take place, nothing follows by it: go on at 2 with the step after
#
# Plain writes do not take part. One that comes between 1 and 3 takes a higher number: the conditional write
# takes place just before it, at a moment after 1, as it was not complete then.


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


_ATTEMPTS: Final = 4  # to read all keys


class Member(Struct, frozen=True):
    """A key of a transaction."""

    register: Register
    draft: Draft | None
    """What is written; None: nothing is, the transaction depends on the key."""
    check: Callable[[Found | None], object]
    """Raises when the key is not as it has to be."""


class Transaction:
    """Writes all members that are to be written, or none."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._codec = members[0].register.codec
        self._commit = self._codec.marker()
        self.ended: Final[list[bytes]] = []
        """The commitments of the attempts that were decided."""

    @property
    def exposed(self) -> bool:
        """It may take place, whatever becomes of its writer."""
        return self._commit.exposed

    def write(self) -> Protocol[Sequence[Version]]:
        """Carry it out, once; return the versions that were written. Raises what a check raises."""
        attempt = 0
        while True:
            bases = yield from self._read()
            for member, one in zip(self._members, bases, strict=True):
                member.check(one.found)
            written = yield from self._attempt(bases)
            self.ended.append(commitment_to(self._commit.nonce))
            if written is not None:
                return written
            self._commit = self._codec.marker()
            attempt += 1
            yield Pause(attempt)

    def _read(self) -> Protocol[list[Base]]:
        attempt = 0
        while True:
            try:
                return (yield from side_by_side(base(one.register) for one in self._members))
            except RoundFailedError:
                attempt += 1
                if attempt >= _ATTEMPTS:
                    raise
                yield Pause(attempt)

    def _attempt(self, bases: Sequence[Base]) -> Protocol[Sequence[Version] | None]:
        """What was written; None: it was aborted."""
        commit = self._commit
        transaction = self._members[0].register.transaction(commitment_to(commit.nonce))
        claims = yield from side_by_side(
            claim(member.register, replace(member.draft, nonce=commit.nonce), one.time, Kind.JOINT)
            for member, one in zip(self._members, bases, strict=True)
            if member.draft is not None
        )
        written = [member.register for member in self._members if member.draft is not None]
        claimed = [(register, one) for register, one in zip(written, claims, strict=True) if one is not None]
        versions = [one.version for _, one in claimed]
        if len(claimed) == len(claims) and (yield from self._stands(bases, versions)):
            decided = yield from decide(transaction, commit, commit.at(MOMENT))
            if decided is not None and decided.nonce == commit.nonce:
                proofs = [register.prove(*one) for register, one in claimed]
                yield from side_by_side([*proofs, transaction.prove(*decided)])
                return versions
        else:
            yield from abort(transaction, commitment_to(commit.nonce))
        yield from side_by_side(register.declare_void(one.version) for register, one in claimed)
        return None

    def _stands(self, bases: Sequence[Base], claimed: Sequence[Version]) -> Protocol[bool]:
        """Whether no key has changed since it was read."""
        looks = yield from side_by_side(one.register.collect() for one in self._members)
        own = iter(claimed)
        for member, before, lists in zip(self._members, bases, looks, strict=True):
            if member.draft is not None:
                latest, mine = member.register.latest(lists), next(own)
                if latest is not None and latest.time > mine.time:
                    return False
            else:
                latest = member.register.latest((yield from settle(member.register, lists)))
                if latest != (None if before.found is None else before.found.version):
                    return False
        return True


def tidy(register: Register, commitment: bytes, cloud: int) -> Protocol[None]:
    """Delete from a cloud what is no longer needed of a transaction that was decided `KEPT_SECONDS` ago, and
    whose versions are proven if it took place. *register* is that of the transaction."""
    answers = yield [Round({cloud: Ask(prefix=register.names.prefix)}, need(1))]
    names = answers[0][cloud].names
    proofs = register.names.read(names).proofs.items()
    kept = {register.names.of_proof(one, nonce) for one, nonce in proofs if one.commitment != commitment}
    took_place = any(one.commitment == commitment for one, _ in proofs)
    if kept or took_place:
        yield [Round({cloud: Ask(deletes=tuple(name for name in names if name not in kept))}, need(1))]
