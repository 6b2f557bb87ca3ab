"""Holds: a list that others' writes keep from its end asks the writers of the container to wait (sans-IO).

A hold is an object on a quorum, under a name of the container's own. A writer lists these with its first
round, unless it did so less than `LOOK_SECONDS` ago, and waits until there are none; then it goes on with
what it has found.

Why a list then ends. When the hold is on a quorum and `LOOK_SECONDS` are over, each write that begins sees it
and waits. So only those that had begun before can still change what a list shows, each of them once: of as
many looks and two more, two that follow each other are the same.

Why nothing else rests on it. A list counts only if two looks were the same (`snapshot`), however they came to
be. A writer that waits is a slow one. So a hold that is not seen, or seen too late, costs a look and no more;
programs that know no holds may write beside those that do.

Writes stay wait-free: each waits for `_PAUSES` pauses at most, and then goes on in spite of the hold. Its
lister has died, or lists a very large container: that device takes no notice of this hold any more, and
deletes it. A cloud that lies cannot make holds (`names`). It can show them again when they were deleted; a
writer waits for those that more than b clouds show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from hybrisfs.environment import Environment
from hybrisfs.quorums.names import RegisterNames
from hybrisfs.quorums.rounds import Answer, Ask, Pause, Protocol, Round, RoundFailedError, Steps, Within, need
from hybrisfs.quorums.thresholds import Thresholds

__all__ = ["LOOK_SECONDS", "Holds"]

LOOK_SECONDS: Final = 2.0
"""For how long a device relies on what it has seen of the holds of a container."""
_PAUSES: Final = 20

T = TypeVar("T")


class Holds:
    """The holds of one container, as one device sees them. Thread-safe."""

    def __init__(
        self,
        names: RegisterNames,
        clouds: Sequence[int],
        thresholds: Thresholds,
        environment: Environment,
    ) -> None:
        self._names = names
        self._clouds = clouds
        self._thresholds = thresholds
        self._clock = environment.boot_time
        self._looked: float | None = None
        self._ignored: frozenset[int] = frozenset()

    def put(self, number: int) -> Protocol[None]:
        """Ask writers to wait."""
        yield [self._change(Ask(puts=((self._names.of_hold(number), b""),)))]

    def remove(self, numbers: frozenset[int]) -> Protocol[None]:
        """Let writers go on."""
        yield [self._change(Ask(deletes=tuple(map(self._names.of_hold, sorted(numbers)))))]

    def waiting(self, write: Protocol[T]) -> Protocol[T]:
        """A write that waits, after its first round, while there are holds."""
        steps = next(write)
        now = self._clock()
        is_fresh = self._looked is not None and now - self._looked < LOOK_SECONDS
        if is_fresh or isinstance(steps, Pause | Within):
            return (yield from _resumed(write, steps))
        *answers, found = yield [*steps, self._list()]
        yield from self._wait(self._seen(found))
        self._looked = now
        try:
            steps = write.send(answers)
        except StopIteration as end:
            result: T = end.value
            return result
        return (yield from _resumed(write, steps))

    def _wait(self, holds: frozenset[int]) -> Protocol[None]:
        for attempt in range(1, _PAUSES + 1):
            if not holds:
                return
            yield Pause(attempt)
            (found,) = yield [self._list()]
            holds = self._seen(found)
        self._ignored |= holds
        yield from self.remove(holds)

    def _list(self) -> Round:
        ask = Ask(prefix=self._names.prefix)
        return Round(dict.fromkeys(self._clouds, ask), need(self._thresholds.quorum))

    def _change(self, ask: Ask) -> Round:
        return Round(dict.fromkeys(self._clouds, ask), need(self._thresholds.quorum))

    def _seen(self, answers: Mapping[int, Answer]) -> frozenset[int]:
        shown = [self._names.read(answer.names).holds for answer in answers.values()]
        found = frozenset[int]().union(*shown) - self._ignored
        return frozenset(one for one in found if sum(one in some for some in shown) > self._thresholds.b)


def _resumed(protocol: Protocol[T], steps: Steps) -> Protocol[T]:
    """The rest of a protocol that has yielded *steps*."""
    while True:
        try:
            go_on: Callable[[], Steps] = partial(protocol.send, (yield steps))
        except RoundFailedError as error:
            go_on = partial(protocol.throw, error)
        try:
            steps = go_on()
        except StopIteration as end:
            result: T = end.value
            return result
