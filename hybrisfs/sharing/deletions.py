"""Mass deletions by other devices that wait for a person: shown, accepted, undone."""

from __future__ import annotations

from typing import Final

from hybrisfs.api import decisions as api
from hybrisfs.errors import UsageError
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.losses import Losses
from hybrisfs.merge.signing import Signer
from hybrisfs.stages import Signals
from hybrisfs.state.decisions import Deletion
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["Deletions"]

_SHORT: Final = 12  # hexadecimal digits of an update's hash that people see


class Deletions:
    """What `merge.losses` holds in one volume. Thread-safe."""

    def __init__(
        self,
        fs: FileSystem,
        losses: Losses,
        arrivals: Arrivals,
        signer: Signer,
        signals: Signals,
    ) -> None:
        self._fs = fs
        self._losses = losses
        self._arrivals = arrivals
        self._signer = signer
        self._signals = signals

    def all(self) -> list[api.Deletion]:
        """The deletions that wait, oldest first."""
        with self._fs.state.transaction() as tx:
            return [
                api.Deletion(
                    id=one.id.hex()[:_SHORT],
                    device=tx.members.name_of(one.device),
                    time=one.time_ns / 1e9,
                    names=one.names,
                    of=one.of,
                )
                for one in self._losses.deletions(tx)
            ]

    def accept(self, which: str) -> None:
        """Delete here, too. *which* is the beginning of an id. Raises UsageError."""
        self._decide(which, wanted=False)

    def undo(self, which: str) -> None:
        """Bring back on all devices what was deleted. Raises UsageError, and HybrisError when this device may
        not sign."""
        self._decide(which, wanted=True)
        self._signals.chunks_made()

    def _decide(self, which: str, *, wanted: bool) -> None:
        with self._fs.state.log_transaction() as tx:
            deletion = self._held(tx, which)
            if wanted:
                self._signer.ensure_allowed(tx)
                self._signer.require_writer(tx)
            writes, nodes = self._losses.release(tx, deletion, wanted=wanted)
            if writes:
                self._signer.sign(tx, writes, tx.chunks.newest())
            if nodes:
                self._fs.shown(self._arrivals.reveal(tx, nodes))

    def _held(self, tx: Transaction, which: str) -> Deletion:
        found = [one for one in self._losses.deletions(tx) if one.id.hex().startswith(which.lower())]
        if len(found) != 1 or not which:
            raise UsageError(f"no deletion {which[:80]!r} waits", "", "hybrisfs deletions list shows them.")
        return found[0]
