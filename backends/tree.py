"""Listing a tree of folders as if it were a flat list of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from backends.names import is_name
from backends.store import Entry, Page

__all__ = ["Child", "list_tree", "may_hold"]


@dataclass(frozen=True, slots=True)
class Child:
    """What a folder holds under `name`; `size` in bytes, meaningless for a folder."""

    name: str
    is_folder: bool
    size: int


def list_tree(children: Callable[[str], Iterable[Child]], prefix: str, after: str, limit: int) -> Page:
    """Return the first `limit` objects that begin with `prefix` and sort after `after`.

    `children` lists one folder, whose name ends in a slash; "" is the root. A folder that is gone is empty.
    """
    entries: list[Entry] = []
    for entry in _walk(children, "", prefix, after):
        if len(entries) == limit:
            return Page(tuple(entries), more=True)
        entries.append(entry)
    return Page(tuple(entries), more=False)


def may_hold(folder: str, prefix: str, after: str) -> bool:
    """Whether objects below `folder` (with its slash) can match `prefix` and sort after `after`."""
    in_prefix = folder.startswith(prefix) or prefix.startswith(folder)
    return in_prefix and (folder > after or after.startswith(folder))


def _walk(
    children: Callable[[str], Iterable[Child]], folder: str, prefix: str, after: str
) -> Iterator[Entry]:
    # A folder's objects sort where its name with the slash sorts: "a-b" < "a/c".
    found = {
        folder + child.name + ("/" if child.is_folder else ""): child.size
        for child in children(folder)
        if is_name(folder + child.name)
    }
    for name in sorted(found):
        if name.endswith("/"):
            if may_hold(name, prefix, after):
                yield from _walk(children, name, prefix, after)
        elif name > after and name.startswith(prefix):
            yield Entry(name, found[name])
