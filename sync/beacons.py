"""What heads tell: of a device, of clouds that hide some of it, and of our own head (Depot 5.3).

Only the device can make its head, but any cloud can withhold it or return an earlier one. A cloud is
*convicted* only by what a correct one never does: it returned something else than a head, or it
returned a head and later an earlier one or none. A cloud that never had the newest head may just have
been away when it was written: it is *behind*, and that is reported when it stays so.

One head precedes another of its device when its serial is lower and either the other's vector covers more,
or the other knows more branches: a vector gains entries only, and the renaming of a forked writer's entries
adds some. A device restored from a backup writes heads that cover less, and one whose clock is set back
earlier ones; with higher serials all the same, so they convict nobody.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sync.codec import Buffer
from sync.errors import DecodeError
from sync.head import MAX_RELAYED, CheckpointId, Head, Relayed, decode_head
from sync.seal import SealKeys
from sync.trail import Holds

__all__ = [
    "PROPAGATION_SECONDS",
    "Beacons",
    "EarlierHeads",
    "Fault",
    "OwnHeads",
    "Report",
    "Sighting",
    "Staleness",
    "check_head",
    "precedes",
]

PROPAGATION_SECONDS: Final = 360.0
"""How long a head that was written may take to be seen by all: the longest pause between rounds, and more."""


class Fault(Enum):
    """What is wrong with what a cloud, or all of them, returned."""

    UNREADABLE = "unreadable"
    ROLLED_BACK = "rolled back"
    LOST = "lost"
    BEHIND = "behind"
    NEWER_FORMAT = "newer format"
    UNKNOWN_EPOCH = "unknown epoch"
    OMITTED = "omitted"

    @property
    def lie(self) -> bool:
        """Whether no correct cloud does that."""
        return self in (Fault.UNREADABLE, Fault.ROLLED_BACK, Fault.LOST)


class Report(Struct, frozen=True):
    """Something for the user to know: what is wrong with the object `name` of `device`."""

    device: bytes
    cloud: int | None
    """The cloud that is at fault, None when it is all of them together."""
    name: str
    fault: Fault
    reason: str
    """A phrase that goes on after the object's name."""
    floor: Head | None = None
    """A head that the cloud should return, or a later one."""


class Staleness(Struct, frozen=True):
    """How old a device's last sign of life is. `suspect`: changes of it may be missing since then."""

    device: bytes
    last_ns: int | None
    """By the device's clock, but not later than its arrival by ours; None when it was never seen."""
    suspect: bool


class Sighting(Struct, frozen=True):
    """What is kept of a device until the next start, so that no cloud can go back behind it unnoticed."""

    head: bytes | None
    """The newest head, sealed as a cloud returned it; None when there was none yet."""
    seen_ns: int | None
    """See `Staleness.last_ns`."""


def precedes(one: Head, other: Head) -> bool:
    """Whether `one` was written before `other` by the same device, as far as the two can prove it."""
    if one.serial >= other.serial or one.vector == other.vector:
        return False
    mine, theirs = (frozenset(branch for branch, _ in head.vector.items()) for head in (one, other))
    return other.vector.covers(one.vector) or mine < theirs


def check_head(data: Buffer, volume: bytes, public: bytes, keys: SealKeys, floor: Head | None) -> None:
    """Raise `DecodeError` unless `data` is a head of that device and does not precede `floor`."""
    head = decode_head(data, volume, public, keys)
    if floor is not None and precedes(head, floor):
        raise DecodeError("it is still an earlier head than the one known")


