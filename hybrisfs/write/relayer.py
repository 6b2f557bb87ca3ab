"""What the clouds lack, of any device: the relayer brings it there, and others wait for it.

Updates are signed by their author and any member can seal segments, so this device makes segments under the
author's name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hybrisfs.api.status import MachinesOnly
from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.kinds import CONTENT, NODE, PLACE
from hybrisfs.members.member_table import MemberTable
from hybrisfs.merge.authority import lawful
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import Content, Place, Run, content_key, decode_runs
from hybrisfs.stages import Signals
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced import first_pending, pending_bytes
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.residency import Unplaced
from hybrisfs.write.relay import Action, Forget, Path, Point, Relay, RelayMachine, Seen, TakeOver
from sync import (
    NONCE_SIZE,
    DecodeError,
    Head,
    Relayed,
    SealKeys,
    SegmentId,
    Write,
    decode_signed,
    encode_segment,
    segment_name,
)
from sync.beacons import EarlierHeads
from sync.segment import if_followed

__all__ = [
    "ChunkFetcher",
    "CloudsFollowed",
    "Links",
    "RelayGate",
    "RelayLimits",
    "RelaySegment",
    "Relayer",
    "Shipping",
    "Uploads",
]

log = logging.getLogger(__name__)

_Row: TypeAlias = tuple[int, bytes, bytes]  # clock, hash and bytes of an update


class RelaySegment(Struct, frozen=True):
    """A sealed segment of another device's updates, to be put on the clouds."""

    author: bytes
    first: int
    last: int
    name: str
    data: bytes


class RelayLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    segment_bytes: int = 1 << 20
    """Of updates that make a segment full."""
    segment_updates: int = 1024
    """At most, in one segment."""


class CloudsFollowed(Protocol):
    """What clouds have shown."""

    def heads(self) -> Mapping[bytes, Head]:
        """The newest heads, by device."""

    def earlier_heads(self) -> EarlierHeads:
        """Of our own head."""


class Links(Protocol):
    """The devices that can be reached directly."""

    def linked(self) -> Collection[bytes]: ...

    def heads(self) -> Mapping[bytes, Head]:
        """By device: its newest head that came over a link."""


class ChunkFetcher(Protocol):
    """What brings chunks here."""

    def fetch_one(self, ref: ChunkRef) -> object:
        """Raises ChunkUnavailable, OSError."""


class Relayer:
    """What is relayed, decided in the transaction that `due` and `done` take. Used by one thread."""

    def __init__(
        self,
        fs: FileSystem,
        signals: Signals,
        segment_keys: SealKeys,
        clouds: CloudsFollowed,
        fetcher: ChunkFetcher,
        links: Links,
    ) -> None:
        self.limits = fs.environment.limits.of(RelayLimits)
        """They may be others at any moment."""
        self._fs = fs
        self._random_bytes = fs.environment.random_bytes
        self._signals = signals
        self._keys = segment_keys
        self._clouds = clouds
        self._fetcher = fetcher
        self._links = links
        self._unplaced = Unplaced(fs)
        self._gate = RelayGate(fs, signals)
        self._machine = RelayMachine(read_only=fs.read_only)

    @property
    def is_lacking(self) -> bool:
        """See `RelayMachine.is_lacking`."""
        return self._machine.is_lacking

    def due(self, now: float, time_ns: int) -> RelaySegment | None:
        """A segment that should go to the clouds now. *now* is a clock that never goes back, *time_ns* the
        time of day."""
        with self._fs.state.transaction() as tx:
            unplaced = () if self._fs.read_only else self._unplaced.count(tx).devices
            seen = replace(self._seen(), linked=self._linked() if self._signals.flushing else None)
            actions = self._machine.due(tx, seen, unplaced, now, time_ns)
            batch = self._carry_out(tx, actions, now)
            unread, self._gate.unread = self._gate.unread, {}
        for ref in unread.values():
            try:
                self._fetcher.fetch_one(ref)
            except (ChunkUnavailable, OSError) as error:
                log.info("what another machine wrote cannot be relayed yet: %s", error)
                self._gate.unreadable.add(ref.number)
        return self._sealed(*batch) if batch is not None else None

    def _seen(self) -> Seen:
        told = self._links.heads()
        return Seen(self._clouds.heads(), told, self._clouds.earlier_heads())

    def _linked(self) -> Collection[bytes]:
        return self._links.linked()

    def _carry_out(
        self, tx: Transaction, actions: list[Action], now: float
    ) -> tuple[Path, Point | None, list[_Row]] | None:
        """What is to be sealed."""
        for action in actions:
            match action:
                case Forget(name):
                    tx.segments.forget_relayed(name)
                case TakeOver(authors, branches):
                    if self._unplaced.take_over(tx, authors, branches):
                        self._signals.chunks_made()
                case Relay(path, before, take_over, forgo):
                    rows = self._after(tx, path, before.clock if before else 0)
                    count = self._gate.count(
                        tx, [data for _, _, data in rows], take_over=take_over, forgo=forgo
                    )
                    if count:
                        return path, before, rows[:count]
                    self._machine.held_back(path, now)
        return None

    def done(self, segment: RelaySegment, placement: bytes) -> None:
        """The clouds of *placement* hold the segment."""
        with self._fs.state.transaction() as tx:
            tx.segments.put_relayed(segment.name, segment.author, len(segment.data), placement)

    # -- what heads and commands ask -------------------------------------------------------------

    def frontier(self, tx: Transaction) -> list[tuple[bytes, int]]:
        """See `RelayMachine.frontier`."""
        return self._machine.frontier(tx)

    def unshipped_authors(
        self, tx: Transaction, through: Collection[tuple[bytes, int]] | None = None
    ) -> set[bytes]:
        """See `RelayMachine.unshipped_authors`."""
        return self._machine.unshipped_authors(tx, self._seen(), through)

    def listed(self, tx: Transaction, earlier_heads: EarlierHeads) -> tuple[Relayed, ...]:
        """What this device's head should name, given the own heads before it."""
        return self._machine.listed(tx, replace(self._seen(), earlier_heads=earlier_heads))

    # -- making segments -------------------------------------------------------------------------

    def _sealed(self, path: Path, before: Point | None, rows: list[_Row]) -> RelaySegment:
        (first, _, _), (last, identity, _) = rows[0], rows[-1]
        name = segment_name(path.author, SegmentId.of(first, identity))
        previous = if_followed(before.segment if before else None, rows[0][2])
        sealed = encode_segment(
            [data for _, _, data in rows], previous, self._keys, self._random_bytes(NONCE_SIZE)
        )
        return RelaySegment(path.author, first, last, name, sealed)

    def _after(self, tx: Transaction, path: Path, above: int) -> list[_Row]:
        """The next updates of *path* that are not bare, as many as a segment takes."""
        found: list[_Row] = []
        size = 0
        for clock, identity, data in tx.updates.after(path.steps, above):
            size += len(data or b"")
            full = size > self.limits.segment_bytes or len(found) == self.limits.segment_updates
            if found and (full or data is None):
                break
            if data is not None:
                found.append((clock, identity, data))
        return found


