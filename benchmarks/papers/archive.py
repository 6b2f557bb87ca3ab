"""`python -m benchmarks.papers.archive`: the room of the archive, and reading from it (Pond Fig. 4 and 6).

A volume over five S3 servers, each at the end of a line of its own (20 ms, 50 Mbit/s), with f=1 and k=1.
Files of random bytes are written, rest for a month by a clock that is set forward, and are archived, 4 of 5.
Before that and after it each size is read as a device does that holds nothing of it, in turn and several
times. Then a larger file is archived through a limit of 10 Mbit/s for all that goes up. The bill is
arithmetic, at the list prices of `hybrisfs/prices.json`.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace
from rich.console import Console

from backends.credentials import CredentialStore
from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from benchmarks.wan import Distance, FarCloud, Wan, far_clouds
from hybrisfs.admit.create import create_volume
from hybrisfs.environment import Environment, Limits
from hybrisfs.gc.archive import cheapest_code
from hybrisfs.gc.limits import GcLimits
from hybrisfs.home import Home
from hybrisfs.prices import Prices, load_prices
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.volume.volume import Volume
from tests.surroundings import Surroundings
from tests.volume.device import ALONE, NAME, Device

__all__ = ["PatientDevice", "stored"]

_DISTANCES: Final = [Distance(name, 20.0, 50.0) for name in ("amber", "birch", "cedar", "dogwood", "elm")]
_SIZES: Final = {"100 kB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000, "100 MB": 100_000_000}
_SMALL: Final = 4000  # bytes of a small file
_SMALL_FILES: Final = 2000
_MONTH_NS: Final = 31 * 86_400 * 10**9
_UPLINK: Final = 10e6 / 8  # bytes per second
_MOVED: Final = 100_000_000
_NIGHT: Final = 8 * 3600  # seconds
_POND: Final = 1.7  # times as long from the archive as from a replica, at most (Fig. 6)
_PATIENCE: Final = 600.0


class PatientDevice(Device):
    """One over clouds far away, that deletes at once what nobody needs, and for which time may pass."""

    def __init__(
        self, root: Path, clouds: Sequence[FarCloud], f: int = 1, k: int = 1, limits: Sequence[object] = ()
    ) -> None:
        """*limits*: records that differ from those of the product."""
        self.around = Surroundings(Environment(limits=Limits(GcLimits(first_look=1e9), *limits)))
        self.home = Home.below(root / "home")
        self.home.credentials.parent.mkdir(parents=True)
        CredentialStore(self.home.credentials).add_all({one.url: one.secrets for one in clouds})
        create_volume(self.home, NAME, [one.url for one in clouds], f, k)
        config = VolumeConfig.load(self.home, NAME)
        replace(config, links=ALONE, discard_hours=0).save(self.home)
        self.volume = Volume.open(self.home, NAME, self.around.environment)
        self._open = True

    def collect(self) -> None:
        found = self.volume.collector.collect(lambda stage, done, total: None, dry_run=False)
        if found.trouble:
            raise SystemExit(f"nothing could be archived: {found.trouble}")

    def archive(self) -> None:
        """Let everything rest for a month, and archive it."""
        self.rest()
        self.collect()
        self.sync()
        self.collect()

    def rest(self) -> None:
        """Let a month pass, so that the next collection archives what is here."""
        self.collect()
        self.around.ahead_ns += _MONTH_NS


def stored(clouds: Path) -> int:
    """Bytes of packs on all clouds together."""
    return sum(path.stat().st_size for path in clouds.rglob("packs/*/*") if path.is_file())


def _read(device: PatientDevice, name: str) -> float:
    """Seconds to read a file from the clouds: the cache is dropped first."""
    device.volume.drop_cache()
    begun = time.monotonic()
    device.read(name)
    return time.monotonic() - begun


def _bill(prices: Mapping[str, Prices]) -> tuple[float, float, float]:
    """USD a month for 1 TB: hot on two of the five providers, as a mean of all pairs; archived 4 of 5; and
    archived as the program chooses."""
    storage = {number: one.storage for number, one in enumerate(prices.values())}
    mean = statistics.mean(storage.values())
    found = cheapest_code(1, 1, storage)
    assert found is not None
    cheapest = sum(sorted(storage.values())[: found.k + 1]) / found.k
    return 2000 * mean, sum(storage.values()) / 4 * 1000, cheapest * 1000


@contextmanager
def _open(root: Path, wan: Wan) -> Iterator[PatientDevice]:
    device = PatientDevice(root, wan.clouds)
    try:
        yield device
    finally:
        device.close()


def run(root: Path, rounds: int, console: Console) -> Page:
    """Measure everything."""
    hot: dict[str, list[float]] = {name: [] for name in _SIZES}
    cold: dict[str, list[float]] = {name: [] for name in _SIZES}
    with far_clouds(root / "clouds", _DISTANCES) as wan, _open(root / "device", wan) as device:
        for name, size in _SIZES.items():
            device.write(name, os.urandom(size))
            device.sync()
        large = sum(_SIZES.values())
        before = stored(root / "clouds")
        for seconds in (hot, cold):
            if seconds is cold:
                device.volume.agreed.archive("30d", "4+1")
                device.archive()
            for number in range(rounds):
                for name in _SIZES:
                    seconds[name].append(_read(device, name))
                console.print(f"[dim]round {number + 1} of {rounds}[/]")
        after = stored(root / "clouds")
        for number in range(_SMALL_FILES):
            device.write(f"small {number}", os.urandom(_SMALL))
        device.sync()
        small_hot = stored(root / "clouds") - after
        device.archive()
        small_cold = stored(root / "clouds") - after
        console.print("[dim]archiving through 10 Mbit/s[/]")
        device.write("moved", os.urandom(_MOVED))
        device.sync()
        device.rest()
        device.volume.transfers.limit(str(round(_UPLINK / 1024)) + "K", None, None)
        begun = time.monotonic()
        device.collect()
        moved = _MOVED / (time.monotonic() - begun)
    return _page(
        hot,
        cold,
        {"large": (large, before, after), "small": (_SMALL * _SMALL_FILES, small_hot, small_cold)},
        moved,
    )


def _page(
    hot: Mapping[str, list[float]],
    cold: Mapping[str, list[float]],
    room: Mapping[str, tuple[int, int, int]],
    moved: float,
) -> Page:
    medians = {name: (statistics.median(hot[name]), statistics.median(cold[name])) for name in _SIZES}
    reads = Section(
        f"Reading what is not here, ms; five lines of {_DISTANCES[0].bandwidth:g} Mbit/s",
        ["size", "whole copies", "from the archive", "ratio", "from the archive, times one line"],
        [
            [name, *map(significant, (1000 * one, 1000 * two, two / one)),
             significant(_SIZES[name] / two / _DISTANCES[0].bytes_per_second)]
            for name, (one, two) in medians.items()
        ],
    )  # fmt: skip
    rows = {"files of 100 kB to 100 MB": room["large"], "files of 4 kB": room["small"]}
    storage = Section(
        "Bytes on all clouds, times what was written",
        ["", "whole copies", "archived"],
        [[name, significant(one / size), significant(two / size)] for name, (size, one, two) in rows.items()],
    )
    dollars = _bill(load_prices())
    bills = Section(
        "1 TB at list prices, USD a month",
        ["", "whole copies on two of five", "archived, 4 of 5", "archived, as the program chooses"],
        [["storage", *map(significant, dollars)]],
    )
    ratio = max(two / one for one, two in medians.values())
    stream = _SIZES["100 MB"] / medians["100 MB"][1] / _DISTANCES[0].bytes_per_second
    large = room["large"]
    targets = [
        Target("archived, times what was written", 1.27, large[2] / large[0]),
        Target("100 MB from the archive, times one line", 1.5, stream, at_least=True),
        Target("from the archive, times as long as a whole copy", _POND, ratio),
        Target("GB archived in a night of 8 hours at 10 Mbit/s", 10.0, moved * _NIGHT / 1e9, at_least=True),
        Target("bill of storage, share saved", 0.35, 1 - dollars[2] / dollars[0], at_least=True),
    ]
    notes = [
        "The median of so many reads: " + str(len(hot["100 kB"])) + ". Servers, lines and device share the "
        "machine's cores. A night is eight hours at the rate of 100 MB. The bill is "
        "arithmetic: uploading everything once more, and reading what is not on this disk, come on top.",
    ]
    figures = {"hot": hot, "cold": cold, "room": room, "moved": moved, "bill": dollars}
    return Page("archive", [reads, storage, bills], targets, notes, figures)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write archive.json and .md to benchmarks/results."""
    parser = options_of("papers.archive", __doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="reads of each (default 5)")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("at least one round")
    console = terminal()
    with work_folder("archive") as root:
        page = run(root, options.rounds, console)
    publish(page, options.results)


if __name__ == "__main__":
    main()
