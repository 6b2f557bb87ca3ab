"""Receiving updates of other devices, whatever way they came: from the clouds or straight from a device."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct

from hybrisfs.kinds import ATTRIBUTES, NODE, PLACE
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.authority import lawful, void
from hybrisfs.process import without_collections
from hybrisfs.receive.check import CheckedUpdate, UpdateCheck, UpdateChecker
from hybrisfs.registers.tree import Place, is_of_tree
from hybrisfs.stages import Signals
from hybrisfs.state.shown_nodes import ino_shown_for
from hybrisfs.state.state import Transaction
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.unseen import Change
from sync import (
    Accepted,
    DecodeError,
    Outcome,
    Reason,
    Refused,
    SignedUpdate,
    Write,
    decode_signed,
)
from sync.outcome import Inbox

__all__ = ["ReceiveLimits", "Receiver", "Upcoming", "foreseen"]

_Batch: TypeAlias = tuple[Sequence[bytes], UpdateCheck]

log = logging.getLogger(__name__)

_BATCH_BYTES: Final = 512 << 10
_AHEAD: Final = 2  # batches: with one, each side would often wait for the other
_GIVE_WAY_SECONDS: Final = 0.0003
_MOST_PREPARED: Final = 1000  # registers

Upcoming: TypeAlias = Callable[[Callable[[], Sequence[Change]]], AbstractContextManager[None]]


class ReceiveLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    batch_updates: int = 512
    """Taken in at once, at most."""


class Receiver:
    """Puts updates through the inbox into log and view. May be called from several threads.

    Listeners of `FileSystem.shown` and `UpdateLog.grew` are called with locks held: they only take note.
    """

    def __init__(
        self,
        fs: FileSystem,
        arrivals: Arrivals,
        signals: Signals,
        upcoming: Upcoming,
    ) -> None:
        """*upcoming* prepares programs for changes of the view, see `Mounting.upcoming`; no lock is
        held."""
        self._upcoming = upcoming
        self._fs = fs
        self._sleep = fs.environment.sleep
        self._arrivals = arrivals
        self._signals = signals
        self._inbox = Inbox()
        self._checker = UpdateChecker(fs.environment)
        self._batch_updates = fs.environment.limits.of(ReceiveLimits).batch_updates
        self._named: dict[bytes, int] = {}
        self.refused: str | None = None
        self.offended = Topic[[SignedUpdate]]()
        """An update was accepted some of whose writes do not count; told within the transaction."""

    def receive(self, updates: Sequence[bytes]) -> bool:
        """Take in signed updates; False when causes of some are missing, which then wait for them. While one
        batch is taken in, the next ones are checked without a lock, so that programs need not wait for that.
        """
        complete = True
        with without_collections():
            for number, batch in enumerate(self._checked(updates)):
                if number:
                    self._sleep(
                        _GIVE_WAY_SECONDS
                    )  # the lock is not fair: a thread that waits for it gets it now
                complete &= self._take_in(*batch)
        self._signals.progressed()
        return complete

    def take_refused(self) -> list[bytes]:
        """Other devices have become members: returns the stored updates of theirs that were refused, to be
        received again."""
        with self._fs.state.transaction():
            return self._inbox.release_unvouched()

    def _checked(self, updates: Iterable[bytes]) -> Iterator[_Batch]:
        """Batches to take in; the next ones are being checked by then."""
        ahead: deque[_Batch] = deque()
        for some in _batches(updates, self._batch_updates):
            with self._fs.state.transaction() as tx:
                keys = tx.updates.members.public_keys
            ahead.append((some, self._checker.check(some, keys, self._known)))
            if len(ahead) > _AHEAD:
                yield ahead.popleft()
        yield from ahead

    def close(self) -> None:
        """End the checks of updates."""
        self._checker.close()

    def named(self, device: bytes) -> int:
        """The highest clock of an update of *device* that a waiting update depends on; 0 when none
        did."""
        return self._named.get(device, 0)

    def _known(self, hashes: Iterable[bytes]) -> set[bytes]:
        with self._fs.state.transaction() as tx:
            return tx.updates.known(hashes)

    def _take_in(self, updates: Sequence[bytes], checked: UpdateCheck) -> bool:
        found = {data: one for data, one in zip(updates, checked.result(), strict=True) if one is not None}
        with self._prepared(list(found.values())), self._fs.state.cutting:
            with self._fs.state.transaction() as tx:
                try:
                    with tx.updates.deferred():
                        complete = self._take(tx, updates, found)
                finally:
                    changes = self._arrivals.refresh(tx)
            self._fs.shown(changes)
        return complete

    def _prepared(self, updates: Sequence[CheckedUpdate]) -> AbstractContextManager[None]:
        """Programs are prepared for a few changes only: for many, the preparation would take about as long as
        the changes themselves."""
        if sum([len(one.update.writes) for one in updates]) > _MOST_PREPARED:
            return nullcontext()

        def foresee() -> Sequence[Change]:
            with self._fs.state.transaction() as tx:
                return foreseen(tx, self._fs, [write for one in updates for write in one.update.writes])

        return self._upcoming(foresee)

    def signed(self, tx: Transaction, nodes: set[bytes]) -> None:
        """An own update has written to *nodes*."""
        self._fs.shown(self._arrivals.signed(tx, nodes))

    def _take(
        self, tx: Transaction, updates: Iterable[bytes], checked: Mapping[bytes, CheckedUpdate]
    ) -> bool:
        grown = False
        complete = True
        accept = partial(self._accept, tx, checked)
        for data in updates:
            for outcome in self._inbox.add(data, accept):
                grown |= isinstance(outcome, Accepted)
                if isinstance(outcome, Refused):
                    complete &= not outcome.retryable
                    self._note(outcome)
        if grown:
            tx.updates.grew()
        return complete

    def _accept(self, tx: Transaction, checked: Mapping[bytes, CheckedUpdate], data: bytes) -> Outcome:
        try:
            one = checked.get(data) or _checked_alone(data)
        except DecodeError as error:
            return Refused(Reason.MALFORMED, str(error))
        signed = lawful(one.update, one.void) if one.void else one.update
        outcome = tx.updates.accept_signed(signed, verified=one.signed)
        if isinstance(outcome, Accepted):
            self._arrivals.take(tx, outcome)
            if one.void:
                self.offended(signed)
        elif isinstance(outcome, Refused) and outcome.missing is not None:
            for cause in signed.header.deps:
                self._named[cause.device] = max(cause.clock, self.named(cause.device))
        return outcome

    def _note(self, refused: Refused) -> None:
        if not refused.retryable and refused.reason is not Reason.NOT_VOUCHED:
            self.refused = refused.message
            log.warning("an update of another machine was refused: %s", refused.message)


def _checked_alone(data: bytes) -> CheckedUpdate:
    """Raises DecodeError."""
    update = decode_signed(data)
    return CheckedUpdate(update, False, void(update))


def _batches(updates: Iterable[bytes], usual: int) -> Iterator[list[bytes]]:
    """What is taken in at once, *usual* updates at most: programs do not wait for long."""
    batch: list[bytes] = []
    size, most = 0, usual // 4  # taking in the first begins the sooner
    for data in updates:
        if batch and (len(batch) >= most or size + len(data) > _BATCH_BYTES):
            yield batch
            batch, size, most = [], 0, usual
        batch.append(data)
        size += len(data)
    if batch:
        yield batch


def foreseen(tx: Transaction, fs: FileSystem, writes: Iterable[Write]) -> list[Change]:
    """The names and inodes of the view that *writes* are about.

    Only an estimate, for the kernel's sake: it forgets these names before the view changes, so that programs
    never see an update in part, one name as it was and another as it is (`mount.notifier`). Names that change
    by the rules of merging alone, such as those of conflict copies, are not foreseen.
    """
    fs.inodes.flush(tx)
    nodes: dict[bytes, bool] = {}  # and whether a name may stand for another inode afterwards
    found: dict[Change, None] = {}
    for key, value in writes:
        if not is_of_tree(key):
            continue
        nodes[key[NODE]] = nodes.get(key[NODE], False) or key[0] != ATTRIBUTES
        if key[0] == PLACE and value is not None:
            try:
                place = Place.decode(value)
            except DecodeError:  # refused when it is taken in
                continue
            parent = ino_shown_for(tx, place.parent)
            if parent is not None:
                found[Change(parent, place.name)] = None
    for node, renamed in nodes.items():
        ino = ino_shown_for(tx, node)
        if ino is None:
            continue
        found[Change(ino)] = None
        names = tx.places.of(ino).values() if renamed else ()
        found.update((Change(one.parent, one.name), None) for one in names)
    return list(found)
