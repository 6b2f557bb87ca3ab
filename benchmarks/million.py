"""`python -m benchmarks.million`: does the size of the volume show?

Fills a volume through its mount with folders of 100 tiny files, first to a hundredth of `--files`, then to
all of them, and measures at both sizes: a mount by a fresh daemon, its memory, `ls -l` of one folder. Needs
root, to drop the kernel's caches.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.corpus import cache_directory
from benchmarks.kernel import drop_caches
from benchmarks.processes import peak_rss_mib, rss_mib
from benchmarks.report import RESULTS, machine, significant, terminal
from benchmarks.targets import Target
from tests.system.device import Device

_FILES_PER_FOLDER = 100
_FOLDERS_PER_FOLDER = 100
_WRITERS = 2
_SAMPLES = 5


@dataclass(frozen=True)
class Figures:
    """What was measured at one size; times in seconds, memory in MiB, `ls` the median of some folders."""

    files: int
    create_per_second: float
    durable_s: float
    mount_s: float
    rss_after_mount: float
    ls_cold_s: float
    ls_warm_s: float
    walk_s: float
    rss_after_walk: float
    peak_rss: float
    state_mib: float


def _folder(top: Path, number: int) -> Path:
    return top / f"{number // _FOLDERS_PER_FOLDER:05}" / f"{number:07}"


def _fill(top: Path, numbers: range) -> None:
    for number in numbers:
        folder = _folder(top, number)
        folder.mkdir(parents=True)
        for file in range(_FILES_PER_FOLDER):
            with open(folder / f"note-{file:02}.txt", "wb", buffering=0) as out:
                out.write(b"%d/%d\n" % (number, file))


def fill(top: Path, first: int, end: int) -> float:
    """Write the folders `first` to `end` with some processes; returns files per second."""
    start = time.perf_counter()
    with ProcessPoolExecutor(_WRITERS) as pool:
        shares = [range(first + writer, end, _WRITERS) for writer in range(_WRITERS)]
        for written in [pool.submit(_fill, top, share) for share in shares]:
            written.result()
    return (end - first) * _FILES_PER_FOLDER / (time.perf_counter() - start)


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _list(folder: Path) -> None:
    listing = subprocess.run(["ls", "-l", str(folder)], check=True, stdout=subprocess.PIPE)
    if listing.stdout.count(b"note-") != _FILES_PER_FOLDER:
        raise RuntimeError(f"{folder.name} is not complete")


def _cold_listing(folder: Path) -> float:
    drop_caches()
    return _seconds(lambda: _list(folder))


def measure(device: Device, folders: int, create_per_second: float) -> Figures:
    """All figures at the size the volume has now."""
    durable = _seconds(lambda: device.sync(timeout=7200))
    device.stop()
    drop_caches()
    mount = _seconds(device.mount)
    rss_after_mount = rss_mib(device.daemon_pids())
    chosen = [
        _folder(device.mountpoint, number) for number in random.Random(1).sample(range(folders), _SAMPLES)
    ]
    cold = [_cold_listing(folder) for folder in chosen]
    for folder in chosen:
        _list(folder)  # what was dropped for the next one's sake is to be warm again
    warm = [_seconds(partial(_list, folder)) for folder in chosen]
    walk = _seconds(
        lambda: subprocess.run(
            ["find", str(device.mountpoint), "-size", "+1M"], check=True, capture_output=True
        )
    )
    pids = device.daemon_pids()
    state = sum(path.stat().st_size for path in device.home.rglob("*") if path.is_file())
    return Figures(
        files=folders * _FILES_PER_FOLDER,
        create_per_second=create_per_second,
        durable_s=durable,
        mount_s=mount,
        rss_after_mount=rss_after_mount,
        ls_cold_s=statistics.median(cold),
        ls_warm_s=statistics.median(warm),
        walk_s=walk,
        rss_after_walk=rss_mib(pids),
        peak_rss=peak_rss_mib(pids),
        state_mib=state / 2**20,
    )


def targets(small: Figures, large: Figures) -> list[Target]:
    return [
        Target(f"mount of {large.files:,} files, s", 2.0, large.mount_s),
        Target(f"daemon's memory after a walk over {large.files:,} files, MiB", 400.0, large.peak_rss),
        Target(
            f"cold ls -l of a folder, against {small.files:,} files", 1.5, large.ls_cold_s / small.ls_cold_s
        ),
        Target(
            f"warm ls -l of a folder, against {small.files:,} files", 1.5, large.ls_warm_s / small.ls_warm_s
        ),
    ]


def _table(small: Figures, large: Figures) -> list[tuple[str, str, str]]:
    labels = {
        "create_per_second": "creating, files/s",
        "durable_s": "... then until all is on the clouds, s",
        "mount_s": "mount, caches cold, s",
        "rss_after_mount": "daemon's memory after it, MiB",
        "ls_cold_s": f"ls -l of {_FILES_PER_FOLDER} files, cold, s",
        "ls_warm_s": "... warm, s",
        "walk_s": "find over everything, s",
        "rss_after_walk": "daemon's memory after it, MiB",
        "peak_rss": "daemon's memory at its peak, MiB",
        "state_mib": "state and cache on the disk, MiB",
    }
    return [
        (label, significant(getattr(small, name)), significant(getattr(large, name)))
        for name, label in labels.items()
    ]


def _markdown(small: Figures, large: Figures) -> str:
    lines = [f"| | {small.files:,} files | {large.files:,} files |", "| --- | ---: | ---: |"]
    lines += [f"| {label} | {before} | {after} |" for label, before, after in _table(small, large)]
    lines += ["", "| target | limit | measured | |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {target.label} | <= {significant(target.limit)} | {significant(target.measured)} | "
        f"{'pass' if target.met else 'miss'} |"
        for target in targets(small, large)
    ]
    facts = machine()
    lines += [
        "",
        f"On {facts['cpus']} cores, Linux {facts['kernel']}, Python {facts['python']}, {facts['date']}.",
        "",
    ]
    return "\n".join(lines)


def report(small: Figures, large: Figures, console: Console) -> None:
    """Print the table; write million.json and million.md."""
    table = Table("", f"{small.files:,} files", f"{large.files:,} files")
    for row in _table(small, large):
        table.add_row(*row)
    console.print(table)
    for target in targets(small, large):
        verdict = "[green]pass[/]" if target.met else "[red]miss[/]"
        console.print(f"{verdict} {target.label}: {significant(target.measured)} (limit {target.limit:g})")
    RESULTS.mkdir(exist_ok=True)
    facts = {"machine": machine(), "small": asdict(small), "large": asdict(large)}
    (RESULTS / "million.json").write_text(json.dumps(facts, indent=1) + "\n")
    (RESULTS / "million.md").write_text(_markdown(small, large))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.million", description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000, metavar="N", help="size of the large volume")
    options = parser.parse_args(argv)
    if os.geteuid() != 0:
        raise SystemExit("benchmarks.million must run as root: only root can drop the kernel's caches")
    large = max(options.files // _FILES_PER_FOLDER, 100 * _SAMPLES)
    small = large // 100
    console = terminal()
    cache_directory().mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="work-million-", dir=cache_directory()))
    try:
        with Device(root) as device:
            device.create(3, f=1, k=1).mount()
            console.print(f"filling to {small * _FILES_PER_FOLDER:,} files ...")
            before = measure(device, small, fill(device.mountpoint, 0, small))
            console.print(f"filling to {large * _FILES_PER_FOLDER:,} files ...")
            after = measure(device, large, fill(device.mountpoint, small, large))
        report(before, after, console)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
