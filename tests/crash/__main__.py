"""`python -m tests.crash SEED [COUNT]` records the life that the seed holds and dies in it COUNT times, or at
all points.

What went wrong is told on standard output, with its point; the exit code tells whether all held. A recording
is not repeatable step by step, for threads take part in it: that of a failure is kept, and
`python -m tests.crash --again FILE STEP VARIANT` dies there once more.
"""

from __future__ import annotations

import logging
import os
import pickle
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.crash.points import Life, Point, check, points, record

_STEPS: Final = 120
_WORKERS: Final = os.cpu_count() or 1
_MEMORY: Final = Path("/dev/shm")


def main(arguments: list[str]) -> int:
    logging.disable()
    if arguments[0] == "--again":
        return _again(*arguments[1:])
    if arguments[0] == "--part":
        return _part(*arguments[1:])
    return _live(int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else None)


def _live(seed: int, count: int | None) -> int:
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        root = Path(folder)
        life = record(seed, root, _STEPS)
        there = list(points(life))
        chosen = there if count is None else random.Random(seed).sample(there, min(count, len(there)))
        chosen.sort(key=lambda point: point.step)
        kept = Path(tempfile.gettempdir()) / f"hybrisfs-life-{seed}"
        kept.write_bytes(pickle.dumps(life))
        share = -(-len(chosen) // _WORKERS)
        parts: list[subprocess.Popen[str]] = []
        for number in range(_WORKERS):
            part = root / f"part-{number}"
            part.write_bytes(pickle.dumps(chosen[number * share : (number + 1) * share]))
            command = [sys.executable, "-m", "tests.crash", "--part", str(kept), str(part), str(root)]
            parts.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        told = [part.communicate()[0] for part in parts]
    print(*filter(None, told), sep="", end="")
    failed = any(part.returncode for part in parts)
    print(f"seed {seed}: {len(life.steps)} steps recorded, died {len(chosen)} times")
    if failed:
        print(f"again: python -m tests.crash --again {kept} STEP VARIANT")
        return 1
    kept.unlink()
    return 0


def _part(recording: str, chosen: str, root: str) -> int:
    life: Life = pickle.loads(Path(recording).read_bytes())
    return _report(life, pickle.loads(Path(chosen).read_bytes()), Path(root))


def _again(recording: str, step: str, variant: str) -> int:
    logging.disable(logging.NOTSET)
    life: Life = pickle.loads(Path(recording).read_bytes())
    with tempfile.TemporaryDirectory() as root:
        return _report(life, [Point(int(step), variant)], Path(root))


def _report(life: Life, chosen: list[Point], root: Path) -> int:
    failed = 0
    for point, wrong in check(life, chosen, root):
        if wrong is not None:
            failed += 1
            print(f"seed {life.seed}, step {point.step}, {point.variant}: {wrong}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
