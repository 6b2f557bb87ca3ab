"""Receiving updates of other devices, whatever way they came: from the clouds or straight from a device."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.brake import Brake, Deletion, removals
from hybrisfs.merge.rows import Change
from hybrisfs.pipeline.signals import Signals
from hybrisfs.store.updates import UpdateLog
from sync import (
    PREFIX_SIZE,
    Accepted,
    DecodeError,
    Outcome,
    Reason,
    Refused,
    SignedHeader,
    SignedUpdate,
    decode_signed,
)
from sync.inbox import Inbox

__all__ = ["Receiver"]

log = logging.getLogger(__name__)

_BATCH_UPDATES: Final = 256
_BATCH_BYTES: Final = 4 << 20
_CHECKERS: Final = min(4, os.cpu_count() or 1)
_WORTH_THREADS: Final = 32

_Unchecked: TypeAlias = tuple[bytes, SignedHeader, bytes]
"""An update, its header, and the key that should have signed it."""


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
        self._named: dict[bytes, int] = {}
        self.refused: str | None = None

    def receive(self, updates: Sequence[bytes]) -> bool:
        """Take in signed updates; False when causes of some are missing. Those wait for them."""
        complete = True
        for batch in _batches(updates):
            verified = self._verify(batch)
            with self._fs.cutting:
                with self._fs.lock:
                    complete &= self._take(batch, verified)
                    changes = self._arrivals.refresh()
                self._show(changes)
        self._signals.progressed()
        return complete

    def named(self, device: bytes) -> int:
        """The highest clock of an update of *device* that one which had to wait depends on; 0 when none
        did."""
        return self._named.get(device, 0)

    def signed(self, nodes: set[bytes]) -> None:
        """An own update has written to *nodes*; called with the volume's lock held."""
        self._show(self._arrivals.signed(nodes))

    def _verify(self, batch: Sequence[bytes]) -> dict[bytes, SignedUpdate]:
        """The updates that are new here, well formed and signed by who says so. Signatures take much of the
        time, and programs need not wait for that."""
        found: dict[bytes, SignedUpdate] = {}
        for data in batch:
            with contextlib.suppress(DecodeError):  # it is refused when its turn comes
                found[data] = decode_signed(data)
        with self._fs.lock:
            known = self._updates.known(signed.hash for signed in found.values())
            members = self._updates.members
        unchecked = [
            (data, signed.header, public)
            for data, signed in found.items()
            if signed.hash not in known and (public := members.public_key(signed.header.writer)) is not None
        ]
        return {data: found[data] for data in _well_signed(unchecked)}

    def _take(self, batch: Sequence[bytes], verified: Mapping[bytes, SignedUpdate]) -> bool:
        grown = False
        complete = True
        for data in batch:
            for outcome in self._inbox.add(data, partial(self._accept, verified)):
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

    def _accept(self, verified: Mapping[bytes, SignedUpdate], data: bytes) -> Outcome:
        try:
            signed = verified.get(data) or decode_signed(data)
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
        if signed.header.writer == self._updates.device or not removals(signed.writes):
            return False
        if self._updates.find(signed.hash[:PREFIX_SIZE]) is not None:
            return False
        (names,) = self._fs.db.execute("SELECT count(*) FROM place").fetchone()
        return self._brake.holds(signed, names, time.monotonic())

    def _note(self, refused: Refused) -> None:
        if not refused.retryable and refused.reason not in (Reason.HELD_UP, Reason.NOT_VOUCHED):
            self.refused = refused.message
            log.warning("an update of another device was refused: %s", refused.message)


def _well_signed(updates: Sequence[_Unchecked]) -> list[bytes]:
    """Those that are signed with the given keys. Many are checked on several cores at once."""
    if _CHECKERS == 1 or len(updates) < _WORTH_THREADS:
        return _checked(updates)
    share = -(-len(updates) // _CHECKERS)
    parts = [updates[start : start + share] for start in range(0, len(updates), share)]
    with ThreadPoolExecutor(_CHECKERS, "verify") as pool:
        return [data for part in pool.map(_checked, parts) for data in part]


def _checked(updates: Sequence[_Unchecked]) -> list[bytes]:
    return [data for data, header, public in updates if header.verify(public)]


def _batches(updates: Sequence[bytes]) -> list[Sequence[bytes]]:
    batches: list[list[bytes]] = []
    size = 0
    for update in updates:
        if not batches or len(batches[-1]) >= _BATCH_UPDATES or size + len(update) > _BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(update)
        size += len(update)
    return list(batches)
