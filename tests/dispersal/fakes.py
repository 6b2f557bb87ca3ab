"""Clouds in memory that misbehave on demand."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeAlias, get_args

from backends.errors import AuthError, CorruptError, FullError, MissingError, OversizeError, TransientError
from backends.store import MAX_PAGE, Buffer, Page, StoredObject
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.pack import ChunkLocation, EncodedPack, PackBuilder
from hybrisfs.dispersal.probe import Marker
from hybrisfs.dispersal.ranking import TimerBounds, Timing
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.environment import Environment, Limits
from sync import OneKey

Behaviour: TypeAlias = Literal[
    "ok", "down", "auth", "full", "crash", "missing", "truncated", "corrupt", "altered", "swapped", "hang"
]
BEHAVIOURS: Final = get_args(Behaviour)
CODES: Final = [(1, 1, 3), (1, 2, 4), (2, 1, 5), (1, 3, 5)]  # (f, k, clouds)

SEALER = Sealer(OneKey(b"d" * 32), b"i" * 32)
DEFAULTS = Limits()
MARKER = Marker("volume/marker", b"marker of this volume")
TABLES = TableSealer(OneKey(b"t" * 32))

# None of them explores: tests know from an order of the ranking which clouds are asked.
# For clouds that answer: timers never expire, so that a busy machine does not make a cloud look slow.
CALM = Timing(
    put=60.0,
    get=60.0,
    stall=60.0,
    timers=TimerBounds(shortest=60.0, longest=60.0, explored=0.0, first_pause=0.001),
)
# For clouds that hang. The waits are real: a timer (shortest) or a deadline (get, close) each.
HASTY = Timing(
    put=10.0,
    get=0.1,
    stall=60.0,
    close=0.02,
    timers=TimerBounds(
        shortest=0.01,
        longest=0.02,
        unknown_put=0.01,
        unknown_get=0.01,
        unknown_rate=1e12,
        explored=0.0,
        first_pause=0.001,
    ),
)


class FakeClock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class RunningClock:
    """The clock of the system, which a test may put forward."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def advance(self, seconds: float) -> None:
        """So many seconds have passed."""
        self._ahead += seconds


class SteppingClock(FakeClock):
    """A clock that goes on by `step` whenever it is looked at."""

    step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def _nothing() -> None:
    """Nothing else happens."""


