"""`python -m benchmarks.papers.sync`: personal synchronization through clouds alone (Hybris 5.6, Fig. 11).

Some files are written into the folder of one device, and read in that of another. Both reach the same S3
servers at the ends of emulated lines, and do not know how to reach each other. With whole copies (f=1, k=1,
three clouds) and erasure coding (f=1, k=2, four clouds), beside one cloud alone, the fastest (f=0), as the
paper has it beside Amazon S3. All take turns.

Writes `sync.json`, `.md` and, with matplotlib, plots.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console

from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, draw_again, options_of, publish
from benchmarks.plots import plot_latencies
from benchmarks.report import significant, terminal
from benchmarks.upload import create, write_secrets
from benchmarks.wan import Distance, far_clouds
from hybrisfs.api.status import SyncRequest
from hybrisfs.client import Client
from hybrisfs.home import Home
from tests.system.device import Device
from tests.system.pairing import pair

__all__ = ["GIVE_UP", "Kind", "Pair", "far_devices", "until_there"]

_DISTANCES: Final = (
    Distance("amber", 20, 200),
    Distance("birch", 35, 150),
    Distance("cedar", 60, 100),
    Distance("denim", 90, 60),
)
_WORK: Final = {
    "1 x 100 kB": (1, 100_000),
    "1 x 1 MB": (1, 1_000_000),
    "10 x 100 kB": (10, 100_000),
    "10 x 1 MB": (10, 1_000_000),
}
GIVE_UP: Final = 120.0
"""Seconds for which is waited until something is where it has to be."""
_LOOK_EVERY: Final = 0.005
_ALONE: Final = "one cloud alone"


class Kind(NamedTuple):
    """How a volume disperses: over so many clouds, with f and k."""

    clouds: int
    f: int
    k: int


_KINDS: Final = {_ALONE: Kind(1, 0, 1), "f=1, k=1": Kind(3, 1, 1), "f=1, k=2": Kind(4, 1, 2)}

Samples = dict[str, dict[str, list[float]]]
"""Phase and work, as in "up, 1 x 1 MB" -> system -> seconds."""


class Pair(NamedTuple):
    """Two devices of a volume."""

    one: Device
    other: Device
    client: Client
    """Of the first one's daemon."""


@contextmanager
def far_devices(root: Path, distances: Sequence[Distance], kind: Kind) -> Iterator[Pair]:
    """A volume, mounted on two devices without a link, over the first of the clouds; their servers keep files
    below *root*/clouds."""
    with ExitStack() as stack:
        wan = stack.enter_context(far_clouds(root / "clouds", distances[: kind.clouds]))
        for name in ("one", "other"):
            (root / name).mkdir(parents=True)
        one, other = (stack.enter_context(Device(root / name)) for name in ("one", "other"))
        create(one, wan.clouds, kind.f, kind.k)
        one.mount()
        write_secrets(other, wan.clouds)
        pair(one, other, "other")
        for device in (one, other):
            device.run("volume", "set", device.volume, "--discover", "off")
            device.stop()
            device.mount()
        one.sync()
        client = stack.enter_context(Client.connect(Home.below(one.home), start=False))
        yield Pair(one, other, client)


def until_there(folder: Path, names: Sequence[str], begun: float) -> None:
    """Wait until a folder shows all these names. Raises SystemExit when that takes too long."""
    while not all((folder / name).exists() for name in names):
        if time.monotonic() - begun > GIVE_UP:
            raise SystemExit(f"it did not arrive within {GIVE_UP:.0f} s")
        time.sleep(_LOOK_EVERY)


def _measure(devices: Pair, label: str, count: int, size: int) -> dict[str, float]:
    """Seconds of each phase."""
    folder = f"{label} {count} {size}"
    contents = {f"{folder} {number}": os.urandom(size) for number in range(count)}
    begun = time.monotonic()
    for name, content in contents.items():
        (devices.one.mountpoint / name).write_bytes(content)
    devices.client.call(SyncRequest(devices.one.volume, wait=True, timeout=GIVE_UP))
    up = time.monotonic()
    until_there(devices.other.mountpoint, [*contents], begun)
    seen = time.monotonic()
    for name, content in contents.items():
        if (devices.other.mountpoint / name).read_bytes() != content:
            raise SystemExit("what was read is not what was written")
    return {"up": up - begun, "seen": seen - begun, "down": time.monotonic() - seen}


