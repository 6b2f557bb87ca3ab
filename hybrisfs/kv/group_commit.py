"""Group commit: one thread commits, at once, what many clients ask for.

How many commits there can be is bounded by the disk, and how many clients by what it costs to wake them. So

* a commit waits a moment for the clients that the one before it has served, most of which come back at once,
  instead of going ahead with the few that are there already while the others are on their way;
* the thread wakes one client only, which wakes the next one. Were all woken at the same time, they would
  fight for the interpreter with each other and with the next commit.

A client that is interrupted while it waits leaves a thread in its place, so that those behind it are woken.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from hybrisfs.errors import HybrisError

__all__ = ["GroupCommit", "Request"]

A = TypeVar("A")

log = logging.getLogger(__name__)

_MOST_AT_ONCE: Final = 1024  # clients whose requests one commit carries
_GATHERING: Final = 0.0005  # seconds that a commit waits at most for those who were served before
_LOOK_AGAIN: Final = 0.00005


class Request(Generic[A]):
    """The request of a client; the thread that commits sets `result` or `error`."""

    __slots__ = ("_after", "_served", "_turn", "action", "error", "result")

    def __init__(self, action: A) -> None:
        self.action = action
        self.result: object = None
        self.error: Exception | None = None
        self._after: Request[A] | None = None
        self._served = False
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> None:
        """Return when it was served, and let the next one go on."""
        try:
            self._turn.acquire()
            self._pass_on()
        except BaseException:
            if self._served:
                self._pass_on()
            else:
                threading.Thread(target=self.wait, name="kv-metadata-wait", daemon=True).start()
            raise

    def _pass_on(self) -> None:
        if self._after is not None:
            self._after.go()

    def go(self) -> None:
        """Let its client go on."""
        with suppress(RuntimeError):  # it was let go before, when its predecessor was interrupted
            self._turn.release()

    @staticmethod
    def served(requests: Sequence[Request[A]]) -> None:
        """All of them were committed, or have failed: let their clients go on."""
        for request, after in pairwise(requests):
            request._after = after
        for request in requests:
            request._served = True
        requests[0].go()


class GroupCommit(Generic[A]):
    """Calls *commit* in a thread of its own with all requests that are there. Thread-safe.

    What *commit* raises is the error of all of them.
    """

    def __init__(self, name: str, commit: Callable[[Sequence[Request[A]]], None]) -> None:
        self._commit = commit
        self._requests: SimpleQueue[Request[A] | None] = SimpleQueue()
        self._sending = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, action: A) -> object:
        """Have an action committed; return its result, or raise its error."""
        request = Request(action)
        with self._sending:
            if self._closed:
                raise HybrisError("the key-value store is closed")
            self._requests.put(request)
        request.wait()
        if request.error is not None:
            raise request.error
        return request.result

    def close(self) -> None:
        """Finish what was asked for, and end the thread. Idempotent."""
        with self._sending:
            self._closed = True
            self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        before = 0
        while (first := self._requests.get()) is not None:
            self._gather(before - 1)
            requests, ending = [first], False
            while len(requests) < _MOST_AT_ONCE and not ending:
                try:
                    request = self._requests.get_nowait()
                except Empty:
                    break
                if request is None:
                    ending = True
                else:
                    requests.append(request)
            self._serve(requests)
            before = len(requests)
            if ending:
                return

    def _gather(self, wanted: int) -> None:
        """Wait until so many requests are there, but not for long."""
        until = time.monotonic() + _GATHERING
        while self._requests.qsize() < wanted and time.monotonic() < until:
            time.sleep(_LOOK_AGAIN)

    def _serve(self, requests: Sequence[Request[A]]) -> None:
        try:
            self._commit(requests)
        except Exception as error:
            if not isinstance(error, OSError):
                log.exception("the key-value metadata could not be written")
            for request in requests:
                request.error = error
        Request.served(requests)
