"""Reading single clouds before there is a volume, older versions of objects included, where clouds keep them.

Who steals the only device deletes kit, log and heads with it; what comes back here proves itself as ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from backends.errors import CorruptError, MissingError, StoreError
from backends.store import Store
from backends.versions import older_versions, versions_of
from hybrisfs.dispersal.poll import all_names
from sync import DecodeError

__all__ = ["names_of", "read_object"]

T = TypeVar("T")


def names_of(store: Store, prefix: str, most: int, *, deleted: bool) -> list[str]:
    """The names that begin with *prefix*, at most so many; with *deleted* also those of objects that are not
    there any more, else these only if there are no others. Raises StoreError."""
    names = all_names(store, prefix, most)
    versions = versions_of(store)
    if versions is not None and (deleted or not names):
        with contextlib.suppress(StoreError):
            names = list(dict.fromkeys([*names, *versions.names(prefix)]))[:most]
    return names


def read_object(store: Store, name: str, limit: int, decode: Callable[[bytes], T]) -> T:
    """What *decode* makes of an object, or of the newest version of it that it accepts, if the present one is
    missing or wrong. Raises StoreError, and DecodeError as *decode* does."""
    try:
        return decode(store.get(name, limit=limit))
    except (MissingError, CorruptError, DecodeError):
        versions = versions_of(store)
        for one in older_versions(store, name):
            with contextlib.suppress(StoreError, DecodeError):
                if versions is not None:
                    return decode(versions.get(name, one.id, limit=limit))
        raise
