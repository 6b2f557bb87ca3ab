"""`python -m benchmarks.devices`: how soon is on one device what was done on another?

Two daemons on this machine, paired: the latency of a small file over the direct link, a source tree until it
is equal on the other device, and how long the naked copy of that tree takes. What the other device shows is
looked at all the time, which costs both daemons processor time on a machine with few cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.corpus import cache_directory, source_tree
from benchmarks.report import RESULTS, machine, significant, terminal
from tests.system.device import Device
from tests.system.pairing import pair

_FILES = 11_478
_SAMPLES = 30
_PAUSE = 0.3
_LOOK_EVERY = 0.001
_GIVE_UP = 300.0


@dataclass(frozen=True)
class Figures:
    """What was measured; times in seconds."""

    link_median: float
    link_worst: float
    join: float
    tree_files: int
    tree_copy_returns: float
    tree_names: float
    tree_equal: float
    plain_copy: float


def _wait(seen: Callable[[], bool]) -> float:
    """Seconds until *seen* holds."""
    begun = time.monotonic()
    while not seen():
        if time.monotonic() - begun > _GIVE_UP:
            raise SystemExit("it never arrived")
        time.sleep(_LOOK_EVERY)
    return time.monotonic() - begun


def _latencies(one: Device, other: Device) -> list[float]:
    """From the close of a file of 4 KiB to the moment that it can be read on the other device."""
    samples = []
    for number in range(_SAMPLES):
        content = os.urandom(4096)
        name = f"latency {number}"
        (one.mountpoint / name).write_bytes(content)

        def is_there(path: Path = other.mountpoint / name, wanted: bytes = content) -> bool:
            try:
                return path.read_bytes() == wanted
            except OSError:
                return False

        samples.append(_wait(is_there))
        time.sleep(_PAUSE)
    return samples


def _files(device: Device) -> int:
    files: int = device.status()["files"]
    return files


def _same(tree: Path, other: Path) -> bool:
    """Read both to the last byte."""
    return subprocess.run(["diff", "-rq", tree, other], capture_output=True, check=False).returncode == 0


def measure(one: Device, other: Device, tree: Path) -> Figures:
    """All figures of one run."""
    one.create(3, f=1, k=1).mount()
    begun = time.monotonic()
    pair(one, other, "other")
    other.mount()
    join = time.monotonic() - begun
    _wait(lambda: any(device.get("linked") for device in one.status()["devices"]))
    latencies = _latencies(one, other)
    before, wanted = _files(other), sum(path.is_file() for path in tree.rglob("*"))
    begun = time.monotonic()
    shutil.copytree(tree, one.mountpoint / "tree", symlinks=True)
    returned = time.monotonic() - begun
    _wait(lambda: _files(other) >= before + wanted)
    named = time.monotonic() - begun
    _wait(lambda: _same(tree, other.mountpoint / "tree"))
    equal = time.monotonic() - begun
    begun = time.monotonic()
    shutil.copytree(tree, one.root / "plain", symlinks=True)
    plain = time.monotonic() - begun
    return Figures(statistics.median(latencies), max(latencies), join, wanted, returned, named, equal, plain)


def _table(figures: Figures) -> list[tuple[str, str]]:
    return [
        ("pair and mount, s", significant(figures.join)),
        ("4 KiB file, direct link, median, ms", significant(1000 * figures.link_median)),
        ("... worst, ms", significant(1000 * figures.link_worst)),
        (
            f"copy a tree of {figures.tree_files:,} files in: returns, s",
            significant(figures.tree_copy_returns),
        ),
        ("... all names are on the other device, from the start, s", significant(figures.tree_names)),
        ("... and all has been read there and is equal, s", significant(figures.tree_equal)),
        ("the same copy to a plain directory, s", significant(figures.plain_copy)),
    ]


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write devices.json and .md to benchmarks/results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices", description=__doc__)
    parser.add_argument("--files", type=int, default=_FILES, metavar="N", help="files in the tree")
    options = parser.parse_args(argv)
    cache_directory().mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="work-devices-", dir=cache_directory()))
    try:
        for name in ("one", "other"):
            (root / name).mkdir()
        with Device(root / "one") as one, Device(root / "other") as other:
            figures = measure(one, other, source_tree(options.files))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    rows = _table(figures)
    table = Table("", "two devices")
    for row in rows:
        table.add_row(*row)
    terminal().print(table)
    facts = machine()
    lines = ["| | two devices |", "| --- | ---: |", *(f"| {label} | {value} |" for label, value in rows), ""]
    lines.append(
        f"On {facts['cpus']} cores, Linux {facts['kernel']}, Python {facts['python']}, {facts['date']}."
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "devices.json").write_text(
        json.dumps({"machine": facts, "figures": asdict(figures)}, indent=1) + "\n"
    )
    (RESULTS / "devices.md").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
