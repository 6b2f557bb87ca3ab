"""`python -m benchmarks.cold`: how fast is what this device does not hold read from several clouds at once?

Copies a file of 100 MB and a tree of 11,478 small files (random bytes, so that nothing shrinks) into a volume
over three S3 servers, each at the end of a line of its own (20 ms, 200 Mbit/s), with f=1 and k=1: each pack
lies on two of them. A second device joins the volume when it has a checkpoint of all. There one program reads
both, in the order in which folders list them, after everything was dropped, the kernel's caches too. That is
done several times; what is reported is the median.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.corpus import work_folder, write_random_files
from benchmarks.joining import wait_for_checkpoint
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.processes import cpu_seconds
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from benchmarks.upload import create, write_secrets
from benchmarks.wan import Distance, Wan, far_clouds
from tests.system.device import Device
from tests.system.pairing import pair

_FILES = 11_478
_LARGE = 100_000_000  # bytes
_AT_A_TIME = 1 << 20
_DISTANCES = [Distance(name, 20.0, 200.0) for name in ("amber", "birch", "cedar")]


@dataclass(frozen=True)
class Figures:
    """One cold read: seconds, CPU seconds of the daemon, bytes that each line carried down."""

    seconds: float
    cpu: float
    carried: tuple[int, ...]


def _read_file(path: Path) -> int:
    total = 0
    with path.open("rb", buffering=0) as stream:
        while some := stream.read(_AT_A_TIME):
            total += len(some)
    return total


def _read_tree(top: Path) -> int:
    return sum(_read_file(Path(folder, name)) for folder, _, names in os.walk(top) for name in names)


def _measure(device: Device, wan: Wan, read: Callable[[], int], expected: int) -> Figures:
    """Drop everything and read it."""
    device.forget()
    before, cpu = wan.lines.traffic(), cpu_seconds(device.daemon_pids())
    begun = time.monotonic()
    if read() != expected:
        raise SystemExit("what was read is not what was written")
    seconds = time.monotonic() - begun
    cpu = cpu_seconds(device.daemon_pids()) - cpu
    carried = tuple(now.down - then.down for then, now in zip(before, wan.lines.traffic(), strict=True))
    return Figures(seconds, cpu, carried)


def _median(found: Sequence[Figures]) -> Figures:
    return sorted(found, key=lambda one: one.seconds)[len(found) // 2]


def _page(large: list[Figures], tree: list[Figures], files: int, size: int) -> Page:
    line = _DISTANCES[0].bytes_per_second / 1e6
    file_, small = _median(large), _median(tree)
    speed, rate = _LARGE / 1e6 / file_.seconds, files / small.seconds
    rows = [
        ("time, s", file_.seconds, small.seconds),
        ("MB/s", speed, size / 1e6 / small.seconds),
        ("times one line", speed / line, size / 1e6 / small.seconds / line),
        ("files/s", 1 / file_.seconds, rate),
        ("CPU of the daemon, s", file_.cpu, small.cpu),
        *(
            (f"down from {one.name}, MB", file_.carried[n] / 1e6, small.carried[n] / 1e6)
            for n, one in enumerate(_DISTANCES)
        ),
    ]
    title = f"Cold, three clouds (f=1, k=1), lines of {_DISTANCES[0].bandwidth:g} Mbit/s"
    headings = ["", "100 MB", f"{files:,} files, {size / 1e6:.0f} MB"]
    table = Section(title, headings, [[label, *map(significant, cells)] for label, *cells in rows])
    targets = [
        Target("100 MB cold, MB/s", 42.0, speed, at_least=True),
        Target("small files cold, files/s", 2000.0, rate, at_least=True),
    ]
    notes = [
        f"The median of {len(large)} reads; before each, everything was dropped from the cache and the "
        f"volume mounted again. A line carries {line:g} MB/s. Servers, proxy, daemon and reader share the "
        "machine's cores.",
    ]
    figures = {"large": [asdict(one) for one in large], "tree": [asdict(one) for one in tree]}
    return Page("cold", [table], targets, notes, {"files": files, "bytes": size, **figures})


def run(root: Path, files: int, rounds: int, console: Console) -> Page:
    """Write, and read cold so many times."""
    source = root / "tree"
    size = write_random_files(source, files)
    for name in ("one", "other"):
        (root / name).mkdir()
    large: list[Figures] = []
    tree: list[Figures] = []
    with (
        far_clouds(root / "clouds", _DISTANCES) as wan,
        Device(root / "one") as one,
        Device(root / "other") as other,
    ):
        create(one, wan.clouds)
        one.mount()
        (one.mountpoint / "large").write_bytes(os.urandom(_LARGE))
        shutil.copytree(source, one.mountpoint / "tree")
        one.sync(timeout=600)
        wait_for_checkpoint(one)
        write_secrets(other, wan.clouds)
        pair(one, other, "other")
        one.stop()
        other.mount()
        for number in range(rounds):
            large.append(_measure(other, wan, lambda: _read_file(other.mountpoint / "large"), _LARGE))
            tree.append(_measure(other, wan, lambda: _read_tree(other.mountpoint / "tree"), size))
            console.print(
                f"[dim]round {number + 1} of {rounds}: {_LARGE / 1e6 / large[-1].seconds:.1f} MB/s, "
                f"{files / tree[-1].seconds:.0f} files/s[/]"
            )
    return _page(large, tree, files, size)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write cold.json and .md to benchmarks/results."""
    parser = options_of("cold", __doc__)
    parser.add_argument("--files", type=int, default=_FILES, metavar="N", help="small files in the tree")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="cold reads of each (default 5)")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("at least one round")
    console = terminal()
    with work_folder("cold") as root:
        page = run(root, options.files, options.rounds, console)
    publish(page, options.results)


if __name__ == "__main__":
    main()
