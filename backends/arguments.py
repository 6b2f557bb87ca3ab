"""Checks of what a driver is called with, the same for all of them."""

from __future__ import annotations

from backends.store import MAX_PAGE, Buffer

__all__ = ["as_bytes", "check_page", "check_range"]


def check_range(offset: int, length: int) -> None:
    """Raise `ValueError` for a range that begins or ends before the object does."""
    if offset < 0 or length < 0:
        raise ValueError(f"negative range: {offset}+{length}")


def check_page(limit: int) -> None:
    """Raise `ValueError` for a number of entries that no page can have."""
    if not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"limit must be 1 to {MAX_PAGE}: {limit}")


def as_bytes(data: Buffer) -> bytes:
    """Return the bytes of a buffer of whatever item size, without a copy where it is `bytes` already."""
    return data if isinstance(data, bytes) else bytes(data)
