"""What becomes of an update that is offered to the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from sync.fork import ForkProof
from sync.update import SignedUpdate, Stamp
from sync.vector import Rename, VersionVector

__all__ = ["Accepted", "Duplicate", "Outcome", "Reason", "Refused"]


class Reason(Enum):
    """Why an update was refused."""

    MALFORMED = "malformed"
    FOREIGN_VOLUME = "foreign volume"
    NOT_A_MEMBER = "not a member"
    NOT_VOUCHED = "by a device that was removed, has forked too often, or pretends not to know what binds it"
    BAD_SIGNATURE = "bad signature"
    MISSING_PREVIOUS = "missing previous update"
    MISSING_DEPENDENCY = "missing dependency"
    FALSE_NAME = "false name"
    STALE_DEPENDENCY = "stale dependency"
    OMITTED_DEPENDENCY = "omitted dependency"
    WRONG_CLOCK = "wrong clock"
    WRONG_HISTORY = "wrong history"
    TOO_MANY_BRANCHES = "too many branches"


class Accepted(NamedTuple):
    """The update is now part of the log. Carry out the renames first, then store it."""

    update: SignedUpdate
    branch: bytes
    """The branch that it is on, see `sync.branch`."""
    dependencies: VersionVector
    """Its full dependency vector: a register value stamped (branch, clock) is superseded by this
    update's write to the same key exactly if `dependencies[branch] >= clock`."""
    renames: tuple[Rename, ...] = ()
    """Updates accepted earlier that have other branches now, and so have other stamps and vectors."""
    proof: ForkProof | None = None
    """Set when the update and one accepted earlier have the same `prev`, unless a checkpoint has taken that
    one's place."""
    forks: bool = False
    """Whether there is an update with the same `prev`."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The update was accepted before."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The update was not accepted, and nothing changed."""

    reason: Reason
    message: str
    missing: Stamp | None = None
    """An update that must be accepted first; of one that nobody vouches for, that may show it to be good."""

    @property
    def retryable(self) -> bool:
        """True when the update may be acceptable once `missing` is accepted."""
        return self.missing is not None and self.reason is not Reason.NOT_VOUCHED


Outcome: TypeAlias = Accepted | Duplicate | Refused
