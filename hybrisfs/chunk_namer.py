"""The names of chunks: a keyed hash of their bytes, so that equal chunks are stored once and a cloud cannot
test for known content."""

from __future__ import annotations

from blake3 import blake3

from sync.codec import Buffer

__all__ = ["KEY_SIZE", "PIECE_HASH_SIZE", "ChunkNamer"]

KEY_SIZE = 32
PIECE_HASH_SIZE = 8


class ChunkNamer:
    """Names the chunks of one volume. Thread-safe. `dedup_key` has 32 bytes."""

    def __init__(self, dedup_key: bytes) -> None:
        if len(dedup_key) != KEY_SIZE:
            raise ValueError(f"the dedup key has {KEY_SIZE} bytes")
        self._dedup_key = dedup_key

    def piece_hash(self, piece: Buffer) -> bytes:
        """Eight bytes by which this device alone tells whether its disk has altered a piece of a chunk."""
        return blake3(piece, key=self._dedup_key).digest(PIECE_HASH_SIZE)

    def chunk_id(self, plaintext: Buffer) -> bytes:
        """Return the 32-byte name of a chunk: BLAKE3 of its plaintext keyed with the dedup key."""
        return blake3(plaintext, key=self._dedup_key).digest()
