"""The identity of a file's content: equal on both sides for equal bytes, and known without reading them where
the volume has cut them into chunks already.

It is the hash of the number and the chunk id of every window of `WINDOW` bytes that holds something else than
zeros, and of the size. Chunk ids are keyed, so that the hash reveals nothing.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.state.chunk_states import MAX_CHUNK
from sync.codec import Buffer

__all__ = ["WINDOW", "ContentHash", "is_zero"]

WINDOW: Final = MAX_CHUNK
_PERSON: Final = b"hybrisfs mirror1"
_ZEROS: Final = bytes(WINDOW)
_WINDOW_NUMBER: Final = struct.Struct(">Q")


class ContentHash:
    """Told of the windows of a file in order, but for those that are zeros throughout."""

    def __init__(self, namer: ChunkNamer) -> None:
        self._namer = namer
        self._hash = hashlib.blake2b(digest_size=32, person=_PERSON)

    def add(self, offset: int, data: Buffer) -> None:
        """The bytes of the window at *offset*, as far as the file goes."""
        self.add_known(offset, self._namer.chunk_id(data))

    def add_known(self, offset: int, identity: bytes) -> None:
        """The chunk id of the window at *offset*."""
        self._hash.update(_WINDOW_NUMBER.pack(offset // WINDOW))
        self._hash.update(identity)

    def digest(self, size: int) -> bytes:
        """The identity; 32 bytes."""
        self._hash.update(_WINDOW_NUMBER.pack(size))
        return self._hash.digest()


def is_zero(data: bytes) -> bool:
    """Whether all bytes, at most a window of them, are zeros."""
    return data == (_ZEROS if len(data) == WINDOW else _ZEROS[: len(data)])
