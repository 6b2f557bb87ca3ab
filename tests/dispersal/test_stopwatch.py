"""Deadlines count the time in which nothing moves."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from backends import pacing
from hybrisfs.dispersal.clouds import DEADLINE, TIMER, OperationLoop, Operations
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.ranking import TimerBounds
from hybrisfs.dispersal.stopwatch import SLOWEST, Stopwatch, WatchedPacer
from hybrisfs.dispersal.throttle import Throttle
from hybrisfs.environment import SYSTEM, Environment
from tests.dispersal.fakes import CALM, Cluster, FakeClock, FakeStore, SteppingClock

PATIENCE = 30.0
TIMEOUT = 60.0
NAME = "object"


def test_a_transfer_that_moves_never_stands_still() -> None:
    clock = FakeClock()
    watch = Stopwatch(Environment(monotonic=clock))
    for total in range(1, 65):
        clock.now += 50
        watch.moved(0, total << 20)
    assert watch.standstill() == 0
    clock.now += 50
    assert watch.standstill() == 50
    for total in range(100, 200):
        clock.now += 50
        watch.moved(0, total << 20)
    assert watch.standstill() > 4000, "so much is not an object any more"


def test_a_trickle_is_a_standstill() -> None:
    clock = FakeClock()
    watch = Stopwatch(Environment(monotonic=clock))
    for total in range(1, 101):
        clock.now += 1
        watch.moved(0, total)
    assert watch.standstill() == pytest.approx(100, abs=0.1)
    watch.moved(0, 10 * SLOWEST)
    assert watch.standstill() == 90


def test_what_a_cloud_moves_once_more_is_no_progress() -> None:
    clock = FakeClock()
    watch = Stopwatch(Environment(monotonic=clock))
    for _ in range(10):
        clock.now += 10
        watch.moved(0, 100 * SLOWEST)
    assert watch.standstill() == 90
    watch.moved(1, SLOWEST)
    assert watch.standstill() == 0, "another cloud's bytes are new"


def test_it_begins_when_it_is_started_and_stands_still_with_its_clock() -> None:
    clock = FakeClock()
    watch = Stopwatch(Environment(monotonic=clock))
    clock.now += 7
    assert watch.standstill() == 7
    watch.start()
    with watch.standing():
        clock.now += 1000
    clock.now += 2
    assert watch.standstill() == 2


def test_a_pacer_tells_what_a_call_has_moved_both_ways() -> None:
    clock = FakeClock()
    call, operation = Stopwatch(Environment(monotonic=clock)), Stopwatch(Environment(monotonic=clock))
    pacer = WatchedPacer(Throttle(SYSTEM).pacer((call, operation)), 3, (call, operation))
    assert not pacer.limited
    assert not call.has_moved
    for move in (pacer.sending, pacer.received):
        clock.now += 40
        assert move(SLOWEST * 40) == 0.0
        assert call.standstill() == operation.standstill() == 0
    assert call.has_moved


def test_the_deadline_of_an_operation_moves_with_its_bytes() -> None:
    clock = FakeClock()
    with OperationLoop[str](Operations(Environment(monotonic=clock)), TIMEOUT) as loop:
        for total in range(1, 10):
            clock.now += TIMEOUT - 1
            assert loop.remaining() == 1
            loop.clock.moved(0, total << 20)
            assert loop.remaining() == TIMEOUT
            loop.set_timer(0)
            assert loop.wait() is TIMER
        clock.now += TIMEOUT
        assert loop.remaining() == 0
        assert loop.wait() is DEADLINE


_LOOKS = 5  # more than one decision takes


class LookedAt(FakeClock):
    """A clock that notices when the thread that made it, the caller of an operation, looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self._caller = threading.current_thread()
        self.looks = threading.Semaphore(0)
        self._over = False

    def __call__(self) -> float:
        if threading.current_thread() is self._caller:
            self.looks.release()
        return super().__call__()

    def await_look(self) -> None:
        """Wait until the caller has looked at the time as it is now."""
        while self.looks.acquire(blocking=False):
            pass
        if not self._over:
            for _ in range(_LOOKS):
                assert self.looks.acquire(timeout=PATIENCE)

    def end(self) -> None:
        """Nobody need wait any more."""
        self._over = True
        self.looks.release(_LOOKS)


SHORT = 0.02  # seconds of a made-up clock: the caller looks at it as often
PIECES = 6


