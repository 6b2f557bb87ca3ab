"""Mutations of records, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

__all__ = ["mutations"]

_LONGEST = 1 << 16
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
_WIDE = (b"\xff" * 8, b"\x80" * 8 + b"\x01", b"\xff" * 9 + b"\x01", bytes(8), b"\x7f" + b"\xff" * 7)


def mutations(seeds: Sequence[bytes], count: int, random: Random) -> Iterator[bytes]:
    """So many inputs that differ a little, or much, from *seeds*."""
    for _ in range(count):
        data = bytearray(random.choice(seeds))
        for _ in range(1 << random.randrange(4)):
            _change(data, random, seeds)
        yield bytes(data[:_LONGEST])


def _change(data: bytearray, random: Random, seeds: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice((1, 1, 2, 4, 8, 32)))
    match random.randrange(8):
        case 0 if data:
            bit = random.randrange(len(data) * 8)
            data[bit // 8] ^= 1 << bit % 8
        case 1 if at < len(data):
            data[at] = random.choice(_INTERESTING)
        case 2 if at < len(data):
            data[at] = (data[at] + random.choice((-1, 1))) % 256
        case 3:
            del data[at:end]
        case 4:
            data[at:at] = random.randbytes(random.choice((1, 1, 2, 8)))
        case 5:
            data[at:at] = data[at:end] * random.choice((1, 2, 64))
        case 6:
            other = random.choice(seeds)
            start = random.randrange(len(other) + 1)
            data[at:end] = other[start : start + random.choice((1, 4, 16, 64))]
        case _:
            data[at:end] = random.choice(_WIDE)
