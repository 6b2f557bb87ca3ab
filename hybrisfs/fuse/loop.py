"""The loop that serves a mount: reads one request of the kernel after the other, and has each handled.

A program that works through many files asks for the next thing some microseconds after it got an answer. To
wake a sleeping CPU takes longer than most answers. So the loop keeps to the CPU of its caller
(`hybrisfs.fuse.callers_cpu`). Where it may not, or did so in vain, it looks for the next request a number of
times before it sleeps: as often as that has been worth while lately, and not at all while an answer comes
later from another thread, which needs the interpreter, or where there is one CPU only.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import select
import time
from collections.abc import Callable
from typing import Any, Final

from hybrisfs.fuse.operations import Operations
from hybrisfs.fuse.request import LATER, Channel, Request
from hybrisfs.fuse.requests import FORGETS, HEADER, INTERRUPT, calls_of, forgets_in, interrupted_by

__all__ = ["Handlers", "Patience", "serve"]

_log = logging.getLogger(__name__)

_BESIDE_DATA: Final = 4096
"""Bytes beside those of the largest write; the kernel wants room for 80."""
_MOST_LOOKS: Final = 100
"""Each takes about 2 us; a program's next request comes within some 20 to 150 us."""
_LONGEST: Final = 0.001  # seconds that all these looks may take
_REST: Final = 1.0  # seconds, after some that took longer


class Patience:
    """How many times the loop looks for a request before it sleeps: twice as many after a look that found
    one, up to *most*, and half as many after looks in vain.

    When that took long, others want this CPU, its caller among them perhaps: then the loop rests from looking
    for a while.
    """

    __slots__ = ("_began", "_clock", "_least", "_left", "_most", "_now", "_rests_until")

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        """*most* 0: the loop always sleeps. *clock*: seconds."""
        self._most = most
        self._clock = clock
        self._least = min(8, most)
        self._now = most
        self._left = 0
        self._began = 0.0
        self._rests_until = float("-inf")

    def may_look(self) -> bool:
        """Whether to look once more, after nothing was found."""
        if self._left and not self._began:
            self._began = self._clock()
            if self._began < self._rests_until:
                self._began, self._left = 0.0, 0
        if not self._left:
            self._end_looking()
            return False
        self._left -= 1
        return True

    def found(self) -> None:
        """A request was there."""
        if self._began:
            self._now = min(2 * self._now, self._most)
            self._end_looking()
        self._left = self._now

    def slept(self, *, in_vain: bool) -> None:
        """The loop was asleep; *in_vain*: after it had looked often enough."""
        if in_vain:
            self._now = max(self._now // 2, self._least)
        self._left = self._now

    def _end_looking(self) -> None:
        if self._began:
            now = self._clock()
            if now - self._began > _LONGEST:
                self._rests_until = now + _REST
            self._began = 0.0


class Handlers:
    """Has each request handled, and answered, whatever happens in the handler."""

    def __init__(self, operations: Operations, channel: Channel) -> None:
        self._operations = operations
        self._channel = channel
        self._calls = calls_of(operations)

    def handle(self, message: memoryview, size: int) -> None:
        """Handle the request in the first *size* bytes of a message."""
        _, opcode, unique, node, uid, gid, pid = HEADER.unpack_from(message)
        channel = self._channel
        channel.asked(pid)
        found = self._calls.get(opcode)
        if found is None:
            self._handle_other(opcode, unique, node, message)
            return
        name, call, encode = found
        cpu = channel.callers_cpu
        request = Request(channel, unique, uid, gid, pid, encode)
        channel.answers_later = False
        try:
            answer = call(request, node, message, size)
            if answer is LATER:
                channel.answers_later = True
                request.await_answer()
            else:
                cpu.begin_to_send()
                request.answer_in_loop(answer)
        except OSError as error:
            cpu.begin_to_send()
            _refuse(request, error.errno or errno.EIO, name)
        except BaseException:  # noqa: BLE001 - the mount goes on, whatever is wrong with one handler
            _log.exception("an exception in the handler of %s", name)
            _refuse(request, errno.EIO, name)
        finally:
            cpu.end_sending()

    def _handle_other(self, opcode: int, unique: int, node: int, message: memoryview) -> None:
        if opcode in FORGETS:  # is not answered
            run_guarded(self._operations.forget, forgets_in(opcode, node, message))
        elif opcode == INTERRUPT:  # likewise
            run_guarded(self._channel.interrupts.came, interrupted_by(message))
        else:
            self._channel.fail(unique, errno.ENOSYS)


def _refuse(request: Request, error: int, name: str) -> None:
    try:
        request.refuse_in_loop(error)
    except RuntimeError:
        _log.exception("the handler of %s failed after it had answered", name)


def run_guarded(function: Callable[..., None], *arguments: Any) -> None:
    """Call what answers nothing: an exception is logged."""
    try:
        function(*arguments)
    except BaseException:  # noqa: BLE001 - the mount goes on
        _log.exception("an exception in %s", function.__qualname__)


def serve(device: int, handlers: Handlers, channel: Channel, largest: int) -> None:
    """Serve until the mount is gone. *largest* is that of writes, in bytes.

    Raises OSError when the connection breaks.
    """
    os.set_blocking(device, False)
    memory = bytearray(largest + _BESIDE_DATA)
    message = memoryview(memory).toreadonly()
    read = io.FileIO(device, closefd=False).readinto  # cheaper than os.readv, above all when there is nothing
    handle = handlers.handle
    requests = select.poll()
    requests.register(device, select.POLLIN)
    patience = Patience(_MOST_LOOKS if len(os.sched_getaffinity(0)) > 1 else 0, time.perf_counter)
    cpu = channel.callers_cpu
    while True:
        try:
            size = read(memory)
        except FileNotFoundError:
            continue  # its caller was killed before the request was read
        except OSError as error:
            if error.errno == errno.ENODEV:
                return  # unmounted
            raise
        if size is None:
            looks = not (channel.answers_later or cpu.is_shared)
            if looks and patience.may_look():
                continue
            requests.poll()
            patience.slept(in_vain=looks)
            cpu.slept()
            continue
        patience.found()
        handle(message, size)
