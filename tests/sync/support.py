"""What the tests of `sync` share: an in-memory log store, devices that use it, strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from sync.errors import DecodeError
from sync.history import history_hash
from sync.identity import DeviceKey, Members
from sync.log import Accepted, LogState, Outcome
from sync.update import SignedUpdate, Update, decode_signed, encode_signed
from sync.vector import MAX_CLOCK, VersionVector
from sync.writes import Write

VOLUME = bytes(range(16))
KEYS = tuple(
    sorted((DeviceKey.from_seed(bytes([n]) * 32) for n in range(1, 5)), key=lambda key: key.device_id)
)
MEMBERS = Members(key.public for key in KEYS)
STRANGER = DeviceKey.from_seed(bytes([99]) * 32)
BOX_KEY = bytes([7]) * 32
NONCE = bytes([8]) * 24
NOON = 1_800_000_000_000_000_000

ids = st.binary(min_size=16, max_size=16)
clocks = st.integers(1, MAX_CLOCK)
vectors = st.dictionaries(ids, clocks, max_size=6).map(VersionVector)
writes: st.SearchStrategy[list[Write]] = st.dictionaries(
    st.binary(min_size=1, max_size=40) | st.binary(min_size=250, max_size=260),
    st.none() | st.binary(max_size=40) | st.integers(250, 260).map(bytes),
    max_size=8,
).map(lambda entries: list(entries.items()))


class MemoryLog:
    """An `AcceptedLog` in a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[tuple[bytes, int], tuple[SignedUpdate, VersionVector]] = {}

    def add(self, update: SignedUpdate, dependencies: VersionVector) -> None:
        self.rows[update.header.writer, update.header.clock] = (update, dependencies)

    def hash_of(self, writer: bytes, clock: int) -> bytes | None:
        row = self.rows.get((writer, clock))
        return row[0].hash if row else None

    def vector_of(self, writer: bytes, clock: int) -> VersionVector | None:
        row = self.rows.get((writer, clock))
        return row[1] if row else None

    def successor_of(self, writer: bytes, clock: int) -> bytes | None:
        later = [stamp for stamp in self.rows if stamp[0] == writer and stamp[1] > clock]
        return self.rows[min(later)][0].data if later else None


class Device:
    """A correct device: a key, a log state, and the updates it accepted in that order."""

    def __init__(self, key: DeviceKey) -> None:
        self.key = key
        self.log = MemoryLog()
        self.state = LogState(VOLUME, MEMBERS, self.log)
        self.order: list[SignedUpdate] = []

    def write(self, *writes: Write) -> SignedUpdate:
        update = self.state.next_update(writes or [(b"key", b"value")], NOON, self.key)
        tip = self.state.tip(self.key.device_id)
        assert tip is not None
        self.log.add(update, tip.dependencies)
        self.order.append(update)
        return update

    def receive(self, update: SignedUpdate) -> Outcome:
        """Offer the update's bytes, as they would arrive."""
        arrived = decode_signed(update.data)
        outcome = self.state.accept(arrived)
        if isinstance(outcome, Accepted):
            self.log.add(arrived, outcome.dependencies)
            self.order.append(arrived)
        return outcome

    def receive_all(self, updates: Iterable[SignedUpdate]) -> None:
        for update in updates:
            outcome = self.receive(update)
            assert isinstance(outcome, Accepted), outcome

    def clone(self) -> Device:
        """The same device restored from a backup: it will fork."""
        twin = Device(self.key)
        twin.receive_all(self.order)
        return twin

    def history_at(self, vector: VersionVector) -> bytes:
        def known(writer: bytes, clock: int) -> bytes:
            return self.log.hash_of(writer, clock) or bytes(32)

        return history_hash(vector, known)


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
    changed = replace(as_update(signed), writer=key.device_id, **changes)  # type: ignore[arg-type]
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
