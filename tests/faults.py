"""A cloud that misbehaves on purpose, in ways that a seed repeats exactly.

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
stall       does nothing until the fault's event is set, then answers truly
fail        raises the error made by the fault's `error`

Faults see only what a driver could see: the contract of `Store` holds (a truncated range is a
`CorruptError`, padding beyond the limit an `OversizeError`), its content is a lie.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, TypeAlias, get_args

from backends.errors import CorruptError, MissingError, OversizeError, StoreError, TransientError
from backends.store import MAX_PAGE, Buffer, Page, Store

__all__ = ["ALL", "READS", "WRITES", "Call", "Fault", "FaultyStore", "Kind"]

Kind: TypeAlias = Literal["lose", "corrupt", "truncate", "pad", "swap", "stall", "fail"]

READS: Final = frozenset({"get", "get_range", "get_if_changed"})
WRITES: Final = frozenset({"put", "put_if_absent"})
ALL: Final = READS | WRITES | {"delete", "list"}

_LIES: Final = frozenset({"corrupt", "truncate", "pad", "swap"})


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


class FaultyStore:
    """A `backends.store.Store` that passes calls on to `store` and misbehaves as told.

    `faults` may be replaced at any time; `calls` is the history. At most one fault strikes a call:
    the first of the list that does.
    """

    def __init__(self, store: Store, seed: int, faults: Sequence[Fault] = ()) -> None:
        self.url = store.url
        self.faults: Sequence[Fault] = faults
        self.calls: list[Call] = []
        self._store = store
        self._seed = seed
        self._count: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def initialise(self) -> None:
        self._store.initialise()

    def put(self, name: str, data: Buffer) -> None:
        if self._meet("put", name)[0] != "lose":
            self._store.put(name, data)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        return self._meet("put_if_absent", name)[0] == "lose" or self._store.put_if_absent(name, data)

    def get(self, name: str, *, limit: int) -> bytes:
        kind, random = self._meet("get", name)
        self._deny("get", name, kind)
        return self._lie("get", name, kind, random, self._store.get(name, limit=limit), limit)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        kind, random = self._meet("get_range", name)
        self._deny("get_range", name, kind)
        if kind not in _LIES:
            return self._store.get_range(name, offset, length)
        whole = self._store.get(name, limit=1 << 40)
        data = self._lie("get_range", name, kind, random, whole, 1 << 40)[offset : offset + length]
        if len(data) < length:
            raise CorruptError(self.url, "get_range", name, "ends too early")
        if kind == "corrupt" and length:
            return _flip_bit(self._store.get_range(name, offset, length), random)
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        kind, random = self._meet("get_if_changed", name)
        self._deny("get_if_changed", name, kind)
        answer = self._store.get_if_changed(name, tag, limit=limit)
        if answer is None:
            return None
        return self._lie("get_if_changed", name, kind, random, answer[0], limit), answer[1]

    def delete(self, name: str) -> None:
        if self._meet("delete", name)[0] != "lose":
            self._store.delete(name)

    def delete_many(self, names: Iterable[str]) -> None:
        for name in names:
            self.delete(name)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        kind, random = self._meet("list", prefix)
        page = self._store.list(prefix, after=after, limit=limit)
        if kind == "lose":
            return Page(tuple(entry for entry in page.entries if random.random() < 0.5), page.more)
        return page

    def close(self) -> None:
        self._store.close()

    def _meet(self, operation: str, name: str) -> tuple[Kind | None, Random]:
        """Record the call; stall or fail when it is time to; return the fault left for the caller."""
        with self._lock:
            self._count[operation, name] += 1
            key = f"{self._seed}/{operation}/{name}/{self._count[operation, name]}"
            struck, random = self._choose(key, operation, name)
            self.calls.append(Call(operation, name, struck.kind if struck else None))
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

    def _deny(self, operation: str, name: str, kind: Kind | None) -> None:
        if kind == "lose":
            raise MissingError(self.url, operation, name, "no such object")

    def _lie(
        self, operation: str, name: str, kind: Kind | None, random: Random, data: bytes, limit: int
    ) -> bytes:
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

    def _another(self, name: str, random: Random, data: bytes) -> bytes:
        """The content of another object, by preference one of the same folder."""
        folder = name[: name.rfind("/") + 1]
        for prefix in (folder, ""):
            others = [entry.name for entry in self._store.list(prefix).entries if entry.name != name]
            if others:
                return self._store.get(random.choice(others), limit=1 << 40)
        return data


def _flip_bit(data: bytes, random: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    place = random.randrange(8 * len(data))
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)
