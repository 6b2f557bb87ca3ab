"""How many packs are sent at a time: as many as keep the line busy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from hybrisfs.dispersal.writer import PackTurns
from hybrisfs.environment import Environment
from tests.dispersal.fakes import FakeClock

PATIENCE = 30.0
SIZE = 8 << 20
SLOW, FAST = 16.0, 0.1  # seconds that the line takes for a pack


class Sender:
    """Waits in a thread of its own until a pack may be sent, and sends it until it is told to end."""

    def __init__(self, turns: PackTurns) -> None:
        self._turns = turns
        self.begun, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        with self._turns.turn(SIZE):
            self.begun.set()
            self._ended.wait(PATIENCE)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(PATIENCE)


class Rig:
    """A clock that moves when told to, and what those wait for who have to."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.turns = PackTurns(Environment(monotonic=self.clock, wait=self._wait))
        self._seconds: list[float | None] = []
        self._waiting = threading.Semaphore(0)
        self._condition = threading.Condition()
        self._senders: list[Sender] = []

    def _wait(
        self, condition: threading.Condition, predicate: Callable[[], bool], seconds: float | None
    ) -> bool:
        self._condition = condition
        self._seconds.append(seconds)
        self._waiting.release()
        return condition.wait_for(predicate, PATIENCE)  # or until `passes`

    def sent(self, seconds: float) -> None:
        """A pack is sent, and nothing else."""
        with self.turns.turn(SIZE):
            self.clock.now += seconds

    def held(self) -> tuple[Sender, float | None]:
        """A pack that has to wait, and for how many seconds; None: until another one begins or ends."""
        sender = Sender(self.turns)
        self._senders.append(sender)
        assert self._waiting.acquire(timeout=PATIENCE)
        assert not sender.begun.is_set()
        return sender, self._seconds[-1]

    def passes(self, seconds: float) -> None:
        self.clock.now += seconds
        with self._condition:
            self._condition.notify_all()

    def close(self) -> None:
        for sender in self._senders:
            sender.end()


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


def test_nothing_is_sent_beside_the_first_pack(rig: Rig) -> None:
    with rig.turns.turn(SIZE):
        sender, seconds = rig.held()
        assert seconds is None
    assert sender.begun.wait(PATIENCE)


def test_on_a_slow_line_packs_are_sent_one_after_the_other(rig: Rig) -> None:
    rig.sent(SLOW)
    with rig.turns.turn(SIZE):
        sender, seconds = rig.held()
        assert seconds == pytest.approx(SLOW - 1)
        rig.passes(SLOW - 2)
        assert not sender.begun.is_set()
        rig.passes(1)
        assert sender.begun.wait(PATIENCE)


def test_on_a_fast_line_several_are_sent_at_a_time(rig: Rig) -> None:
    rig.sent(FAST)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(rig.turns.turn(SIZE))
        sender, seconds = rig.held()
        assert seconds is None
    assert sender.begun.wait(PATIENCE)


def test_packs_that_were_sent_side_by_side_tell_the_speed_of_the_line(rig: Rig) -> None:
    rig.sent(FAST)
    with rig.turns.turn(SIZE), rig.turns.turn(SIZE), rig.turns.turn(SIZE):
        rig.clock.now += 3 * SLOW
    with rig.turns.turn(SIZE):
        _, seconds = rig.held()
        assert seconds == pytest.approx((FAST + 3 * SLOW) / 4 - 1)


def test_beside_a_pack_that_is_late_none_begins(rig: Rig) -> None:
    """The line may have become slower."""
    rig.sent(SLOW)
    with rig.turns.turn(SIZE):
        rig.clock.now += 2 * SLOW
        sender, seconds = rig.held()
        assert seconds is None
    assert sender.begun.wait(PATIENCE)


def test_small_packs_wait_for_no_line(rig: Rig) -> None:
    with rig.turns.turn(SIZE):
        rig.held()
        with rig.turns.turn(1000), rig.turns.turn(1000):
            pass


def test_packs_begin_in_the_order_in_which_they_came(rig: Rig) -> None:
    with rig.turns.turn(SIZE):
        (first, _), (second, _) = rig.held(), rig.held()
        rig.passes(SLOW)
    assert first.begun.wait(PATIENCE)
    assert not second.begun.is_set()
    first.end()
    assert second.begun.wait(PATIENCE)


def test_a_pack_that_was_not_stored_tells_nothing_of_the_line(rig: Rig) -> None:
    with pytest.raises(OSError), rig.turns.turn(SIZE):
        rig.clock.now += FAST
        raise OSError
    with rig.turns.turn(SIZE):
        assert rig.held()[1] is None
