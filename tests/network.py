"""A network of a thread's own, with no more in it than the test puts there."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pytest

__all__ = ["alone", "ip", "needs_networks"]

_CLONE_NEWNET: Final = 0x40000000  # linux/sched.h
_WAIT: Final = 60.0  # seconds

T = TypeVar("T")

needs_networks = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip(8)"
)


def ip(*words: str) -> None:
    """Change the network of the thread."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def alone(work: Callable[[], T]) -> T:
    """What *work* returns in a thread that has a network without interfaces but for a loopback that is down.

    Threads that it starts are in this network, too.
    """

    def begin() -> T:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(begin).result(_WAIT)
