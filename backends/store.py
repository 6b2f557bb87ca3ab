"""The interface of every kind of cloud: a flat, dumb, untrusted store of named byte strings.

A driver translates and nothing more: it does not retry, cache, encrypt or verify content. It may be
used from many threads at once. Every method but `close` may raise any `backends.errors.StoreError`;
illegal names and arguments raise `ValueError`. `tests/backends/conformance.py` is the contract in
executable form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

__all__ = ["MAX_PAGE", "Buffer", "Page", "Store", "StoredObject"]

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_PAGE: Final = 1000  # entries; the largest `limit` of `list` that all clouds serve in one request


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One listed object: its name and its size in bytes, both as the cloud claims them."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """A run of entries in name order; `more` says that further ones follow.

    After a page of `MAX_PAGE` entries it may say so by mistake: then the next page is empty.
    """

    entries: tuple[StoredObject, ...]
    more: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries)


class Store(Protocol):
    """One cloud."""

    @property
    def url(self) -> str:
        """The URL this store was opened with, without secrets: fit for logs and `status`."""

    def initialise(self) -> None:
        """Make the place that holds the objects (folder, bucket). Idempotent.

        Called when a volume is created or a cloud is added, and never otherwise: a place that is
        gone later on raises `MissingRootError` instead of being made again.
        """

    def put(self, name: str, data: Buffer) -> None:
        """Store `data` under `name`, replacing what was there.

        Atomic: readers get the old or the new object. Durable when it returns.
        """

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        """Like `put`, but only when no object has that name; returns whether `data` was stored.

        Of concurrent calls for one name exactly one returns True.
        """

    def get(self, name: str, *, limit: int) -> bytes:
        """Return the whole object of at most `limit` bytes.

        Raises `MissingError`, and `OversizeError` for an object of more bytes than `limit`.
        """

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset` on.

        Raises `MissingError`, and `CorruptError` when the object ends before `offset + length`.
        """

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        """Return the object and its tag, or None when it is still the one that `tag` stands for.

        With `tag` None always returns the object. Raises like `get`.
        """

    def delete(self, name: str) -> None:
        """Remove the object; a missing one is no error."""

    def delete_many(self, names: Iterable[str]) -> None:
        """Remove many objects, in as few requests as the cloud can; any may be gone when it raises."""

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        """Return the first `limit` objects in name order that begin with `prefix` and sort after `after`.

        Names sort by their ASCII bytes. At most `MAX_PAGE` at a time. Foreign objects, whose names are
        not legal, are left out.
        """

    def close(self) -> None:
        """Release connections. The store is not used afterwards. Idempotent."""
