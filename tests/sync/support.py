"""What the tests of `sync` share: an in-memory log store, devices that use it, strategies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from sync import OneKey
from sync.errors import DecodeError
from sync.exchange import LogRow
from sync.identity import DeviceKey, Members
from sync.log import LogState
from sync.log_tree import USUAL_LIMITS, Known, LogLimits, Successor
from sync.outcome import Accepted, Outcome
from sync.update import SignedUpdate, Update, UpdateStamp, Write, decode_signed, encode_signed, history_hash
from sync.vector import MAX_CLOCK, VersionVector

VOLUME = b"HFS\x02" + bytes(range(12))  # no earlier version made nodes in it
OLDER_VOLUME = bytes(range(16))
KEYS = tuple(
    sorted((DeviceKey.from_seed(bytes([n]) * 32) for n in range(1, 5)), key=lambda key: key.device_id)
)
MEMBERS = Members(key.public for key in KEYS)
STRANGER = DeviceKey.from_seed(bytes([99]) * 32)
BOX_KEY = OneKey(bytes([7]) * 32)
NONCE = bytes([8]) * 24
NOON = 1_800_000_000_000_000_000

ids = st.binary(min_size=16, max_size=16)
clocks = st.integers(1, MAX_CLOCK)
stamps = st.builds(UpdateStamp, ids, clocks, ids)
vectors = st.dictionaries(ids, clocks, max_size=6).map(VersionVector)
writes: st.SearchStrategy[list[Write]] = st.dictionaries(
    st.binary(min_size=1, max_size=40) | st.binary(min_size=250, max_size=260),
    st.none() | st.binary(max_size=40) | st.integers(250, 260).map(bytes),
    max_size=8,
).map(lambda entries: list(entries.items()))


class MemoryLog:
    """An `AcceptedLog` in dictionaries, keyed by (branch, clock)."""

    def __init__(self) -> None:
        self.rows: dict[tuple[bytes, int], tuple[SignedUpdate, VersionVector]] = {}
        self.stamps: dict[bytes, tuple[bytes, int]] = {}
        self.binding: Callable[[SignedUpdate], Collection[bytes]] = lambda update: ()
        """See `AcceptedLog.binds`."""

    def add(self, accepted: Accepted) -> None:
        if accepted.renames:
            moved = {rename.old: rename for rename in accepted.renames}
            before, self.rows = self.rows, {}
            for (branch, clock), (update, vector) in before.items():
                rename = moved.get(branch)
                if rename and clock > rename.above:
                    branch = rename.new
                self._put(branch, update, vector.renamed(accepted.renames))
        self._put(accepted.branch, accepted.update, accepted.dependencies)

    def _put(self, branch: bytes, update: SignedUpdate, dependencies: VersionVector) -> None:
        assert (branch, update.header.clock) not in self.rows
        self.rows[branch, update.header.clock] = (update, dependencies)
        self.stamps[update.hash[:16]] = (branch, update.header.clock)

    def find(self, prefix: bytes) -> Known | None:
        stamp = self.stamps.get(prefix)
        if stamp is None:
            return None
        update, dependencies = self.rows[stamp]
        return Known(update.header.writer, stamp[0], stamp[1], update.hash, dependencies)

    def hash_of(self, branch: bytes, clock: int) -> bytes | None:
        row = self.rows.get((branch, clock))
        return row[0].hash if row else None

    def successor_of(self, branch: bytes, clock: int) -> Successor | None:
        later = [stamp for stamp in self.rows if stamp[0] == branch and stamp[1] > clock]
        if not later:
            return None
        update = self.rows[min(later)][0]
        return Successor(update.hash, update.data)

    def binds(self, update: SignedUpdate) -> Collection[bytes]:
        return self.binding(update)


class Device:
    """A correct device: a key, a log state, and the updates it accepted in that order."""

    def __init__(
        self,
        key: DeviceKey,
        members: Members = MEMBERS,
        volume: bytes = VOLUME,
        limits: LogLimits = USUAL_LIMITS,
    ) -> None:
        self.key = key
        self.members = members
        self.volume = volume
        self.limits = limits
        self.log = MemoryLog()
        self.state = LogState(volume, members, self.log, limits=limits)
        self.order: list[SignedUpdate] = []
        self.signed: SignedUpdate | None = None
        self.bare = 0  # of so many updates, the first ones, it knows no more than a checkpoint tells

    def write(self, *writes: Write) -> SignedUpdate:
        accepted = self.state.next_update(writes or [(b"key", b"value")], NOON, self.key)
        self.log.add(accepted)
        self.order.append(accepted.update)
        self.signed = accepted.update
        return accepted.update

    def receive(self, update: SignedUpdate) -> Outcome:
        """Offer the update's bytes, as they would arrive."""
        arrived = decode_signed(update.data)
        outcome = self.state.accept(arrived)
        if isinstance(outcome, Accepted):
            self.log.add(outcome)
            self.order.append(arrived)
        return outcome

    def receive_all(self, updates: Iterable[SignedUpdate]) -> None:
        for update in updates:
            outcome = self.receive(update)
            assert isinstance(outcome, Accepted), outcome

    def restart(self) -> None:
        """Load the state from what is stored."""
        signed = self.log.stamps[self.signed.hash[:16]] if self.signed else None
        stored = self.stored_tips()
        self.state = LogState(
            self.volume, self.members, self.log, self.state.branches, stored, signed, self.limits
        )

    def stored_tips(self) -> list[Known]:
        newest: dict[bytes, int] = {}
        for branch, clock in self.log.rows:
            newest[branch] = max(clock, newest.get(branch, 0))
        found = [self.log.find(self.log.rows[stamp][0].hash[:16]) for stamp in newest.items()]
        return [known for known in found if known]

    def clone(self) -> Device:
        """The same device restored from a backup: it will fork."""
        twin = Device(self.key, self.members, self.volume, self.limits)
        twin.receive_all(self.order)
        twin.signed = self.signed
        twin.restart()
        return twin

    # -- as `sync.exchange.ExchangeLog` ------------------------------------------------------------

    def tips(self) -> list[Known]:
        return self.state.tips()

    def history(self) -> bytes:
        return self.state.history()

    def find(self, prefix: bytes) -> Known | None:
        return self.log.find(prefix)

    def path(self, known: Known) -> list[tuple[bytes, int]]:
        return self.state.branches.path(known.branch, known.clock)

    def newest_below(self, branch: bytes, clock: int) -> Known | None:
        stamps = [stamp for stamp in self.log.rows if stamp[0] == branch and stamp[1] <= clock]
        return self.log.find(self.log.rows[max(stamps)][0].hash[:16]) if stamps else None

    def missing(self, known: VersionVector, after: int, size: int) -> list[LogRow]:
        found: list[LogRow] = []
        for number, update in enumerate(self.order[after:], after + 1):
            branch, clock = self.log.stamps[update.hash[:16]]
            if clock > known[branch]:
                size -= len(update.data)
                if size < 0 and found:
                    break
                bare = number <= self.bare
                found.append(LogRow(number, update.stamp, branch, None if bare else update.data))
                if bare:
                    break
        return found

    def facts(self) -> object:
        """All that follows from what has been accepted: equal on devices that know the same."""
        return (
            self.state.vector,
            self.state.history(),
            {(one.id, one.device, one.parent, one.above) for one in self.state.branches},
            {stamp: (update.data, vector) for stamp, (update, vector) in self.log.rows.items()},
        )

    def history_at(self, vector: VersionVector) -> bytes:
        leaves = self.state.branches.leaves(vector)
        return history_hash(
            (self.state.branches[branch].device, clock, self.log.hash_of(branch, clock) or bytes(32))
            for branch, clock in leaves
        )


