"""`python -m benchmarks.recovery`: how long until a killed daemon's mount is back?

Fills a volume with folders of 100 tiny files while all clouds are away, so that every file is pending, syncs
the last one, kills the daemon with SIGKILL, and measures until `hybrisfs mount` has returned and a file has
been read, with cold and with warm caches of the kernel; beside it the same with a hundred files, which is
what starting takes. Needs root, to drop the caches.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.corpus import cache_directory
from benchmarks.kernel import drop_caches
from benchmarks.million import fill
from benchmarks.processes import rss_mib
from benchmarks.report import RESULTS, machine, significant, terminal
from benchmarks.targets import Target
from tests.system.clouds import away
from tests.system.device import Device

_FILES_PER_FOLDER: Final = 100
_ROUNDS: Final = 5


@dataclass(frozen=True)
class Figures:
    """Medians over some kills; times in seconds, memory in MiB after the mount."""

    files: int
    cold_s: float
    warm_s: float
    rss_mib: float


def _back_after_a_kill(device: Device, *, cold: bool) -> float:
    """Seconds from the command to a file that was read."""
    probe = device.mountpoint / "probe"
    content = os.urandom(1000)
    with probe.open("wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())
    device.kill()
    if cold:
        drop_caches()
    start = time.perf_counter()
    device.mount()
    if probe.read_bytes() != content:
        raise RuntimeError("what was fsynced is not there")
    return time.perf_counter() - start


def measure(device: Device, files: int) -> Figures:
    """Fill the volume of the device, which is mounted, and kill its daemon again and again."""
    with away(*device.clouds):
        fill(device.mountpoint, 0, files // _FILES_PER_FOLDER)
        cold = [_back_after_a_kill(device, cold=True) for _ in range(_ROUNDS)]
        warm = [_back_after_a_kill(device, cold=False) for _ in range(_ROUNDS)]
        pending = device.status()["pending_files"]
        if pending < files:
            raise RuntimeError(f"{files - pending} files are not pending any more")
        memory = rss_mib(device.daemon_pids())
    return Figures(files, statistics.median(cold), statistics.median(warm), memory)


def targets(figures: Figures) -> list[Target]:
    return [
        Target(f"mount with {figures.files:,} pending files after SIGKILL, s", 2.0, figures.cold_s),
    ]


def report(few: Figures, many: Figures, console: Console) -> None:
    """Print what was measured; write recovery.json."""
    table = Table("pending files", f"{few.files:,}", f"{many.files:,}")
    for label, before, after in (
        ("mounted and read, kernel's caches cold, s", few.cold_s, many.cold_s),
        ("... warm, s", few.warm_s, many.warm_s),
        ("daemon's memory after it, MiB", few.rss_mib, many.rss_mib),
    ):
        table.add_row(label, significant(before), significant(after))
    console.print(table)
    for target in targets(many):
        verdict = "[green]pass[/]" if target.met else "[red]miss[/]"
        console.print(f"{verdict} {target.label}: {significant(target.measured)} (limit {target.limit:g})")
    RESULTS.mkdir(exist_ok=True)
    facts = {"machine": machine(), "few": asdict(few), "many": asdict(many)}
    (RESULTS / "recovery.json").write_text(json.dumps(facts, indent=1) + "\n")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument("--files", type=int, default=100_000, metavar="N", help="files that are pending")
    options = parser.parse_args(argv)
    if os.geteuid() != 0:
        raise SystemExit("benchmarks.recovery must run as root: only root can drop the kernel's caches")
    cache_directory().mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="work-recovery-", dir=cache_directory()))
    try:
        figures: list[Figures] = []
        for files in (_FILES_PER_FOLDER, options.files):
            folder = root / str(files)
            folder.mkdir()
            with Device(folder) as device:
                figures.append(measure(device.create(3, f=1, k=1).mount(), files))
        few, many = figures
        report(few, many, terminal())
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
