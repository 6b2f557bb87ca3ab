"""Limits on the bandwidth: what is held back does not make a cloud look slow."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from unittest import mock

from backends import pacing
from backends.store import Buffer
from hybrisfs.dispersal.clouds import DEADLINE, TIMER, OperationLoop, Operations
from hybrisfs.dispersal.throttle import StandingClock, Throttle
from hybrisfs.environment import SYSTEM, Environment
from tests.dispersal.fakes import CALM, Cluster, FakeClock, FakeStore

PATIENCE = 30.0
HELD = 1000.0  # seconds that each transfer is held back


def test_a_clock_stands_still_while_anything_is_held_back() -> None:
    fake = FakeClock()
    clock = StandingClock(Environment(monotonic=fake))
    began = clock()
    fake.now += 1
    with clock.standing():
        fake.now += 10
        with clock.standing():
            fake.now += 10
        fake.now += 10
        assert clock() - began == 1
    fake.now += 2
    assert clock() - began == 3


def test_timers_and_deadlines_do_not_count_what_is_held_back() -> None:
    clock = FakeClock()
    with OperationLoop[str](Operations(Environment(monotonic=clock)), 60.0) as loop:
        loop.set_timer(10.0)
        with loop.clock.standing():
            clock.now += HELD
            assert loop.remaining() == 60.0
            loop.report("event")
            assert loop.wait() == "event"
        clock.now += 10
        assert loop.wait() is TIMER
        clock.now += 50
        assert loop.wait() is DEADLINE


def test_what_is_held_back_goes_on_at_a_new_rate_at_once() -> None:
    """A person lifts the limit because all waits."""
    throttle = Throttle(SYSTEM)
    throttle.set_rates(up=1, down=None)
    held = threading.Event()

    class Clock(StandingClock):
        @contextmanager
        def standing(self) -> Iterator[None]:
            with super().standing():
                held.set()
                yield

    pacer = throttle.pacer([Clock(SYSTEM)])
    assert pacer.sending(1 << 20) == 0.0
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(pacer.sending, 1 << 20)
        assert held.wait(PATIENCE)
        throttle.set_rates(up=50 << 20, down=None)
        assert sending.result(PATIENCE) < PATIENCE


class _PacedStore(FakeStore):
    def put(self, name: str, data: Buffer) -> None:
        pacing.sending(len(data))
        super().put(name, data)


class _Holding:
    """A pacer that holds each piece for HELD seconds of a made-up clock."""

    limited = True

    def __init__(self, clock: FakeClock, clocks: Sequence[StandingClock]) -> None:
        self._clock = clock
        self._clocks = clocks

    def sending(self, count: int) -> float:
        with ExitStack() as stack:
            for one in self._clocks:
                stack.enter_context(one.standing())
            self._clock.now += HELD
        return HELD

    def received(self, count: int) -> float:
        return self.sending(count)


def test_a_cloud_whose_transfers_are_held_back_is_not_slow() -> None:
    clock = FakeClock()
    with (
        mock.patch.object(Throttle, "pacer", lambda _, clocks: _Holding(clock, clocks)),
        Cluster(f=1, k=1, size=3, timing=CALM, kind=_PacedStore, clock=clock) as cluster,
    ):
        for number in range(5):
            assert len(cluster.engine.put_object(f"object-{number}", b"data", 2)) == 2
        assert cluster.states() == {}
        estimates = cluster.engine._clouds._ranking._estimates
        assert {estimate.usual for estimate in estimates.values()} == {0.0}


def test_all_calls_share_the_rate_and_go_on_when_it_is_lifted() -> None:
    throttle = Throttle(SYSTEM)
    throttle.set_rates(8192, None)
    pacers = [throttle.pacer(()) for _ in range(4)]
    held = threading.Semaphore(0)

    def send(pacer: pacing.Pacer) -> None:
        with pacing.paced(pacer):
            pacing.sending(1 << 30)  # more than a day's worth
            pacing.sending(1)
            held.release()

    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(send, pacer) for pacer in pacers]
        with pacing.paced(pacers[0]):
            assert pacing.received(1 << 40) == 0.0  # the other direction is free
        throttle.set_rates(None, None)
        for one in sent:
            one.result(PATIENCE)
    throttle.set_rates(8192, 8192)
    throttle.close()
    throttle.set_rates(8192, 8192)
    with pacing.paced(throttle.pacer(())):
        pacing.sending(1 << 30)
        pacing.sending(1 << 30)  # nothing holds it back while the engine is being closed
