"""Listing the objects of a bucket page by page, whatever the pages of its service are like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from backends.errors import CorruptError
from backends.names import is_name
from backends.store import Entry, Page

__all__ = ["ServicePage", "collect"]

_MAX_PAGES: Final = 1000  # of foreign objects between two of ours, before the listing counts as endless


@dataclass(frozen=True, slots=True)
class ServicePage:
    """One page as the service gave it: (key, size) pairs, and the token of the next page, if there is one."""

    keys: Sequence[tuple[str, int]]
    next_token: str | None


def collect(
    url: str,
    root: str,
    prefix: str,
    after: str,
    limit: int,
    fetch: Callable[[str | None, int], ServicePage],
    *,
    token: str | None = None,
    remember: Callable[[str, str], None] | None = None,
) -> Page:
    """Gather the first `limit` entries that begin with `prefix` and sort after `after`.

    `root` is what all keys of this cloud begin with. `fetch` returns the page of a token, of about so many
    keys; `token` is the one to begin with. `remember` is told the token of the page that holds what follows
    the last entry returned. Raises `CorruptError` when the service lists out of order or without end.
    """
    entries: list[Entry] = []
    last = ""
    for _ in range(_MAX_PAGES):
        page = fetch(token, limit)
        for place, (key, size) in enumerate(page.keys):
            name = key[len(root) :]
            if not key.startswith(root + prefix) or name <= after or not is_name(name):
                continue
            if name <= last:
                raise CorruptError(url, "list", prefix, "the objects are listed out of order")
            if len(entries) == limit:
                if remember is not None and token is not None:
                    remember(last, token)
                return Page(tuple(entries), more=True)
            last = name
            entries.append(Entry(name, max(size, 0)))
            if len(entries) == limit and place + 1 == len(page.keys) and page.next_token is not None:
                if remember is not None:
                    remember(last, page.next_token)
                return Page(tuple(entries), more=True)
        if page.next_token is None:
            return Page(tuple(entries), more=False)
        if page.next_token == token:
            break
        token = page.next_token
    raise CorruptError(url, "list", prefix, "the listing does not come to an end")
