"""Cutting a sealed chunk into n fragments of which any k rebuild it (PASIS 4.2.1, Hybris 3.9).

k = 1 is replication: every fragment is the chunk itself, and no byte is copied. k >= 2 is a systematic
Reed-Solomon code over GF(256) by zfec (the library of Tahoe-LAFS: packaged by the distributions, one C
file, releases the GIL): fragments 0 to k-1 are the chunk cut in k, the other n-k are parity. Fragments
have ceil(length / k) bytes; zeros fill up the last data fragment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from sync.codec import Buffer

if TYPE_CHECKING:
    import zfec

__all__ = ["MAX_FRAGMENTS", "fragment_length", "join", "split"]

MAX_FRAGMENTS = 32


def fragment_length(k: int, length: int) -> int:
    """Return the bytes of one fragment of a sealed chunk of `length` bytes."""
    return -(-length // k)


def split(k: int, n: int, sealed: Buffer) -> Sequence[Buffer]:
    """Return the n fragments of a sealed chunk, in order of their index."""
    _check_code(k, n)
    if k == 1:
        return [sealed] * n
    size = fragment_length(k, len(sealed))
    view = memoryview(sealed)
    data: list[Buffer] = [view[start : start + size] for start in range(0, k * size, size)]
    for i in range(len(sealed) // size, k):  # short or empty only when the length is not a multiple of k
        data[i] = bytes(data[i]).ljust(size, b"\0")
    return data + _encoder(k, n).encode(data, range(k, n)) if n > k else data


def join(k: int, n: int, fragments: Mapping[int, Buffer], length: int) -> Buffer:
    """Rebuild a sealed chunk of `length` bytes from at least k fragments, given by index.

    Nothing is verified: wrong fragments give wrong bytes, which the seal then refuses.
    Raises ValueError when there are too few fragments or their size is not the one of the code.
    """
    _check_code(k, n)
    size = fragment_length(k, length)
    chosen = sorted(fragments)[:k]  # data fragments first: they cost no decoding
    if len(chosen) < k or chosen[-1] >= n or any(len(fragments[i]) != size for i in chosen):
        raise ValueError(f"{k} fragments of {size} bytes with an index below {n} are needed")
    blocks: list[Buffer] = [fragments[i] for i in chosen]
    if k == 1:
        return blocks[0]
    if chosen[-1] >= k:
        blocks = _decoder(k, n).decode(blocks, chosen)
    return memoryview(b"".join(blocks))[:length]


def _check_code(k: int, n: int) -> None:
    if not 1 <= k <= n <= MAX_FRAGMENTS:
        raise ValueError(f"no {k}-of-{n} code: 1 <= k <= n <= {MAX_FRAGMENTS}")


@lru_cache(maxsize=64)
def _encoder(k: int, n: int) -> zfec.Encoder:
    import zfec  # many volumes replicate, and need none of it

    return zfec.Encoder(k, n)


@lru_cache(maxsize=64)
def _decoder(k: int, n: int) -> zfec.Decoder:
    import zfec

    return zfec.Decoder(k, n)
