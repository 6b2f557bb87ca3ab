"""`python -m benchmarks.cost`: what a month costs at list prices, from requests and bytes that were counted.

First Hybris's Table I: 1 TB written and read once in a month as objects of 10 kB, 1 MB and 10 MB, through our
engine with whole copies (k=1) and erasure coding (k=2), beside one cloud without us; at the prices of today,
and at those of the paper beside its own figures. Small objects also as a volume stores them, many in a pack.
Then an idle volume of
two devices: its daemons run with a clock that is faster than the real one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from msgspec import to_builtins
from rich.console import Console

from backends.file import FileStore
from benchmarks.corpus import work_folder
from benchmarks.dispersed import Dispersed
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.report import terminal
from benchmarks.targets import Target
from hybrisfs.dispersal.counting import CountingStore, Request, RequestClass, Use, used
from hybrisfs.prices import Prices, bill, load_prices
from tests.system.deadline import until
from tests.system.device import REPOSITORY, Device
from tests.system.pairing import pair

__all__ = ["main"]

_F = 1
_CLOUDS = 3
_CODES = {"hybrisfs k=1": 1, "hybrisfs k=2": 2}
_SIZES = {"10 kB": 10_000, "1 MB": 1_000_000, "10 MB": 10_000_000}
_PACKED = 10_000  # bytes; objects up to that are measured in packs, too
_IN_A_PACK = 800  # of them, that make about 8 MiB
_THEN = Prices(0.03, 0.005, 0.0004, 0.005, 0.0916, "Hybris, Table I: Amazon S3, US-East, September 2016")
"""The prices of the paper. It does not say what egress costs: this makes its 92 USD for the GETs of S3."""
_TABLE_I = {
    "ICStore": (60, 276, 180, 516),
    "DepSky-A": (30, 93, 91, 214),
    "DepSky-EC": (30, 93, 45, 168),
    "Hybris": (10, 92, 60, 162),
    "Hybris-EC": (15, 92, 45, 152),
    "Amazon S3": (5, 92, 30, 127),
}
"""The paper's Table I, in USD: PUT, GET, storage, total, for 1 TB of objects of 1 MB."""
_SAME = {"one cloud": "Amazon S3", "hybrisfs k=1": "Hybris", "hybrisfs k=2": "Hybris-EC"}
_OBJECTS = 10  # of each size, that requests are counted of
_MONTH_BYTES = 10**12
_MONTH_HOURS = 30 * 24
_IDLE_LIMIT = 0.05  # USD per month and cloud
_FILES = 200  # in the idle volume


def _times(use: Use, factor: float) -> Use:
    return Use(**{name: round(count * factor) for name, count in to_builtins(use).items()})


# -- Table I ------------------------------------------------------------------------------------------------


def _count_objects(root: Path, k: int, size: int, *, together: bool = False) -> tuple[Use, int]:
    """Put some objects one by one, or together, and get each once; returns the use of all clouds and what
    they hold."""
    requests: list[Request] = []
    stores = []
    for number in range(_CLOUDS):
        folder = root / f"cloud-{number}"
        folder.mkdir(parents=True)
        stores.append(CountingStore(FileStore(folder.as_uri()), requests.append))
        stores[-1].initialise()
    requests.clear()
    names = [f"cloud-{number}" for number in range(_CLOUDS)]
    with closing(Dispersed(names, stores, _F, k)) as system:
        if together:
            objects = [os.urandom(size) for _ in range(_IN_A_PACK)]
            if [system.get([one]) for one in system.put_together(objects)] != objects:
                raise SystemExit("what was read is not what was written")
        for _ in range(0 if together else _OBJECTS):
            data = os.urandom(size)
            if system.get(system.put(data)) != data:
                raise SystemExit("what was read is not what was written")
    use = used(requests)
    return use, use.up


def table_1(root: Path) -> dict[str, dict[str, tuple[Use, float]]]:
    """Size -> system -> the use of a month, and the bytes stored."""
    table: dict[str, dict[str, tuple[Use, float]]] = {}
    for size, length in _SIZES.items():
        month = _MONTH_BYTES // length
        one_cloud = Use(put=month, get=month, up=_MONTH_BYTES, down=_MONTH_BYTES)
        table[size] = {"one cloud": (one_cloud, _MONTH_BYTES)}
        for name, k in _CODES.items():
            use, stored = _count_objects(root / f"{size}-{k}".replace(" ", ""), k, length)
            factor = month / _OBJECTS
            table[size][name] = (_times(use, factor), stored * factor)
            if length <= _PACKED:
                folder = root / f"{size}-{k}-packed".replace(" ", "")
                use, stored = _count_objects(folder, k, length, together=True)
                factor = month / _IN_A_PACK
                table[size][f"{name}, in packs"] = (_times(use, factor), stored * factor)
    return table


