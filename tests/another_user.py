"""Another user of this machine, for what a test process of root does meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

__all__ = ["as_another_user", "only_root"]

_NOBODY: Final = 65534

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextmanager
def as_another_user() -> Iterator[None]:
    """Sockets that are made and connected here are that user's, for the kernel and for whoever asks it."""
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
