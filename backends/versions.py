"""What a cloud keeps of objects that were deleted or overwritten: an optional part of a store.

PASIS's versioning nodes (READ_PREV), for clouds: who holds the secrets of a cloud may delete and overwrite
objects, but not make the cloud forget what they were, as long as the credentials lack the right to that.
A driver that can has an attribute `versions` of the type `Versions`; see `versions_of`.

Older bytes are candidates and no more: the reader verifies them, and never takes them for fresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from backends.errors import StoreError
from backends.store import Store

__all__ = [
    "MAX_DAYS",
    "MAX_LISTED",
    "MAX_VERSIONS",
    "Policy",
    "Version",
    "Versions",
    "older_versions",
    "outermost",
    "versions_of",
]

MAX_VERSIONS: Final = 16
"""Of one name that are looked at: the newest and the oldest. A thief may overwrite an object again and
again, and what it was at first is what most objects should be: they are named by their content."""
MAX_LISTED: Final = 10_000
"""Versions of one name that a cloud is asked to list."""
MAX_DAYS: Final = 36500


class Version(Struct, frozen=True):
    """Bytes that a name had or has. `id` is the cloud's, `size` in bytes as it claims."""

    id: str
    size: int


class Policy(Struct, frozen=True):
    """What a cloud is set to do, as it says itself.

    `on`: whether it keeps what is deleted and overwritten, None when these credentials may not ask.
    `days`: for how long, None without an end or when that is not known. `note`: what else to know of it.
    """

    on: bool | None
    days: int | None = None
    note: str = ""


class Versions(Protocol):
    """Every method may raise any `backends.errors.StoreError`."""

    def names(self, prefix: str) -> tuple[str, ...]:
        """The names of objects that begin with *prefix* and are there, or were: of `MAX_LISTED` versions."""

    def of(self, name: str, most: int = MAX_VERSIONS) -> tuple[Version, ...]:
        """The versions of an object, the newest first, the present one included; of more than *most* as many
        of the newest and of the oldest as that allows, the oldest of the first `MAX_LISTED`.

        Between them a cloud may have noted deletions: these are left out.
        """

    def get(self, name: str, version: str, *, limit: int) -> bytes:
        """Return a version of at most `limit` bytes. Raises like `Store.get`."""

    def get_range(self, name: str, version: str, offset: int, length: int) -> bytes:
        """Return a part of a version. Raises like `Store.get_range`."""

    def destroy(self, name: str) -> bool:
        """Have the cloud forget all that it keeps of a name; False when a lock of the cloud's forbids that.

        Raises `AuthError` when these credentials may not.
        """

    def policy(self) -> Policy:
        """What the cloud is set to."""

    def keep(self, days: int) -> str:
        """Have the cloud keep for so many days what is deleted or overwritten from now on; what a person
        should know about that, "" for nothing. Settings of others stay. Raises `AuthError` with the command
        for an administrator, and `PermanentError` when this service cannot."""

    def stop_keeping(self) -> None:
        """Have the cloud keep nothing more; what it keeps goes when its days are over. Raises like `keep`."""

    def may_change(self) -> bool | None:
        """Whether these credentials may change what the cloud is set to, by setting what is set already;
        None when that cannot be tried."""


def outermost(versions: Sequence[Version], most: int) -> tuple[Version, ...]:
    """What `Versions.of` returns of all versions, the newest first."""
    half = most // 2
    return tuple(versions) if len(versions) <= 2 * half else (*versions[:half], *versions[-half:])


def older_versions(store: Store, name: str, most: int = MAX_VERSIONS) -> tuple[Version, ...]:
    """What a cloud keeps of a name, the newest first; nothing when it does not tell."""
    versions = versions_of(store)
    try:
        return () if versions is None else versions.of(name, most)
    except StoreError:
        return ()


def versions_of(store: Store) -> Versions | None:
    """What *store* has for that, None for kinds of clouds that keep nothing."""
    found: Versions | None = getattr(store, "versions", None)
    return found
