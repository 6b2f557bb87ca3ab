"""GET of Hybris 3.3 and 3.5 for a k-of-n code, as a sans-IO state machine.

Common case: ask the k best clouds that hold a share; when the timer expires, or one fails or lies, ask the
next. When those are used up it is the worst case: all that have not delivered are asked again in
parallel, a bounded number of rounds. Every rebuilt value is verified before it counts.

Who has not answered by an expiry is *late*: it may still deliver, but nobody counts on it. When nothing is
known to have been stored and so many deny it that its absence is believed, those that are late are not waited
for: a cloud that hangs must not hold up who only wants to hear that there is nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TypeAlias

from msgspec import Struct

from hybrisfs.dispersal.put import SetTimer

__all__ = ["Fetch", "GetAction", "GetFailed", "GetMachine", "Verify"]

_BACKOFF = 2.0


class Fetch(Struct, frozen=True):
    """Get the fragments from the cloud at position `index`; report `arrived` or `failed`."""

    index: int


class Verify(Struct, frozen=True):
    """Rebuild from the fragments of these k positions; the operation is over, or report `rejected`."""

    indices: tuple[int, ...]


class GetFailed(Struct, frozen=True):
    """Given up: why, by position."""

    reasons: dict[int, str]


GetAction: TypeAlias = Fetch | Verify | SetTimer | GetFailed


class GetMachine:
    """One GET that needs `k` of the positions in `order`, best first.

    `timer` is the usual latency in seconds, `rounds` the number of worst-case rounds, `pause` the wait in
    seconds before the first of them. `eager`: the common case has failed before, so begin with the worst.
    `absent` is how many positions have to deny that there is anything for that to be believed.
    """

    def __init__(
        self,
        k: int,
        order: Sequence[int],
        *,
        timer: float,
        rounds: int = 2,
        pause: float = 0.2,
        eager: bool = False,
        absent: int | None = None,
    ) -> None:
        if len(set(order)) != len(order):
            raise ValueError("a position is listed twice")
        self._k = k
        self._order = tuple(order)
        self._timer = timer
        self._pause = pause
        self._first = len(self._order) if eager else k
        self._next = 0  # position in `order` of the first one not asked yet
        self._flying: set[int] = set()
        self._late: set[int] = set()  # of these, those that an expiry found unanswered
        self._absent = absent
        self._denied: set[int] = set()
        self._arrived: list[int] = []  # delivered and not found wrong, in order of arrival
        self._reasons: dict[int, str] = {}
        self._rounds = rounds
        self._pausing = False
        self._done = False

    @property
    def flying(self) -> frozenset[int]:
        """The positions that owe an answer."""
        return frozenset(self._flying)

    def start(self) -> list[GetAction]:
        """Begin: ask the k best, or all."""
        if len(self._order) < self._k:
            return self._fail()
        return [*self._ask(self._first), SetTimer(self._timer)]

    def arrived(self, index: int) -> list[GetAction]:
        """The fragments of a position are here, complete but unverified."""
        if self._done or index not in self._flying:
            return []
        self._landed(index)
        self._denied.discard(index)
        self._reasons.pop(index, None)
        self._arrived.append(index)
        return self._advance()

    def failed(self, index: int, reason: str, *, denied: bool = False) -> list[GetAction]:
        """A position did not deliver; `denied`: because there is nothing, it says."""
        if self._done or index not in self._flying:
            return []
        self._landed(index)
        self._reasons[index] = reason
        if denied:
            self._denied.add(index)
        return self._advance()

    def rejected(self, wrong: Set[int], reason: str) -> list[GetAction]:
        """What was rebuilt is not what was asked for; the fragments of `wrong` are to blame."""
        if self._done:
            return []
        if not wrong:
            raise ValueError("a rejection blames somebody")
        self._arrived = [index for index in self._arrived if index not in wrong]
        self._reasons.update(dict.fromkeys(wrong, reason))
        return self._advance()

    def timer_expired(self) -> list[GetAction]:
        """No answer in the usual time: ask one more for each that is missing."""
        if self._done:
            return []
        if self._pausing:
            self._pausing = False
            again = [i for i in self._order if i not in self._flying and i not in self._arrived]
            self._flying.update(again)
            self._denied.difference_update(again)
            return [*map(Fetch, again), SetTimer(self._timer)]
        self._timer *= _BACKOFF
        self._late |= self._flying
        more = self._ask(self._k - len(self._arrived))
        if more or self._flying_only():
            return [*more, SetTimer(self._timer)]
        return self._worst_case()

    def give_up(self, reasons: Mapping[int, str]) -> list[GetAction]:
        """The caller waits no longer, for `reasons` by position of those that owe an answer."""
        self._reasons.update(reasons)
        return [] if self._done else self._fail()

    def _advance(self) -> list[GetAction]:
        if len(self._arrived) >= self._k:
            return [Verify(tuple(self._arrived[: self._k]))]
        if self._pausing:
            return []
        missing = self._k - len(self._arrived) - len(self._flying)
        more = self._ask(missing + len(self._late))
        if len(more) < missing or (not more and self._is_denied()):
            return [*more, *self._worst_case()]
        return [*more, SetTimer(self._timer)] if more else []

    def _ask(self, count: int) -> list[GetAction]:
        chosen = self._order[self._next : self._next + max(count, 0)]
        self._next += len(chosen)
        self._flying.update(chosen)
        return [Fetch(index) for index in chosen]

    def _landed(self, index: int) -> None:
        self._flying.discard(index)
        self._late.discard(index)

    def _is_denied(self) -> bool:
        """Whether so many deny it that those which are late need not be waited for."""
        return self._absent is not None and len(self._denied) >= self._absent and self._flying == self._late

    def _flying_only(self) -> bool:
        """Whether nobody can be asked again: all that did not deliver still owe an answer."""
        return all(index in self._flying or index in self._arrived for index in self._order)

    def _worst_case(self) -> list[GetAction]:
        if self._rounds:
            self._rounds -= 1
            self._pausing = True
            pause, self._pause = self._pause, self._pause * _BACKOFF
            return [SetTimer(pause)]
        if self._is_denied() or not self._flying or len(self._flying) + len(self._arrived) < self._k:
            return self._fail()
        return []

    def _fail(self) -> list[GetAction]:
        self._done = True
        missing = [index for index in self._order if index not in self._arrived]
        return [GetFailed({index: self._reasons.get(index, "has not answered") for index in missing})]
