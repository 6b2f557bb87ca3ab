"""What several threads ask of a service at the same time, as few requests.

The first thread makes a request, for itself and all that wait. Threads that come while it is under way wait,
and the first of them makes the next request. A thread that is alone waits for nobody. A second request is
made beside the first one when enough threads wait to fill it. It is also made when the first one has been
under way for a while and the service is far away. A service that is near is busy then, and small requests
would give it more to do.

When a request is answered, one thread is woken, which wakes the next one: were all woken at the same time,
they would fight for the interpreter with each other and with the next request. Until all of them are awake,
the next request is made only if it is full: they may ask again at once, and one large request costs the
service and this process less than two small ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from hybrisfs.environment import Environment
from hybrisfs.kv.service import OutcomeUnknownError

__all__ = ["Groups", "Waiting"]

_BESIDE: Final = 0.004  # seconds that a request is under way before a small one is made beside it
_FAR: Final = 0.004  # seconds that the quickest answers take
_FORGET: Final = 1.01  # the machine may go elsewhere
_MOST_BESIDE: Final = 8

A = TypeVar("A")
R = TypeVar("R")


class Waiting(Generic[A, R]):
    """What a thread has asked; `result` or `error` is set when it is answered."""

    __slots__ = ("after", "asked", "error", "is_gone", "leads", "result", "served", "turn")

    def __init__(self, asked: A) -> None:
        self.asked = asked
        self.result: R | None = None
        self.error: Exception | None = None
        self.served = False
        self.leads = False
        """Whether it is to make a request."""
        self.is_gone = False
        """Whether its thread was interrupted."""
        self.after: Waiting[A, R] | None = None
        """The one to be woken next, when it is served."""
        self.turn: SimpleQueue[None] = SimpleQueue()

    def answer(self, result: R) -> None:
        """Set the result."""
        self.result = result

    def refuse(self, error: Exception) -> None:
        """Set the error."""
        self.error = error

    @property
    def is_answered(self) -> bool:
        return self.result is not None or self.error is not None

    def wait(self) -> None:
        """Return when it was served, or leads."""
        self.turn.get()

    def wake(self) -> None:
        """Have its thread look what has become of it."""
        self.turn.put(None)


class Groups(Generic[A, R]):
    """Calls *serve* with what some of those that wait have asked. Thread-safe."""

    def __init__(
        self,
        enough: int,
        choose: Callable[[Sequence[A]], Sequence[int]],
        serve: Callable[[Sequence[Waiting[A, R]]], None],
        environment: Environment,
    ) -> None:
        """*enough* fill a request. *choose* tells which of those that wait go together, in order, the first
        of them included. *serve* answers or refuses each; what it raises is the error of those that it did
        not come to."""
        self._enough = enough
        self._choose = choose
        self._serve = serve
        self._monotonic = environment.monotonic
        self._begun = 0.0  # when the last request was made
        self._quickest = inf  # seconds that the quickest answer of late has taken
        self._lock = threading.Lock()
        self._waiting: list[Waiting[A, R]] = []
        self._leaders = 0
        self._waking = 0  # those that were served, whose threads have not gone on

    def do(self, asked: A) -> R:
        """Ask; return the result, or raise the error."""
        one: Waiting[A, R] = Waiting(asked)
        with self._lock:
            self._waiting.append(one)
            if self._has_room():
                self._leaders += 1
                one.leads = True
        try:
            while not one.served:
                if one.leads:
                    self._lead(one)
                else:
                    one.wait()
        except BaseException:
            self._leave(one)
            raise
        if one.after is not None:
            one.after.wake()
        with self._lock:
            self._return(one)
        if one.error is not None:
            raise one.error
        assert one.result is not None
        return one.result

    def _lead(self, one: Waiting[A, R]) -> None:
        group: list[Waiting[A, R]] = []
        try:
            with self._lock:
                self._begun = begun = self._monotonic()
                if self._waiting:  # another one may have taken all with it
                    group, self._waiting = self._chosen(self._waiting)
            if group:
                self._serve(group)
                with self._lock:
                    self._quickest = min(self._monotonic() - begun, self._quickest * _FORGET)
        except Exception as error:  # noqa: BLE001 - it is that of each of them
            _refuse(group, error)
        except BaseException:
            _refuse(
                group, OutcomeUnknownError("it is not known whether this took place", "it was interrupted")
            )
            raise
        finally:
            self._wake(group, one)

    def _chosen(self, waiting: list[Waiting[A, R]]) -> tuple[list[Waiting[A, R]], list[Waiting[A, R]]]:
        """Those that go together, and the others."""
        numbers = self._choose([one.asked for one in waiting])
        if numbers[-1] == len(numbers) - 1:  # as is usual
            return waiting[: len(numbers)], waiting[len(numbers) :]
        chosen = {*numbers}
        group = [one for number, one in enumerate(waiting) if number in chosen]
        return group, [one for number, one in enumerate(waiting) if number not in chosen]

    def _wake(self, group: Sequence[Waiting[A, R]], one: Waiting[A, R]) -> None:
        """All of a group were served, by this one, which leads no longer."""
        with self._lock:
            # Those that lead look by themselves when their request is answered.
            others = [other for other in group if not (other is one or other.leads or other.is_gone)]
            for other, after in pairwise(others):
                other.after = after
            for other in group:
                other.served = True
                self._waking += not other.is_gone
            self._pass_on(one)
        if others:
            others[0].wake()

    def _has_room(self) -> bool:
        """Whether those that wait may go now."""
        if self._leaders == 0:
            return self._waking == 0 or len(self._waiting) >= self._enough
        if self._leaders >= _MOST_BESIDE:
            return False
        is_late = self._quickest >= _FAR and self._monotonic() - self._begun >= _BESIDE
        return is_late or len(self._waiting) >= self._enough

    def _pass_on(self, one: Waiting[A, R]) -> None:
        """Have the first of those that wait lead in place of this one. That may be itself, when what it had
        asked did not fit into its request. The lock is held."""
        one.leads = False
        self._leaders -= 1
        self._appoint()

    def _appoint(self) -> None:
        """Have the first of those that wait lead, if they may go. The lock is held."""
        after = next((other for other in self._waiting if not other.leads), None)
        if after is not None and self._has_room():
            self._leaders += 1
            after.leads = True
            after.wake()

    def _return(self, one: Waiting[A, R]) -> None:
        """Its thread goes on, as it was served, or was interrupted. The lock is held."""
        self._waking -= one.served
        if one.leads:  # another one has taken it with it, before it came to lead
            self._pass_on(one)
        elif self._leaders == 0:
            self._appoint()

    def _leave(self, one: Waiting[A, R]) -> None:
        """Its thread was interrupted."""
        with self._lock:
            self._waiting = [other for other in self._waiting if other is not one]
            one.is_gone = True
            self._return(one)
        if one.after is not None:
            one.after.wake()


def _refuse(group: Sequence[Waiting[A, R]], error: Exception) -> None:
    for one in group:
        if not one.is_answered:
            one.refuse(error)
