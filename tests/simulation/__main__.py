"""`python -m tests.simulation FIRST [END]` lives through these seeds; the exit code tells whether all held.

A seed that fails is told on standard output, with what was done and how to do it again. Sets of bytes must be
gone through in the same order each time, so it starts anew when that is not so.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback

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
    first = int(sys.argv[1])
    failed = 0
    for seed in range(first, int(sys.argv[2]) if len(sys.argv) > 2 else first + 1):
        trace: list[str] = []
        try:
            live(seed, trace)
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
