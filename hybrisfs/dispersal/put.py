"""PUT of Hybris Algorithm 1 (lines 14 to 27, section 3.2) for n shares, as a sans-IO state machine.

The n best clouds get one share each. When the timer expires or one of them fails, a secondary cloud takes
over a share that is still open. The operation is done when every share is acknowledged by a cloud of its
own: a cloud *owns* the share that it was the first to acknowledge, and is *free* while it owns none and has
not failed for good.

A request may have to wait for a thread of its cloud, behind the user's own uploads on the same line. That is
no fault of the cloud, so the first request for a share may wait for its start while `patience` lasts. Until
then its share is *in line*, and no expiry concerns it. A share leaves the line at once when its request waits
behind others that are late.

That always happens with 2f+k clouds of which at most f are faulty. While a of the n = f+k shares are owned,
at least n - a correct clouds are free. Each of them answers what it was sent, and then either owns a share or
can be sent another; and at each expiry every open share that is not in line is sent to one more free cloud
that is not at work on an open one. Each expiry uses up some of the patience, and each request is started and
found stuck at most once, so all shares have left the line after finitely many events. So no share stays open
for lack of a correct cloud.

Algorithm 1 sends to all f secondaries at the first expiry. Here it is one per open share and expiry, which
is the same for f = 1 and saves uploads for more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

__all__ = ["Placed", "PutAction", "PutFailed", "PutMachine", "Send", "SetTimer"]

_NOTHING: Final[Mapping[int, int]] = {}
_ATTEMPTS = 3  # per cloud that answers with a passing error
_BACKOFF = 2.0


class Send(Struct, frozen=True):
    """Put share `index` to `cloud`; report `started`, or first `stuck`, and then `acked` or `failed`."""

    index: int
    cloud: int


class SetTimer(Struct, frozen=True):
    """Call `timer_expired` after so many seconds; replaces the timer set before."""

    seconds: float


class Placed(Struct, frozen=True):
    """Done: `placement[i]` is the cloud that holds share i."""

    placement: tuple[int, ...]


class PutFailed(Struct, frozen=True):
    """Given up: why, by cloud."""

    reasons: dict[int, str]


PutAction: TypeAlias = Send | SetTimer | Placed | PutFailed


class PutMachine:
    """One PUT of `n` shares to `clouds`, best first.

    `timer` is the usual latency in seconds, `patience` how long a request may wait to be started before that
    counts as an expiry, `pause` the wait before clouds that failed are asked again when no others are left.
    `fungible`: all shares are one object, so an ack of a cloud stands for any share. `held`: the clouds that
    have acknowledged shares before, by share; these are not put again.
    """

    def __init__(
        self,
        n: int,
        clouds: Sequence[int],
        *,
        timer: float,
        patience: float = 0.0,
        pause: float = 0.2,
        fungible: bool = False,
        held: Mapping[int, int] = _NOTHING,
    ) -> None:
        if len(set(clouds)) != len(clouds):
            raise ValueError("a cloud is listed twice")
        self._n = n
        self._clouds = tuple(clouds)
        self._timer = timer
        self._armed = 0.0  # what the timer was set to last
        self._patience = max(timer, patience)  # that is left
        self._in_line = set(range(n))
        self._pause = pause
        self._fungible = fungible
        self._flying: set[tuple[int, int]] = set()
        self._waiting: set[tuple[int, int]] = set()  # sent, but not started yet
        self._owner: dict[int, int] = {}  # share -> the first cloud that acknowledged it
        for index, cloud in held.items():
            if cloud in clouds and cloud not in self._owner.values():
                self._owner[index] = cloud
        self._attempts: Counter[int] = Counter()
        self._dead: set[int] = set()
        self._reasons: dict[int, str] = {}
        self._done = False

    @property
    def flying(self) -> frozenset[int]:
        """The clouds that owe an answer."""
        return frozenset(cloud for _, cloud in self._flying)

    def start(self) -> list[PutAction]:
        """Begin: the best clouds get the open shares, as the n best get share 0, 1, ... when none is held."""
        if len(self._clouds) < self._n:
            return self._fail()
        sends: list[PutAction] = [self._send(*one) for one in zip(self._open(), self._free(), strict=False)]
        return [*sends, self._arm(self._patience)] if sends else self._place()

    def started(self, cloud: int, index: int) -> list[PutAction]:
        """The request left the queue. The timer runs from the start of the last open one."""
        self._waiting.discard((index, cloud))
        self._in_line.discard(index)
        if self._done or any(index not in self._owner for index, _ in self._waiting):
            return []
        return [self._arm(self._timer)]

    def stuck(self, cloud: int, index: int) -> list[PutAction]:
        """The request waits behind others that are late: it need not be started for the timer to run."""
        if self._done or (index, cloud) not in self._waiting or index in self._owner:
            return []
        self._waiting.discard((index, cloud))
        self._in_line.discard(index)
        return [self._arm(self._timer)] if self._armed > self._timer else []

    def acked(self, cloud: int, index: int) -> list[PutAction]:
        """`cloud` holds share `index` durably."""
        if self._done or (index, cloud) not in self._flying:
            return []
        self._landed(cloud, index)
        self._reasons.pop(cloud, None)
        if self._fungible and index in self._owner:
            index = self._open()[0]
        # A cloud is sent a second share only when another one owns the first, so it never owns two.
        self._owner.setdefault(index, cloud)
        return self._cover() if self._open() else self._place()

    def failed(self, cloud: int, index: int, reason: str, *, passing: bool) -> list[PutAction]:
        """The request failed; `passing` says that trying again later may help."""
        if self._done or (index, cloud) not in self._flying:
            return []
        self._landed(cloud, index)
        self._reasons[cloud] = reason
        if not passing or self._attempts[cloud] >= _ATTEMPTS:
            self._dead.add(cloud)
        return self._cover()

    def timer_expired(self) -> list[PutAction]:
        """The usual latency is over: each open share goes to one more cloud."""
        if self._done:
            return []
        self._timer *= _BACKOFF
        self._patience -= self._armed
        if self._patience <= 0:
            self._in_line.clear()
        actions: list[PutAction] = []
        for index in self._open():
            cloud = None if index in self._in_line else self._helper(index, retry=True)
            if cloud is not None:
                actions.append(self._send(index, cloud))
        in_line = any(index in self._in_line for index in self._open())
        next_timer = min(self._timer, self._patience) if in_line else self._timer
        return [*actions, self._arm(next_timer)] if actions or self._hopeful() else self._fail()

    def give_up(self, reasons: Mapping[int, str]) -> list[PutAction]:
        """The caller waits no longer, for `reasons` by number of the clouds that owe an answer."""
        self._reasons.update(reasons)
        return [] if self._done else self._fail()

    def _place(self) -> list[PutAction]:
        self._done = True
        return [Placed(tuple(self._owner[i] for i in range(self._n)))]

    def _open(self) -> list[int]:
        return [index for index in range(self._n) if index not in self._owner]

    def _free(self) -> list[int]:
        used = set(self._owner.values())
        return [cloud for cloud in self._clouds if cloud not in used and cloud not in self._dead]

    def _cover(self) -> list[PutAction]:
        """Give each open share that no free cloud is working on to another one."""
        free = set(self._free())
        actions: list[PutAction] = []
        for index in self._open():
            if not any(i == index and cloud in free for i, cloud in self._flying):
                cloud = self._helper(index, retry=False)
                if cloud is not None:
                    actions.append(self._send(index, cloud))
        if actions or not self._hopeful():
            return actions or self._fail()
        if not any(index not in self._owner and cloud in free for index, cloud in self._flying):
            # Nothing is under way: a cloud that failed in passing is asked again soon.
            pause, self._pause = self._pause, self._pause * _BACKOFF
            return [self._arm(pause)]
        return []

    def _helper(self, index: int, *, retry: bool) -> int | None:
        """Return the best free cloud that can take a share, one that has not failed before first."""
        busy = {cloud for i, cloud in self._flying if self._fungible or i not in self._owner}
        able = [c for c in self._free() if c not in busy and (index, c) not in self._flying]
        fresh = [c for c in able if c not in self._reasons]
        return next(iter(fresh or (able if retry else ())), None)

    def _hopeful(self) -> bool:
        """Whether an answer is outstanding or a free cloud can be tried again."""
        free = self._free()
        return len(free) >= self._n - len(self._owner)

    def _send(self, index: int, cloud: int) -> Send:
        self._flying.add((index, cloud))
        self._waiting.add((index, cloud))
        self._attempts[cloud] += 1
        return Send(index, cloud)

    def _landed(self, cloud: int, index: int) -> None:
        self._flying.discard((index, cloud))
        self._waiting.discard((index, cloud))
        self._in_line.discard(index)

    def _arm(self, seconds: float) -> SetTimer:
        self._armed = seconds
        return SetTimer(seconds)

    def _fail(self) -> list[PutAction]:
        self._done = True
        used = set(self._owner.values())
        flying = self.flying
        reasons = {}
        for cloud in self._clouds:
            if cloud not in used:
                unknown = "has not answered" if cloud in flying else "was not tried: too few are left"
                reasons[cloud] = self._reasons.get(cloud, unknown)
        return [PutFailed(reasons)]
