"""Counting what a cloud charges for: requests by class, and bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from backends.store import MAX_PAGE, Buffer, Page, Store, StoreWrapper
from backends.versions import MAX_VERSIONS, Policy, Version, Versions, versions_of

__all__ = ["CountingStore", "Request", "RequestClass", "Use", "used"]

RequestClass: TypeAlias = Literal["put", "get", "list", "delete"]


class Request(Struct, frozen=True):
    """One request as it is billed; a failed one counts too. Bytes are those of the object, not of HTTP."""

    kind: RequestClass
    up: int = 0
    down: int = 0


class Use(Struct, frozen=True):
    """Of one cloud: requests by class, bytes in and out."""

    put: int = 0
    get: int = 0
    list: int = 0
    delete: int = 0
    up: int = 0
    down: int = 0


def used(requests: Iterable[Request]) -> Use:
    """Add up."""
    totals = {"put": 0, "get": 0, "list": 0, "delete": 0, "up": 0, "down": 0}
    for one in requests:
        totals[one.kind] += 1
        totals["up"] += one.up
        totals["down"] += one.down
    return Use(**totals)


class CountingStore(StoreWrapper):
    """A `backends.store.Store` that passes calls on to `store` and tells `count` of each. Thread-safe."""

    def __init__(self, store: Store, count: Callable[[Request], None]) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self._tell = count
        kept = versions_of(store)
        self.versions = None if kept is None else _CountingVersions(kept, self._count)

    def _count(self, kind: RequestClass, up: int = 0, down: int = 0) -> None:
        with self._lock:
            self._tell(Request(kind, up, down))

    def put(self, name: str, data: Buffer) -> None:
        self._count("put", up=len(data))
        super().put(name, data)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        self._count("put", up=len(data))
        return super().put_if_absent(name, data)

    def get(self, name: str, *, limit: int) -> bytes:
        return _read(self._count, lambda: self._store.get(name, limit=limit))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return _read(self._count, lambda: self._store.get_range(name, offset, length))

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        changed = None
        try:
            changed = super().get_if_changed(name, tag, limit=limit)
        finally:
            self._count("get", down=len(changed[0]) if changed else 0)
        return changed

    def delete(self, name: str) -> None:
        self._count("delete")
        super().delete(name)

    def delete_many(self, names: Iterable[str]) -> None:
        doomed = list(names)
        for _ in range(0, len(doomed), MAX_PAGE):
            self._count("delete")
        super().delete_many(doomed)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        self._count("list")
        return super().list(prefix, after=after, limit=limit)


def _read(count: Callable[..., None], call: Callable[[], bytes]) -> bytes:
    data = b""
    try:
        data = call()
    finally:
        count("get", down=len(data))
    return data


class _CountingVersions:
    """Passes calls on to `kept`, and counts those that every device makes; the others are a person's."""

    def __init__(self, kept: Versions, count: Callable[..., None]) -> None:
        self._kept = kept
        self._count = count
        self.destroy = kept.destroy
        self.keep = kept.keep
        self.stop_keeping = kept.stop_keeping
        self.may_change = kept.may_change

    def names(self, prefix: str) -> tuple[str, ...]:
        self._count("list")
        return self._kept.names(prefix)

    def of(self, name: str, most: int = MAX_VERSIONS) -> tuple[Version, ...]:
        self._count("list")
        return self._kept.of(name, most)

    def get(self, name: str, version: str, *, limit: int) -> bytes:
        return _read(self._count, lambda: self._kept.get(name, version, limit=limit))

    def get_range(self, name: str, version: str, offset: int, length: int) -> bytes:
        return _read(self._count, lambda: self._kept.get_range(name, version, offset, length))

    def policy(self) -> Policy:
        self._count("get")
        return self._kept.policy()
