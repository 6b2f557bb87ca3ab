"""Seeds, as many as fit: `HYBRISFS_SIM_SEEDS=n` runs so many; one that fails tells how to run it again."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_MANY: Final = int(os.environ.get("HYBRISFS_SIM_SEEDS", "300"))
_WORKERS: Final = os.cpu_count() or 1
_ENVIRONMENT: Final = {**os.environ, "PYTHONHASHSEED": "0"}
_MEMORY: Final = Path("/dev/shm")  # where it is there, a device's disk is one


@pytest.mark.timeout(60 + 2 * _MANY)
def test_all_devices_agree_and_nothing_is_lost() -> None:
    environment = dict(_ENVIRONMENT)
    if _MEMORY.is_dir():
        environment["TMPDIR"] = str(_MEMORY)
    bounds = [_MANY * number // _WORKERS for number in range(_WORKERS + 1)]
    lives = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.simulation", str(first), str(end)],
            cwd=_ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first, end in pairwise(bounds)
    ]
    told = [life.communicate()[0] for life in lives]
    assert all(life.returncode == 0 for life in lives), "\n".join(told)


_ONE: Final = """
from tests.simulation.life import live
trace = []
print(live(7, trace).hex(), *trace, sep="\\n")
"""


def test_a_seed_replays_exactly() -> None:
    """In processes of their own: what randomness the threads of other tests use up must not count."""

    def again() -> str:
        return subprocess.run(
            [sys.executable, "-c", _ONE],
            cwd=_ROOT,
            env=_ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout

    first = again()
    assert len(first.splitlines()) > 20
    assert again() == first