class Slow(FakeStore):
    """Its objects come in so many pieces of `piece` bytes, each after most of the time that is allowed."""

    clock: LookedAt
    piece: int = 1 << 20

    def get(self, name: str, *, limit: int) -> bytes:
        data = super().get(name, limit=limit)
        for _ in range(PIECES):
            self.clock.now += 0.9 * SHORT
            pacing.received(self.piece)
            self.clock.await_look()
            if self.released.is_set():
                break
        return data

    def put(self, name: str, data: bytes | bytearray | memoryview) -> None:
        for _ in range(PIECES):
            self.clock.now += 0.9 * SHORT
            pacing.sending(self.piece)
            self.clock.await_look()
        super().put(name, data)


def slow_cluster(stall: float, kind: type[Slow] = Slow) -> Cluster:
    clock = LookedAt()
    timers = TimerBounds(shortest=1e6, longest=1e6, first_pause=0.001)
    timing = replace(CALM, put=SHORT, get=SHORT, stall=stall, timers=timers)
    cluster = Cluster(0, 1, 1, timing, kind=kind, clock=clock)
    for store in cluster.stores:
        assert isinstance(store, Slow)
        store.clock = clock
    return cluster


def test_an_operation_may_take_as_long_as_its_bytes_need() -> None:
    with slow_cluster(stall=1e6) as cluster:
        assert cluster.engine.put_object(NAME, b"data", 1) == (0,)
        assert cluster.engine.get_object(NAME, 10, bytes) == b"data"
        assert cluster.engine.check_object(0, NAME, 10, bytes) is None
        assert cluster.states() == {}


def test_a_cloud_that_trickles_holds_nobody_and_one_that_moves_is_not_accused() -> None:
    for stall, state in ((1e6, {}), (SHORT / 2, {"c0": "down"})):
        with slow_cluster(stall) as cluster:
            (store,) = cluster.stores
            assert isinstance(store, Slow)
            store.objects[NAME] = b"data"
            store.piece = 1
            with pytest.raises(CloudsUnavailable, match="had not ended after" if not state else "no answer"):
                cluster.engine.get_object(NAME, 10, bytes, (0,))
            assert cluster.states() == state
            store.released.set()
            store.clock.end()


class OneMoves(Slow):
    """What is called "moving" comes slowly; other objects hang, or come at once when `ready`."""

    ready = False

    def get(self, name: str, *, limit: int) -> bytes:
        if name == "moving":
            return super().get(name, limit=limit)
        self.behaviour = "ok" if self.ready else "hang"
        return FakeStore.get(self, name, limit=limit)


def test_a_request_may_wait_for_long_behind_transfers_that_go_on() -> None:
    with slow_cluster(1e6, OneMoves) as cluster:
        (store,) = cluster.stores
        assert isinstance(store, OneMoves)
        store.objects |= {"moving": b"moved", NAME: b"data"}
        hanging = [threading.Thread(target=_read(cluster)) for _ in range(5)]
        for thread in hanging:
            thread.start()
        assert all(store.hanging.acquire(timeout=PATIENCE) for _ in hanging)
        store.ready, store.behaviour = True, "ok"
        under_way = threading.Event()
        store.before_get = under_way.set
        moving = threading.Thread(target=cluster.engine.get_object, args=("moving", 10, bytes, (0,)))
        moving.start()
        assert under_way.wait(PATIENCE)
        assert cluster.engine.get_object(NAME, 10, bytes, (0,)) == b"data"
        for thread in (moving, *hanging):
            thread.join(PATIENCE)


def test_a_request_that_waits_for_its_turn_is_not_held_against_its_cloud() -> None:
    clock = SteppingClock()
    timing = replace(CALM, get=SHORT, close=SHORT)
    with Cluster(0, 1, 1, timing, clock=clock) as cluster:
        (store,) = cluster.stores
        store.objects[NAME] = b"data"
        cluster.behave("hang")
        threads = [threading.Thread(target=_read(cluster)) for _ in range(6)]
        for thread in threads:
            thread.start()
        assert all(store.hanging.acquire(timeout=PATIENCE) for _ in threads)
        clock.now += 1
        for thread in threads:
            thread.join(PATIENCE)
        failed = cluster.engine.health()[0].reason
        clock.step = SHORT / 10
        with pytest.raises(CloudsUnavailable, match="waited behind others"):
            cluster.engine.get_object(NAME, 10, bytes, (0,))
        assert cluster.engine.health()[0].reason == failed


def _read(cluster: Cluster) -> Callable[[], None]:
    def read() -> None:
        with pytest.raises(CloudsUnavailable, match="no answer within"):
            cluster.engine.get_object(NAME, 10, bytes, (0,))

    return read
