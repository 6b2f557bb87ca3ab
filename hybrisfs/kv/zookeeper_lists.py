"""The lists of keys in a ZooKeeper.

A list is of one moment, although ZooKeeper reads no two znodes at once. Each transaction that changes an
entry sets the znode of its bucket, too, so the id of that znode's last change counts the changes in the
bucket. It is read before what is in the bucket. In the end the ids of all buckets are read again: when they
are the same, nothing has changed in any bucket from the moment at which it was read until now, so all that
was read is of the moment at which this last look began. Else the buckets that changed are read again. When
others write all the time, the container is held (`service_containers`) for as long as the last changes take
to be read.

A container may hold more keys than fit into an answer of 1 MiB (``jute.maxbuffer``): it has 256 buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from hybrisfs.kv.service import KeyValue

__all__ = ["Bucket", "BucketReading", "Buckets"]


class Bucket(NamedTuple):
    """What a bucket held when its last change had this id."""

    change: int
    keys: Sequence[KeyValue]


class Buckets(Protocol):
    """Where entries are looked for."""

    def changes(self, container: bytes) -> Mapping[str, int]:
        """The buckets of a container by their paths, and the ids of their last changes. Raises
        ServiceError."""

    def contents(self, paths: Sequence[str], first: bytes, end: bytes) -> Mapping[str, Bucket]:
        """What is in buckets of a range of entries, each with the id of a change not after that. Raises
        ServiceError."""


class BucketReading:
    """See `hybrisfs.kv.service.Reading`, and above."""

    def __init__(self, client: Buckets, first: bytes, end: bytes, size: int) -> None:
        self._client = client
        self._container = first.split(b"/")[1]
        self._first, self._end, self._size = first, end, size
        self._known: dict[str, Bucket] = {}

    def catch_up(self) -> bool:
        """See `Reading.catch_up`."""
        now = self._client.changes(self._container)
        changed = [path for path in now if path not in self._known or self._known[path].change != now[path]]
        gone = self._known.keys() - now.keys()
        for path in gone:
            del self._known[path]
        if changed:
            self._known |= self._client.contents(changed, self._first, self._end)
        return not changed and not gone

    def pages(self) -> Iterator[Sequence[KeyValue]]:
        """See `Reading.pages`."""
        keys = sorted(one for bucket in self._known.values() for one in bucket.keys)
        for start in range(0, len(keys), self._size):
            yield keys[start : start + self._size]
