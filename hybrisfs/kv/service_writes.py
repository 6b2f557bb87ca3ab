"""The writes of this machine in a service, and what is to be deleted from the clouds.

`hybrisfs.kv.service_metadata` has the table of keys, and says why nothing is deleted that a key names.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.errors import DamagedError, HybrisError
from hybrisfs.kv.metadata import Garbage
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    MetadataService,
    OutcomeUnknownError,
    Put,
    Remove,
    ServiceError,
    after_prefix,
)

__all__ = ["WriteLimits", "ServiceWrites", "WriteLostError", "damaged"]

log = logging.getLogger(__name__)

_BATCH: Final = 100  # operations of a transaction; etcd allows 128
_BLOCK_SECONDS: Final = 30.0
_MOST_BLOCK: Final = 1 << 16  # numbers
_MOST_NAMES: Final = 1 << 16  # of the objects of a write
_MOST_WRITE: Final = (1 << 63) - 1
_DECIMAL: Final = re.compile(rb"0|[1-9][0-9]{0,18}")
_WRITE: Final = re.compile(rb"/([0-9a-f]{16})\Z")


class WriteLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`. All machines of a volume have the same."""

    block: int = 256
    """Numbers of writes that a machine takes at once."""
    lease_seconds: int = 60
    """For how long a machine may be silent before others take over what it has left."""
    adopt_seconds: float = 60.0
    """How often a machine looks for others that are silent."""