class Beacons:
    """The heads of one device. Times `now` are seconds by a clock that never goes back."""

    def __init__(self, now: float) -> None:
        self.newest: Head | None = None
        self._last_ns: int | None = None
        self._offline = False
        self._begun = now
        self._best: dict[int, Head] = {}  # by cloud: the newest that it ever returned
        self._last: dict[int, Head] = {}  # by cloud: what it returned last
        self._behind: dict[int, float] = {}  # by cloud: since when it has told less than others
        self._answered: set[int] = set()  # the clouds that ever said anything
        self._told: dict[int, Fault] = {}  # by cloud: what has been reported and still holds

    def remember(self, head: Head | None, seen_ns: int | None) -> None:
        """What was known before the last start. Call before anything else."""
        self._last_ns = seen_ns
        if head is not None:
            self.newest = head
            self._offline = head.offline

    def arrived(self, head: Head, time_ns: int) -> bool:
        """A cloud returned this head; True when it states new updates. `time_ns` is our time of day."""
        before = self.newest
        if before is not None and head.serial <= before.serial:
            return False
        self.heard(min(head.time_ns, time_ns))
        self._offline = head.offline
        self.newest = head
        return before is None or before.vector != head.vector

    def heard(self, time_ns: int) -> None:
        """The device was alive at that time, and nothing that it wrote before is missing here."""
        self._offline = False
        self._last_ns = time_ns if self._last_ns is None else max(self._last_ns, time_ns)

    def judge(self, cloud: int, head: Head | None, now: float) -> Fault | None:
        """What to report of a cloud that returned `head`, or says that it has none. Call after `arrived`."""
        self._answered.add(cloud)
        if head is None:
            self._last.pop(cloud, None)
        else:
            self._last[cloud] = head
        best = self._best.get(cloud)
        if head is not None and (best is None or not precedes(head, best)):
            self._best[cloud] = head
        if self.newest is None or (head is not None and not precedes(head, self.newest)):
            self._behind.pop(cloud, None)
            self._told.pop(cloud, None)
            return None
        if best is not None and head is None:
            return self._tell(cloud, Fault.LOST)
        if best is not None and head is not None and precedes(head, best):
            return self._tell(cloud, Fault.ROLLED_BACK)
        since = self._behind.setdefault(cloud, now)
        late = now - since >= PROPAGATION_SECONDS and cloud not in self._told
        return self._tell(cloud, Fault.BEHIND) if late else None

    def keep_clouds(self, clouds: Container[int]) -> None:
        """Forget what other clouds than these have told: nobody asks them any more."""
        for told in (self._best, self._last, self._behind, self._told):
            for cloud in [one for one in told if one not in clouds]:
                del told[cloud]
        self._answered = {one for one in self._answered if one in clouds}

    def unreadable(self, cloud: int, fault: Fault) -> Fault | None:
        """What to report of a cloud that returned something else than a head."""
        self._answered.add(cloud)
        self._last.pop(cloud, None)
        return self._tell(cloud, fault)

    @property
    def last_ns(self) -> int | None:
        """See `Staleness.last_ns`."""
        return self._last_ns

    def best_of(self, cloud: int) -> Head | None:
        """The newest head that this cloud ever returned."""
        return self._best.get(cloud)

    def last_of(self, cloud: int) -> Head | None:
        """The head that this cloud returned last, None when it was none."""
        return self._last.get(cloud)

    def told_of(self, cloud: int) -> Fault | None:
        """What was reported of the cloud and still holds."""
        return self._told.get(cloud)

    @property
    def disputed(self) -> bool:
        """Whether clouds tell different things, so that all should be asked."""
        return bool(self._behind or self._told)

    def staleness(self, device: bytes, bound: float, now: float, time_ns: int) -> Staleness:
        """Whether the last sign of life is older than `bound` seconds, and was not that of an orderly end."""
        waited = now - self._begun > bound
        if self._last_ns is None:
            return Staleness(device, None, waited)
        silent = time_ns - self._last_ns > bound * 1e9
        looked = waited or bool(self._answered)  # at first we only know how things were before the start
        return Staleness(device, self._last_ns, silent and looked and not self._offline)

    def _tell(self, cloud: int, fault: Fault) -> Fault | None:
        if self._told.get(cloud) is fault:
            return None
        self._told[cloud] = fault
        return fault


# -- what clouds show of our own head -------------------------------------------------------------------
# A head is the one object that is overwritten, and it may be all that leads to a segment. A device whose
# state was set back, restored from a backup or copied, does not know of segments that its own heads on the
# clouds name. So a device that is about to put a head on a cloud keeps two rules:
#
#  1. A cloud's head of ours is overwritten only after it was looked at on that very cloud, since the start.
#  2. The head in its place names what those that were looked at lead to and our log lacks, or knows through a
#     checkpoint only while the newest segment of its author is of another chain: the newest segment of each
#     and those that it relays, and the newest checkpoint that they name and our log lacks. It has a higher
#     serial than all.
#
# Of the updates that those lead to, our head leads to those in our log in the usual way: to the own chain
# through the newest segment, and to all others, our own other branches included, as they are relayed
# (`hybrisfs.write.relay`). So at any time our head on a correct cloud leads to all that any head of ours
# before it on that cloud led to, by induction over the puts: nothing that is on the clouds gets out of reach,
# even if other devices are lost or set back, too. Nothing need be fetched before; no device waits for a
# segment that is away.
#
# What clouds can do against that:
#  * One that is away at the start is looked at when it is back. Until then the others go on; what only its
#    head leads to is found then, by us and by those who look at it.
#  * One that lies can return an old head of ours, which names a few segments more; they do exist. It can deny
#    its head or return rubbish, and will have its own copy overwritten, which it might as well have lost.
#  * It can return what claims to be sealed with a key that we lack, or of a format of the future. Correct
#    ones do that, too, when our state is older than the key: so such a cloud is left alone until our grant
#    has come. That keeps nobody from going on elsewhere: to begin, all clouds but f must have been looked at.
#
# The serial is what tells an older head from a newer one: it takes the place of time, which is wrong where
# clocks are, and of the vector, which is smaller after a state was set back. It is at least the time of day
# in nanoseconds, so that it goes on rising even where the head before cannot be had. By rule 2 it rises on
# every cloud that does not lie, but for two copies of one device at the same time whose clocks differ.


_MOST_NAMED: Final = 4 * MAX_RELAYED


class EarlierHeads(Struct, frozen=True):
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
