"""What stores around another store share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from backends.store import MAX_PAGE, Buffer, Page, Store

__all__ = ["StoreWrapper"]

T = TypeVar("T")


class StoreWrapper:
    """A `backends.store.Store` that passes calls on to `store`: all but `close` go through `_pass_on`."""

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self._store = store

    def initialise(self) -> None:
        self._pass_on("initialise", "", lambda store: store.initialise())

    def put(self, name: str, data: Buffer) -> None:
        self._pass_on("put", name, lambda store: store.put(name, data))

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        return self._pass_on("put_if_absent", name, lambda store: store.put_if_absent(name, data))

    def get(self, name: str, *, limit: int) -> bytes:
        return self._pass_on("get", name, lambda store: store.get(name, limit=limit))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._pass_on("get_range", name, lambda store: store.get_range(name, offset, length))

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        return self._pass_on(
            "get_if_changed", name, lambda store: store.get_if_changed(name, tag, limit=limit)
        )

    def delete(self, name: str) -> None:
        self._pass_on("delete", name, lambda store: store.delete(name))

    def delete_many(self, names: Iterable[str]) -> None:
        self._pass_on("delete_many", "", lambda store: store.delete_many(names))

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        return self._pass_on("list", prefix, lambda store: store.list(prefix, after=after, limit=limit))

    def close(self) -> None:
        self._store.close()

    def _pass_on(self, operation: str, name: str, call: Callable[[Store], T]) -> T:
        """Make one call; `operation` is the method, `name` the object or prefix, "" where there is none."""
        return call(self._store)