# -- which updates of other devices may go to the clouds: data before the metadata that names it --------
# A file's content may go when all its chunks are on the clouds. Those that their maker has not brought there
# can be *taken over* where they are on this device: then the packer brings them. When their maker stays away,
# one does without those that are not here. A content that a later update of the same batch replaces, or whose
# file is gone by then, is not waited for: it is nobody's to see.


class RelayGate:
    """Looks at the chunks of one volume."""

    def __init__(self, fs: FileSystem, signals: Signals) -> None:
        self._fs = fs
        self._signals = signals
        self._take_over = self._taken_over = self._forgo = False
        self.unread: dict[int, ChunkRef] = {}
        """Lists of chunks that are not on this device, by number. The listed chunks may be on the clouds."""
        self.unreadable: set[int] = set()
        """The lists that could not be fetched. With *forgo* nothing waits for them either."""

    def count(
        self, tx: Transaction, updates: Sequence[bytes], *, take_over: bool, forgo: bool = False
    ) -> int:
        """How many of these consecutive updates, from the first one on, may go to the clouds together. With
        *take_over*, this device takes over the chunks that hold some of them back. With *forgo*, nothing
        waits for chunks that are not here: if they never came, other devices could never read what was
        written since.
        """
        self._fs.flush(tx)
        self._forgo = forgo
        waiting: set[bytes] = set()  # content registers whose chunks are not there
        found = 0
        self._take_over, self._taken_over = take_over, False
        for number, data in enumerate(updates, 1):
            for write in lawful(decode_signed(data)).writes:
                self._follow(tx, write, waiting)
            if not waiting:
                found = number
        if self._taken_over:
            self._signals.chunks_made()
        return found

    def _follow(self, tx: Transaction, write: Write, waiting: set[bytes]) -> None:
        key, value = write
        if key[0] == CONTENT:
            if self._is_there(tx, value):
                waiting.discard(key)
            else:
                waiting.add(key)
        elif key[0] == PLACE and waiting and self._is_removed(tx, key[NODE], value):
            waiting.discard(content_key(key[NODE]))

    def _is_removed(self, tx: Transaction, node: bytes, value: bytes | None) -> bool:
        """Whether the place was given up and nothing shows the node any more."""
        try:
            if value is not None and not Place.decode(value).removed:
                return False
        except DecodeError:
            return False
        return not tx.nodes.is_named(node)

    def _is_there(self, tx: Transaction, value: bytes | None) -> bool:
        try:
            content = Content.decode(value) if value is not None else Content(0, 0, ())
        except DecodeError:
            return True  # counts as an empty file everywhere
        return self._are_all_there(tx, content.runs, content.depth)

    def _are_all_there(self, tx: Transaction, runs: Iterable[Run], depth: int) -> bool:
        """Looks at every chunk, even after a missing one, so that all are taken over that can be."""
        return not [run for run in runs if not self._are_there(tx, run, depth)]

    def _are_there(self, tx: Transaction, run: Run, depth: int) -> bool:
        """Whether a chunk is on the clouds, and with depth 1 also those that it lists."""
        if run.chunk is None:
            return True
        ref = tx.chunks.find(run.chunk)
        if ref is None:
            return self._forgo
        if self._forgo and ref.is_elsewhere and not (ref.is_here and self._take_over):
            return True
        listed = self._list(tx, ref) if depth else ()
        if listed is None:
            return self._forgo and ref.number in self.unreadable
        if self._take_over and ref.is_elsewhere and ref.is_here:
            tx.chunks.take_over(ref.number)
            self._taken_over = True
        return self._are_all_there(tx, listed, 0) and ref.is_on_clouds

    def _list(self, tx: Transaction, ref: ChunkRef) -> Iterable[Run] | None:
        """The runs that the chunk lists, None when they cannot be read here."""
        try:
            data = tx.chunks.read_whole(ref)
        except OSError:
            return None  # damaged here, and nowhere else yet
        try:
            if data is not None:
                return decode_runs(data)
        except DecodeError:
            return ()
        self.unread[ref.number] = ref
        return None


