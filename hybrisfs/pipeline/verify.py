"""Checking the signatures of many updates: in a process of its own, beside the one that takes updates in.

A signature takes about as long to check as all else that is done about an update. Threads of this process
would have to ask for Python's lock before and after each one, and lose on that what they gain; the process
needs it not at all. It is started when there is much to check, and ends when there has been nothing for a
while.

Requests and answers on its standard input and output, with big-endian numbers:

    request    size u32 of all that follows; then for each update: public key (32), size u32 of header and
               signature, these (`sync.SignedHeader.data`)
    answer     for each update one byte: 1 when the header is signed with that key, else 0
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final, TypeAlias

from sync.identity import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, verify

__all__ = ["SignedBy", "Verifier"]

log = logging.getLogger(__name__)

_WORTH_IT: Final = 256  # signatures; fewer are checked sooner than handed over
_IDLE_SECONDS: Final = 10.0
_JOIN_SECONDS: Final = 5.0
_SIZE: Final = struct.Struct(">I")

SignedBy: TypeAlias = tuple[bytes, bytes]
"""A public key, and the header and signature of an update that should be signed with it."""

_Work: TypeAlias = tuple[Sequence[SignedBy], "Future[Sequence[int]]"]


class Verifier:
    """Checks signatures. May be called from several threads."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._work: deque[_Work] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._beside = (os.cpu_count() or 1) > 1

    def check(self, updates: Sequence[SignedBy]) -> Future[Sequence[int]]:
        """For each update whether it is signed as it should be."""
        future: Future[Sequence[int]] = Future()
        with self._condition:
            if self._beside and not self._closed and len(updates) >= _WORTH_IT:
                self._work.append((updates, future))
                self._condition.notify()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="verify", daemon=True)
                    self._thread.start()
                return future
        future.set_result(_check_here(updates))
        return future

    def close(self) -> None:
        """End thread and process; what has been asked for is answered before."""
        with self._condition:
            self._closed = True
            self._condition.notify()
            thread = self._thread
        if thread is not None:
            thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        """The thread's body: hands requests to the process, one at a time."""
        process: _Process | None = None
        try:
            while (work := self._next()) is not None:
                updates, future = work
                answer: Sequence[int] = b""
                try:
                    if process is None:
                        process = _Process()  # until it is there, these have been checked here
                    else:
                        answer = process.check(updates)
                except OSError as error:
                    log.warning("signatures are not checked in a process of their own: %s", error)
                    if process is not None:
                        process.end()
                    process = None
                future.set_result(answer or _check_here(updates))
        finally:
            if process is not None:
                process.end()

    def _next(self) -> _Work | None:
        """What is to be done; None when the thread is to end."""
        with self._condition:
            self._condition.wait_for(lambda: self._work or self._closed, _IDLE_SECONDS)
            if self._work:
                return self._work.popleft()
            self._thread = None
            return None


class _Process:
    """The process as the daemon sees it. Methods but for `end` raise OSError."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def check(self, updates: Sequence[SignedBy]) -> bytes:
        assert self._process.stdin is not None and self._process.stdout is not None
        parts = [part for public, data in updates for part in (public, _SIZE.pack(len(data)), data)]
        request = b"".join(parts)
        self._process.stdin.write(_SIZE.pack(len(request)) + request)
        self._process.stdin.flush()
        answer = self._process.stdout.read(len(updates))
        if len(answer) != len(updates):
            raise BrokenPipeError("the process has ended")
        return answer

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._process.wait(_JOIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _check_here(updates: Sequence[SignedBy]) -> list[bool]:
    return [verify(public, data[:-SIGNATURE_SIZE], data[-SIGNATURE_SIZE:]) for public, data in updates]


# -- what runs in the process ------------------------------------------------------------------------


def _parse(request: bytes) -> list[SignedBy]:
    updates: list[SignedBy] = []
    at = 0
    while at < len(request):
        start = at + PUBLIC_KEY_SIZE + _SIZE.size
        (size,) = _SIZE.unpack_from(request, at + PUBLIC_KEY_SIZE)
        updates.append((request[at : at + PUBLIC_KEY_SIZE], request[start : start + size]))
        at = start + size
    return updates


def _serve() -> None:
    while size := sys.stdin.buffer.read(_SIZE.size):
        request = sys.stdin.buffer.read(_SIZE.unpack(size)[0])
        sys.stdout.buffer.write(bytes(_check_here(_parse(request))))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # the daemon has ended
        _serve()
