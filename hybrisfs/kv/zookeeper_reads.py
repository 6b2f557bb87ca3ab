"""Many znodes by one request: ZooKeeper's multi-read (3.6 or newer), which kazoo does not have.

    request     for each znode: header, i32 length of the path, path, u8 0 (no watch); then the last header
    answer      for each znode: header, then of one that is there: i32 length, content, state (68 bytes);
                of any other one: i32 code of the error; then the last header
    header      i32 kind (4: a znode is read, -1: an error, or the last), u8 1 for the last, i32 code

One request costs the client a tenth of as many by themselves. An older server says that it does not know it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from kazoo.exceptions import EXCEPTIONS, ConnectionLoss, NoNodeError
from kazoo.protocol.states import ZnodeStat
from msgspec import Struct

__all__ = ["Znode", "read_together"]

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