def measure(root: Path, rounds: int, console: Console) -> Samples:
    """All work with all systems in turns; a first round does not count."""
    samples: Samples = {}
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(far_devices(root / str(number), _DISTANCES, kind))
            for number, (name, kind) in enumerate(_KINDS.items())
        }
        if any(device.get("linked") for one in running.values() for device in one.one.status()["devices"]):
            raise SystemExit("the devices have found each other; they were not to")
        for number in range(-1, rounds):
            for work, (count, size) in _WORK.items():
                for name, devices in running.items():
                    found = _measure(devices, f"round {number}", count, size)
                    if number >= 0:
                        for phase, seconds in found.items():
                            samples.setdefault(f"{phase}, {work}", {}).setdefault(name, []).append(seconds)
            console.print(f"[dim]round {number + 1} of {rounds}[/]")
    return samples


def _cell(taken: Sequence[float]) -> str:
    deviation = statistics.stdev(taken) if len(taken) > 1 else 0.0
    mean, worst = (significant(1000 * one) for one in (statistics.mean(taken), max(taken)))
    return f"{mean} +- {significant(1000 * deviation)}, slowest {worst}"


def _page(samples: Mapping[str, Mapping[str, list[float]]], rounds: int) -> Page:
    page = Page("sync")
    titles = {
        "up": "Up: until all is on the clouds that are needed, ms",
        "seen": "Until the other device shows all files, ms",
        "down": "Down: to read all of them there, then, ms",
    }
    for phase, title in titles.items():
        rows = [[work, *(_cell(samples[f"{phase}, {work}"][name]) for name in _KINDS)] for work in _WORK]
        page.sections.append(Section(title, ["mean +- standard deviation", *_KINDS], rows))
    ratios = []
    for phase in ("up", "down"):
        for work in _WORK:
            means = {name: statistics.mean(taken) for name, taken in samples[f"{phase}, {work}"].items()}
            ratios.append(
                [
                    f"{phase}, {work}",
                    *(f"{means[name] / means[_ALONE]:.2f}" for name in _KINDS if name != _ALONE),
                ]
            )
    page.sections.append(
        Section("Times one cloud alone", ["", *(one for one in _KINDS if one != _ALONE)], ratios)
    )
    lines = "; ".join(f"{one.name} {one.round_trip:g} ms, {one.bandwidth:g} Mbit/s" for one in _DISTANCES)
    page.notes = [
        f"{rounds} rounds after one that does not count. Two devices with their own daemons and mounts on "
        f"this machine; servers as in `benchmarks.clouds`: {lines}. One cloud alone is ours with f=0 on "
        f"{_DISTANCES[0].name}, the fastest: the paper has another program there, Syncany on Amazon S3. New "
        "random files each time.",
        "Between up and seen lies how often a device looks at the clouds; in the paper, a command looks when "
        "it is told to. Up has the time in which we wait for further changes before an update is signed. "
        "Below 1 MiB k=2 stores whole copies, too.",
    ]
    page.figures = {"rounds": rounds, "samples": samples}
    return page


def _draw(folder: Path, figures: Mapping[str, Any]) -> list[Path]:
    drawn = {name: one for name, one in figures["samples"].items() if not name.startswith("seen")}
    return plot_latencies(folder, "sync", drawn)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write sync.json, .md and plots to benchmarks/results."""
    parser = options_of("papers.sync", __doc__, draws=True)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="rounds (default 10)")
    options = parser.parse_args(argv)
    if options.rounds < 2:
        parser.error("at least 2 rounds, or nothing deviates")
    if options.draw:
        draw_again("sync", options.results, _draw)
        return
    with work_folder("sync") as root:
        samples = measure(root, options.rounds, terminal())
    publish(_page(samples, options.rounds), options.results, _draw)


if __name__ == "__main__":
    main()
