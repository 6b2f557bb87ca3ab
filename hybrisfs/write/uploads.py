"""What the clouds lack, of any device, and waiting until it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hybrisfs.api.status import MachinesOnly
from hybrisfs.members.member_table import MemberTable
from hybrisfs.read.fetch import Fetcher
from hybrisfs.signals import Signals
from hybrisfs.state.journal_chunks import first_pending, pending_bytes, staged_bytes
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.unplaced import Unplaced
from hybrisfs.write.relayer import Relayer

__all__ = ["Uploads"]

_LOOK_SECONDS: Final = 5.0  # between two looks, while a caller waits, whether clouds have what members say


class Uploads:
    """The uploads of one volume. Opens its transactions itself, but for `pending_bytes`."""

    def __init__(
        self,
        fs: FileSystem,
        signals: Signals,
        relayer: Relayer,
        fetcher: Fetcher,
    ) -> None:
        self._fetcher = fetcher
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._signals = signals
        self._relayer = relayer
        self.unplaced = Unplaced(fs)

    def pending_bytes(self, tx: Transaction) -> int:
        """Bytes of files that this device has yet to bring to the clouds: staged, or cut into chunks that
        wait."""
        self._fs.flush(tx)
        return staged_bytes(tx) + pending_bytes(tx)

    def wait_signed(self, timeout: float) -> bool:
        """Wait until all that was written before is signed; False when *timeout* seconds are over."""
        with self._fs.state.transaction():
            target = self._fs.changes.seq

        def done() -> bool:
            with self._fs.state.transaction():
                return not self._fs.changes.unsigned_up_to(target)

        self._signals.begin_flush()
        try:
            return self._signals.wait_until(done, self._monotonic() + timeout)
        finally:
            self._signals.end_flush()

    def wait(self, timeout: float | None, progress: Callable[[int, int], None]) -> bool:
        """Wait until all that was there before is on the clouds; False when *timeout* seconds are over.

        What other devices wrote counts, too: as far as it is here and they cannot be reached over a link,
        this device brings it there itself; what they say to be there it reads there. *progress* is called
        with the bytes done so far and the bytes there were.
        """
        deadline = None if timeout is None else self._monotonic() + timeout
        with self._fs.state.transaction() as tx:
            target, newest = self._fs.changes.seq, self.unplaced.newest(tx)
            others = self._relayer.frontier(tx)
            total = self._lacking_bytes(tx)
        look_due = self._monotonic()

        def wait_for(reached: Callable[[Transaction], bool]) -> bool:
            def done() -> bool:
                nonlocal look_due
                if self._monotonic() >= look_due:
                    self._look_for_unproven()
                    look_due = self._monotonic() + _LOOK_SECONDS
                with self._fs.state.transaction() as tx:
                    left, finished = self._lacking_bytes(tx), reached(tx)
                progress(max(total - left, 0), total)
                return finished

            return self._signals.wait_until(done, deadline)

        self._signals.begin_flush()
        try:
            # What is written over and over is done when it has been signed and shipped once.
            return (
                wait_for(lambda tx: not self._fs.changes.unsigned_up_to(target))
                and wait_for(lambda tx: not self.unplaced.is_left(tx, newest))
                and wait_for(lambda tx: not self._is_unpacked(tx, newest))
                # What is written here can be read by nobody who lacks what it depends on.
                and wait_for(lambda tx: not self._relayer.unshipped_authors(tx, others))
                and wait_for(self._shipped_so_far())
                # Where the packs are was signed while we waited: that too must be told.
                and wait_for(self._shipped_so_far())
            )
        finally:
            self._signals.end_flush()

    def _look_for_unproven(self) -> None:
        with self._fs.state.transaction() as tx:
            unproven = self.unplaced.unproven(tx)
        if unproven:
            self._fetcher.prove(unproven)

    def machines_only(self, tx: Transaction) -> MachinesOnly:
        """What other devices wrote and no cloud is known to have; without such files the devices are those
        that have yet to bring changes there."""
        found, own = self.unplaced.count(tx), tx.updates.device
        lacking = {*(found.devices or self._relayer.unshipped_authors(tx))} - {own}
        members = MemberTable(tx).all()  # of a removed one nothing is to be expected
        names = [one.name for one in members if one.device in lacking]
        return MachinesOnly(found.files, found.size, names)

    def _is_unpacked(self, tx: Transaction, newest: int) -> bool:
        """Whether a chunk up to that number, claimed ones among them, is still to be brought there."""
        first = first_pending(tx, but=tx.chunks.lost)
        return first is not None and first <= newest

    def _lacking_bytes(self, tx: Transaction) -> int:
        return self.pending_bytes(tx) + self.unplaced.count(tx).size

    def _shipped_so_far(self) -> Callable[[Transaction], bool]:
        """Tells whether the clouds hold all that is signed now."""
        with self._fs.state.transaction() as tx:
            newest = tx.updates.own_tip()
        clock = newest.clock if newest else 0

        def shipped(tx: Transaction) -> bool:
            # What is bare was shipped, or is in a checkpoint on the clouds.
            left = tx.updates.own_after(tx.meta("published"), 1)
            return not left or left[0][0] > clock

        return shipped
