"""Which of the checkpoints that others name this device takes in: one that it can believe, and that stands
for updates which are not known here and may be had in no other way.

The names of updates in the index of the checkpoint show what is lacking; vectors do not. Branches get other
names when a fork comes to light, so that a vector may seem to cover what the log lacks, and to lack what it
has. The log forgets no name: so no device takes in a checkpoint twice, nor one that it has stated.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice, takewhile
from typing import Final

from hybrisfs.checkpoint.adoption import Adoption, check_snapshot
from hybrisfs.checkpoint.fetching import Fetching, NotToBeHadError
from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.checkpoint.reading import Latest, read_snapshot
from hybrisfs.garbage import without_collections
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.state.checkpoints import Recorded
from hybrisfs.state.state import Transaction
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem
from sync import CheckpointId, DecodeError, Head, LimitError, Members
from sync.checkpoint import Root
from sync.log_index import IndexEntry

__all__ = ["Intake"]

log = logging.getLogger(__name__)

_ENTRIES: Final = 2048
_RETRY_SECONDS: Final = 300.0


class Intake:
    """Takes in checkpoints for one volume. `offered` is called by any thread, all else by one."""

    def __init__(
        self,
        fs: FileSystem,
        arrivals: Arrivals,
        snapshots: LocalSnapshots,
        fetching: Fetching,
    ) -> None:
        self._fs = fs
        self._limits = fs.environment.limits.of(CheckpointLimits)
        self._arrivals = arrivals
        self._snapshots = snapshots
        self._fetching = fetching
        self.taken_in = Topic[[Transaction]]()
        """Show what a checkpoint has brought; called with the locks held that `Receiver` holds."""
        self._examined: dict[bytes, float] = {}  # names of roots -> when to look at them again
        self._offered: set[bytes] = set()
        self._lacking: dict[bytes, float] = {}  # names of roots -> since when something of them is lacking
        self._complete: set[bytes] = set()  # snapshots of which nothing is lacking, nor ever will be

    def offered(self, root: bytes) -> None:
        """A device says that what is lacking here begins below the checkpoint with this root."""
        self._offered.add(root)
        self._examined.pop(root, None)

    def has(self, tx: Transaction, snapshot: bytes) -> bool:
        """Whether nothing of the checkpoint with this snapshot is known to be lacking here."""
        return snapshot in self._complete or snapshot in [one.stored.snapshot for one in tx.checkpoints.all()]

    def begin(self, named: CheckpointId) -> bool:
        """Begin with the checkpoint that the inviter names; False when that cannot be done."""
        self._offered.add(named.root)
        return self._examine(named.root, named.snapshot, float("-inf"), vouched=True)

    def look(self, heads: Mapping[bytes, Head], now: float) -> None:
        """Take in what is named or was offered, if it is wanted; *now*: seconds, monotonic."""
        with self._fs.state.transaction() as tx:
            self._complete.update(one.stored.snapshot for one in tx.checkpoints.all())
            inviter = tx.meta("inviter")
        named = {
            head.checkpoint.root: (head.checkpoint.snapshot, device == inviter)
            for device, head in sorted(heads.items(), key=lambda one: one[0] == inviter)
            if head.checkpoint is not None and head.checkpoint.snapshot not in self._complete
        }
        for root in (*named, *(self._offered - named.keys())):
            if now < self._examined.get(root, 0.0):
                continue
            self._examined[root] = now + _RETRY_SECONDS
            snapshot, vouched = named.get(root, (None, False))
            self._examine(root, snapshot, now, vouched=vouched)

    def _examine(self, name: bytes, snapshot: bytes | None, now: float, *, vouched: bool) -> bool:
        """Take in the checkpoint with this root if something of it is wanted here, and it can be believed."""
        try:
            root = self._fetching.root(name)
            with self._fs.state.transaction() as tx:
                members, volume = tx.members.devices(), tx.updates.volume
            root.check(volume, members)
            if snapshot not in (None, root.snapshot) or not (vouched or self._is_trusted(root, members)):
                return False
            if not self._is_wanted(name, root, now):
                return False
            stored = self._fetching.fetch_slices(root)
            check_snapshot(self._snapshots, stored, root)
            with without_collections(), self._fs.state.cutting, self._fs.state.transaction() as tx:
                Adoption(self._fs, self._arrivals).run(tx, self._snapshots, stored)
                through = tx.checkpoints.through()
                tx.checkpoints.put(Recorded(stored, root.vector, through, root.encode(), name))
                self.taken_in(tx)
        except (NotToBeHadError, DecodeError, LimitError, OSError) as error:
            log.warning("checkpoint %s is not taken in: %s", name.hex(), error)
            return False
        self._offered.discard(name)
        log.info("took in checkpoint %s", root.snapshot.hex())
        return True

    def _is_wanted(self, name: bytes, root: Root, now: float) -> bool:
        with self._fs.state.transaction() as tx:
            vector = tx.updates.state.vector
        ahead = root.vector.highest - vector.highest
        if ahead <= 0 and not self._lacks(root):
            self._complete.add(root.snapshot)
            self._offered.discard(name)
            self._lacking.pop(name, None)
            return False
        if not len(vector) or ahead >= self._limits.far_behind or name in self._offered:
            return True
        return now - self._lacking.setdefault(name, now) >= self._limits.patience_seconds

    def _lacks(self, root: Root) -> bool:
        """Whether it stands for updates that are not known here. Raises NotToBeHadError, DecodeError."""
        if root.snapshot in self._complete:
            return False
        pieces = (self._fetching.part(one.name) for one in root.slices)
        entries = takewhile(lambda one: not isinstance(one, Latest), read_snapshot(pieces))
        while some := {one.hash for one in islice(entries, _ENTRIES) if isinstance(one, IndexEntry)}:
            with self._fs.state.transaction() as tx:
                if not some <= tx.updates.known(some):
                    return True
        return False

    def _is_trusted(self, root: Root, members: Members) -> bool:
        """Whether this device has stated it itself, or the one that let it in has; any member, when that is
        none: a recovery kit, or removed."""
        with self._fs.state.transaction() as tx:
            inviter, own = tx.meta("inviter"), tx.updates.device
        if inviter and inviter not in members:
            return any(device in members for device in root.evidence)
        return own in root.evidence or inviter in root.evidence