class FakeStore:
    """One cloud. `behaviour` may change at any time; what is stored stays as it was written."""

    def __init__(self, number: int) -> None:
        self.url = f"fake://{number}"
        self.behaviour: Behaviour = "ok"
        self.objects: dict[str, bytes] = {}
        self.released = threading.Event()  # what hangs goes on when it is set
        self.hanging = threading.Semaphore(0)  # released once by each call that begins to hang
        self.closed = False
        self.requests: list[str] = []  # operations
        self.names: list[str] = []  # and the objects they were about
        self.after_put: Callable[[], object] = _nothing
        """Called when an object has been stored, before anybody hears of it."""
        self.before_get: Callable[[], object] = _nothing
        self.before_delete: Callable[[], object] = _nothing
        self.before_list: Callable[[], object] = _nothing

    def _enter(self, operation: str, name: str) -> None:
        self.requests.append(operation)
        self.names.append(name)
        match self.behaviour:
            case "down":
                raise TransientError(self.url, operation, name, "connection refused")
            case "auth":
                raise AuthError(self.url, operation, name, "access denied")
            case "crash":
                raise RuntimeError("a bug in the driver")
            case "full" if operation == "put":
                raise FullError(self.url, operation, name, "no space left")
            case "hang":
                self.hanging.release()
                self.released.wait()  # and then goes on, late

    def _read(self, operation: str, name: str) -> bytes:
        self.before_get()
        self._enter(operation, name)
        if name not in self.objects or self.behaviour == "missing":
            raise MissingError(self.url, operation, name, "no such object")
        data = self.objects[name]
        match self.behaviour:
            case "truncated":
                return data[: len(data) // 2]
            case "corrupt":
                return random.Random(name).randbytes(len(data))
            case "altered":
                return bytes(byte ^ 1 for byte in data)
            case "swapped":
                others = sorted(other for other in self.objects if other != name)
                return self.objects[others[0]] if others else data[::-1]
        return data

    def initialise(self) -> None:
        return None

    def put(self, name: str, data: Buffer) -> None:
        self._enter("put", name)
        self.objects[name] = bytes(data)
        self.after_put()

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        self._enter("put", name)
        return self.objects.setdefault(name, bytes(data)) is data

    def get(self, name: str, *, limit: int) -> bytes:
        data = self._read("get", name)
        if len(data) > limit:
            raise OversizeError(self.url, "get", name, f"larger than {limit} bytes")
        return data

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        data = self._read("get_range", name)[offset : offset + length]
        if len(data) < length:
            raise CorruptError(self.url, "get_range", name, "ends early")
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        return self.get(name, limit=limit), "tag"

    def delete(self, name: str) -> None:
        self.before_delete()
        self._enter("delete", name)
        self.objects.pop(name, None)

    def delete_many(self, names: Iterable[str]) -> None:
        for name in names:
            self.delete(name)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        self.before_list()
        self._enter("list", prefix)
        names = sorted(name for name in [*self.objects] if name.startswith(prefix) and name > after)
        return Page(tuple(StoredObject(n, len(self.objects[n])) for n in names[:limit]), len(names) > limit)

    def close(self) -> None:
        self.closed = True


class Cluster:
    """An engine over fake clouds named c0, c1, ...; a context manager that lets go of what hangs."""

    def __init__(
        self,
        f: int,
        k: int,
        size: int,
        timing: Timing = CALM,
        kind: Callable[[int], FakeStore] = FakeStore,
        clock: Callable[[], float] | None = None,
        limits: Limits = DEFAULTS,
    ) -> None:
        """*clock*: `self.clock`, unless a test has another."""
        self.f, self.k = f, k
        self.clock = RunningClock()
        self.stores = [kind(number) for number in range(size)]
        clouds = [Cloud(number, f"c{number}", store) for number, store in enumerate(self.stores)]
        self.engine = Engine(
            clouds,
            f,
            SEALER,
            TABLES,
            timing=timing,
            environment=Environment(monotonic=clock or self.clock, limits=limits),
        )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self.stores:
            store.released.set()
        self.engine.close()

    def asked_first(self, placement: Sequence[int], size: int = 0) -> int:
        """The cloud that an object is read from, as things are."""
        return self.engine._clouds.order("get", size, placement)[0]

    def states(self) -> dict[str, str]:
        """Return the state of the clouds that are not ok."""
        return {s.name: s.state for s in self.engine.health() if s.state != "ok"}

    def bad(self) -> set[str]:
        """Return the clouds that are worse than slow."""
        return {name for name, state in self.states().items() if state != "slow"}

    def behave(self, behaviour: Behaviour, *numbers: int) -> None:
        """Let these clouds, or all, behave like this from now on."""
        for number in numbers or range(len(self.stores)):
            self.stores[number].behaviour = behaviour

    def write(self, chunks: Iterable[bytes]) -> list[ChunkLocation]:
        """Store chunks as one pack; return where they are, in order."""
        pack = encode(chunks, self.k, self.f + self.k)
        return locate(pack, self.engine.put_pack(pack))


def encode(chunks: Iterable[bytes], k: int, n: int) -> EncodedPack:
    """Return a pack of these chunks."""
    builder = PackBuilder(TABLES)
    for chunk in chunks:
        chunk_id = SEALER.chunk_id(chunk)
        builder.add(chunk_id, len(chunk), SEALER.seal(chunk_id, chunk))
    return builder.finish(k, n)


def locate(pack: EncodedPack, placement: tuple[int, ...]) -> list[ChunkLocation]:
    """Return where the chunks of a stored pack are."""
    return [
        ChunkLocation(
            pack.pack_id, pack.k, pack.n, placement, e.chunk_id, e.length, e.offset, e.sealed_length
        )
        for e in pack.entries
    ]
