"""How the loop waits for requests, and where it runs."""

from __future__ import annotations

import errno
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hybrisfs.fuse.callers_cpu import CallersCpu, LinuxScheduler
from hybrisfs.fuse.loop import Patience
from tests.fuse.server import Server

CALLER = 4711


@dataclass
class Machine:
    """A clock, the CPU of the loop and that of the caller."""

    here: int = 0
    there: int | None = 1
    now: float = 0.0
    sends_for: float = 0.0
    is_idle: bool = False
    refuses: bool = False
    forbidden: set[int] = field(default_factory=set)
    looks: int = 0

    def cpu(self) -> int:
        return self.here

    def cpu_of(self, thread: int) -> int | None:
        assert thread == CALLER
        self.looks += 1
        return self.there

    def move(self, cpu: int) -> None:
        if cpu in self.forbidden:
            raise OSError
        self.here = cpu

    def set_idle(self) -> None:
        if self.refuses:
            raise PermissionError(errno.EPERM, "not permitted")
        assert not self.is_idle
        self.is_idle = True

    def set_normal(self) -> None:
        assert self.is_idle
        self.is_idle = False
        self.now += self.sends_for

    def clock(self) -> float:
        self.now += 1e-6
        return self.now


def looks(patience: Patience) -> int:
    """How many looks in vain it allows for."""
    count = 0
    while patience.may_look():
        count += 1
    return count


def test_it_looks_ever_less_often_while_that_is_in_vain() -> None:
    patience = Patience(100, Machine().clock)
    patience.slept(in_vain=False)
    seen = []
    for _ in range(6):
        seen.append(looks(patience))
        patience.slept(in_vain=True)
    assert seen == [100, 50, 25, 12, 8, 8]


def test_it_looks_more_often_once_a_look_has_found_a_request() -> None:
    patience = Patience(100, Machine().clock)
    for _ in range(6):
        patience.slept(in_vain=True)
    assert patience.may_look()
    patience.found()
    assert looks(patience) == 16


def test_to_sleep_without_a_look_changes_nothing() -> None:
    patience = Patience(100, Machine().clock)
    patience.slept(in_vain=False)
    patience.slept(in_vain=False)
    assert looks(patience) == 100


def test_it_rests_from_looking_when_that_took_long() -> None:
    machine = Machine()
    patience = Patience(100, machine.clock)
    patience.slept(in_vain=False)
    assert patience.may_look()
    machine.now += 0.002
    patience.found()
    assert looks(patience) == 0
    patience.slept(in_vain=True)
    machine.now += 1.0
    assert looks(patience) == 50


def test_it_rests_when_the_last_look_came_late() -> None:
    machine = Machine()
    patience = Patience(1, machine.clock)
    patience.slept(in_vain=False)
    assert patience.may_look()
    machine.now += 0.002
    assert not patience.may_look()
    patience.slept(in_vain=False)
    assert looks(patience) == 0


def test_it_always_sleeps_where_that_is_wanted() -> None:
    patience = Patience(0, Machine().clock)
    patience.found()
    patience.slept(in_vain=True)
    assert looks(patience) == 0


def serve(cpu: CallersCpu, requests: int = 16, caller: int = CALLER) -> None:
    """Answer some requests."""
    for _ in range(requests):
        cpu.asked(caller)
        cpu.begin_to_send()
        cpu.end_sending()


def test_the_loop_moves_to_its_caller_and_gives_way_while_it_answers() -> None:
    machine = Machine()
    cpu = CallersCpu(machine, machine.clock)
    serve(cpu, 15)
    assert (machine.here, cpu.is_shared) == (0, False)
    serve(cpu, 1)
    assert (machine.here, cpu.is_shared, machine.looks) == (1, True, 1)
    cpu.begin_to_send()
    cpu.begin_to_send()  # a handler that answered fails, and would be refused
    assert machine.is_idle
    cpu.end_sending()
    cpu.end_sending()
    assert not machine.is_idle


def test_after_a_sleep_it_may_be_elsewhere() -> None:
    machine = Machine()
    cpu = CallersCpu(machine, machine.clock)
    serve(cpu)
    cpu.slept()
    machine.here = 0
    cpu.begin_to_send()
    assert (cpu.is_shared, machine.is_idle) == (False, False)
    serve(cpu)
    assert (machine.here, cpu.is_shared) == (1, True)


