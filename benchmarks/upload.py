"""`python -m benchmarks.upload`: how close does an upload of small files come to what the lines can carry?

Copies 10,000 files (100 MB of random bytes, so that nothing shrinks) into a mounted volume over three S3
servers at the end of slow lines (20 ms, 200 Mbit/s), then `hybrisfs sync --wait`. Done with a volume of
its own each: every cloud at a line of its own, and all three behind one uplink; the clouds in reach all the
time, and only from the moment on that all files are in the volume (a backlog).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.corpus import work_folder, write_random_files
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.processes import cpu_seconds
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from benchmarks.wan import Distance, FarCloud, far_clouds
from tests.system.device import Device

_FILES = 10_000
_NAMES = ("amber", "birch", "cedar")
_ROUND_TRIP = 20.0  # ms
_BANDWIDTH = 200.0  # Mbit/s
_SCENARIOS = {
    "a line per cloud": (False, False),
    "one uplink": (True, False),
    "a line per cloud, backlog": (False, True),
    "one uplink, backlog": (True, True),
}
"""Whether the clouds share an uplink, and whether nothing passes until all files are in the volume."""


@dataclass(frozen=True)
class Figures:
    """One upload; times in seconds, bytes as the lines counted them.

    `durable` runs from the start of the copy or, for a backlog, from when the lines let something pass.
    """

    copied: float
    durable: float
    cpu: float
    sent: tuple[int, ...]
    wire: float

    @property
    def ratio(self) -> float:
        """Against the time that these bytes take on the wire."""
        return self.durable / self.wire


def write_secrets(device: Device, clouds: Sequence[FarCloud]) -> None:
    """Give the device the secrets of these clouds, in its private file."""
    file = device.home / "config" / "credentials.json"
    file.parent.mkdir(mode=0o700, parents=True)
    secrets = {cloud.url: cloud.secrets for cloud in clouds}
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
        json.dump({"version": 1, "clouds": secrets}, stream)


def create(device: Device, clouds: Sequence[FarCloud], f: int = 1, k: int = 1) -> None:
    """Make the volume over these clouds."""
    write_secrets(device, clouds)
    options = [word for cloud in clouds for word in ("--cloud", cloud.url)]
    device.run("volume", "create", device.volume, *options, "-f", str(f), "-k", str(k))


def measure(root: Path, tree: Path, *, one_uplink: bool, backlog: bool) -> Figures:
    """Copy and wait until it is on enough clouds."""
    uplink = "home" if one_uplink else ""
    distances = [Distance(name, _ROUND_TRIP, _BANDWIDTH, uplink) for name in _NAMES]
    home = root / "device"
    home.mkdir(parents=True)
    with far_clouds(root / "clouds", distances) as wan, Device(home) as device:
        create(device, wan.clouds)
        device.mount()
        device.sync()
        before, cpu = wan.lines.traffic(), cpu_seconds(device.daemon_pids())
        for line in range(len(distances)):
            wan.lines.stall(line, stalled=backlog)
        begun = time.monotonic()
        shutil.copytree(tree, device.mountpoint / "tree")
        copied = time.monotonic() - begun
        if backlog:
            begun = time.monotonic()
            for line in range(len(distances)):
                wan.lines.stall(line, stalled=False)
        device.sync(timeout=1800)
        durable = time.monotonic() - begun
        cpu = cpu_seconds(device.daemon_pids()) - cpu
        sent = tuple(now.up - then.up for then, now in zip(before, wan.lines.traffic(), strict=True))
    busiest = sum(sent) if one_uplink else max(sent)
    return Figures(copied, durable, cpu, sent, busiest / distances[0].bytes_per_second)


def _page(results: dict[str, Figures], files: int, size: int) -> Page:
    rows = [
        ("cp returns, s", [figures.copied for figures in results.values()]),
        ("on f+k clouds, s", [figures.durable for figures in results.values()]),
        ("bytes sent to all clouds, MB", [sum(figures.sent) / 1e6 for figures in results.values()]),
        ("their time on the wire, s", [figures.wire for figures in results.values()]),
        ("CPU of the daemon, s", [figures.cpu for figures in results.values()]),
    ]
    title = f"{files:,} files, {size / 1e6:.0f} MB, to three clouds (f=1, k=1)"
    table = Section(title, ["", *results], [[label, *map(significant, cells)] for label, cells in rows])
    targets = [
        Target(f"upload against the wire's time, {name}", 1.2, figures.ratio)
        for name, figures in results.items()
    ]
    notes = [
        "The wire's time: bytes that the lines counted on their way up (shares, log, heads, HTTP "
        f"headers), divided by {_BANDWIDTH:g} Mbit/s; with a line per cloud those of the busiest line, "
        "with one uplink those of all. Time runs from the first file copied to the end of `hybrisfs sync "
        "--wait`, copying is part of it; for a backlog from the moment that the lines, which held up "
        "everything while the files were copied, let it pass. Servers, proxy, daemon and copy share the "
        "machine's cores.",
    ]
    figures = {name: asdict(one) for name, one in results.items()}
    return Page("upload", [table], targets, notes, {"files": files, "bytes": size, "uploads": figures})


def run(root: Path, files: int, console: Console) -> Page:
    """All scenarios."""
    tree = root / "tree"
    size = write_random_files(tree, files)
    results = {}
    for number, (name, (one_uplink, backlog)) in enumerate(_SCENARIOS.items()):
        results[name] = measure(root / str(number), tree, one_uplink=one_uplink, backlog=backlog)
        console.print(f"[dim]{name}: {results[name].durable:.1f} s[/]")
    return _page(results, files, size)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write upload.json and .md to benchmarks/results."""
    parser = options_of("upload", __doc__)
    parser.add_argument("--files", type=int, default=_FILES, metavar="N", help="files to upload")
    options = parser.parse_args(argv)
    console = terminal()
    with work_folder("upload") as root:
        page = run(root, options.files, console)
    publish(page, options.results)


if __name__ == "__main__":
    main()
