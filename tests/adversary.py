"""The adversary: a cloud that misbehaves on purpose, in ways that a seed repeats exactly.

Wrap any store in `FaultyStore` with a list of `Fault`s. Whether a fault strikes is a function of the
seed, the fault's place in the list, the operation, the object name and how many times that operation
was called for that name: not of timing or of the order in which threads arrive. So a failing seed
fails again, and a lying cloud tells each caller the same lie about the same call.

kind        what the cloud does
lose        acknowledges a write and forgets it; denies having an object it has; leaves it out of lists
corrupt     returns the object with one bit flipped
truncate    returns less than the object
pad         returns the object with more bytes behind it
swap        returns another object of this cloud
inflate     claims that the object has gigabytes; nothing of that size is ever in memory
old         returns an earlier version of the object, or denies that there is one when there was none
late        is eventually consistent: the next few reads of a name do not see what was just put
vanish      deletes the object behind our back, for good, before a read or after a write
mislist     leaves objects out of lists, repeats some, and makes others up
stall       does nothing until the fault's event is set, then answers truly
fail        raises the error made by the fault's `error`

Faults see only what a driver could see: the contract of `Store` holds (a truncated range is a
`CorruptError`, padding beyond the limit an `OversizeError`), its content is a lie.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, TypeAlias, get_args

from backends.errors import CorruptError, MissingError, OversizeError, StoreError, TransientError
from backends.store import MAX_PAGE, Buffer, Page, Store, StoredObject, StoreWrapper

__all__ = ["ALL", "READS", "WRITES", "Call", "Fault", "FaultyStore", "Kind"]

Kind: TypeAlias = Literal[
    "lose",
    "corrupt",
    "truncate",
    "pad",
    "swap",
    "inflate",
    "old",
    "late",
    "vanish",
    "mislist",
    "stall",
    "fail",
]

READS: Final = frozenset({"get", "get_range", "get_if_changed"})
WRITES: Final = frozenset({"put", "put_if_absent"})
ALL: Final = READS | WRITES | {"delete", "list"}

_ANY: Final = 1 << 40  # bytes; a limit that no object of a test meets
_VERSIONS: Final = 4  # earlier ones kept per name
_LATE_READS: Final = 3


def _unreachable(url: str, operation: str, name: str) -> StoreError:
    return TransientError(url, operation, name, "injected failure")


@dataclass(frozen=True)
class Fault:
    """One kind of misbehaviour, striking a share `rate` (0 to 1) of the calls it applies to."""

    kind: Kind
    rate: float = 1.0
    operations: frozenset[str] = ALL
    prefix: str = ""  # of the object names concerned
    until: threading.Event = field(default_factory=threading.Event)  # "stall" only
    error: Callable[[str, str, str], StoreError] = _unreachable  # "fail" only: (url, operation, name)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or not self.operations <= ALL:
            raise ValueError(f"no such fault: {self}")


@dataclass(frozen=True)
class Call:
    """One call that arrived at a `FaultyStore`, and the fault that struck it, if any."""

    operation: str
    name: str
    fault: Kind | None
    size: int = 0  # the most bytes that the caller asked for, or put


class FaultyStore(StoreWrapper):
    """A `backends.store.Store` that passes calls on to `store` and misbehaves as told.

    `faults` may be replaced at any time; `calls` is the history. At most one fault strikes a call:
    the first of the list that does.
    """

    def __init__(self, store: Store, seed: int, faults: Sequence[Fault] = ()) -> None:
        super().__init__(store)
        self.faults: Sequence[Fault] = faults
        self.calls: list[Call] = []
        self._seed = seed
        self._count: Counter[tuple[str, str]] = Counter()
        self._former: dict[str, deque[bytes | None]] = {}  # None: there was no object
        self._late: Counter[str] = Counter()  # reads by name that still see the version before
        self._lock = threading.Lock()

    def put(self, name: str, data: Buffer) -> None:
        kind, random = self._meet("put", name, len(data))
        if kind != "lose":
            self._remember(name, kind, random)
            self._store.put(name, data)
            self._vanish(name, kind)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        kind, random = self._meet("put_if_absent", name, len(data))
        if kind == "lose":
            return True
        self._remember(name, kind, random)
        stored = self._store.put_if_absent(name, data)
        self._vanish(name, kind)
        return stored

    def get(self, name: str, *, limit: int) -> bytes:
        kind, random = self._meet("get", name, limit)
        if self._is_honest(name, kind):
            return self._store.get(name, limit=limit)
        return self._pretend("get", name, kind, random, limit)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        kind, random = self._meet("get_range", name, length)
        if kind == "corrupt":
            return _flip_bit(self._store.get_range(name, offset, length), random)
        if kind == "inflate" or self._is_honest(name, kind):  # what follows the range makes no difference
            return self._store.get_range(name, offset, length)
        data = self._pretend("get_range", name, kind, random, _ANY)[offset : offset + length]
        if len(data) < length:
            raise CorruptError(self.url, "get_range", name, "ends too early")
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        kind, random = self._meet("get_if_changed", name, limit)
        if self._is_honest(name, kind):
            return self._store.get_if_changed(name, tag, limit=limit)
        true = self._store.get_if_changed(name, tag, limit=_ANY)
        if true is None:
            return None
        return self._pretend("get_if_changed", name, kind, random, limit), true[1]

    def delete(self, name: str) -> None:
        if self._meet("delete", name)[0] != "lose":
            self._store.delete(name)

    def delete_many(self, names: Iterable[str]) -> None:
        for name in names:
            self.delete(name)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        kind, random = self._meet("list", prefix)
        page = self._store.list(prefix, after=after, limit=limit)
        if kind not in ("lose", "mislist"):
            return page
        entries = [entry for entry in page.entries if random.random() < 0.5]
        if kind == "mislist":
            entries += random.sample(page.entries, len(page.entries) // 2)
            entries += [
                StoredObject(f"{prefix}{random.randrange(10**6)}", random.randrange(_ANY)) for _ in range(2)
            ]
            random.shuffle(entries)
        return Page(tuple(entries[:limit]), page.more)

    def _meet(self, operation: str, name: str, size: int = 0) -> tuple[Kind | None, Random]:
        """Record the call; stall or fail when it is time to; return the fault left for the caller."""
        with self._lock:
            self._count[operation, name] += 1
            key = f"{self._seed}/{operation}/{name}/{self._count[operation, name]}"
            struck, random = self._choose(key, operation, name)
            self.calls.append(Call(operation, name, struck.kind if struck else None, size))
        if struck is None:
            return None, random
        if struck.kind == "stall":
            struck.until.wait()
        elif struck.kind == "fail":
            raise struck.error(self.url, operation, name)
        return struck.kind, random

    def _choose(self, key: str, operation: str, name: str) -> tuple[Fault | None, Random]:
        for place, fault in enumerate(self.faults):
            random = Random(f"{key}/{place}")
            applies = operation in fault.operations and name.startswith(fault.prefix)
            if applies and random.random() < fault.rate:
                return fault, random
        return None, Random(key)

    def _remember(self, name: str, kind: Kind | None, random: Random) -> None:
        """Keep what a write replaces, when some fault may want it."""
        if not any(fault.kind in ("old", "late") for fault in self.faults):
            return
        try:
            former = self._store.get(name, limit=_ANY)
        except MissingError:
            former = None
        with self._lock:
            self._former.setdefault(name, deque(maxlen=_VERSIONS)).append(former)
            if kind == "late":
                self._late[name] = random.randint(1, _LATE_READS)

    def _vanish(self, name: str, kind: Kind | None) -> None:
        if kind == "vanish":
            self._store.delete(name)

    def _is_honest(self, name: str, kind: Kind | None) -> bool:
        return kind in (None, "stall", "late", "mislist") and not self._late[name]

    def _pretend(self, operation: str, name: str, kind: Kind | None, random: Random, limit: int) -> bytes:
        """The object as this cloud makes it out to be."""
        self._vanish(name, kind)
        if kind == "inflate":
            raise OversizeError(self.url, operation, name, f"larger than the {limit} bytes expected")
        data = None if kind == "lose" else self._version(name, kind, random)
        if data is None:
            raise MissingError(self.url, operation, name, "no such object")
        if kind == "corrupt":
            data = _flip_bit(data, random)
        elif kind == "truncate":
            data = data[: random.randrange(len(data))] if data else data
        elif kind == "pad":
            data += random.randbytes(random.randint(1, 64))
        elif kind == "swap":
            data = self._another(name, random, data)
        if len(data) > limit:
            raise OversizeError(self.url, operation, name, f"larger than the {limit} bytes expected")
        return data

    def _version(self, name: str, kind: Kind | None, random: Random) -> bytes | None:
        """The object, or an earlier version of it when the fault is about that. Raises MissingError."""
        with self._lock:
            former = self._former.get(name)
            if former and self._late[name]:
                self._late[name] -= 1
                return former[-1]
            if former and kind == "old":
                return random.choice(former)
        return self._store.get(name, limit=_ANY)

    def _another(self, name: str, random: Random, data: bytes) -> bytes:
        """The content of another object, by preference one of the same folder."""
        folder = name[: name.rfind("/") + 1]
        for prefix in (folder, ""):
            others = [entry.name for entry in self._store.list(prefix).entries if entry.name != name]
            if others:
                return self._store.get(random.choice(others), limit=_ANY)
        return data


def _flip_bit(data: bytes, random: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    place = random.randrange(8 * len(data))
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)
