"""Reads of a register, and the end of transactions that a reader meets (sans-IO).

A reader that finds a version of a transaction, later than all that are proven, looks into the register of
the transaction. If nothing was decided there for a while it decides that the transaction does not take place
(`transaction`). So a client that died in the middle of one keeps nobody waiting for long.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hybrisfs.quorums.consensus import decide
from hybrisfs.quorums.names import ZERO_TIME, Kind, Time, Version, commitment_to
from hybrisfs.quorums.register import Found, Lists, Part, Register
from hybrisfs.quorums.rounds import Pause, Protocol, RoundFailedError

__all__ = ["MOMENT", "Base", "abort", "base", "collect", "is_latest", "read", "settle"]

MOMENT: Final = ZERO_TIME.after()
"""The time of what is decided in the register of a transaction, the only one there."""
_ATTEMPTS: Final = 4  # to get one version
_LOOKS: Final = 6  # at a transaction that goes on


class Base(NamedTuple):
    """What a write depends on: the latest version, if there is one, and the time of what follows it."""

    found: Found | None
    time: Time


def read(register: Register, part: Part, lists: Lists | None = None) -> Protocol[Found | None]:
    """Read the latest version, which may be that the key was deleted; None: it was never written. *lists*:
    what `collect` has just returned.

    Raises RoundFailedError when it cannot be had, also when it is looked for again and again.
    """
    return (yield from _read(register, part, lists)).found


def is_latest(register: Register, version: Version) -> Protocol[bool]:
    """Whether nothing later than a version is there; see `read`."""
    if register.latest((yield from collect(register))) == version:
        return True
    found = yield from read(register, Part.NOTHING)  # what seems later may be what no cloud has
    return found is not None and found.version == version


def base(register: Register) -> Protocol[Base]:
    """Read the latest version without its value, to write what follows it; see `read`."""
    return (yield from _read(register, Part.NOTHING, None))


def _read(register: Register, part: Part, lists: Lists | None) -> Protocol[Base]:
    attempt, failed = 0, None
    while True:
        if lists is None:
            lists = yield from collect(register)
        try:
            return Base((yield from register.complete(lists, part)), register.next_step(lists))
        except RoundFailedError:
            # It may have been deleted, as there is a later one: then that is the latest the next time.
            latest = register.latest(lists)
            attempt = attempt + 1 if latest == failed else 1
            if attempt >= _ATTEMPTS:
                raise
            failed, lists = latest, None
            yield Pause(attempt)


def collect(register: Register) -> Protocol[Lists]:
    """List the names on a quorum; see `settle`."""
    return (yield from settle(register, (yield from register.collect())))


def settle(register: Register, lists: Lists) -> Protocol[Lists]:
    """Lists in which no transaction has to be waited for. What transactions that took place have written is
    proven in them, though perhaps on no cloud: `Register.complete` puts the proof there."""
    aborted: set[bytes] = set()
    while True:
        waiting = {one.commitment for one in register.waiting(lists)} - aborted
        if not waiting:
            return lists
        nonces = {}
        for commitment in sorted(waiting):
            nonce = yield from _outcome(register.transaction(commitment), commitment)
            if nonce is None:
                aborted.add(commitment)
            else:
                nonces[commitment] = nonce
        # What was decided may have been deleted since the version was listed: then it is proven by now.
        lists = yield from register.collect()
        for commitment, nonce in nonces.items():
            _prove(lists, commitment, nonce)


def _prove(lists: Lists, commitment: bytes, nonce: bytes) -> None:
    """Add the proof of what a transaction that took place has written. Before that version there may be
    others of it, with times that it did not get."""
    versions = (one for one in lists.seen.versions if one.kind is Kind.JOINT and one.commitment == commitment)
    version = max(versions, key=lambda one: one.time, default=None)
    if version is not None:
        lists.seen.proofs.setdefault(version, nonce)
        lists.provers.setdefault(version, set())


def _outcome(register: Register, commitment: bytes) -> Protocol[bytes | None]:
    """The nonce of a transaction that took place; None: it does not. *register* is that of the
    transaction."""
    for attempt in range(1, _LOOKS + 1):
        lists = yield from register.collect()
        for decided, nonce in lists.seen.proofs.items():
            return _nonce(decided, nonce, commitment)
        yield Pause(attempt)
    return (yield from abort(register, commitment))


def abort(register: Register, commitment: bytes) -> Protocol[bytes | None]:
    """Decide that a transaction does not take place, if nothing was decided; see `_outcome`."""
    marker = register.codec.marker()
    decided = yield from decide(register, marker, marker.at(MOMENT))
    if decided is None:
        raise AssertionError("there is no later time in the register of a transaction")
    yield from register.prove(*decided)
    return _nonce(*decided, commitment)


def _nonce(decided: Version, nonce: bytes, commitment: bytes) -> bytes | None:
    return nonce if decided.commitment == commitment == commitment_to(nonce) else None
