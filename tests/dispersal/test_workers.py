from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from hybrisfs.dispersal.stopwatch import Stopwatch
from hybrisfs.dispersal.workers import CloudWorkers, Job, WorkerLimits
from hybrisfs.environment import SYSTEM
from tests.surroundings import limited

WAIT = 10.0  # seconds until a test that cannot succeed any more fails


class Gate:
    """A call that reports its start and then waits to be opened."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()
        self.ended = threading.Event()

    def __call__(self) -> Callable[[], None]:
        self.begun.set()
        assert self.opened.wait(WAIT)
        self.ended.set()
        return lambda: None


def job(gate: Gate, *, writes: bool = False, small: bool = False, key: str | None = None) -> Job:
    return Job(gate, Stopwatch(SYSTEM), writes=writes, small=small, key=key)


def test_runs_so_many_at_a_time_and_the_rest_in_order() -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=2, reserved=0)))
    gates = [Gate() for _ in range(4)]
    for gate in gates:
        assert workers.submit(job(gate))
    assert all(gate.begun.wait(WAIT) for gate in gates[:2])
    assert not gates[2].begun.is_set()
    gates[0].opened.set()
    assert gates[2].begun.wait(WAIT)
    assert not gates[3].begun.is_set()
    for gate in gates:
        gate.opened.set()
    assert gates[3].ended.wait(WAIT)
    assert workers.close(WAIT)


def test_calls_submitted_at_once_run_at_once_although_a_thread_is_idle() -> None:
    for _ in range(20):
        workers = CloudWorkers("c", limited(WorkerLimits(threads=2, reserved=0)))
        first, second, third = Gate(), Gate(), Gate()
        first.opened.set()
        workers.submit(job(first))
        while workers.standstill() is not None or not first.ended.is_set():
            first.ended.wait(WAIT)
        workers.submit(job(second))
        workers.submit(job(third))
        assert second.begun.wait(WAIT)
        assert third.begun.wait(WAIT)
        second.opened.set()
        third.opened.set()
        assert workers.close(WAIT)


def test_says_how_much_the_reads_that_wait_will_move() -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=1, reserved=0)))
    running, waiting, writing, ended = Gate(), Gate(), Gate(), Gate()
    for gate, size, writes in (
        (running, 1, False),
        (waiting, 2, False),
        (writing, 4, True),
        (ended, 8, False),
    ):
        one = Job(gate, Stopwatch(SYSTEM), writes=writes, size=size)
        workers.submit(one)
        assert running.begun.wait(WAIT)
    assert workers.awaited() == 2 + 8
    workers.cancel(one)
    assert workers.awaited() == 2
    for gate in (running, waiting, writing):
        gate.opened.set()
    assert writing.ended.wait(WAIT)
    assert workers.awaited() == 0
    assert workers.close(WAIT)


def test_writes_leave_threads_for_reads() -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=3, reserved=1)))
    writes = [Gate() for _ in range(3)]
    for gate in writes:
        workers.submit(job(gate, writes=True))
    read = Gate()
    workers.submit(job(read))
    assert read.begun.wait(WAIT)
    assert all(gate.begun.wait(WAIT) for gate in writes[:2])
    assert not writes[2].begun.is_set()
    for gate in (*writes, read):
        gate.opened.set()
    assert writes[2].ended.wait(WAIT)
    workers.close(WAIT)


def test_small_calls_run_beside_the_others() -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=3, reserved=1)), more=2)
    small, large = [Gate() for _ in range(5)], [Gate() for _ in range(3)]
    for gate in small:
        workers.submit(job(gate, writes=True, small=True))
    assert all(gate.begun.wait(WAIT) for gate in small[:4]), "two writers, and two more"
    for gate in large:
        workers.submit(job(gate, writes=True))
    read = Gate()
    workers.submit(job(read))
    assert read.begun.wait(WAIT)
    assert not any(gate.begun.is_set() for gate in (small[4], *large)), "the last thread is for reads"
    for gate in (*small, read):
        gate.opened.set()
    assert all(gate.begun.wait(WAIT) for gate in large[:2])
    assert small[4].ended.wait(WAIT)
    assert not large[2].begun.is_set(), "it is not a small one"
    for gate in large:
        gate.opened.set()
    assert large[2].ended.wait(WAIT)
    assert workers.close(WAIT)


def test_calls_with_one_key_run_one_after_the_other() -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=3, reserved=0)))
    first, second, other = Gate(), Gate(), Gate()
    workers.submit(job(first, writes=True, key="head"))
    workers.submit(job(second, writes=True, key="head"))
    workers.submit(job(other, writes=True, key="tail"))
    assert first.begun.wait(WAIT)
    assert other.begun.wait(WAIT)
    assert not second.begun.is_set()
    first.opened.set()
    assert second.begun.wait(WAIT)
    second.opened.set()
    other.opened.set()
    workers.close(WAIT)


def test_a_newer_call_replaces_a_waiting_one_that_nobody_waits_for() -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=2, reserved=0)))
    first, stale, wanted, last = Gate(), Gate(), Gate(), Gate()
    workers.submit(job(first, key="head"))
    assert first.begun.wait(WAIT)
    detached = job(stale, key="head")
    workers.submit(detached)
    workers.detach(detached)
    workers.submit(job(wanted, key="head"))
    workers.submit(job(last, key="head"))
    for gate in (first, wanted, last):
        gate.opened.set()
    assert last.ended.wait(WAIT)
    assert wanted.ended.is_set()
    assert not stale.begun.is_set()
    workers.close(WAIT)


def test_cancelled_calls_never_begin() -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=1, reserved=0)))
    running, cancelled, last = Gate(), Gate(), Gate()
    workers.submit(job(running))
    assert running.begun.wait(WAIT)
    waiting = job(cancelled)
    workers.submit(waiting)
    workers.submit(job(last))
    workers.cancel(waiting)
    running.opened.set()
    last.opened.set()
    assert last.ended.wait(WAIT)
    assert not cancelled.begun.is_set()
    workers.close(WAIT)


def test_backlog_is_bounded() -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=1, reserved=0, backlog=2)))
    running = Gate()
    workers.submit(job(running))
    assert running.begun.wait(WAIT)
    assert workers.submit(job(Gate()))
    assert workers.submit(job(Gate()))
    assert not workers.submit(job(Gate()))
    workers.stop()
    running.opened.set()
    assert workers.close(WAIT)


def test_close_abandons_what_hangs_and_takes_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=1, reserved=0)))
    hanging, waiting = Gate(), Gate()
    workers.submit(job(hanging))
    assert hanging.begun.wait(WAIT)
    workers.submit(job(waiting))
    assert not workers.close(0.01)
    assert "abandoned" in caplog.text
    assert not workers.submit(job(Gate()))
    hanging.opened.set()
    assert workers.close(WAIT)
    assert not waiting.begun.is_set()


def test_standstill_of_the_call_that_hangs_for_longest() -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=1, reserved=0)))
    assert workers.standstill() is None
    gate = Gate()
    workers.submit(job(gate))
    assert gate.begun.wait(WAIT)
    first = workers.standstill()
    second = workers.standstill()
    assert first is not None
    assert second is not None
    assert 0 <= first <= second
    gate.opened.set()
    assert workers.close(WAIT)
    assert workers.standstill() is None


def test_those_that_wait_or_come_while_a_call_is_late_are_told() -> None:
    workers = CloudWorkers("c", limited(WorkerLimits(threads=1, reserved=0)))
    told: list[str] = []

    def waiting(name: str) -> Job:
        gate = Gate()
        gate.opened.set()
        return Job(gate, Stopwatch(SYSTEM), stuck=lambda: told.append(name))

    gate, last = Gate(), Gate()
    late, other = job(gate), waiting("before")
    workers.mark_late(late)
    workers.submit(late)
    assert gate.begun.wait(WAIT)
    workers.submit(other)
    workers.submit(job(Gate()))
    assert told == [], "it was not running yet"
    workers.mark_late(late)
    workers.mark_late(late)
    workers.mark_late(other)
    assert told == ["before"]
    workers.submit(waiting("after"))
    assert told == ["before", "after"]
    workers.stop()
    gate.opened.set()
    assert workers.close(WAIT)
    workers = CloudWorkers("c", limited(WorkerLimits(threads=1, reserved=0)))
    workers.submit(job(last))
    workers.submit(waiting("behind one that is in time"))
    assert told == ["before", "after"]
    last.opened.set()
    workers.close(WAIT)