def _bill_section(
    size: str, systems: Mapping[str, tuple[Use, float]], prices: Mapping[str, Prices]
) -> Section:
    rows = []
    for provider, listed in prices.items():
        for system, (use, stored) in systems.items():
            costs = bill(use, stored, listed)
            cells = [costs.put, costs.get + costs.egress, costs.storage, costs.total]
            rows.append([f"{provider}: {system}", *(f"{cell:,.2f}" for cell in cells)])
    return Section(
        f"Table I, USD for 1 TB a month as objects of {size}, all clouds at one provider's prices",
        ["", "PUT", "GET with egress", "storage", "total"],
        rows,
    )


def _paper_section(size: str, systems: Mapping[str, tuple[Use, float]]) -> Section:
    """At the prices of the paper, beside its figures where it has some."""
    rows = []
    for system, (use, stored) in systems.items():
        costs = bill(use, stored, _THEN)
        gets = costs.get + costs.egress
        theirs = _TABLE_I[_SAME[system]] if size == "1 MB" and system in _SAME else None
        rows.append(
            [
                system,
                *(f"{cell:,.2f}" for cell in (costs.put, gets, costs.storage, costs.total)),
                "" if theirs is None else f"{_SAME[system]}: {theirs[-1]}",
            ]
        )
    if size == "1 MB":
        rows += [
            [f"{name}, the paper", *map(str, figures[:-1]), "", str(figures[-1])]
            for name, figures in _TABLE_I.items()
            if name not in _SAME.values()
        ]
    return Section(
        f"At the paper's prices of 2016, USD for 1 TB a month as objects of {size}",
        ["", "PUT", "GET with egress", "storage", "total", "total, the paper"],
        rows,
    )


# -- an idle volume -----------------------------------------------------------------------------------------


