"""Waiting for descriptors. `select.select` knows none above 1,023, and a busy daemon has more."""

from __future__ import annotations

import errno
import math
import os
import select
from collections.abc import Iterable
from typing import Protocol, TypeVar

__all__ = ["readable"]


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


S = TypeVar("S", bound="int | _HasDescriptor")


def readable(sources: Iterable[S], seconds: float | None = None) -> list[S]:
    """Wait until some of the sources, descriptors or what has one, can be read or have ended; return these.

    None after so many seconds. Raises OSError or ValueError when one is closed.
    """
    poll = select.poll()
    by_descriptor: dict[int, S] = {}
    for source in sources:
        descriptor = source if isinstance(source, int) else source.fileno()
        poll.register(descriptor, select.POLLIN)
        by_descriptor[descriptor] = source
    found = poll.poll(None if seconds is None else math.ceil(max(0.0, seconds) * 1000))
    if any(events & select.POLLNVAL for _, events in found):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return [by_descriptor[descriptor] for descriptor, _ in found]
