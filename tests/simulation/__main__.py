"""`python -m tests.simulation FIRST [END]` lives through these seeds; the exit code tells whether all held.

A seed that fails is told on standard output, with what was done and how to do it again. `--trace` tells all
seeds; `--only KIND` (of `forgery.KINDS`, may be given again) lets bad members forge nothing else, which helps
to see what a failure comes of. Sets of bytes must be gone through in the same order each time, so it starts
anew when that is not so.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback

from tests.simulation.forgery import KINDS
from tests.simulation.life import live

_HASH_SEED = "PYTHONHASHSEED"


def main() -> int:
    if os.environ.get(_HASH_SEED) != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, _HASH_SEED: "0"},
        )
    logging.disable()
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, nargs="?")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--only", action="append", choices=list(KINDS), default=[])
    chosen = parser.parse_args()
    failed = 0
    for seed in range(chosen.first, chosen.end or chosen.first + 1):
        trace: list[str] = []
        try:
            live(seed, trace, chosen.only)
            if chosen.trace:
                print(*trace, f"seed {seed} held", sep="\n")
        except Exception:  # noqa: BLE001 - whatever goes wrong is to be told with its seed
            failed += 1
            print(
                *trace,
                traceback.format_exc(),
                f"seed {seed} failed; again: python -m tests.simulation {seed}",
                sep="\n",
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
