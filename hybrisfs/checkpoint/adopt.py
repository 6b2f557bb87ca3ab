"""Which of the checkpoints that others name this device takes in, a sans-IO machine: one that it can believe,
and that stands for updates which are not known here and may be had in no other way.

`hybrisfs.checkpoint.intake` asks `due`, carries out each action and reports how it went, which may lead to
another one. After a failure it reports nothing. The rows of the `checkpoint` table tell after a restart what
is complete; the rest is found again.

    a checkpoint is   that means                       it goes on when                         by
    ---------------   ------------------------------   -------------------------------------   -------
    named             a head names its root            at once, then all 300 seconds           Read
    offered           a linked device has said that    at once, then all 300 seconds           Read
                      what is lacking here is of it
    read              its root is here                 this device has stated it, or whom it   Compare
                                                       trusts; else it is named again
    lacking           the log lacks some of it         the log is empty or far behind, or it   TakeIn
                                                       is offered; or it has lacked that for
                                                       so long
    complete          the log lacks nothing of it      never

What always holds (tests/checkpoint/test_adopt.py):

1. Only a checkpoint is taken in that this device or its inviter has signed, or that the inviter names. If
   the inviter is not a member (a recovery kit, or removed), the signature of any member is enough.
2. A checkpoint is not taken in when the log has all of it. The names of updates in its index show that;
   vectors do not. Branches get other names when a fork comes to light, so that a vector may seem to cover
   what the log lacks, and to lack what it has. The log forgets no name: so no device takes in a checkpoint
   twice, nor one that it has stated.
3. Others may name what they like: each root costs one look in 300 seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from hybrisfs.checkpoint.limits import CheckpointLimits
from sync import CheckpointId, Head, Members, VersionVector
from sync.checkpoint import Root

__all__ = ["Action", "AdoptionMachine", "Compare", "Read", "TakeIn", "View"]

_RETRY_SECONDS: Final = 300.0


class Read(Struct, frozen=True):
    """Fetch the root of this name. Report `read`."""

    name: bytes
    vouched: bytes | None
    """The snapshot that the inviter says it is of; None when only others name it."""


class Compare(Struct, frozen=True):
    """Find out whether the log lacks an update that this checkpoint stands for. Report `compared`."""

    name: bytes
    root: Root


class TakeIn(Struct, frozen=True):
    """Fetch the checkpoint, verify it and take it in. Report `taken_in`."""

    name: bytes
    root: Root


Action: TypeAlias = Read | Compare | TakeIn


class View(Struct, frozen=True):
    """What is here at one moment."""

    vector: VersionVector
    members: Members
    inviter: bytes
    """The device or recovery kit that has let this one in; empty for the first device."""
    recorded: Collection[bytes]
    """The snapshots in the rows."""


class AdoptionMachine:
    """The checkpoints of others, for one device of a volume. *now*: seconds, monotonic. `offered` is called
    by any thread, all else by one."""

    def __init__(self, volume: bytes, device: bytes, limits: CheckpointLimits) -> None:
        self._volume = volume
        self._device = device
        self._limits = limits
        self._read_again: dict[bytes, float] = {}  # names of roots -> when to look at them again
        self._offered: set[bytes] = set()
        self._lacking: dict[bytes, float] = {}  # names of roots -> since when something of them is lacking
        self._complete: set[bytes] = set()  # snapshots that the log has all of, for ever

    def offered(self, root: bytes) -> None:
        """A device says that the updates lacking here begin below the checkpoint with this root."""
        self._offered.add(root)
        self._read_again.pop(root, None)

    def is_complete(self, snapshot: bytes) -> bool:
        """Whether this device is known to lack nothing of the checkpoint with this snapshot."""
        return snapshot in self._complete

    def begin(self, named: CheckpointId) -> Action:
        """Begin with this checkpoint, on the word of the one who let this device in."""
        self._offered.add(named.root)
        return Read(named.root, named.snapshot)

    def due(self, view: View, heads: Mapping[bytes, Head], now: float) -> Action | None:
        """Look at a checkpoint that is named or was offered, if one is due; *heads*: the newest known of each
        device."""
        self._complete.update(view.recorded)
        named = {
            head.checkpoint.root: head.checkpoint.snapshot if device == view.inviter else None
            for device, head in sorted(heads.items(), key=lambda one: one[0] == view.inviter)
            if head.checkpoint is not None and head.checkpoint.snapshot not in self._complete
        }
        for root in (*named, *(self._offered - named.keys())):
            if now >= self._read_again.get(root, 0.0):
                self._read_again[root] = now + _RETRY_SECONDS
                return Read(root, named.get(root))
        return None

    def read(self, asked: Read, root: Root, view: View, now: float) -> Action | None:
        """The root is here. Raises DecodeError when its statements are not in order."""
        root.check(self._volume, view.members)
        if root.snapshot != asked.vouched and not self._is_trusted(root, view):
            return None
        if root.vector.highest > view.vector.highest:
            return self._take_in(asked.name, root, view, now)
        compare = Compare(asked.name, root)
        return self.compared(compare, view, now, lacks=False) if root.snapshot in self._complete else compare

    def _is_trusted(self, root: Root, view: View) -> bool:
        """Whether one whose word counts has stated the checkpoint."""
        if view.inviter and view.inviter not in view.members:
            return any(device in view.members for device in root.evidence)
        return self._device in root.evidence or view.inviter in root.evidence

    def compared(self, asked: Compare, view: View, now: float, *, lacks: bool) -> Action | None:
        """The log *lacks* an update of it, or none; *view*: from before they were compared."""
        if lacks:
            return self._take_in(asked.name, asked.root, view, now)
        self._complete.add(asked.root.snapshot)
        self._offered.discard(asked.name)
        self._lacking.pop(asked.name, None)
        return None

    def _take_in(self, name: bytes, root: Root, view: View, now: float) -> Action | None:
        """Take it in if what is lacking will not come by the log, or only after long."""
        ahead = root.vector.highest - view.vector.highest
        urgent = not len(view.vector) or ahead >= self._limits.far_behind or name in self._offered
        if urgent or now - self._lacking.setdefault(name, now) >= self._limits.patience_seconds:
            return TakeIn(name, root)
        return None

    def taken_in(self, done: TakeIn) -> None:
        """The log has all of it, and there is a row of it."""
        self._offered.discard(done.name)