@contextmanager
def _counted_daemon(device: Device, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the device's daemon ourselves, so that its commands find it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.hastened", str(log)],
        env={**os.environ, "HYBRISFS_HOME": str(device.home), "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        text=True,
        stdin=subprocess.PIPE,
        stderr=(device.root / "daemon.err").open("w"),
    )
    try:
        until(lambda: list(device.home.rglob("daemon.sock")), "the daemon to answer")
        yield process
    finally:
        process.kill()
        process.communicate()


@dataclass(frozen=True)
class Idle:
    """`hours` of two idle devices: the use of each cloud by both together."""

    hours: float
    clouds: dict[str, Use]


def measure_idle(root: Path, hours: float, settle: float, speed: float, console: Console) -> Idle:
    """Let two devices do nothing for `settle` hours by their clock, then count for `hours`."""
    with ExitStack() as stack:
        devices, logs, daemons = [], [], []
        for name in ("one", "other"):
            (root / name).mkdir(parents=True)
            devices.append(stack.enter_context(Device(root / name)))
            logs.append(root / f"{name}.requests")
            daemons.append(stack.enter_context(_counted_daemon(devices[-1], logs[-1])))
        one, other = devices
        one.create(_CLOUDS, f=_F, k=1).mount()
        for number in range(_FILES):
            (one.mountpoint / f"note-{number}").write_bytes(os.urandom(5000))
        one.sync()
        pair(one, other, "other")
        other.mount()
        until(lambda: len(list(other.mountpoint.iterdir())) == _FILES, "the files to be on the other device")
        begins = time.time() + 1
        for daemon in daemons:
            assert daemon.stdin is not None
            daemon.stdin.write(f"{begins} {speed}\n")
            daemon.stdin.flush()
        console.print(f"[dim]idle for {(settle + hours) * 3600 / speed:.0f} s ...[/]")
        time.sleep((settle + hours) * 3600 / speed + 2)
    first = begins + settle * 3600
    return Idle(hours, _read(logs, first, first + hours * 3600))


def _read(logs: Sequence[Path], first: float, end: float) -> dict[str, Use]:
    requests: dict[str, list[Request]] = defaultdict(list)
    kinds: dict[str, RequestClass] = {kind: kind for kind in get_args(RequestClass)}
    for log in logs:
        for line in log.read_text().splitlines():
            at, url, kind, up, down = line.split()
            if first <= float(at) < end:
                requests[url.rpartition("/")[2]].append(Request(kinds[kind], int(up), int(down)))
    return {cloud: used(of_cloud) for cloud, of_cloud in sorted(requests.items())}


def _idle_sections(idle: Idle, prices: Mapping[str, Prices]) -> tuple[list[Section], list[Target]]:
    month = {cloud: _times(use, _MONTH_HOURS / idle.hours) for cloud, use in idle.clouds.items()}
    counts = [
        [kind, *(f"{getattr(use, kind):,}" for use in month.values())]
        for kind in ("put", "get", "list", "delete")
    ]
    rows, targets = [], []
    for provider, listed in prices.items():
        costs = [_requests_only(use, listed) for use in month.values()]
        rows.append([provider, *(f"{cost:.4f}" for cost in costs)])
        targets.append(
            Target(f"idle volume, requests at {provider}, USD a month and cloud", _IDLE_LIMIT, max(costs))
        )
    sections = [
        Section("An idle volume of two devices: requests a month", ["", *month], counts),
        Section("... and what they cost, USD a month", ["", *month], rows),
    ]
    return sections, targets


def _requests_only(use: Use, prices: Prices) -> float:
    return (use.put * prices.put + use.get * prices.get + use.list * prices.list) / 1000


# -- the page -----------------------------------------------------------------------------------------------


def _notes(idle: Idle, settle: float, speed: float) -> list[str]:
    return [
        f"Table I: {_OBJECTS} objects per size put and got one by one through the engine over {_CLOUDS} "
        f"folders (f={_F}), every call of a driver counted as the one request it makes, multiplied up to 1 "
        "TB written and read in a month; all is stored for the whole month. Sealing adds a few bytes per "
        "chunk. Packs below 1 MiB, and so objects of 1 MB, are replicated also with k=2. "
        f"In packs: {_IN_A_PACK} objects together, each read by a request of its own. The metadata, which "
        "Hybris keeps in a private cloud, is a local database here; the log of a volume is not in it.",
        f"The paper's prices: {_THEN.source}. Egress is {_THEN.egress:g} USD a GB: with that, GETs from S3 "
        "cost as much as in the paper. It adds 500 bytes of metadata to each object.",
        f"Idle volume: two mounted devices that are linked directly, {_FILES} files, three folders as "
        f"clouds, the real daemons. Their clock and their waits run {speed:g} times as fast as the real "
        f"ones (benchmarks/hastened.py). After {settle:g} hours by that clock, in which polling slows "
        f"down, all calls were counted for {idle.hours:g} hours and multiplied to 30 days. A conditional "
        "request that finds nothing new counts as a GET. What comes once a day, as a list of signposts per "
        "device, may not be in it.",
        "Prices: hybrisfs/prices.json, with sources and the date; no free allowances.",
    ]


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write cost.json and .md to benchmarks/results."""
    parser = options_of("cost", __doc__)
    parser.add_argument("--hours", type=float, default=6.0, help="hours of idling to count (default 6)")
    parser.add_argument("--settle", type=float, default=1.5, help="hours of idling before (default 1.5)")
    parser.add_argument("--speed", type=float, default=120.0, help="of the daemons' clock (default 120)")
    options = parser.parse_args(argv)
    console, prices = terminal(), load_prices()
    with work_folder("cost") as root:
        table = table_1(root / "table")
        idle = measure_idle(root / "idle", options.hours, options.settle, options.speed, console)
    page = Page("cost", [_paper_section(size, systems) for size, systems in table.items()])
    page.sections += [_bill_section(size, systems, prices) for size, systems in table.items()]
    sections, page.targets = _idle_sections(idle, prices)
    page.sections += sections
    page.notes = _notes(idle, options.settle, options.speed)
    page.figures = {
        "paper": {"where": "Hybris, Table I", "usd": _TABLE_I, "prices": to_builtins(_THEN)},
        "prices": {name: to_builtins(one) for name, one in prices.items()},
        "month": {
            size: {
                name: {"use": to_builtins(use), "stored": stored} for name, (use, stored) in systems.items()
            }
            for size, systems in table.items()
        },
        "idle": to_builtins(idle),
    }
    publish(page, options.results)


if __name__ == "__main__":
    main()
