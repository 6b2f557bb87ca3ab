"""Writes to the log that several threads make at the same moment: one update has them all.

A signature, a vector and a sync of the disk are then for all of them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from hybrisfs.errors import HybrisError
from hybrisfs.kv.containers import Key
from hybrisfs.merge.signing import Signer
from hybrisfs.stages import Signals
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from sync.update import Write

__all__ = ["MOST_BYTES", "LogWriter"]

MOST_BYTES: Final = 4 << 20
"""Of an update; other devices take it in at once, while their programs wait."""


class _Request:
    """A write that a caller waits for."""

    def __init__(
        self, writes: Callable[[Transaction], list[Write]], keys: Collection[Key] = (), size: int = 0
    ) -> None:
        """*writes* returns what is to be written, and is called under the lock. *keys* are those that it
        reads or writes; none: it may be any. *size* is that of the values."""
        self.writes = writes
        self.keys = keys
        self.size = size
        self.served = False
        self.turn = threading.Semaphore(0)
        """It was served, or is to serve all that wait."""
        self.error: Exception | None = HybrisError(
            "it is not known whether this was written", "a write that took place with it failed"
        )


class _Group:
    """Requests whose writes one update makes: no key is of two of them."""

    def __init__(self) -> None:
        self.requests: list[_Request] = []
        self.writes: list[Write] = []
        self._keys: set[Key] = set()
        self._size = 0

    def takes(self, request: _Request) -> bool:
        """Whether it has room for another one."""
        return not self.requests or (
            bool(self._keys)
            and bool(request.keys)
            and self._size + request.size <= MOST_BYTES
            and self._keys.isdisjoint(request.keys)
        )

    def add(self, request: _Request, writes: Iterable[Write]) -> None:
        """Take one more."""
        self.requests.append(request)
        self.writes += writes
        self._keys.update(request.keys)
        self._size += request.size


class LogWriter:
    """Signs what programs write to containers in the log. Thread-safe.

    Methods raise HybrisError, also when this device may not write, and OSError when a write cannot be made
    durable; then it is not known whether it will be seen.
    """

    def __init__(self, fs: FileSystem, signer: Signer, committer: Committer, signals: Signals) -> None:
        self._fs = fs
        self._signer = signer
        self._committer = committer
        self._signals = signals
        self._guard = threading.Lock()  # for the next two
        self._waiting = deque[_Request]()
        self._serving = False

    def write(
        self, writes: Callable[[Transaction], list[Write]], keys: Collection[Key] = (), size: int = 0
    ) -> None:
        """Sign what *writes* returns, with what all others that wait write, and make it durable. *writes* is
        called under the lock, and what it raises is raised here. *keys* are those that it reads or writes;
        none: it may be any. *size* is that of the values."""
        request = _Request(writes, keys, size)
        with self._guard:
            self._waiting.append(request)
            first, self._serving = not self._serving, True
        if not first:
            request.turn.acquire()
        if not request.served:
            try:
                self._serve()
            finally:
                self._pass_on(request)
        if request.error is not None:
            raise request.error

    def _pass_on(self, request: _Request) -> None:
        """Have the first of those that wait serve them, after this one has tried to."""
        with self._guard:
            if not request.served:
                self._waiting.remove(request)
            self._serving = bool(self._waiting)
            if self._serving:
                self._waiting[0].turn.release()

    def _serve(self) -> None:
        requests: list[_Request] = []
        try:
            with self._fs.state.log_transaction() as tx:
                requests += (self._waiting.popleft() for _ in range(len(self._waiting)))
                signed = self._sign_all(tx, requests)
            self._committer.commit_now()
            self._signals.update_made()
            for request in signed:
                request.error = None
        except OSError as error:
            for request in requests:
                request.error = error
        finally:
            for request in requests:
                request.served = True
                request.turn.release()

    def _sign_all(self, tx: Transaction, requests: Iterable[_Request]) -> Sequence[_Request]:
        """Sign the writes of requests in as few updates as possible; return those that were signed."""
        signed: list[_Request] = []
        group = _Group()
        for request in requests:
            if not group.takes(request):
                signed += self._sign(tx, group)
                group = _Group()
            try:
                self._signer.require_writer(tx)
                group.add(request, request.writes(tx))
            except HybrisError as error:
                request.error = error
        return [*signed, *self._sign(tx, group)]

    def _sign(self, tx: Transaction, group: _Group) -> Sequence[_Request]:
        if group.writes:
            try:
                self._signer.sign(tx, group.writes, 0)
            except HybrisError as error:
                for request in group.requests:
                    request.error = error
                return []
        return group.requests
