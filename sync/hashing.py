"""The one hash of `sync`: BLAKE3, with a context string per purpose so that no two purposes collide."""

from __future__ import annotations

from functools import cache

from blake3 import blake3

from sync.codec import Buffer

__all__ = ["HASH_SIZE", "ZERO_HASH", "digest"]

HASH_SIZE = 32
ZERO_HASH = bytes(HASH_SIZE)


def digest(context: str, data: Buffer, length: int = HASH_SIZE) -> bytes:
    """Hash `data` for the purpose named by the constant `context`."""
    hasher = _beginning(context).copy()
    hasher.update(data)
    return hasher.digest(length)


@cache
def _beginning(context: str) -> blake3:
    """Deriving the key from the context takes as long as hashing what is hashed here."""
    return blake3(derive_key_context=context)
