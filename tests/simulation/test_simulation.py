"""Seeds, as many as fit: `HYBRISFS_SIM_SEEDS=n` runs so many; one that fails tells how to run it again."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.life import live

_ROOT: Final = Path(__file__).parents[2]
_MANY: Final = int(os.environ.get("HYBRISFS_SIM_SEEDS", "300"))
_WORKERS: Final = os.cpu_count() or 1
_MEMORY: Final = Path("/dev/shm")  # where it is there, a device's disk is one


@pytest.mark.timeout(60 + 2 * _MANY)
def test_all_devices_agree_and_nothing_is_lost() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
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


def test_a_seed_replays_exactly() -> None:
    def again() -> tuple[list[str], bytes]:
        trace: list[str] = []
        return trace, live(7, trace)

    assert again() == again()
