"""Keeps the loop of a mount on the CPU of the program that it serves.

An answer wakes its caller, and the next request of the caller wakes the loop. While they are on two CPUs, one
of these sleeps whenever the other works, and each wake-up is an interrupt to a sleeping CPU: 30 to 40 us on a
virtual machine, where an answer itself takes 10. On one CPU it is a change of context, 2 to 3 us.

Linux puts a thread that wakes on an idle CPU, if there is one; a CPU with SCHED_IDLE threads alone counts as
idle (`sched_idle_cpu` in kernel/sched/fair.c). So

* the loop moves to the CPU of its caller, without being bound to it,
* and it is SCHED_IDLE while it sends an answer: the caller goes on there at once, and the loop after it.

A caller and a loop that stay together are looked at ever less often. So are those that Linux parts each time,
as it does when the loop waits for a disk whose interrupts come to another CPU: a move costs 30 us.

The price: if the caller then computes, or others want that CPU, the loop waits for its turn, some
milliseconds. When that was long, it rests from all this for a while. To leave SCHED_IDLE takes CAP_SYS_NICE
or an RLIMIT_NICE of 20 (sched(7)): root has it, an ordinary user has not, unless an administrator gives it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, Protocol

__all__ = ["CallersCpu", "LinuxScheduler", "Scheduler"]

_log = logging.getLogger(__name__)

_OFTEN: Final = 16  # requests; to look where a caller is takes some 20 us
_SELDOM_TOGETHER: Final = 128
_SELDOM_APART: Final = 1024
_LONGEST: Final = 0.005  # seconds that an answer may take to send
_REST: Final = 1.0  # seconds, after one that took longer
_PROCESSOR: Final = 36  # in /proc/PID/stat, counted from the state on: proc(5)


class Scheduler(Protocol):
    """The calling thread and the CPUs."""

    def cpu(self) -> int:
        """The CPU that it is on."""

    def cpu_of(self, thread: int) -> int | None:
        """The CPU that another thread was on last; None when that cannot be known."""

    def move(self, cpu: int) -> None:
        """Move there. It may be moved elsewhere at any time. Raises OSError when it may not be there."""

    def set_idle(self) -> None:
        """Run only while the CPU has nothing else to do."""

    def set_normal(self) -> None:
        """Undo `set_idle`."""


class CallersCpu:
    """Where the loop runs. All methods are for the loop's thread."""

    __slots__ = ("_began", "_clock", "_count", "_every", "_moved", "_rests_until", "_scheduler", "is_shared")

    def __init__(self, scheduler: Scheduler | None, clock: Callable[[], float]) -> None:
        """Without a *scheduler* the loop stays wherever it is. *clock*: seconds."""
        self._scheduler = scheduler
        self._clock = clock
        self._count = 0
        self._every = _OFTEN
        self._moved = False  # by the last look
        self._began = 0.0
        self._rests_until = float("-inf")
        self.is_shared = False
        """Whether the loop is taken to be on the CPU of its caller."""

    def asked(self, thread: int) -> None:
        """A thread has made a request; 0: one that is not visible here."""
        self._count += 1
        if self._count < self._every or self._scheduler is None:
            return
        self._count = 0
        if not thread or self._clock() < self._rests_until:
            return
        there = self._scheduler.cpu_of(thread)
        self.is_shared = there is not None
        if there is None:
            return
        if there == self._scheduler.cpu():
            self._every, self._moved = min(2 * self._every, _SELDOM_TOGETHER), False
            return
        self._every = min(2 * self._every, _SELDOM_APART) if self._moved else _OFTEN
        self._moved = True
        try:
            self._scheduler.move(there)
        except OSError:  # it is a CPU that this process must not use
            self.is_shared = False

    def slept(self) -> None:
        """The loop has waited for a request, and may have woken elsewhere."""
        self.is_shared = False
        if not self._moved:
            self._every = _OFTEN

    def begin_to_send(self) -> None:
        """An answer is about to be sent."""
        if self.is_shared and self._scheduler is not None and not self._began:
            try:
                self._scheduler.set_idle()
            except OSError as error:  # the answer is more important
                _log.warning("the mount cannot give way to programs any more: %s", error.strerror)
                self.is_shared, self._scheduler = False, None
                return
            self._began = self._clock()

    def end_sending(self) -> None:
        """Whatever was to be sent has been."""
        if self._began and self._scheduler is not None:
            self._scheduler.set_normal()
            now, began, self._began = self._clock(), self._began, 0.0
            if now - began > _LONGEST:
                self.is_shared = False
                self._rests_until = now + _REST


class LinuxScheduler:
    """The `Scheduler` of Linux."""

    def __init__(self) -> None:
        self._cpu: Callable[[], int] = ctypes.PyDLL(None).sched_getcpu
        self._no_priority = os.sched_param(0)

    @classmethod
    def of_this_process(cls) -> LinuxScheduler | None:
        """None where there is one CPU only, or a thread that has become SCHED_IDLE could not go back."""
        return cls() if len(os.sched_getaffinity(0)) > 1 and _may_come_back() else None

    def cpu(self) -> int:
        """See `Scheduler`."""
        return self._cpu()

    def cpu_of(self, thread: int) -> int | None:
        """See `Scheduler`."""
        try:
            facts = Path(f"/proc/{thread}/stat").read_bytes()
        except OSError:  # it has ended, or is another user's where these are hidden
            return None
        return int(facts[facts.rindex(b")") :].split()[1 + _PROCESSOR])

    def move(self, cpu: int) -> None:
        """See `Scheduler`."""
        allowed = os.sched_getaffinity(0)  # somebody may have changed that (taskset(1))
        os.sched_setaffinity(0, {cpu} & allowed)
        os.sched_setaffinity(0, allowed)

    def set_idle(self) -> None:
        """See `Scheduler`."""
        os.sched_setscheduler(0, os.SCHED_IDLE, self._no_priority)

    def set_normal(self) -> None:
        """See `Scheduler`."""
        os.sched_setscheduler(0, os.SCHED_OTHER, self._no_priority)


@cache
def _may_come_back() -> bool:
    """Whether a thread of this process can become SCHED_IDLE, and SCHED_OTHER again: one tries, and ends."""
    came_back = False

    def go_and_come_back() -> None:
        nonlocal came_back
        scheduler = LinuxScheduler()
        try:
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                scheduler.set_idle()
                scheduler.set_normal()
                came_back = True
        except OSError:
            came_back = False

    thread = threading.Thread(target=go_and_come_back, name="mount-policy")
    thread.start()
    thread.join()
    return came_back
