"""The interface of every kind of cloud: a flat, dumb, untrusted store of named byte strings.

A driver translates and nothing more: it does not retry, cache, encrypt or verify content. It may be
used from many threads at once. Every method but `close` may raise any `backends.errors.StoreError`;
illegal names and arguments raise `ValueError`. `tests/backends/conformance.py` is the contract in
executable form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct

__all__ = [
    "MAX_NAME",
    "MAX_PAGE",
    "MAX_SEGMENTS",
    "Buffer",
    "LONGEST_SIGNED",
    "Page",
    "Store",
    "StoreWrapper",
    "StoredObject",
    "can_sign",
    "check_name",
    "check_prefix",
    "dismantle",
    "is_name",
    "signed_url",
    "takes_many",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

LONGEST_SIGNED: Final = 7 * 86400  # seconds; the longest that all services grant a signed URL

MAX_PAGE: Final = 1000  # entries; the largest `limit` of `list` that all clouds serve in one request


class StoredObject(Struct, frozen=True):
    """One listed object: its name and its size in bytes, both as the cloud claims them."""

    name: str
    size: int


class Page(Struct, frozen=True):
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
        """Remove the object; a missing one is not an error."""

    def delete_many(self, names: Iterable[str]) -> None:
        """Remove many objects, in as few requests as the cloud can; any may be gone when it raises."""

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        """Return the first `limit` objects in name order that begin with `prefix` and sort after `after`.

        Names sort by their ASCII bytes. At most `MAX_PAGE` at a time. Foreign objects, whose names are
        not legal, are left out.
        """

    def close(self) -> None:
        """Release connections. The store is not used afterwards. Idempotent."""


# -- the one check of object names ----------------------------------------------------------------------
# A name is 1 to `MAX_SEGMENTS` segments joined by "/". A segment is 1 to 128 characters of
# ``[a-z0-9._-]`` and does not begin with a dot, so that a driver may keep files of its own under
# names that begin with one. The alphabet is what every kind of cloud stores unchanged, lower case
# only because some folders ignore case. Filesystem-backed clouds cannot hold `p` beside `p/q`:
# code that names objects must see to it that no name is a parent path of another.


MAX_NAME: Final = 512  # characters
MAX_SEGMENTS: Final = 8

_SEGMENT = r"[a-z0-9_-][a-z0-9._-]{0,127}"
_NAME = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT}){{0,{MAX_SEGMENTS - 1}}}")
_PREFIX = re.compile(rf"(?:{_SEGMENT}/){{0,{MAX_SEGMENTS - 1}}}(?:{_SEGMENT})?")


def is_name(text: str) -> bool:
    """Whether `text` is a legal object name."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return `name`; raise `ValueError` when it is not a legal object name."""
    if not is_name(name):
        raise ValueError(f"not a legal object name: {name[:80]!r}")
    return name


def check_prefix(prefix: str) -> str:
    """Return `prefix`; raise `ValueError` when no legal object name can begin with it."""
    if len(prefix) > MAX_NAME or _PREFIX.fullmatch(prefix) is None:
        raise ValueError(f"not a legal prefix of object names: {prefix[:80]!r}")
    return prefix


def dismantle(store: Store, folders: Sequence[str]) -> bool:
    """Remove the place that `initialise` made, with the empty *folders* in it, if nothing else is there.

    Whether it is gone; False also for kinds of clouds that leave it. Raises any `StoreError`.
    """
    remove: Callable[[Sequence[str]], bool] | None = getattr(store, "dismantle", None)
    return remove is not None and remove(folders)


def can_sign(store: Store) -> bool:
    """Whether this kind of cloud can make URLs by which others read an object for a while."""
    return bool(getattr(store, "signs", False))


def signed_url(store: Store, name: str, seconds: int, content_type: str) -> str:
    """A URL that lets anybody read one object of a store that `can_sign`, for *seconds*, at most
    `LONGEST_SIGNED`. Browsers get a document of *content_type*.

    The cloud is not asked for it, so the object can be missing. Raises any `StoreError`.
    """
    check_name(name)
    if not 0 < seconds <= LONGEST_SIGNED:
        raise ValueError(f"a URL is good for 1 to {LONGEST_SIGNED} s: {seconds}")
    sign: Callable[[str, int, str], str] = getattr(store, "signed_url")  # noqa: B009 - not of every store
    return sign(name, seconds, content_type)


def takes_many(store: Store) -> bool:
    """Whether the service takes more than a few requests at a time; some hosts of files count connections."""
    return bool(getattr(store, "many", False))


# -- what stores around another store share -------------------------------------------------------------


T = TypeVar("T")


class StoreWrapper:
    """A `Store` that passes calls on to `store`: all but `close` go through `_pass_on`."""

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.many = takes_many(store)
        self.signs = can_sign(store)
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

    def dismantle(self, folders: Sequence[str]) -> bool:
        return self._pass_on("dismantle", "", lambda store: dismantle(store, folders))

    def signed_url(self, name: str, seconds: int, content_type: str) -> str:
        return self._pass_on("sign", name, lambda store: signed_url(store, name, seconds, content_type))

    def close(self) -> None:
        self._store.close()

    def _pass_on(self, operation: str, name: str, call: Callable[[Store], T]) -> T:
        """Make one call; `operation` is the method, `name` the object or prefix, "" where there is none."""
        return call(self._store)
