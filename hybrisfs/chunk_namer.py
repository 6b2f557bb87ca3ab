"""Where chunks begin, and their names, by a key: equal chunks are stored once, and a cloud cannot test for
known content.

A name is a keyed hash of the chunk's bytes. Where a chunk ends follows from the bytes before, by FastCDC (Xia
et al., "The Design of Fast Content-Defined Chunking", IEEE TPDS 2020); a secret seed alters its table.
"""

from __future__ import annotations

from collections.abc import Iterator

from blake3 import blake3

from sync.codec import Buffer

__all__ = ["KEY_SIZE", "PIECE_HASH_SIZE", "ChunkNamer"]

KEY_SIZE = 32
PIECE_HASH_SIZE = 8
_USUAL, _LEAST = 2, 8
_SHORTEST = 1024  # chunks for which FastCDC is defined


class ChunkNamer:
    """Names the chunks of one volume. Thread-safe. `dedup_key` has 32 bytes."""

    def __init__(self, dedup_key: bytes) -> None:
        if len(dedup_key) != KEY_SIZE:
            raise ValueError(f"the dedup key has {KEY_SIZE} bytes")
        self._dedup_key = dedup_key
        seed = blake3(b"hybrisfs ends of chunks", key=dedup_key).digest(8)
        self._seed = int.from_bytes(seed, "big") >> 1  # the library shifts it, and overflows at 64 bits

    def piece_hash(self, piece: Buffer) -> bytes:
        """Eight bytes by which this device alone tells whether its disk has altered a piece of a chunk."""
        return blake3(piece, key=self._dedup_key).digest(PIECE_HASH_SIZE)

    def chunk_id(self, plaintext: Buffer) -> bytes:
        """Return the 32-byte name of a chunk: BLAKE3 of its plaintext keyed with the dedup key."""
        return blake3(plaintext, key=self._dedup_key).digest()

    @staticmethod
    def is_one(size: int, most: int) -> bool:
        """Whether so many bytes make one chunk, whatever they are."""
        return size <= most // _LEAST

    def cut(self, data: bytes, most: int) -> Iterator[int]:
        """The lengths of the chunks of *data*: each has at most *most* bytes, usually half of that, and, but
        for the last, at least an eighth."""
        if self.is_one(len(data), most):
            yield len(data)
        elif most < _SHORTEST:
            yield from (min(most, len(data) - at) for at in range(0, len(data), most))
        else:
            from pyfastcdc import FastCDC

            cutter = FastCDC(most // _USUAL, min_size=most // _LEAST, max_size=most, seed=self._seed)
            yield from (chunk.length for chunk in cutter.cut_buf(data))
