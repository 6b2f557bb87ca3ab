"""How many operations of a store are under way at a time, and how much memory their values take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from hybrisfs.bounded import Room
from hybrisfs.errors import UsageError
from hybrisfs.kv.containers import Source
from hybrisfs.kv.record import MAX_VALUE

__all__ = ["PLACES", "Rooms", "content_of", "size_of"]

PLACES: Final = 128
"""Operations under way; the queue of a cloud has room for more than they ask of it."""
_EDITS: Final = 4  # under way; each has a value in memory while it waits
_UPLOADS: Final = 8  # places that an operation takes at most: more values are not under way at once
_LARGE: Final = 1 << 20  # bytes; operations with more than that take of the memory for large values
_MEMORY: Final = 128 << 20  # bytes of large values under way
_LEAST: Final = 8 << 20  # bytes that a large one counts as, so that small ones find a place beside them


class Rooms:
    """The room that there is for operations, first come, first served. Thread-safe."""

    def __init__(self) -> None:
        self._places = Room(PLACES)
        self._memory = Room(_MEMORY)
        self._edits = Room(_EDITS)

    def edit(self) -> AbstractContextManager[None]:
        """Wait until a value can be read to be changed."""
        return self._edits.taken(1)

    @contextmanager
    def taken(self, sizes: Sequence[int]) -> Iterator[None]:
        """Wait until values of these sizes can be under way with those that are."""
        size = sum(sizes)
        memory = self._memory.taken(max(size, _LEAST)) if size > _LARGE else nullcontext()
        with memory, self._places.taken(min(max(len(sizes), 1), _UPLOADS)):
            yield


def size_of(value: bytes | Source | None) -> int:
    """In bytes; 0 for a deletion. Raises UsageError when no value is so large."""
    size = 0 if value is None else len(value) if isinstance(value, bytes) else value.size
    if size > MAX_VALUE:
        raise _too_large()
    return size


def content_of(value: bytes | Source | None) -> bytes | None:
    """The value itself. Raises UsageError when it is too large, and what reading it raises."""
    content = value if value is None or isinstance(value, bytes) else value.read()
    if content is not None and len(content) > MAX_VALUE:
        raise _too_large()
    return content


def _too_large() -> UsageError:
    return UsageError("the value is too large", f"a value has at most {MAX_VALUE:,} bytes")
