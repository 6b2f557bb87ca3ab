"""Lists of keys, with those that are equal up to a delimiter folded into one. Pure: it asks for pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from hybrisfs.api.key_value import FoundKey
from hybrisfs.api.objects import RESERVED

__all__ = ["Listed", "Page", "entries", "list_keys"]

_BEHIND_ALL: Final = "\U0010ffff" * 256
"""Behind a prefix, it sorts after all keys with that prefix: it alone is as long as the longest key."""


class Page(NamedTuple):
    """Some keys in order, and whether others may follow."""

    keys: Sequence[FoundKey]
    more: bool


class Listed(Struct):
    """A page of a list: keys, and prefixes that stand for keys. `last` is the last of both in their order."""

    keys: list[FoundKey] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""
    truncated: bool = False


def list_keys(
    read: Callable[[str | None], Page], prefix: str, delimiter: str, after: str | None, limit: int
) -> Listed:
    """At most *limit* keys and prefixes behind *after*, of those that clients may see.

    *read* returns keys with the prefix behind one.
    """
    listed = Listed()
    if limit == 0:
        return listed
    for key, folded in entries(read, prefix, delimiter, after):
        if len(listed.keys) + len(listed.prefixes) == limit:
            listed.truncated = True
            return listed
        if folded is None:
            listed.keys.append(key)
            listed.last = key.key
        else:
            listed.prefixes.append(folded)
            listed.last = folded
    return listed


def entries(
    read: Callable[[str | None], Page],
    prefix: str,
    delimiter: str,
    after: str | None,
    *,
    hidden: str | None = RESERVED,
) -> Iterator[tuple[FoundKey, str | None]]:
    """Keys, the first of those with the same text up to the delimiter with that, without those that begin
    with *hidden*. Pages within what is folded or hidden are not read."""
    folded, last, more = None, after, True
    while more:
        page = read(last)
        more = page.more
        for key in page.keys:
            last = key.key
            if hidden is not None and last.startswith(hidden):
                last, more = hidden + _BEHIND_ALL, True
                break
            if folded is not None and last.startswith(folded):
                continue
            end = last.find(delimiter, len(prefix)) if delimiter else -1
            folded = last[: end + len(delimiter)] if end >= 0 else None
            if folded is None or folded != after:
                yield key, folded
        else:
            if folded is not None and last is not None and last.startswith(folded):
                last = folded + _BEHIND_ALL
