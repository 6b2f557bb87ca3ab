"""Memory that held many small things goes back to the system."""

from __future__ import annotations

import subprocess
import sys

_WORK = """
from hybrisfs.environment import SYSTEM
from hybrisfs.process import tune_process

def resident():
    with open("/proc/self/statm") as facts:
        return int(facts.read().split()[1]) * 4096

tune_process()
pieces = [bytearray(65536) for _ in range(400)]  # each is filled with zeros, so it takes memory
del pieces[:-1]  # the last one keeps the heap from shrinking by itself
before = resident()
SYSTEM.trim()
print(before - resident())
"""


def test_memory_is_given_back() -> None:
    shown = subprocess.run([sys.executable, "-c", _WORK], check=True, capture_output=True, text=True)
    assert int(shown.stdout) > 16 << 20
