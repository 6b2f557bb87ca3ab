"""How many clouds each protocol needs, and how many answers.

S (or N) clouds, of which t may fail, b <= t of them in any way (Byzantine), the others by silence:

==============================  ======================  ==================================================
                                PoWerStore              PASIS 4.4 (1) to (5)
==============================  ======================  ==================================================
clouds                          S >= 3t + 1             N >= 2t + 2b + 1
answers that a round awaits     S - t                   N - t
a version is complete           with a proof            on Q_C benign clouds, t + b + 1 <= Q_C <= N - t - b
seen to be complete             one proof               named by Q_C + b clouds
not complete, and dropped       without a proof         named by fewer than Q_C - t clouds
shares that give the value      1 <= k <= S - 2t        1 <= m <= Q_C - t
==============================  ======================  ==================================================

Q_C is as large as possible here, and so are k and m: fewer bytes are stored. With S = 3t + 1 that makes
k = t + 1, as in PoWerStore.

PoWerStore's bound: a version that is proven was acknowledged by S - t clouds. At least S - 2t >= t + 1 of
them are correct, and so many shares give the value. Of any two quorums of S - t clouds, S - 2t >= t + 1 are
in both, one of them correct: a list from a quorum shows what an earlier round has put on a quorum.

First contact (`first_contact`) is PASIS with t = 0, b = f and Q_C = f + 1, over 2f + 1 clouds or more: the
reader waits until each cloud has answered or failed, and a failure counts among the f. So silence costs no
clouds beside the lies. By (2) a version is seen to be complete on 2f + 1 clouds: each later reader then sees
it on f + 1 correct ones. By (3) it is dropped with f or fewer, which may all lie; with f + 1 one does not. A
reader that can verify a version by itself, since it knows the members, needs no more than one cloud for it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from msgspec import Struct

from hybrisfs.errors import UsageError

__all__ = ["PASIS", "POWERSTORE", "Standing", "Thresholds", "first_contact"]

POWERSTORE: Final = "powerstore"
PASIS: Final = "pasis"


class Standing(Enum):
    """What a read makes of a version, by how many clouds have it (PASIS 4.3.3)."""

    COMPLETE = "complete"
    REPAIRABLE = "repairable"
    INCOMPLETE = "incomplete"


class Thresholds(Struct, frozen=True):
    """Those of *clouds* of which *t* may fail, *b* in any way."""

    protocol: str
    clouds: int
    t: int
    b: int

    def check(self) -> None:
        """Raise UsageError when there are too few clouds."""
        if not 0 <= self.b <= self.t:
            raise UsageError(f"of {self.t} clouds that fail, not {self.b} can lie")
        if self.clouds < self.least:
            raise UsageError(
                f"keys on the clouds need {self.least} clouds",
                f"the volume has {self.clouds}, of which {self.t} may fail",
                "hybrisfs cloud add adds one, and kv create --metadata log needs none.",
            )

    @property
    def least(self) -> int:
        """How many clouds are needed at least."""
        if self.protocol == PASIS:
            return 2 * self.t + 2 * self.b + 1
        return 3 * self.t + 1

    @property
    def quorum(self) -> int:
        """How many answers a round awaits: no more can be, and fewer would not do."""
        return self.clouds - self.t

    @property
    def complete(self) -> int:
        """PASIS: how many clouds have to name a version for it to be complete (2)."""
        return self.clouds - self.t

    @property
    def repairable(self) -> int:
        """PASIS: with how many it may be complete (3); with fewer it is not."""
        return self.clouds - 2 * self.t - self.b

    @property
    def denials(self) -> int:
        """How many clouds may lack a version, or have lost it, or lie about it, though it is complete."""
        return 2 * self.t

    @property
    def k(self) -> int:
        """How many shares give a value."""
        return self.repairable if self.protocol == PASIS else self.clouds - 2 * self.t

    def classify(self, holders: int) -> Standing:
        """PASIS: the standing of a version that so many clouds have."""
        if holders >= self.complete:
            return Standing.COMPLETE
        return Standing.REPAIRABLE if holders >= self.repairable else Standing.INCOMPLETE


def first_contact(f: int) -> Thresholds:
    """Those of a reader that trusts nothing yet, with f clouds that lie or are silent."""
    return Thresholds(PASIS, clouds=2 * f + 1, t=0, b=f)
