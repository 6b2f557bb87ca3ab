"""`python -m benchmarks.joining`: how soon can a large volume be browsed on a new device?

Fills a volume with folders of 100 tiny files, waits until it has a checkpoint, lets a second daemon on this
machine into it, and measures from the start of `device join` until all names are there, and until all have
been listed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from dataclasses import asdict, dataclass

from benchmarks.corpus import work_folder
from benchmarks.million import fill
from benchmarks.report import RESULTS, machine, significant, terminal
from benchmarks.targets import Target
from tests.system.device import Device
from tests.system.pairing import pair

__all__ = ["wait_for_checkpoint"]

_FILES_PER_FOLDER = 100
_LOOK_EVERY = 0.05
_GIVE_UP = 600.0
_FULL_SIZE = 100_000  # files; what the target is about


@dataclass(frozen=True)
class Figures:
    """What was measured; times in seconds from the start of the joining."""

    files: int
    mounted: float
    named: float
    listed: float


def measure(one: Device, other: Device, folders: int) -> Figures:
    """All figures of one run."""
    files = folders * _FILES_PER_FOLDER
    one.create(3, f=1, k=1).mount()
    fill(one.mountpoint, 0, folders)
    one.sync(timeout=7200)
    wait_for_checkpoint(one)
    begun = time.monotonic()
    pair(one, other, "other")
    other.mount()
    mounted = time.monotonic() - begun
    while other.status()["files"] < files:
        if time.monotonic() - begun > _GIVE_UP:
            raise SystemExit("the names never arrived")
        time.sleep(_LOOK_EVERY)
    named = time.monotonic() - begun
    found = subprocess.run(
        ["find", str(other.mountpoint), "-type", "f", "-size", "-2"], check=True, stdout=subprocess.PIPE
    )
    listed = len(found.stdout.splitlines())
    if listed != files:
        raise SystemExit(f"{listed} files are listed, {files} are there")
    return Figures(files, mounted, named, time.monotonic() - begun)


def wait_for_checkpoint(device: Device) -> None:
    """Wait until the device has put a checkpoint of all on the clouds, as it does when nothing happens."""
    given_up = time.monotonic() + _GIVE_UP
    while not device.status()["checkpoint"]["current"]:
        if time.monotonic() > given_up:
            raise SystemExit("there never was a checkpoint")
        time.sleep(_LOOK_EVERY)


def _markdown(rows: list[tuple[str, str]]) -> str:
    facts = machine()
    lines = ["| | seconds |", "| --- | ---: |", *(f"| {label} | {value} |" for label, value in rows), ""]
    return "\n".join(
        [
            *lines,
            f"On {facts['cpus']} cores, which both daemons share, Linux {facts['kernel']}, "
            f"Python {facts['python']}, {facts['date']}.",
            "",
        ]
    )


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write joining.json and .md to benchmarks/results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joining", description=__doc__)
    parser.add_argument("--files", type=int, default=_FULL_SIZE, metavar="N", help="files in the volume")
    options = parser.parse_args(argv)
    with work_folder("joining") as root:
        for name in ("one", "other"):
            (root / name).mkdir()
        # Installed, the program is compiled; the first device's start does that here.
        variables = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(root / "compiled")}
        with (
            Device(root / "one", variables=variables) as one,
            Device(root / "other", variables=variables) as other,
        ):
            figures = measure(one, other, max(1, options.files // _FILES_PER_FOLDER))
    rows = [
        ("`device join` and mount", significant(figures.mounted)),
        (f"all names of {figures.files:,} files are there", significant(figures.named)),
        ("`find` has listed all of them", significant(figures.listed)),
    ]
    console = terminal()
    for label, value in rows:
        console.print(f"{label}: {value} s")
    if figures.files == _FULL_SIZE:
        target = Target("browsable, s", 10.0, figures.named)
        console.print(
            f"{'[green]pass[/]' if target.met else '[red]miss[/]'} {target.label}: {target.limit:g}"
        )
    RESULTS.mkdir(exist_ok=True)
    facts = {"machine": machine(), "figures": asdict(figures)}
    (RESULTS / "joining.json").write_text(json.dumps(facts, indent=1) + "\n")
    (RESULTS / "joining.md").write_text(_markdown(rows))


if __name__ == "__main__":
    main()
