"""One cloud: what its answers tell about it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from backends import pacing
from backends.registry import open_store
from backends.store import Store, StoreWrapper, takes_many
from hybrisfs.dispersal.cloud import Answer, Cloud, CloudPort
from hybrisfs.dispersal.clouds import TIMER, OperationLoop, Operations
from hybrisfs.dispersal.ranking import Operation, Ranking, TimerBounds, Timing
from hybrisfs.dispersal.stopwatch import SLOWEST, Stopwatch
from hybrisfs.dispersal.throttle import Throttle
from hybrisfs.environment import SYSTEM, Environment
from tests.dispersal.fakes import FakeClock, FakeStore

PATIENCE = 30.0
SMALLEST, SMALL, LARGE = 1, 100_000, 8 << 20


class Recorded(Ranking):
    """Remembers of what size its observations are."""

    def __init__(self) -> None:
        super().__init__(TimerBounds(), Environment(monotonic=lambda: 0.0))
        self.sizes: list[int] = []

    def observe(self, cloud: int, operation: Operation, size: int, seconds: float) -> None:
        self.sizes.append(size)


@contextmanager
def opened(
    ranking: Ranking, timers: Callable[[], float] = time.monotonic, store: FakeStore | None = None
) -> Iterator[CloudPort]:
    port = CloudPort(
        Cloud(0, "cloud", store or FakeStore(0)),
        ranking,
        threading.Lock(),
        Throttle(SYSTEM),
        Timing(stall=PATIENCE),
        Environment(monotonic=timers),
    )
    try:
        yield port
    finally:
        port.stop()
        port.close(PATIENCE)


def ask(port: CloudPort, size: int, call: Callable[[Store], bytes]) -> threading.Event:
    """Submit a read; the event is set when it has been answered."""
    over = threading.Event()

    def report(_: Answer[bytes]) -> None:
        over.set()

    port.submit("get", size, call, report, clock=Stopwatch(SYSTEM))
    return over


def test_a_read_beside_another_one_tells_of_what_the_line_carried_for_both() -> None:
    ranking = Recorded()
    begun, moved = threading.Event(), threading.Event()

    def small(_: Store) -> bytes:
        begun.set()
        assert moved.wait(PATIENCE)
        pacing.received(SMALL)
        return b""

    def large(_: Store) -> bytes:
        pacing.received(LARGE)
        moved.set()
        return b""

    with opened(ranking) as port:
        first = ask(port, SMALL, small)
        assert begun.wait(PATIENCE)
        assert ask(port, LARGE, large).wait(PATIENCE) and first.wait(PATIENCE)
        assert ask(port, SMALL, lambda _: b"").wait(PATIENCE)
    *beside, alone = ranking.sizes
    assert SMALL + LARGE in beside and SMALL not in beside
    assert alone == SMALL


def test_a_call_that_has_been_answered_is_under_way_no_more() -> None:
    """Whoever has the answer to a put may delete the object at once."""
    ended = SimpleQueue[set[str]]()
    with opened(Recorded()) as port:
        port.submit(
            "put",
            SMALL,
            lambda store: store.put("name", b""),
            lambda _: ended.put(port.under_way()),
            clock=Stopwatch(SYSTEM),
            key="name",
        )
        assert ended.get(timeout=PATIENCE) == set()


def test_a_call_that_moves_does_not_stall_and_a_trickle_does() -> None:
    clock = FakeClock()
    seen = SimpleQueue[str | None]()

    def slow(_: Store) -> bytes:
        for count in [int(SLOWEST * PATIENCE)] * 10 + [1] * 10:
            clock.now += PATIENCE - 1
            pacing.received(count)
            seen.put(port.stalled())
        return b""

    with opened(Recorded(), clock) as port:
        assert ask(port, LARGE, slow).wait(PATIENCE)
        assert port.stalled() is None
    states = [seen.get_nowait() for _ in range(20)]
    assert states[:10] == [None] * 10
    assert states[-1] is not None


def test_a_transfer_that_goes_on_is_not_late_for_those_behind_it() -> None:
    clock = FakeClock()
    told: list[str] = []
    begun, go, moved, end = (threading.Event() for _ in range(4))

    def slow(_: Store) -> None:
        begun.set()
        assert go.wait(PATIENCE)
        pacing.sending(LARGE)
        moved.set()
        assert end.wait(PATIENCE)

    def come(name: str) -> None:
        over = threading.Event()
        port.submit(
            "put",
            SMALL,
            lambda store: store.put(name, b""),
            lambda _: over.set(),
            clock=Stopwatch(SYSTEM),
            stuck=lambda: told.append(name),
        )
        assert over.wait(PATIENCE)

    with (
        opened(Recorded(), clock) as port,
        OperationLoop[str](Operations(Environment(monotonic=clock)), 1e6) as loop,
    ):
        loop.track(port, port.submit("put", LARGE, slow, lambda _: None, clock=loop.clock))
        assert begun.wait(PATIENCE)
        loop.set_timer(10)
        clock.now += 6
        go.set()
        assert moved.wait(PATIENCE)
        clock.now += 4
        assert loop.wait() is TIMER
        come("while it goes on")
        loop.set_timer(10)
        clock.now += 10
        assert loop.wait() is TIMER
        come("while it hangs")
        end.set()
    assert told == ["while it hangs"]


class Bucket(FakeStore):
    many = True


@pytest.mark.parametrize(("kind", "most"), [(FakeStore, 6), (Bucket, 16)])
def test_a_service_of_buckets_gets_more_small_calls_at_a_time(kind: type[FakeStore], most: int) -> None:
    store = kind(0)
    store.behaviour = "hang"
    with opened(Recorded(), store=store) as port:
        over = [ask(port, SMALLEST, lambda store: store.get("name", limit=1)) for _ in range(20)]
        assert all(store.hanging.acquire(timeout=PATIENCE) for _ in range(most))
        assert not store.hanging.acquire(blocking=False)
        store.released.set()
        assert all(one.wait(PATIENCE) for one in over)


@pytest.mark.parametrize(("url", "many"), [("s3://bucket", True), ("sftp://me@host/folder", False)])
def test_a_wrapped_driver_takes_as_many(url: str, many: bool) -> None:
    assert takes_many(StoreWrapper(open_store(url))) is many
