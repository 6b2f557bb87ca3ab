"""What drivers of folders share: object `a/b` is the file FOLDER/a/b.

The folder `.hybrisfs` in it is made by `initialise` and says that this folder is ours: without it nothing is
read or written, for then a disk is most likely not mounted. It also holds files while they are being written.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import ClassVar, Final, TypeVar

from msgspec import Struct

from backends.address import Address
from backends.driver import Driver
from backends.errors import MissingError, MissingRootError, StoreError, TransientError
from backends.store import Page, StoredObject, is_name

__all__ = ["MARKER", "Child", "FolderStore", "first_page", "list_tree", "may_hold", "no_folder"]

MARKER: Final = ".hybrisfs"

_STALE_AFTER: Final = 24 * 3600.0  # seconds

C = TypeVar("C")


def no_folder(address: Address) -> str:
    """What is wrong with the address of a folder: a `backends.driver.CloudKind.problem`."""
    return "" if address.path else "names no folder"


class FolderStore(Driver[C]):
    """A driver of a folder."""

    when_gone: ClassVar[str]
    """What to ask a person when the folder is not ours."""
    _swept = False

    def _get_if_changed(self, client: C, name: str, tag: str | None, limit: int) -> tuple[bytes, str] | None:
        # Quick changes share times and inode numbers, and so the tags of many servers; the content tells.
        data = self._get(client, name, limit)
        current = blake2b(data, digest_size=16).hexdigest()
        return None if current == tag else (data, current)

    def _sweep(self, client: C) -> None:
        """Once per process, remove what writers that died long ago left behind."""
        if self._swept:
            return
        self._swept = True
        before = time.time() - _STALE_AFTER
        for name, changed in self._leftovers(client):
            if changed < before:
                self._remove_leftover(client, name)

    @abstractmethod
    def _leftovers(self, client: C) -> Iterable[tuple[str, float]]:
        """What the folder `MARKER` holds: names, and seconds since the epoch; now when that is not known."""

    @abstractmethod
    def _remove_leftover(self, client: C, name: str) -> None:
        """Remove a file from the folder `MARKER`."""

    def _absent(self, operation: str, name: str, trouble: str) -> StoreError:
        """Why something is not there; `trouble` is why the folder is not ours, "" when it is."""
        if trouble:
            return MissingRootError(self.url, operation, name, trouble, self.when_gone)
        if operation.startswith("put"):
            return TransientError(self.url, operation, name, "the folder changed during the call")
        return MissingError(self.url, operation, name, "no such object")


class Child(Struct, frozen=True):
    """What a folder holds under `name`; `size` in bytes, meaningless for a folder."""

    name: str
    is_folder: bool
    size: int


def list_tree(children: Callable[[str], Iterable[Child]], prefix: str, after: str, limit: int) -> Page:
    """Return the first `limit` objects that begin with `prefix` and sort after `after`.

    `children` lists one folder, whose name ends in a slash; "" is the root. A folder that is gone is empty.
    """
    return first_page(_walk(children, "", prefix, after), limit)


def first_page(objects: Iterable[StoredObject], limit: int) -> Page:
    """Return the first `limit` of the objects."""
    entries: list[StoredObject] = []
    for entry in objects:
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
) -> Iterator[StoredObject]:
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
            yield StoredObject(name, found[name])
