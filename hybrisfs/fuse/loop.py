"""The loop that serves a mount: reads one request of the kernel after the other, and hands each to libfuse.

A program that works through many files asks for the next thing some microseconds after it got an answer. To
wake a sleeping CPU takes longer than most answers. So the loop keeps to the CPU of its caller
(`hybrisfs.fuse.callers_cpu`). Where it may not, or did so in vain, it looks for the next request a number of
times before it sleeps: as often as that has been worth while lately, and not at all while an answer comes
later from another thread, which needs the interpreter, or where there is one CPU only.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import select
import time
from collections.abc import Callable
from struct import Struct
from typing import Final

from hybrisfs.fuse.library import DataBuffer, Library
from hybrisfs.fuse.request import Channel

__all__ = ["Patience", "serve"]

_HEADER: Final = 4096
"""Bytes beside the data of the largest write, as libfuse's own loop has them."""
_MOST_LOOKS: Final = 100
"""Each takes about 2 us; a program's next request comes within some 20 to 150 us."""
_LONGEST: Final = 0.001  # seconds that all these looks may take
_REST: Final = 1.0  # seconds, after some that took longer
_CALLER: Final = Struct("=32xI")
"""The caller's thread in `fuse_in_header` (linux/fuse.h)."""


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


def serve(library: Library, session: int, channel: Channel, largest: int) -> None:
    """Serve until the mount is gone. *largest* is that of writes, in bytes.

    Raises OSError when the connection breaks.
    """
    device = library.waiting.fuse_session_fd(session)
    os.set_blocking(device, False)
    memory = bytearray(largest + _HEADER)
    read = io.FileIO(device, closefd=False).readinto  # cheaper than os.readv, above all when there is nothing
    pinned = (ctypes.c_char * len(memory)).from_buffer(memory)
    request = DataBuffer(mem=ctypes.addressof(pinned), fd=-1, mem_size=len(memory))
    handed = ctypes.pointer(request)
    process = library.brief.fuse_session_process_buf
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
        request.size = size
        patience.found()
        channel.asked(*_CALLER.unpack_from(memory))
        process(session, handed)