def test_it_moves_ever_less_often_while_it_is_parted_from_its_caller_each_time() -> None:
    machine = Machine()
    cpu = CallersCpu(machine, machine.clock)
    moves = 0
    for _ in range(10_000):
        serve(cpu, 1)
        moves += machine.here
        machine.here = 0  # as when it has waited for a disk
    assert moves == machine.looks < 20
    machine.here = 1
    serve(cpu, 1024)
    machine.here = 0
    serve(cpu, 128)
    assert machine.here == 1


def test_it_looks_ever_less_often_while_it_is_with_its_caller_until_it_sleeps() -> None:
    machine = Machine()
    cpu = CallersCpu(machine, machine.clock)
    serve(cpu, 10_000)
    assert machine.looks < 100
    machine.here = 0
    cpu.slept()
    looks = machine.looks
    serve(cpu)
    assert (machine.here, machine.looks) == (1, looks + 1)


def test_when_an_answer_took_long_to_send_it_rests() -> None:
    machine = Machine()
    cpu = CallersCpu(machine, machine.clock)
    serve(cpu)
    machine.sends_for = 0.006
    serve(cpu, 1)
    machine.sends_for = 0.0
    machine.here = 0
    serve(cpu, 32)
    assert (machine.here, cpu.is_shared, machine.looks) == (0, False, 1)
    machine.now += 1.0
    serve(cpu)
    assert (machine.here, cpu.is_shared) == (1, True)


def test_a_request_does_not_fail_because_the_loop_may_not_give_way_any_more() -> None:
    machine = Machine()
    cpu = CallersCpu(machine, machine.clock)
    serve(cpu)
    machine.refuses = True
    serve(cpu, 64)
    assert (cpu.is_shared, machine.is_idle) == (False, False)


@pytest.mark.parametrize("why", ["ended", "forbidden", "invisible"])
def test_a_caller_that_cannot_be_followed_is_not(why: str) -> None:
    machine = Machine(there=None if why == "ended" else 1, forbidden={1})
    cpu = CallersCpu(machine, machine.clock)
    serve(cpu, 64, 0 if why == "invisible" else CALLER)
    assert (machine.here, cpu.is_shared) == (0, False)


def test_without_a_scheduler_nothing_happens() -> None:
    cpu = CallersCpu(None, Machine().clock)
    serve(cpu, 64)
    assert not cpu.is_shared


def in_thread_of_its_own(work: list[object]) -> None:
    """What is asked of the scheduler there; a thread's policy and CPUs end with it."""
    scheduler = LinuxScheduler()
    last = max(os.sched_getaffinity(0))
    scheduler.move(last)
    work.append(scheduler.cpu_of(threading.get_native_id()) is not None)
    os.sched_setaffinity(0, {last})
    scheduler.move(last)
    work.append(os.sched_getaffinity(0) == {last})
    scheduler.set_idle()
    work.append(os.sched_getscheduler(0) == os.SCHED_IDLE)
    scheduler.set_normal()
    work.append(os.sched_getscheduler(0) == os.SCHED_OTHER)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot leave SCHED_IDLE")
def test_linux_does_what_it_is_asked_for() -> None:
    work: list[object] = []
    thread = threading.Thread(target=in_thread_of_its_own, args=(work,))
    thread.start()
    thread.join()
    assert work == [True, True, True, True]


def test_a_thread_that_has_ended_is_on_no_cpu() -> None:
    assert LinuxScheduler().cpu_of((1 << 22) + 1) is None  # Linux has no thread of so high a number


def test_the_loop_is_an_ordinary_thread_after_a_burst(server: Server) -> None:
    file = server.mountpoint / "file"
    file.write_bytes(b"bytes")
    for _ in range(500):
        assert not (server.mountpoint / "nothing").exists()
        file.chmod(0o600)
    threads = [int(one.name) for one in Path(f"/proc/{server.process.pid}/task").iterdir()]
    end = time.monotonic() + 10
    while {os.sched_getscheduler(one) for one in threads} != {os.SCHED_OTHER}:
        server.order("ino", "file")  # the loop goes on while this thread waits
        assert time.monotonic() < end
    assert all(os.sched_getaffinity(one) == os.sched_getaffinity(0) for one in threads)
