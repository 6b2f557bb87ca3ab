"""What clouds show of our own head: where it may be overwritten, and what it must go on leading to.

A head is the one object that is overwritten, and it may be all that leads to a segment. A device whose state
was set back, restored from a backup or copied, does not know of segments that its own heads on the clouds
name. So a device that is about to put a head on a cloud keeps two rules:

 1. A cloud's head of ours is overwritten only after it was looked at on that very cloud, since the start.
 2. The head in its place names what those that were looked at lead to and our log lacks, or knows through a
    checkpoint only while the newest segment of its author is of another chain: the newest segment of each and
    those that it relays, and the newest checkpoint that they name and our log lacks. It has a higher serial
    than all.

Of the updates that those lead to, our head leads to those in our log in the usual way: to the own chain
through the newest segment, and to all others, our own other branches included, as they are relayed
(`hybrisfs.write.relay`). So at any time our head on a correct cloud leads to all that any head of ours before
it on that cloud led to, by induction over the puts: nothing that is on the clouds gets out of reach, even if
other devices are lost or set back, too. Nothing need be fetched before; no device waits for a segment that is
away.

What clouds can do against that:
 * One that is away at the start is looked at when it is back. Until then the others go on; what only its
   head leads to is found then, by us and by those who look at it.
 * One that lies can return an old head of ours, which names a few segments more; they do exist. It can deny
   its head or return rubbish, and will have its own copy overwritten, which it might as well have lost.
 * It can return what claims to be sealed with a key that we lack, or of a format of the future. Correct ones
   do that, too, when our state is older than the key: so such a cloud is left alone until our grant has come.
   That keeps nobody from going on elsewhere: to begin, all clouds but f must have been looked at.

The serial is what tells an older head from a newer one: it takes the place of time, which is wrong where
clocks are, and of the vector, which is smaller after a state was set back. It is at least the time of day in
nanoseconds, so that it goes on rising even where the head before cannot be had. By rule 2 it rises on every
cloud that does not lie, but for two copies of one device at the same time whose clocks differ.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Final

from sync.head import MAX_RELAYED, CheckpointId, Head, Relayed
from sync.trail import Holds

__all__ = ["EarlierHeads", "OwnHeads"]

_MOST_NAMED: Final = 4 * MAX_RELAYED


@dataclass(frozen=True, slots=True)
class EarlierHeads:
    """What has been seen of our own heads since the start."""

    clouds: frozenset[int] = frozenset()
    """Those that may be given another head."""
    serial: int = 0
    """The highest of those heads, 0 when there was none."""
    segments: tuple[Relayed, ...] = ()
    """What they lead to, in ascending order; our log may hold it or not."""
    checkpoint: CheckpointId | None = None
    """That of the newest head that names one. It may stand for updates that are in no segment any more."""


class OwnHeads:
    """Notes what clouds return as the head of this device."""

    def __init__(self, known: Holds) -> None:
        self._known = known
        self._checkpoint_serial = -1  # of the head that named the checkpoint
        self.earlier_heads = EarlierHeads()

    def seen(self, cloud: int, head: Head | None) -> None:
        """The cloud returned this head, or has none that would be worth keeping."""
        earlier_heads = replace(self.earlier_heads, clouds=self.earlier_heads.clouds | {cloud})
        if head is not None:
            segments = self._bounded({*earlier_heads.segments, *_named(head)})
            earlier_heads = replace(
                earlier_heads, serial=max(earlier_heads.serial, head.serial), segments=segments
            )
            if head.checkpoint is not None and head.serial > self._checkpoint_serial:
                self._checkpoint_serial = head.serial
                earlier_heads = replace(earlier_heads, checkpoint=head.checkpoint)
        self.earlier_heads = earlier_heads

    def keep_clouds(self, clouds: Container[int]) -> None:
        """Forget that other clouds than these were looked at: they may be used again one day."""
        kept = frozenset(cloud for cloud in self.earlier_heads.clouds if cloud in clouds)
        self.earlier_heads = replace(self.earlier_heads, clouds=kept)

    def _bounded(self, segments: set[Relayed]) -> tuple[Relayed, ...]:
        """Old heads that clouds bring up again add names: if there are too many, those go first whose
        updates are here, and the oldest of them."""
        if len(segments) > _MOST_NAMED:
            order = sorted(
                segments, key=lambda one: (self._known(one.author, one.segment.prefix), -one.segment.first)
            )
            segments = set(order[:_MOST_NAMED])
        return tuple(sorted(segments))


def _named(head: Head) -> list[Relayed]:
    own = [] if head.on_clouds is None else [Relayed(head.writer, head.on_clouds.newest)]
    return [*own, *head.relayed]