class WriteLostError(HybrisError):
    """This machine was silent for so long that others have cleaned up after it: nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "nothing was written",
            "this machine was silent for so long that others took it for gone",
            "Try again.",
        )


class ServiceWrites:
    """Numbers for writes, and their end. Thread-safe. Methods raise ServiceError."""

    def __init__(self, client: MetadataService, device: bytes, environment: Environment) -> None:
        """*device* is the id of this machine."""
        self._client = client
        self._device = device.hex().encode()
        self._environment = environment
        self._limits = environment.limits.of(WriteLimits)
        self._few = self._limits.block // 2  # numbers left, then a block more is taken
        self._lock = threading.Lock()
        self._fetched = threading.Condition(self._lock)
        self._left: dict[int, int] = {}  # blocks with numbers left: the first one, and the next to give out
        self._count_left = 0  # numbers in these
        self._spent: set[int] = set()  # the first numbers of those without
        self._is_fetching = False  # a block
        self._open: dict[
            int, int
        ] = {}  # writes that have not ended, and their names; 0: they have no objects
        self._failed: dict[int, int] = {}  # those that have ended and have objects
        self._beginning = threading.Lock()
        self._begun = False
        self._adopted_at = float("-inf")
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None

    def new_write(self, above: int = 0) -> int:
        """Begin a write: a number that no other write has, and that is higher than the one of *above*."""
        if not self._begun:
            self._begin()
        while True:
            with self._lock:
                write = self._take(above)
                is_low = write is None or self._count_left < self._few
                fetches = is_low and not self._is_fetching
                self._is_fetching |= fetches
                if write is None and not fetches:
                    self._environment.wait(self._fetched, lambda: not self._is_fetching, _BLOCK_SECONDS)
            if fetches:
                try:
                    self._fetch()  # while there are some left, other threads go on
                except ServiceError as error:
                    if write is None:
                        raise
                    log.info("numbers for writes cannot be taken ahead: %s", error)
            if write is not None:
                return write

    def _take(self, above: int) -> int | None:
        """A number of our blocks, if one is left."""
        for first, write in self._left.items():
            if write > above:
                self._left[first] = write + 1
                self._count_left -= 1
                if write + 1 == first + self._limits.block:
                    del self._left[first]
                    self._spent.add(first)
                self._open[write] = 0
                return write
        return None

    def _fetch(self) -> None:
        """Take a block more. Raises ServiceError."""
        first = None
        try:
            first = self._new_block()
        finally:
            with self._lock:
                if first is not None:
                    self._left[first] = first
                    self._count_left += self._limits.block
                self._is_fetching = False
                self._fetched.notify_all()

    def intend(self, writes: Sequence[Garbage]) -> None:
        """Objects of these writes are about to go to the clouds: they are garbage until a key names them."""
        with self._lock:
            self._open.update(writes)

    def took_place(self, writes: Iterable[int]) -> None:
        """Keys refer to the objects of these."""
        with self._lock:
            for write in writes:
                if write in self._open:
                    self._open[write] = 0

    def ended(self, writes: Sequence[int]) -> None:
        """Those of them that have not taken place must not any more: their objects are garbage."""
        with self._lock:
            for write in writes:
                names = self._open.pop(write, 0)
                if names:
                    self._failed[write] = names

    def lost(self, blocks: Container[bytes]) -> None:
        """Others have taken over these of the keys of our blocks: no number of them is of use any more."""
        with self._lock:
            for first in [first for first in (*self._left, *self._spent) if self.of(b"b", first) in blocks]:
                end = first + self._limits.block
                self._count_left -= end - self._left.pop(first, end)
                self._spent.discard(first)

    # -- what is to be deleted from the clouds ---------------------------------------------------

    def garbage(self) -> list[Garbage]:
        """All writes that this machine is to delete from the clouds: no key refers to them, and none can any
        more."""
        self._begin()
        self._adopt()
        self._fence()
        found: list[Garbage] = []
        for one in self._all_of(b"g"):
            with _unless_damaged():
                found.append(Garbage(_write_of(one), _decimal(one, _MOST_NAMES)))
        self._retire()
        return found

    def forget(self, writes: Sequence[int]) -> None:
        """All clouds have deleted these, or the machine remembers which have not."""
        for start in range(0, len(writes), _BATCH):
            self._client.change([Remove(self.of(b"g", write)) for write in writes[start : start + _BATCH]])

    def _fence(self) -> None:
        """See to it that writes of ours that have ended without success cannot take place any more."""
        with self._lock:
            failed = list(self._failed.items())
        for write, names in failed:
            fence, used = self.of(b"x", write), self.of(b"u", write)
            then: list[Put | Remove] = [Put(fence, b""), Put(self.of(b"g", write), b"%d" % names)]
            # That there is no mark proves nothing when others have taken over the block: then they look after
            # it. Whether it is fenced now, or was before, or has taken place: it has ended.
            block = Compare(self.block_of(write), None)
            self._client.settle([block, Compare(used, 0), Compare(fence, 0)], then, fence)
            with self._lock:
                del self._failed[write]

    def _retire(self) -> None:
        """Remove blocks of ours of which all writes have ended."""
        with self._lock:
            busy = {self._first_of(write) for write in (*self._open, *self._failed)}
            over = self._spent - busy
            self._spent -= over
        for first in over:
            # Others that have taken it over need its marks.
            block = self.of(b"b", first)
            changes = [Remove(block), *self._marks(self._device, first, self._limits.block)]
            self._client.settle([Compare(block, None)], changes, block)

    def _begin(self) -> None:
        """Announce this process, and take over what an earlier one of this machine has left."""
        with self._beginning:
            if self._begun:
                return
            self.announce()
            for one in self._all_of(b"b"):
                self._take_over(self._device, one, [])
            self._finish()
            self._keeper = threading.Thread(target=self._keep_announcing, name="kv-announce", daemon=True)
            self._keeper.start()
            self._begun = True

    def _adopt(self) -> None:
        """Take over what machines have left that are silent for longer than their lease."""
        now = self._environment.monotonic()
        if now - self._adopted_at < self._limits.adopt_seconds:
            return
        self._adopted_at = now
        alive = {one.key.rpartition(b"/")[2] for one in self._all(b"l/", keys_only=True)}
        for device in self._devices() - alive - {self._device}:
            is_silent = [Compare(b"l/" + device, 0)]
            for one in self._all_of(b"b", device):
                self._take_over(device, one, is_silent)
            for kind in (b"g", b"f"):
                for one in self._all_of(kind, device):
                    mine = b"%b/%b/%b" % (kind, self._device, one.key.split(b"/", 2)[2])
                    compare = [*is_silent, Compare(one.key, one.revision)]
                    self._client.settle(compare, [Remove(one.key), Put(mine, one.value)], one.key)
        self._finish()

    def _devices(self) -> set[bytes]:
        """The machines that may have something here."""
        return {device for kind in (b"b", b"g", b"f") for device in self._client.groups(kind)}

    def _take_over(self, device: bytes, block: KeyValue, compare: Sequence[Compare]) -> None:
        """Remove a block, so that no update can follow, and note that its garbage is to be looked for."""
        first = block.key[-16:]
        note = b"f/%b/%b/%b" % (self._device, device, first)
        changes: list[Put | Remove] = [Remove(block.key), Put(note, block.value)]
        self._client.settle([*compare, Compare(block.key, block.revision)], changes, block.key)

    def _finish(self) -> None:
        """Make garbage of the writes of removed blocks that have not taken place."""
        for one in self._all_of(b"f"):
            with _unless_damaged():
                self._finish_block(one)

    def _finish_block(self, note: KeyValue) -> None:
        # While the note is there, nobody has removed the marks.
        is_ours = Compare(note.key, note.revision)
        device = note.key.split(b"/")[-2]
        first, count = _write_of(note), _decimal(note, _MOST_BLOCK)
        prefix = b"u/%b/" % device
        used = {
            _write_of(mark)
            for mark in self._all(
                prefix + b"%016x" % first, prefix + b"%016x" % (first + count), keys_only=True
            )
        }
        left = [write for write in range(first, first + count) if write not in used]
        for start in range(0, len(left), _BATCH):
            some = left[start : start + _BATCH]
            self._client.settle([is_ours], [Put(self.of(b"g", write), b"0") for write in some], note.key)
        self._client.settle([is_ours], [Remove(note.key), *self._marks(device, first, count)], note.key)

    def _marks(self, device: bytes, first: int, count: int) -> list[Remove]:
        ranges = []
        for kind in (b"u", b"x"):
            prefix = b"%b/%b/" % (kind, device)
            ranges.append(Remove(prefix + b"%016x" % first, prefix + b"%016x" % (first + count)))
        return ranges

    def close(self) -> None:
        """Say that this process is at work no longer. Idempotent."""
        self._ended.set()
        if self._keeper is not None:
            self._keeper.join()
            self._keeper = None
            with _unless_unreachable():
                self._client.withdraw()

    # -- how -------------------------------------------------------------------------------------

    def of(self, kind: bytes, write: int) -> bytes:
        """The key of a write of this machine."""
        return b"%b/%b/%016x" % (kind, self._device, write)

    def mark_and_fence(self, write: int) -> tuple[bytes, bytes]:
        """The keys of a write of this machine: that it has taken place, and that it cannot any more."""
        name = b"/%b/%016x" % (self._device, write)
        return b"u" + name, b"x" + name

    def block_of(self, write: int) -> bytes:
        """The key of the block that a write of this machine is in."""
        return self.of(b"b", self._first_of(write))

    def _first_of(self, write: int) -> int:
        """The first number of the block that a write of this machine is in."""
        return write - (write - 1) % self._limits.block

    def _new_block(self) -> int:
        counter = b"n"
        deadline = self._environment.monotonic() + _BLOCK_SECONDS
        while True:
            (found,) = self._client.get(counter)
            block = self._limits.block
            first, revision = (1, 0) if found is None else (_decimal(found, _MOST_WRITE), found.revision)
            if found is not None and first != self._first_of(first):
                raise damaged(found, "no block begins with this number")
            try:
                outcome = self._client.transact(
                    [Compare(counter, revision)],
                    [Put(counter, b"%d" % (first + block)), Put(self.of(b"b", first), b"%d" % block)],
                )
            except OutcomeUnknownError:
                # If it took place, its numbers are lost: the next start looks after them.
                if self._environment.monotonic() >= deadline:
                    raise
                continue
            if outcome.succeeded:
                return first

    def _all_of(self, kind: bytes, device: bytes | None = None) -> Iterator[KeyValue]:
        return self._all(b"%b/%b/" % (kind, self._device if device is None else device))

    def _all(self, first: bytes, last: bytes | None = None, *, keys_only: bool = False) -> Iterator[KeyValue]:
        end = after_prefix(first) if last is None else last
        return self._client.scan(first, end, keys_only=keys_only)

    def announce(self) -> None:
        """Have others know that this machine is at work."""
        self._client.announce(b"l/" + self._device, self._limits.lease_seconds)

    def _keep_announcing(self) -> None:
        while not self._ended.wait(self._limits.lease_seconds / 3):
            with _unless_unreachable():
                self.announce()


def _decimal(one: KeyValue, most: int) -> int:
    """The number that a key holds. Raises DamagedError."""
    if _DECIMAL.fullmatch(one.value) is None or int(one.value) > most:
        raise damaged(one, f"its value is not a number from 0 to {most}")
    return int(one.value)


def _write_of(one: KeyValue) -> int:
    """The write that a key is about. Raises DamagedError."""
    number = _WRITE.search(one.key)
    if number is None or int(number[1], 16) > _MOST_WRITE:
        raise damaged(one, "its key names no write")
    return int(number[1], 16)


def damaged(one: KeyValue, why: str) -> DamagedError:
    """That a key of the service cannot be read."""
    return DamagedError(f"the key {one.key.decode(errors='replace')!r} of the metadata is damaged", why)


@contextmanager
def _unless_damaged() -> Iterator[None]:
    """One damaged key must not keep the others from being looked after."""
    try:
        yield
    except DamagedError as error:
        log.warning("what it is about stays on the clouds: %s", error)


@contextmanager
def _unless_unreachable() -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        log.info("others cannot hear now that this machine is at work: %s", error)
