"""Receiving updates of other devices, whatever way they came: from the clouds or straight from a device."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Final

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.garbage import without_collections
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.brake import Brake, Deletion, removals
from hybrisfs.merge.rows import Change
from hybrisfs.pipeline.signals import Signals
from hybrisfs.pipeline.verify import Verifier
from hybrisfs.store.updates import UpdateLog
from sync import (
    PREFIX_SIZE,
    Accepted,
    DecodeError,
    Outcome,
    Reason,
    Refused,
    SignedUpdate,
    decode_signed,
)
from sync.inbox import Inbox

__all__ = ["Receiver"]

log = logging.getLogger(__name__)

_BATCH_UPDATES: Final = 512
_BATCH_WRITES: Final = 4096
_BATCH_BYTES: Final = 4 << 20
_GIVE_WAY_SECONDS: Final = 0.0003


@dataclass
class _Batch:
    """Updates that are taken in at once; `decoded`: those that are well formed; `unchecked`: those whose
    signatures `checks` tells of."""

    updates: list[bytes] = field(default_factory=list)
    decoded: dict[bytes, SignedUpdate] = field(default_factory=dict)
    unchecked: list[bytes] = field(default_factory=list)
    checks: Future[Sequence[int]] = field(default_factory=Future)
    writes: int = 0
    size: int = 0


class Receiver:
    """Puts updates through the inbox into log and view. May be called from several threads.

    *show* is told what has changed in the view and *accepted* that the log has grown: with locks held, so
    that they only take note.
    """

    def __init__(
        self,
        fs: FileSystem,
        updates: UpdateLog,
        arrivals: Arrivals,
        signals: Signals,
        show: Callable[[Sequence[Change]], None],
        accepted: Callable[[], None],
        brake: Brake,
    ) -> None:
        self._brake = brake
        self._fs = fs
        self._updates = updates
        self._arrivals = arrivals
        self._signals = signals
        self._show = show
        self._accepted = accepted
        self._inbox = Inbox()
        self._verifier = Verifier()
        self._named: dict[bytes, int] = {}
        self.refused: str | None = None

    def receive(self, updates: Sequence[bytes]) -> bool:
        """Take in signed updates; False when causes of some are missing. Those wait for them.

        Signatures take much of the time, and programs need not wait for that: while one batch is taken in,
        those of the next are checked.
        """
        complete = True
        ahead: _Batch | None = None
        with without_collections():
            for batch in _batches(updates):
                self._check(batch)
                if ahead is not None:
                    complete &= self._take_in(ahead)
                    time.sleep(_GIVE_WAY_SECONDS)  # the lock is not fair: who waits for it gets it now
                ahead = batch
            if ahead is not None:
                complete &= self._take_in(ahead)
        self._signals.progressed()
        return complete

    def close(self) -> None:
        """End what checks signatures."""
        self._verifier.close()

    def named(self, device: bytes) -> int:
        """The highest clock of an update of *device* that one which had to wait depends on; 0 when none
        did."""
        return self._named.get(device, 0)

    def _take_in(self, batch: _Batch) -> bool:
        verified = set(compress(batch.unchecked, batch.checks.result()))
        with self._fs.cutting:
            with self._fs.lock:
                try:
                    with self._updates.deferred():
                        complete = self._take(batch, verified)
                finally:
                    changes = self._arrivals.refresh()
            self._show(changes)
        return complete

    def signed(self, nodes: set[bytes]) -> None:
        """An own update has written to *nodes*; called with the volume's lock held."""
        self._show(self._arrivals.signed(nodes))

    def _check(self, batch: _Batch) -> None:
        """Begin to check the signatures of what is new here and well formed."""
        with self._fs.lock:
            known = self._updates.known(one.hash for one in batch.decoded.values())
            members = self._updates.members
        signed = []
        for data, one in batch.decoded.items():
            public = members.public_key(one.header.writer)
            if public is not None and one.header.hash not in known:
                batch.unchecked.append(data)
                signed.append((public, one.header.data))
        batch.checks = self._verifier.check(signed)

    def _take(self, batch: _Batch, verified: Container[bytes]) -> bool:
        grown = False
        complete = True
        accept = partial(self._accept, batch.decoded, verified)
        for data in batch.updates:
            for outcome in self._inbox.add(data, accept):
                grown |= isinstance(outcome, Accepted)
                if isinstance(outcome, Refused):
                    complete &= not outcome.retryable
                    self._note(outcome)
        if grown:
            self._accepted()
        return complete

    def confirm(self, update: bytes) -> Deletion:
        """Let an update that was held up pass, and what waits for it. Raises KeyError."""
        with self._fs.lock:
            deletion = self._brake.confirm(update)
        self.receive([deletion.data])
        return deletion

    def _accept(
        self, decoded: Mapping[bytes, SignedUpdate], verified: Container[bytes], data: bytes
    ) -> Outcome:
        try:
            signed = decoded.get(data) or decode_signed(data)
        except DecodeError as error:
            return Refused(Reason.MALFORMED, str(error))
        if self._goes_too_far(signed):
            return Refused(Reason.HELD_UP, "it removes much of the volume")
        outcome = self._updates.accept_signed(signed, verified=data in verified)
        if isinstance(outcome, Accepted):
            self._arrivals.take(outcome)
        elif isinstance(outcome, Refused) and outcome.missing is not None:
            for cause in signed.header.deps:
                self._named[cause.device] = max(cause.clock, self.named(cause.device))
        return outcome

    def _goes_too_far(self, signed: SignedUpdate) -> bool:
        if not removals(signed.writes) or signed.header.writer == self._updates.device:
            return False
        if self._updates.find(signed.hash[:PREFIX_SIZE]) is not None:
            return False
        (names,) = self._fs.db.execute("SELECT count(*) FROM place").fetchone()
        return self._brake.holds(signed, names, time.monotonic())

    def _note(self, refused: Refused) -> None:
        if not refused.retryable and refused.reason not in (Reason.HELD_UP, Reason.NOT_VOUCHED):
            self.refused = refused.message
            log.warning("an update of another device was refused: %s", refused.message)


def _batches(updates: Iterable[bytes]) -> Iterator[_Batch]:
    """What is taken in at once, so small that programs do not wait for long meanwhile."""
    batch = _Batch()
    for data in updates:
        try:
            signed = decode_signed(data)
        except DecodeError:  # it is refused when its turn comes
            signed = None
        writes = 1 if signed is None else signed.header.write_count
        if batch.updates and (
            len(batch.updates) >= _BATCH_UPDATES
            or batch.writes + writes > _BATCH_WRITES
            or batch.size + len(data) > _BATCH_BYTES
        ):
            yield batch
            batch = _Batch()
        batch.updates.append(data)
        batch.writes += writes
        batch.size += len(data)
        if signed is not None:
            batch.decoded[data] = signed
    if batch.updates:
        yield batch
