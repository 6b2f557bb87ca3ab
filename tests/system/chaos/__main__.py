"""`python -m tests.system.chaos [SEED [SECONDS]]`: chaos for so long; the exit code tells whether all held.

A seed determines what programs and faults choose; what comes of it depends on the machine, too. Without a
seed one is drawn, and printed. `--without CHECK` leaves a check out, `--only CHECK` all others. With
`--lives N` it goes on with the next seeds. Needs root.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback

from tests.system.chaos.life import ROUND_SECONDS, live
from tests.system.chaos.record import CHECKS


def main() -> int:
    epilog = "checks:\n" + "\n".join(f"  {name:10} {what}" for name, what in CHECKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.chaos",
        description="Three real devices, programs and faults at random.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("seed", type=int, nargs="?", default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("seconds", type=float, nargs="?", default=ROUND_SECONDS, help="of each life")
    parser.add_argument("--lives", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--without", action="append", choices=CHECKS, default=[], metavar="CHECK")
    parser.add_argument("--only", action="append", choices=CHECKS, default=[], metavar="CHECK")
    options = parser.parse_args()
    checks = set(options.only or CHECKS) - set(options.without)
    failed = 0
    for seed in range(options.seed, options.seed + options.lives):
        print(f"seed {seed}", flush=True)
        try:
            counts = live(seed, options.seconds, checks)
        except Exception:  # noqa: BLE001 - whatever goes wrong is told with its seed, and the next one begins
            failed += 1
            print(traceback.format_exc(), flush=True)
        else:
            print("  held:", ", ".join(f"{what} {many}" for what, many in sorted(counts.items())), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
