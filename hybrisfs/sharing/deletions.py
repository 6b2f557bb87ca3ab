"""What other devices take away or overwrite in mass, and waits: shown, examined, accepted, undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hybrisfs.api import decisions as api
from hybrisfs.errors import UsageError
from hybrisfs.kinds import ATTRIBUTES, CONTENT
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.held import Compared, Held
from hybrisfs.merge.samples import Finding, is_to_wait
from hybrisfs.merge.signing import Signer
from hybrisfs.stages import Signals
from hybrisfs.state.decisions import Cause, Deletion
from hybrisfs.state.shown_nodes import shown_path
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.versions.contents import size_of

__all__ = ["Deletions", "Suspicion"]

_SHORT: Final = 12  # hexadecimal digits of an update's hash that people see
_LISTED: Final = 1000
"""Files of one deletion that are listed, at most."""


class Suspicion(NamedTuple):
    """Overwritten files, samples of which are to be looked at."""

    deletion: Deletion
    files: Sequence[Compared]


class Deletions:
    """What `merge.held` holds in one volume. Thread-safe."""

    def __init__(
        self,
        fs: FileSystem,
        held: Held,
        arrivals: Arrivals,
        signer: Signer,
        signals: Signals,
    ) -> None:
        self._fs = fs
        self._held = held
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
                    overwrites=one.cause is not Cause.REMOVED,
                    examined=not one.cause.is_suspicion,
                )
                for one in self._held.deletions(tx)
            ]

    def files(self, which: str) -> tuple[list[api.HeldFile], int]:
        """The files and folders that are held of a deletion, with what is there by the log, `_LISTED` of them
        at most; and how many there are. Raises UsageError."""
        with self._fs.state.transaction() as tx:
            found = self._held.compared(tx, self._find(tx, which))
            listed = [_described(one, shown_path(tx, one.ino)) for one in found[:_LISTED]]
        return sorted(listed, key=lambda one: one.path), len(found)

    def accept(self, which: str) -> None:
        """Delete or overwrite here, too. *which* is the beginning of an id. Raises UsageError."""
        self._decide(which, wanted=False)

    def undo(self, which: str) -> None:
        """Bring back on all devices what was deleted or overwritten. Raises UsageError, and HybrisError when
        this device may not sign."""
        self._decide(which, wanted=True)
        self._signals.chunks_made()

    def _decide(self, which: str, *, wanted: bool) -> None:
        with self._fs.state.log_transaction() as tx:
            deletion = self._find(tx, which)
            if wanted:
                self._signer.ensure_allowed(tx)
                self._signer.require_writer(tx)
            writes, nodes = self._held.release(tx, deletion, wanted=wanted)
            if writes:
                self._signer.sign(tx, writes, tx.chunks.newest())
            if nodes:
                self._fs.shown(self._arrivals.reveal(tx, nodes))

    def _find(self, tx: Transaction, which: str) -> Deletion:
        found = [one for one in self._held.deletions(tx) if one.id.hex().startswith(which.lower())]
        if len(found) != 1 or not which:
            raise UsageError(f"no deletion {which[:80]!r} waits", "", "hybrisfs deletions list shows them.")
        return found[0]

    # -- what is suspected -----------------------------------------------------------------------

    def suspicions(self) -> list[Suspicion]:
        """What nobody is asked about before samples were looked at."""
        with self._fs.state.transaction() as tx:
            return [
                Suspicion(one, self._held.compared(tx, one))
                for one in self._held.deletions(tx)
                if one.cause.is_suspicion
            ]

    def settle(self, suspicion: Suspicion, findings: Sequence[Finding] | None) -> None:
        """Let through what was suspected, or have a person asked, by what samples have shown; None: none
        could be had. What has come since then is left for another look."""
        with self._fs.state.log_transaction() as tx:
            now = [one for one in self._held.deletions(tx) if one.number == suspicion.deletion.number]
            if not now:
                return  # it is decided
            if findings is None or is_to_wait(suspicion.deletion.cause, findings):
                self._held.confirm(tx, now[0])
                return
            same = set(suspicion.files).intersection(self._held.compared(tx, now[0]))
            if same:
                nodes = self._held.let_through(tx, now[0], [one.key for one in same])
                self._fs.shown(self._arrivals.reveal(tx, nodes))


def _described(one: Compared, path: str) -> api.HeldFile:
    before = size_of(None if one.before is None else one.before.value)
    now = None if one.now is None else size_of(one.now.value)
    if one.key[0] == ATTRIBUTES:
        return api.HeldFile(path=path, change="closed", before=before, now=before)
    if one.key[0] == CONTENT:
        return api.HeldFile(path=path, change="overwritten" if now else "emptied", before=before, now=now)
    change = "deleted" if now is None else "replaced"
    return api.HeldFile(path=path, change=change, before=before, now=now)
