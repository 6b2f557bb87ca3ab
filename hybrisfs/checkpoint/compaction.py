"""Compaction: what two checkpoints stand for is no longer kept update by update (Depot 5.5).

When a checkpoint N is agreed, has been read back from f+k clouds, is still there, and all members name it in
their heads, and all devices that are only suspended, each device lets go of what the agreed checkpoint O
before it covers:

1. its records of log segments on the clouds that hold nothing else, but for its newest own segment, to which
   its head leads;
2. the bodies of the updates, here; the rows stay, bare, as after a checkpoint has been taken in;
3. the segments themselves, on each cloud. An author deletes what stands under its own name, its own segments
   and those that others relayed for it; the member with the lowest id what stands under the names of devices
   that were removed. Segments of reserves stay: a kit that is used again goes on from there. What an author
   has left because its credentials may not delete, any other member deletes, but for as many of the newest as
   the author's head counts: of these the author still has a row;
4. the room that this leaves in the database.

Each step is durable before the next. After a crash each unfinished step is found and done again; segments
that no record names are found by listing them. The log decides what is deleted, not the cloud: of the names
that a cloud lists, those go that end with an update which the log holds and O covers.

Why nothing is lost. A member has stated N, so it has accepted all that N covers, which O is a part of, and
needs no body of that any more: what came of it is in its registers. Only these can lack it:

* a device that is let in. Its inviter names N or a later checkpoint: it did when this was decided, or had let
  the other in before it could agree on N, which then has stated N, too. It begins with that. Should a cloud
  show it an older head, which names a checkpoint that is gone, it finds the newer one as soon as it sees a
  newer head. What comes after N, and even what lies between O and N, is there as segments;
* a member that was set back to a backup, or rebuilt. It has stated N itself, and takes it in;
* a machine that recovers by a kit, which finds N by the heads of the members;
* a device that is only suspended. Members agree on checkpoints without it, but while it names none of them
  nothing goes: when a member vetoes its removal it finds all in the log that it has not seen. It would take
  in no checkpoint that it has not stated, unless the device that let it in has.

What is not shipped yet is in no checkpoint, for no device states one before its own updates are on the
clouds, their chunks first. The clouds that hold N may lose it: every member has it as a file, too, and puts
it there again (`hybrisfs.checkpoint.deposit`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hybrisfs.api.status import LogStatus
from hybrisfs.checkpoint.deposit import CloudStore, Depositor, Fetching, parts_of
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.stages import Signals
from hybrisfs.state.checkpoints import Recorded
from hybrisfs.state.state import Transaction
from hybrisfs.state.stored_log import end_of_segment, is_covered
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError, Head, VersionVector, parse_segment_name, segment_name
from sync.checkpoint import Root

__all__ = ["CloudCheckpoint", "Compactor"]

log = logging.getLogger(__name__)

_BODIES: Final = 256  # dropped while the volume's lock is held once
_PAGES: Final = 256
_MOST_NAMES: Final = 1_000_000
_DELETED_AT_ONCE: Final = 500


class Compactor:
    """Called by one thread, without the volume's lock."""

    def __init__(
        self,
        fs: FileSystem,
        own: bytes,
        store: CloudStore,
        committer: Committer,
        signals: Signals,
    ) -> None:
        self._fs = fs
        self._own = own
        self._store = store
        self._committer = committer
        self._signals = signals

    def run(self, covered: VersionVector, heads: Mapping[bytes, Head]) -> bool:
        """Drop what *covered* covers; False when something is left for later. *heads*: the newest
        of all devices. Raises OSError."""
        with self._fs.state.transaction() as tx:
            tx.segments.forget_covered(covered)
        self._drop_bodies(covered)
        self._committer.commit_now()
        done = not self._signals.stopping and self._delete_segments(covered, heads)
        self._shrink()
        return done

    def facts(self, tx: Transaction) -> LogStatus:
        """What `status` and `gc` tell."""
        dropped = tx.bodies.dropped()
        return LogStatus(dropped.updates, dropped.bytes, tx.bodies.left())

    # -- here ------------------------------------------------------------------------------------

    def _drop_bodies(self, covered: VersionVector) -> None:
        dropped = 0
        while not self._signals.stopping:
            self._fs.journal.sync()
            with self._fs.state.transaction() as tx:
                some = tx.bodies.drop(covered, self._own, self._first_kept(tx), _BODIES)
                self._fs.commit(tx)
            if not some:
                break
            dropped += some
        if dropped:
            log.info("dropped the bodies of %d updates that a checkpoint covers", dropped)

    def _first_kept(self, tx: Transaction) -> int:
        """The clock of the first own update that is not on the clouds yet, or that is in a segment which this
        device may have to make again."""
        first = tx.segments.first_clock()
        unshipped = tx.shipped_clock() + 1
        return unshipped if first is None else min(first, unshipped)

    def _shrink(self) -> None:
        more = True
        while more and not self._signals.stopping:
            self._fs.journal.sync()
            with self._fs.state.transaction() as tx:
                more = tx.shrink(_PAGES)
                self._fs.commit(tx)

    # -- on the clouds ---------------------------------------------------------------------------

    def _delete_segments(self, covered: VersionVector, heads: Mapping[bytes, Head]) -> bool:
        with self._fs.state.transaction() as tx:
            prefixes = [f"log/{device.hex()}/" for device in self._orphaned(tx)]
            members = sorted(tx.members.devices())
        done = True
        for cloud in self._store.numbers:
            for prefix in (f"log/{self._own.hex()}/", *prefixes):
                done &= self._delete_from(cloud, prefix, covered)
        for device in members:
            if device != self._own and device in heads:
                done &= self._delete_left(device, heads, covered)
        return done

    def _delete_left(self, device: bytes, heads: Mapping[bytes, Head], covered: VersionVector) -> bool:
        """Delete what another member has dropped but not deleted."""
        prefix = f"log/{device.hex()}/"
        listed = {cloud: self._store.names(cloud, prefix, _MOST_NAMES) for cloud in self._store.numbers}
        if any(names is None for names in listed.values()):
            return False
        led_to = {segment_name(one.writer, one.on_clouds.newest) for one in heads.values() if one.on_clouds}
        led_to |= {segment_name(*relayed) for one in heads.values() for relayed in one.relayed}
        names = {name for some in listed.values() for name in some or ()}
        on_clouds = heads[device].on_clouds
        if on_clouds is None:
            return True
        with self._fs.state.transaction() as tx:
            # What this device has not got yet, or a cloud makes up, is not counted.
            known = [name for name in names if end_of_segment(tx, name) is not None]
        known.sort(key=_first_clock)
        # Nor what was shipped after the head: the head counts back from its newest segment.
        known = [name for name in known if _first_clock(name) <= on_clouds.newest.first]
        gone = self._gone(known[: -on_clouds.segments], covered) - led_to
        return all(
            self._delete(cloud, [name for name in some or () if name in gone])
            for cloud, some in listed.items()
        )

    def _orphaned(self, tx: Transaction) -> Iterable[bytes]:
        """Former members, if it is up to this device to delete their segments."""
        if any(device < self._own for device in tx.members.devices()):
            return ()
        return sorted(one.device for one in tx.members.removed())

    def _delete_from(self, cloud: int, prefix: str, covered: VersionVector) -> bool:
        names = self._store.names(cloud, prefix, _MOST_NAMES)
        if names is None:
            return False
        gone = self._gone(names, covered)
        return self._delete(cloud, [name for name in names if name in gone])

    def _gone(self, names: Iterable[str], covered: VersionVector) -> set[str]:
        """Those of *names* that are covered and that no record of this device holds."""
        with self._fs.state.transaction() as tx:
            kept = tx.segments.names()
            return {name for name in names if name not in kept and is_covered(tx, name, covered)}

    def _delete(self, cloud: int, gone: Sequence[str]) -> bool:
        for start in range(0, len(gone), _DELETED_AT_ONCE):
            failure = self._store.delete(cloud, gone[start : start + _DELETED_AT_ONCE])
            if failure is not None:
                log.info("%d old log segments stay on cloud %d for now: %s", len(gone), cloud, failure)
                return False
        return True