# -- what the clouds lack, of any device, and waiting until it is there ---------------------------------


_LOOK_SECONDS: Final = 5.0  # between two looks, while a caller waits, whether clouds have what members say


class Shipping:
    """Tells when the clouds have what this device has signed."""

    def __init__(self, fs: FileSystem, signals: Signals) -> None:
        self._fs = fs
        self._signals = signals
        self._monotonic = fs.environment.monotonic

    def wait(self, timeout: float) -> bool:
        """Wait until the clouds have all that is signed now; False when *timeout* seconds are over, and at
        once while uploads are paused."""
        if self._signals.transfers_paused:
            timeout = 0.0
        self._signals.begin_flush()
        try:
            shipped, deadline = self.shipped_so_far(), self._monotonic() + timeout

            def done() -> bool:
                with self._fs.state.transaction() as tx:
                    return shipped(tx)

            return self._signals.wait_until(done, deadline)
        finally:
            self._signals.end_flush()

    def shipped_so_far(self) -> Callable[[Transaction], bool]:
        """Tells whether the clouds hold all that is signed now."""
        with self._fs.state.transaction() as tx:
            newest = tx.updates.own_tip()
        clock = newest.clock if newest else 0

        def shipped(tx: Transaction) -> bool:
            # What is bare was shipped, or is in a checkpoint on the clouds.
            left = tx.updates.own_after(tx.shipped_clock(), 1)
            return not left or left[0][0] > clock

        return shipped


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
        self.shipping: Final = Shipping(fs, signals)

    def pending_bytes(self, tx: Transaction) -> int:
        """Bytes of files that this device has yet to bring to the clouds: staged, or cut into chunks that
        wait."""
        self._fs.flush(tx)
        return self._fs.ignored.pending_bytes(tx) + pending_bytes(tx)

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

        Updates of other devices count, too: if their author cannot be reached over a link, this device
        uploads what it has of them, and verifies what the author claims to have uploaded. *progress* is
        called with the bytes done so far and the bytes there were.
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
                wait_for(
                    lambda tx: not self._fs.changes.unsigned_up_to(target) and not self._fs.ignored.undecided
                )
                and wait_for(lambda tx: not self.unplaced.is_left(tx, newest))
                and wait_for(self._packed_so_far())
                # What is written here can be read by nobody who lacks what it depends on.
                and wait_for(lambda tx: not self._relayer.unshipped_authors(tx, others))
                and wait_for(self.shipping.shipped_so_far())
                # Where the packs are was signed while we waited: that too must be on the clouds.
                and wait_for(self.shipping.shipped_so_far())
            )
        finally:
            self._signals.end_flush()

    def _look_for_unproven(self) -> None:
        with self._fs.state.transaction() as tx:
            unproven = self.unplaced.unproven(tx)
        if unproven:
            self._fetcher.prove(unproven)

    def machines_only(self, tx: Transaction) -> MachinesOnly:
        """Files that no cloud is known to have, with the other devices that have to upload them; without such
        files, the devices that have yet to upload changes."""
        found, own = self.unplaced.count(tx), tx.updates.device
        lacking = {*(found.devices or self._relayer.unshipped_authors(tx))} - {own}
        members = MemberTable(tx).all()  # of a removed one nothing is to be expected
        names = [one.name for one in members if one.device in lacking]
        return MachinesOnly(found.files, found.size, names)

    def _packed_so_far(self) -> Callable[[Transaction], bool]:
        """Tells whether the clouds hold all chunks that there are now, those taken over and those for which
        the log does not wait included."""
        with self._fs.state.transaction() as tx:
            newest = tx.chunks.newest()

        def packed(tx: Transaction) -> bool:
            first = first_pending(tx, but=tx.chunks.lost)
            return first is None or first > newest

        return packed

    def _lacking_bytes(self, tx: Transaction) -> int:
        return self.pending_bytes(tx) + self.unplaced.count(tx).size