def as_update(signed: SignedUpdate) -> Update:
    header = signed.header
    return Update(
        header.volume,
        header.writer,
        header.clock,
        header.prev_clock,
        header.prev,
        header.deps,
        header.history,
        header.time_ns,
        signed.writes,
    )


def forge(signed: SignedUpdate, key: DeviceKey, **changes: object) -> SignedUpdate:
    """The update with some fields changed, properly signed by `key`."""
    changed = replace(as_update(signed), writer=key.device_id, **changes)
    return decode_signed(encode_signed(changed, key))


def decodes(decode: Callable[[bytes], object], data: bytes) -> bool:
    """False when `decode` raises DecodeError; any other exception passes through."""
    try:
        decode(data)
    except DecodeError:
        return False
    return True


def flip(data: bytes, bit: int) -> bytes:
    """`data` with one bit flipped; `bit` counts modulo the number of bits."""
    position, shift = divmod(bit % (len(data) * 8), 8)
    return data[:position] + bytes([data[position] ^ 1 << shift]) + data[position + 1 :]


def chain(count: int, key: DeviceKey = KEYS[0]) -> Sequence[SignedUpdate]:
    """`count` consecutive updates of one device."""
    device = Device(key)
    return [device.write((b"key %d" % number, b"value")) for number in range(count)]