def _first_clock(name: str) -> int:
    return parse_segment_name(name)[1].first


# -- the agreed checkpoint on the clouds: its parts, and what it replaces -------------------------------


class CloudCheckpoint:
    """`compact` is called by one thread, the other methods by any."""

    def __init__(
        self,
        fs: FileSystem,
        snapshots: LocalSnapshots,
        fetching: Fetching,
        depositor: Depositor,
        compactor: Compactor,
    ) -> None:
        self._fs = fs
        self._snapshots = snapshots
        self._fetching = fetching
        self._depositor = depositor
        self._compactor = compactor

    @property
    def clouds(self) -> tuple[frozenset[int], int]:
        """The clouds that parts may be on, and on how many they are to be."""
        return self._depositor.place

    def part(self, name: bytes) -> bytes | None:
        """The root or slice with this name, if it is on this device."""
        with self._fs.state.transaction() as tx:
            recorded = tx.checkpoints.all()
        for one in recorded:
            if one.root is not None:
                found = (
                    one.root
                    if self._snapshots.name_of(one.root) == name
                    else self._snapshots.find(one.stored, name)
                )
                if found is not None:
                    return found
        return None

    def fetched(self, name: bytes) -> bytes:
        """The same, also from other devices and clouds. Raises NotToBeHadError."""
        return self.part(name) or self._fetching.part(name)

    def parts(self) -> list[bytes]:
        """The names of all parts of the checkpoint on the clouds, the root last; none while there is no
        checkpoint. Raises NotToBeHadError, DecodeError."""
        with self._fs.state.transaction() as tx:
            newest = tx.checkpoints.deposited()
        if newest is None or newest.deposited is None:
            return []
        return parts_of(newest.deposited, Root.decode(self.fetched(newest.deposited)))

    def found(self, agreed: Recorded, roots: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """The first of *roots*, each with the device that names it, that is one of this checkpoint. Raises
        NotToBeHadError."""
        with self._fs.state.transaction() as tx:
            members, volume = tx.members.devices(), tx.meta("volume")
        for device, name in roots:
            try:
                root = self._fetching.root(name)
                root.check(volume, members)
            except DecodeError as error:
                log.warning("machine %s names an invalid checkpoint: %s", device.hex(), error)
                continue
            if root.snapshot == agreed.stored.snapshot:
                return name
        return None

    def put(self, agreed: Recorded) -> bytes:
        """See `Depositor.put`."""
        return self._depositor.put(agreed)

    def secure(self) -> None:
        """Bring the checkpoint to as many of the clouds in use as it should be on. Raises
        CloudsUnavailable, NotToBeHadError, DecodeError."""
        self._depositor.secure(self.parts(), self.fetched)

    def compact(self, agreed: Recorded, heads: Mapping[bytes, Head]) -> bool:
        """Make the checkpoint safe, then drop what it replaces. Returns whether all clouds did so.
        *heads*: the newest of all devices. Raises like `secure`, and OSError."""
        parts = self.parts()
        self._depositor.secure(parts, self.fetched)
        done = self._depositor.sweep(parts)
        if agreed.former is not None:
            done &= self._compactor.run(agreed.former, heads)
        return done
