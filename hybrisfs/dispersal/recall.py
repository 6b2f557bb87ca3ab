"""Older versions of objects as further candidates, when the present ones are missing or wrong (READ_PREV of
PASIS 4.3): what was deleted or overwritten can be read where the cloud keeps it.

Nothing of this is asked for while the present objects are right. It changes nothing of what is believed: an
older version is verified like any answer, and heads are never read this way (`clouds.others_log`).
That a cloud does not tell, or may not be asked, is held against nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from backends.errors import StoreError
from backends.store import Store
from backends.versions import Version, Versions, older_versions, versions_of
from hybrisfs.dispersal.clouds import Clouds
from hybrisfs.dispersal.errors import IntegrityError
from hybrisfs.dispersal.operation import Interrupt, OperationLoop
from hybrisfs.dispersal.read import Read, Readable

__all__ = ["older_bytes", "recall"]

S = TypeVar("S")
T = TypeVar("T")

_LIST: Final = 0  # bytes that a list of versions counts as


class _OlderObjects:
    """A cloud as it was, so far as one version of one object is asked for."""

    def __init__(self, versions: Versions, version: Version) -> None:
        self._versions = versions
        self._version = version

    def get(self, name: str, *, limit: int) -> bytes:
        return self._versions.get(name, self._version.id, limit=limit)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._versions.get_range(name, self._version.id, offset, length)


def older_bytes(
    store: Store, name: str, version: Version, fetch: Callable[[Readable, str], bytes]
) -> bytes | None:
    """What *fetch* reads of a version; None when it cannot be had."""
    versions = versions_of(store)
    try:
        return None if versions is None else fetch(_OlderObjects(versions, version), name)
    except StoreError:
        return None


class _Listed(NamedTuple):
    position: int
    versions: tuple[Version, ...]


class _Fetched(NamedTuple):
    position: int
    data: bytes | None


def recall(
    clouds: Clouds, read: Read[T], parts: Mapping[int, bytes], amiss: Collection[int], timeout: float
) -> list[T]:
    """Rebuild a value from the *parts* that are right and from older versions of those that are *amiss*: the
    value, or nothing.

    Asks each position for one version after the other, the newest first, those of all positions side by side.
    """
    with OperationLoop[_Listed | _Fetched](clouds.operations, timeout) as loop:
        return _Recall(clouds, read, loop, dict(parts)).run(amiss)


class _Recall(Generic[T]):
    """One attempt."""

    def __init__(
        self,
        clouds: Clouds,
        read: Read[T],
        loop: OperationLoop[_Listed | _Fetched],
        parts: dict[int, bytes],
    ) -> None:
        self._clouds = clouds
        self._read = read
        self._loop = loop
        self._parts = parts
        self._left: dict[int, list[Version]] = {}

    def run(self, amiss: Collection[int]) -> list[T]:
        asked = [one for one in sorted(amiss) if self._read.targets[one].cloud in self._clouds]
        for position in asked:
            self._list(position)
        for event in self._events(len(asked)):
            if isinstance(event, _Listed):
                self._left[event.position] = list(event.versions)
        while True:
            due = [one for one, left in self._left.items() if left and one not in self._parts]
            for position in due:
                self._fetch(position, self._left[position].pop(0))
            for event in self._events(len(due)):
                if isinstance(event, _Fetched) and event.data is not None:
                    self._parts[event.position] = event.data
            while len(self._parts) >= self._read.k:
                chosen = dict(list(self._parts.items())[: self._read.k])
                try:
                    return [self._read.rebuild(chosen)]
                except (IntegrityError, ValueError):
                    self._drop(chosen)
            if not any(left for one, left in self._left.items() if one not in self._parts):
                return []

    def _drop(self, chosen: Mapping[int, bytes]) -> None:
        """Do without what is wrong of *chosen*, or without all of it when nobody can tell what is."""
        blame = self._read.blame
        wrong = None if blame is None else blame(chosen, self._loop.remaining())
        for position in wrong or chosen:
            self._parts.pop(position, None)

    def _list(self, position: int) -> None:
        name = self._read.targets[position].name
        self._submit(
            position,
            _LIST,
            lambda store: older_versions(store, name),
            lambda versions: _Listed(position, versions or ()),
        )

    def _fetch(self, position: int, version: Version) -> None:
        read = self._read
        name = read.targets[position].name
        self._submit(
            position,
            read.size,
            lambda store: older_bytes(store, name, version, read.fetch),
            lambda data: _Fetched(position, data),
        )

    def _submit(
        self,
        position: int,
        size: int,
        call: Callable[[Store], S],
        event: Callable[[S | None], _Listed | _Fetched],
    ) -> None:
        port = self._clouds[self._read.targets[position].cloud]
        job = port.submit(
            "get",
            size,
            call,
            lambda answer: self._loop.report(event(answer.value)),
            clock=self._loop.clock,
            ranked=False,
        )
        self._loop.track(port, job)

    def _events(self, count: int) -> Iterator[_Listed | _Fetched]:
        """So many events, or as many as come in time; none after that."""
        for _ in range(count):
            event = self._loop.wait()
            if isinstance(event, Interrupt):
                self._left.clear()
                return
            yield event
