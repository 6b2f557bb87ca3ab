"""Chance and time that follow from a seed, so that what failed once fails again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from unittest import mock

from hybrisfs.filesystem.inodes import InodeTable

__all__ = ["determined_by"]

_BEGIN = 1_795_000_000_000_000_000


@contextmanager
def determined_by(seed: int) -> Iterator[None]:
    """Node ids, times and what else the file system takes from its surroundings follow from *seed*."""
    ticks = count(_BEGIN, 1_000_000)
    with (
        mock.patch("os.urandom", Random(seed).randbytes),
        mock.patch("time.time_ns", lambda: next(ticks)),
        mock.patch.object(InodeTable.__init__, "__defaults__", (lambda: next(ticks),)),
    ):
        yield
