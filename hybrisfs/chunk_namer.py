"""The names of chunks: a keyed hash of their bytes, so that equal chunks are stored once and a cloud cannot
test for known content."""

from __future__ import annotations

from blake3 import blake3

from sync.codec import Buffer

__all__ = ["KEY_SIZE", "ChunkNamer"]

KEY_SIZE = 32


class ChunkNamer:
    """Names the chunks of one volume. Thread-safe. `dedup_key` has 32 bytes."""

    def __init__(self, dedup_key: bytes) -> None:
        if len(dedup_key) != KEY_SIZE:
            raise ValueError(f"the dedup key has {KEY_SIZE} bytes")
        self._dedup_key = dedup_key

    def chunk_id(self, plaintext: Buffer) -> bytes:
        """Return the 32-byte name of a chunk: BLAKE3 of its plaintext keyed with the dedup key."""
        return blake3(plaintext, key=self._dedup_key).digest()
