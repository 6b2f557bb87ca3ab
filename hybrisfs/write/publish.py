"""The publisher: turns what changed in the view into signed updates.

Each round takes a cut, cuts its files into chunks, and signs all of it as one transaction. In quiet times a
change is signed at once; under load rounds are at least `ROUND_SECONDS` apart, and the changes between two
rounds are grouped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.kinds import NODE, PLACE, Trait, having
from hybrisfs.merge.signing import Signer
from hybrisfs.merge.unsigned import is_withheld
from hybrisfs.receive.take import Receiver
from hybrisfs.registers.tree import attr_key, content_key, slot_of
from hybrisfs.stages import IDLE, Pause, Signals
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.chunk import Chunker
from hybrisfs.write.cut import Cut, CutLimits, FileSnapshot, looked_at, release, take_cut

__all__ = ["Publisher", "record_signed"]

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 1.0
_DIRECT: Final = having(Trait.DIRECT)
_BRISK_SECONDS: Final = 0.02
_BRISK_SHARE: Final = (
    20  # of the time, at most one part in so many goes into rounds while others wait for them
)
_RETRY_SECONDS: Final = 10.0
_SIFTED: Final = 2000  # changes, between which programs go on
_MOST_SIFTS: Final = 500


class _OutdatedError(Exception):
    """The cut cannot be signed, because a file was removed since and its bytes cannot be read."""


class Publisher:
    """A stage that signs in rounds."""

    def __init__(
        self,
        fs: FileSystem,
        chunker: Chunker,
        signer: Signer,
        receiver: Receiver,
        signals: Signals,
    ) -> None:
        self.limits = fs.environment.limits.of(CutLimits)
        """They may be others at any moment."""
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._chunker = chunker
        self._signer = signer
        self._receiver = receiver
        self._signals = signals
        self._postponed: dict[int, float] = {}  # nodes whose bytes cannot be had now, and until when

    def step(self) -> Pause:
        """Sign the changes so far; later ones are gathered for a while."""
        begun = self._monotonic()
        while self.publish_round() and self._behind() and not self._signals.stopping:
            pass
        took = self._monotonic() - begun
        return IDLE._replace(least=self._interval(took) - took)

    def _interval(self, took: float) -> float:
        """Seconds between the beginnings of two rounds, when the last one took so long."""
        if not self._signals.brisk:
            return ROUND_SECONDS
        return min(ROUND_SECONDS, max(_BRISK_SECONDS, took * _BRISK_SHARE))

    def _behind(self) -> bool:
        return self._fs.changes.waiting >= self.limits.most_registers

    def publish_round(self) -> bool:
        """Sign what has changed; False when there was nothing to sign."""
        with self._fs.state.cutting:
            return self._round()

    def _round(self) -> bool:
        while (cut := self._take_cut()) is not None:
            try:
                for group in self._chunker.in_groups(cut.files):
                    self._make_values(cut, group)
                with self._fs.state.transaction() as tx:
                    if cut.seqs:
                        self._sign(tx, cut)
            except _OutdatedError as outdated:
                log.debug("the cut is taken again: %s", outdated)
                continue
            finally:
                with self._fs.state.transaction() as tx:
                    release(tx, self._fs, cut)
                    deferred = bool(tx.chunks.deferred)
            self._signals.chunks_made(deferred=deferred)
            return True
        return False

    def _take_cut(self) -> Cut | None:
        now = self._monotonic()
        everything = self._signals.flushing
        self._postponed = {ino: until for ino, until in self._postponed.items() if until > now}
        self._sift()
        with self._fs.state.transaction() as tx:
            if not self._signer.may_contribute(tx):
                return None
            withheld = None
            if not self._fs.is_full:
                withheld = partial(is_withheld, tx, self._fs, self._signer.counting(tx))
            while self._fs.ignored.sift(tx, self._looked_at()):
                pass
            cut, rest_wanted = take_cut(
                tx,
                self._fs,
                now,
                self.limits,
                everything=everything,
                skip=self._postponed.__contains__,
                withheld=withheld,
            )
        self._signals.want_rest(rest_wanted)
        return cut

    def _sift(self) -> None:
        """Set aside most of what is ignored, in steps between which programs go on."""
        for _ in range(_MOST_SIFTS):
            with self._fs.state.transaction() as tx:
                if not self._fs.ignored.sift(tx, _SIFTED):
                    return

    def _looked_at(self) -> int | None:
        """Of so many of the oldest changes cuts take some; None: of all."""
        return looked_at(self.limits) if self._fs.is_full else None

    def _make_values(self, cut: Cut, group: Sequence[FileSnapshot]) -> None:
        """Make the values of files. When a group fails, one of them may be to blame: then one at a time.
        Raises _OutdatedError."""
        if len(group) > 1:
            try:
                values = self._chunker.chunk_group(group)
            except OSError as error:
                log.debug("%d files are published one by one (%s)", len(group), error)
            else:
                cut.writes.update((one.key, value) for one, value in zip(group, values, strict=True))
                return
        for snapshot in group:
            self._make_value(cut, snapshot)

    def _make_value(self, cut: Cut, snapshot: FileSnapshot) -> None:
        """Make the value of a file's content, even if the file was removed since: later changes of the cut
        may depend on it, as a database depends on its journal. Raises _OutdatedError."""
        inode = snapshot.inode
        try:
            cut.writes[snapshot.key] = self._chunker.chunk(snapshot)
        except (OSError, ChunkUnavailable) as error:
            if inode.orphan:
                raise _OutdatedError(f"file {inode.ino} has been removed, and {error}") from error
            # Staged bytes stay where they are; what was published of the file stays true.
            log.warning("file %d cannot be published now (%s); it will be tried again", inode.ino, error)
            self._postponed[inode.ino] = self._monotonic() + _RETRY_SECONDS
            inode.forced = True  # also if it is open then: what it holds back may hold back others
            cut.without(inode)

    def _sign(self, tx: Transaction, cut: Cut) -> None:
        stamp = self._signer.sign(tx, cut.writes.items(), tx.chunks.newest(), cut.directories)
        self._fs.changes.signed(tx, cut.seqs, stamp.clock)
        record_signed(tx, self._fs, cut.inos, self._signer.number_of(tx, stamp))
        self._receiver.signed(tx, {key[NODE] for key in cut.writes})
        log.debug("signed update %d: %d registers", stamp.clock, len(cut.writes))


def record_signed(tx: Transaction, fs: FileSystem, inos: dict[bytes, int], stamp: int) -> None:
    """Note in the view that the update with this stamp wrote these registers."""
    places: list[tuple[int, int]] = []
    direct = [key for key in inos if key[0] in _DIRECT]
    if direct:
        tx.direct.forget(key for key in direct if key not in fs.changes.unsigned)
    for key, ino in inos.items():
        if key[0] == PLACE:
            places.append((ino, slot_of(key)))
            continue
        try:
            inode = fs.inodes.get(tx, ino)
        except KeyError:
            continue  # removed since the cut; its tombstone follows
        if key == attr_key(inode.id):
            inode.attr_stamp = stamp
        elif key == content_key(inode.id):
            inode.content_stamp = stamp
        fs.inodes.touch(inode)
    tx.places.set_stamp(stamp, places)
