"""Reading many znodes, by one request and as of one moment.

The request is ZooKeeper's multi-read (3.6 or newer), which kazoo does not have:

    request     for each znode: header, i32 length of the path, path, u8 0 (no watch); then the last header
    answer      for each znode: header, then of one that is there: i32 length, content, state (68 bytes);
                of any other one: i32 code of the error; then the last header
    header      i32 kind (4: a znode is read, -1: an error, or the last), u8 1 for the last, i32 code

One request costs the client a tenth of as many by themselves. An older server says that it does not know it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from kazoo.exceptions import EXCEPTIONS, ConnectionLoss, NoNodeError
from kazoo.protocol.states import ZnodeStat
from msgspec import Struct

from hybrisfs.kv.service import KeyValue

__all__ = ["Bucket", "BucketReading", "Buckets", "Znode", "read_together"]

_TOGETHER: Final = 100  # znodes by one request: an answer has half a megabyte at most, whatever is in them
_READ: Final = 4
_ERROR: Final = -1
_HEADER: Final = struct.Struct(">iBi")
_LENGTH: Final = struct.Struct(">i")
_STATE: Final = struct.Struct(">qqqqiiiqiiq")
_LAST: Final = _HEADER.pack(-1, 1, -1)


class Znode(NamedTuple):
    """The content of a znode, and its state, as kazoo has it."""

    content: bytes
    state: Any


class _MultiRead(Struct, frozen=True):
    """A request as kazoo takes it."""

    paths: Sequence[str]

    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        """The request, for kazoo."""
        out = bytearray()
        for path in self.paths:
            name = path.encode()
            out += _HEADER.pack(_READ, 0, -1) + _LENGTH.pack(len(name)) + name + b"\0"
        return bytes(out + _LAST)

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Znode | None]:
        """The answer, for kazoo. Raises kazoo's errors, ValueError and struct.error."""
        found: list[Znode | None] = []
        while True:
            kind, last, _ = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            if last:
                return found
            (number,) = _LENGTH.unpack_from(data, offset)
            offset += _LENGTH.size
            if kind == _ERROR:
                if number != NoNodeError.code:
                    raise EXCEPTIONS[number]()
                found.append(None)
                continue
            size = max(number, 0)  # -1: no content
            if kind != _READ or offset + size > len(data):
                raise ValueError("not the answer to a multi-read")
            state = ZnodeStat._make(_STATE.unpack_from(data, offset + size))
            found.append(Znode(data[offset : offset + size], state))
            offset += size + _STATE.size


def read_together(
    client: Any, paths: Sequence[str], answer: Callable[[Any], list[Znode | None]]
) -> Sequence[Znode | None]:
    """Read znodes; None for one that there is not. *answer* waits for an answer of kazoo's. Raises kazoo's
    errors, UnimplementedError when the server is older."""
    asked = []
    for start in range(0, len(paths), _TOGETHER):
        result = client.handler.async_result()
        client._call(_MultiRead(paths[start : start + _TOGETHER]), result)
        asked.append(result)
    found = [one for some in asked for one in answer(some)]
    if len(found) != len(paths):
        raise ConnectionLoss(f"it answers to {len(paths)} reads with {len(found)}")
    return found


# -- lists of what is in buckets ----------------------------------------------------------------------
# A list is of one moment, although ZooKeeper reads no two znodes at once. Each transaction that changes an
# entry sets the znode of its bucket, too, so the id of that znode's last change counts the changes in the
# bucket. It is read before what is in the bucket. In the end the ids of all buckets are read again: when they
# are the same, nothing has changed in any bucket from the moment at which it was read until now, so all that
# was read is of the moment at which this last look began. Else the buckets that changed are read again. When
# others write all the time, the container is held (`service_containers`) for as long as the last changes take
# to be read.
#
# A container may hold more keys than fit into an answer of 1 MiB (``jute.maxbuffer``): it has 256 buckets.


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
