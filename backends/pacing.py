"""Keeping within a bandwidth: drivers ask before they send a piece of content, and tell what came.

A caller of a driver names within `paced` the pacer to ask; without that no pacer is asked. It is kept per
thread, like `body.receiving`. Only content counts, not the headers around it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final, Protocol

__all__ = ["PIECE", "PacedBody", "Pacer", "paced", "piece", "received", "sending"]

PIECE: Final = 16 << 10  # bytes moved at a time: few, so that no server waits for long for the next
_BLOCK: Final = 64 << 10  # bytes: few, so that also a slow line takes them within `body.Timing.connect`


class Pacer(Protocol):
    """Holds back one call to a cloud so that its volume keeps within its bandwidth."""

    @property
    def limited(self) -> bool:
        """Whether content should move piece by piece."""

    def sending(self, count: int) -> float:
        """Return when so many bytes may be sent: how many seconds that has taken."""

    def received(self, count: int) -> float:
        """Return when more may be received after so many bytes: how many seconds that has taken."""


_pacer: ContextVar[Pacer | None] = ContextVar("pacer", default=None)


@contextlib.contextmanager
def paced(pacer: Pacer) -> Iterator[None]:
    """Within the block, what this thread sends and receives is paced."""
    token = _pacer.set(pacer)
    try:
        yield
    finally:
        _pacer.reset(token)


def sending(count: int) -> float:
    """Return when so many bytes may be sent: how many seconds that has taken."""
    pacer = _pacer.get()
    return pacer.sending(count) if pacer is not None and count else 0.0


def received(count: int) -> float:
    """Return when more may be received after so many bytes: how many seconds that has taken."""
    pacer = _pacer.get()
    return pacer.received(count) if pacer is not None and count else 0.0


def piece(size: int) -> int:
    """Return how many of `size` bytes should be moved at a time."""
    pacer = _pacer.get()
    return min(size, PIECE) if pacer is not None and pacer.limited else size


class PacedBody(io.BytesIO):
    """The body of a request, which HTTP libraries read block by block as they send it."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next piece, `size` bytes at most, when it may be sent; all that is left with -1."""
        data = super().read(size if size is None or size < 0 else piece(min(size, _BLOCK)))
        sending(len(data))
        return data
