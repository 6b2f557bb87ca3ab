"""Python's garbage collector, where it would only cost time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collections"]


@contextmanager
def without_collections() -> Iterator[None]:
    """None of the tens of thousands of small objects that a batch is made of is part of a cycle, and all are
    gone when it ends: to look for cycles among them would take a sixth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
