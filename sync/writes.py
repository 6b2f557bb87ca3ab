"""The body of an update: its key/value writes, laid out in columns.

Columns rather than records, because one `struct` call and slices replace a loop of field reads in
Python, and because like beside like compresses better. The count of writes stands in the update's header.

    key width    u8: 1 or 2
    value width  u8: 1, 2 or 4
    key sizes    count x key width, big-endian, 1 .. MAX_KEY
    value sizes  count x value width, big-endian: 0 = tombstone, else the size + 1
    keys         concatenated, no key twice
    values       concatenated, to the end of the body

Each width is the smallest that holds the largest number of its column (1 for an empty column).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from sync.codec import Reader
from sync.errors import DecodeError, LimitError

__all__ = ["MAX_KEY", "MAX_VALUE", "MAX_WRITES", "Write", "decode_writes", "encode_writes"]

MAX_WRITES = 1_000_000
MAX_KEY = 600
MAX_VALUE = 16 << 20

Write: TypeAlias = tuple[bytes, bytes | None]
"""A key of 1 to MAX_KEY bytes and its new value of up to MAX_VALUE bytes; None is a tombstone."""

_CODES = {1: "B", 2: "H", 4: "I"}
_FEW = 16  # writes, as most updates of a program that works with files have
_SMALL = b"\1\1"  # the widths of columns when all keys and values are small


def _width(largest: int) -> int:
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4


def _column(numbers: Sequence[int], width: int) -> bytes:
    return struct.pack(f">{len(numbers)}{_CODES[width]}", *numbers)


def encode_writes(writes: Sequence[Write]) -> bytes:
    """Encode a transaction's writes, in the order given.

    Raises `LimitError` when they are too many or too large, ValueError for an empty key or a key
    that is written twice (which of the two would win is for the caller to know).
    """
    if len(writes) > MAX_WRITES:
        raise LimitError(f"{len(writes)} writes in one update, at most {MAX_WRITES} are allowed")
    keys = [key for key, _ in writes]
    if len(set(keys)) != len(keys):
        raise ValueError("a key is written twice in one update")
    key_sizes = [len(key) for key in keys]
    values = [value for _, value in writes]
    value_sizes = [0 if value is None else len(value) + 1 for value in values]
    largest_key, largest_value = max(key_sizes, default=0), max(value_sizes, default=0)
    if min(key_sizes, default=1) == 0:
        raise ValueError("a key is empty")
    if largest_key > MAX_KEY:
        raise LimitError(f"a key of {largest_key} bytes, at most {MAX_KEY} are allowed")
    if largest_value > MAX_VALUE + 1:
        raise LimitError(f"a value of {largest_value - 1} bytes, at most {MAX_VALUE} are allowed")
    key_width, value_width = _width(largest_key), _width(largest_value)
    columns = [
        bytes((key_width, value_width)),
        _column(key_sizes, key_width),
        _column(value_sizes, value_width),
    ]
    return b"".join([*columns, *keys, *filter(None, values)])


def _read_column(reader: Reader, count: int, width: int) -> tuple[Sequence[int], int]:
    """The numbers, and the largest of them."""
    column = reader.raw(count * width)
    numbers = column if width == 1 else struct.unpack(f">{count}{_CODES[width]}", column)
    largest = max(numbers, default=0)
    if width != _width(largest):
        raise DecodeError("a column of sizes is wider than it need be")
    return numbers, largest


@lru_cache(maxsize=512)
def _layout(columns: bytes) -> struct.Struct | None:
    """How a body of few small writes goes on that begins with these widths and columns, which are skipped;
    None when some key is empty or some value a tombstone."""
    if 0 in columns:
        return None
    half = len(columns) // 2 + 1
    sizes = [*columns[len(_SMALL) : half], *(code - 1 for code in columns[half:])]
    return struct.Struct(f"{len(columns)}x" + "".join([f"{size}s" for size in sizes]))


def decode_writes(body: bytes, count: int) -> tuple[Write, ...]:
    """Decode what `encode_writes` made of `count` writes. Raises `DecodeError`."""
    writes = _decode_few(body, count) if 0 < count <= _FEW and body.startswith(_SMALL) else None
    if writes is None:
        writes = _decode_any(body, count)
    if len(dict(writes)) != count:
        raise DecodeError("a key is written twice in one update")
    return writes


def _decode_few(body: bytes, count: int) -> tuple[Write, ...] | None:
    """The writes, as `_decode_any` finds them; None when it has to look."""
    columns = body[: len(_SMALL) + 2 * count]
    layout = _layout(columns) if len(body) > len(columns) else None
    if layout is None or layout.size != len(body):
        return None
    parts = layout.unpack(body)
    return tuple(zip(parts[:count], parts[count:], strict=True))


def _decode_any(body: bytes, count: int) -> tuple[Write, ...]:
    reader = Reader(body)
    key_width, value_width = reader.raw(2)
    if key_width not in (1, 2) or value_width not in (1, 2, 4):
        raise DecodeError(f"unknown column widths {key_width} and {value_width}")
    key_sizes, largest_key = _read_column(reader, count, key_width)
    value_codes, largest_code = _read_column(reader, count, value_width)
    if largest_key > MAX_KEY or 0 in key_sizes:
        raise DecodeError(f"a key is empty or longer than {MAX_KEY} bytes")
    if largest_code > MAX_VALUE + 1:
        raise DecodeError(f"a value is longer than {MAX_VALUE} bytes")
    key_at = reader.position
    value_at = key_at + sum(key_sizes)
    end = value_at + sum(value_codes) - count + value_codes.count(0)
    if end != len(body):
        raise DecodeError(f"keys and values take {end - key_at} bytes, the body has {reader.remaining} left")
    writes: list[Write] = []
    for size, code in zip(key_sizes, value_codes, strict=True):
        key_end = key_at + size
        if code:
            value_end = value_at + code - 1
            writes.append((body[key_at:key_end], body[value_at:value_end]))
            value_at = value_end
        else:
            writes.append((body[key_at:key_end], None))
        key_at = key_end
    return tuple(writes)
