"""`python -m benchmarks.papers.storing`: what storing costs those who trust nobody (Depot 6.4.2, 6.4.3, 6.5).

There are three parts; `--only` chooses one:

* *dollars* (Fig. 8, 9 and 16): requests, bytes and processor time of putting, keeping and getting objects,
  in the key-value store one by one, and as files, which share packs; at the paper's prices and list prices.
* *load* (Fig. 10 to 15): how long a put and a get take while eight clients work, by size and by the share of
  reads, at the levels of `benchmarks.papers.distrust`, each sent to one S3 server, and with ours.
* *s3* (Fig. 17 and 18): the same with an unmodified S3 far away: what the cloud takes, and what is added.

Writes `storing.json`, `.md` and, with matplotlib, plots.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import convert, to_builtins
from rich.console import Console

from backends.s3 import S3Store
from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.papers import points
from benchmarks.papers.archive import PatientDevice
from benchmarks.papers.distrust import LEVELS
from benchmarks.papers.loads import CLIENTS, KEY_SIZE, BoxClient, Client, LevelClient, Load, run_load
from benchmarks.plots import Curve, plot_curves, plot_latencies
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from benchmarks.wan import Distance, far_clouds
from hybrisfs.api.key_value import IN_LOG, ON_DEVICE
from hybrisfs.dispersal.counting import Use
from hybrisfs.kv.store import KeyValueLimits
from hybrisfs.prices import Prices, bill, load_prices
from tests.volume.device import Device

_SIZES: Final = {"3 B": 3, "10 kB": 10_240, "1 MB": 1 << 20}
_TB: Final = 1.024e12
"""Bytes of the paper's TB: 10^8 objects of its 10 kB."""
_BOX: Final = "box"
_UNCACHED: Final = KeyValueLimits(cache_bytes=0)

# -- dollars ----------------------------------------------------------------------------------------------

_COUNTS: Final = {"3 B": 1000, "10 kB": 1000, "1 MB": 24}
_WAYS: Final = ("key-value store, f=0", "files, f=0", "key-value store, f=1", "files, f=1")
_CLOUDS: Final = {0: 1, 1: 3}
_TRANSFER: Final = 0.10  # USD per GB between client and server, as storage per GB and month, and CPU per hour
_BASELINE: Final = "one cloud without us"


@dataclass
class Costs:
    """What so many objects took: all requests and bytes of all clouds, and this process's CPU seconds."""

    count: int
    size: int
    put: Use
    get: Use
    stored: int
    put_cpu: float
    get_cpu: float

    @property
    def factor(self) -> float:
        """How many times that is a TB of objects."""
        return _TB / self.count / self.size

    def usd(self, what: str) -> float:
        """For a TB of objects at the paper's prices: "put", "get", or "kept" for a month on all clouds."""
        use = self.put if what == "put" else self.get
        moved = self.stored if what == "kept" else use.up + use.down
        cpu = {"put": self.put_cpu, "get": self.get_cpu, "kept": 0.0}[what]
        return self.factor * _TRANSFER * (moved / 1e9 + cpu / 3600)

    def month(self, prices: Prices) -> float:
        """USD for a TB that is put, kept for a month, and got once, at list prices."""
        use = Use(
            **{
                name: round(self.factor * (getattr(self.put, name) + getattr(self.get, name)))
                for name in ("put", "get", "list", "delete", "up", "down")
            }
        )
        return bill(use, self.stored * self.factor, prices).total


def _used(device: Device) -> Use:
    """What all clouds were asked since the volume was opened."""
    counters = [one.counters for one in device.volume.clouds.traffic()]
    return Use(
        **{
            name: sum(getattr(one, name) for one in counters)
            for name in ("put", "get", "list", "delete", "up", "down")
        }
    )


def _since(before: Use, after: Use) -> Use:
    return Use(**{name: count - getattr(before, name) for name, count in to_builtins(after).items()})


def _kept(device: Device) -> int:
    return sum(
        path.stat().st_size
        for cloud in device.clouds
        for kind in ("packs", "log", "heads", "kv")
        for path in (cloud / kind).rglob("*")
        if path.is_file()
    )


def _count(device: Device, way: str, size: int, count: int) -> Costs:
    """Put so many objects, and get each once from the clouds."""
    values = {f"{way} {size} {number}": os.urandom(size) for number in range(count)}
    is_file = way.startswith("files")
    store = device.volume.key_values.of(_BOX)

    def put(name: str, value: bytes) -> None:
        if is_file:
            device.write(name, value)
        else:
            store.put(_BOX, name, value)

    device.sync()
    kept, used, cpu = _kept(device), _used(device), time.process_time()
    for name, value in values.items():
        put(name, value)
    device.sync()
    put_cpu, put_use = time.process_time() - cpu, _since(used, _used(device))
    kept = _kept(device) - kept
    if is_file:
        device.volume.drop_cache()
    used, cpu = _used(device), time.process_time()
    for name, value in values.items():
        if (device.read(name) if is_file else store.get(_BOX, name).value) != value:
            raise SystemExit("what was read is not what was written")
    return Costs(count, size, put_use, _since(used, _used(device)), kept, put_cpu, time.process_time() - cpu)


def measure_costs(root: Path) -> dict[str, dict[str, Costs]]:
    """Costs by size and way."""
    found: dict[str, dict[str, Costs]] = {size: {} for size in _SIZES}
    for f, clouds in _CLOUDS.items():
        folder = root / f"f={f}"
        with closing(Device(folder, clouds, f, 1, limits=[_UNCACHED])) as device:
            device.volume.key_values.create_container(_BOX, ON_DEVICE)
            for label, size in _SIZES.items():
                for way in (one for one in _WAYS if one.endswith(f"f={f}")):
                    found[label][way] = _count(device, way, size, _COUNTS[label])
    return found


def _dollars(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    costs = measure_costs(root)
    columns = ("put", "get", "kept")
    for label, by_way in costs.items():
        size = _SIZES[label]
        alone = Costs(
            1, size, Use(put=1, up=size + KEY_SIZE), Use(get=1, down=size + KEY_SIZE), size, 0.0, 0.0
        )
        rows = [
            [way, *(f"{one.usd(what):,.1f}" for what in columns), f"{sum(map(one.usd, columns)):,.1f}"]
            for way, one in {_BASELINE: alone, **by_way}.items()
        ]
        for name, figures in points(
            "depot", f"Fig. 8, {label}, USD a TB: PUT, GET, a server's, clients'"
        ).items():
            put, get, server, clients = figures
            total = put + get + 4 * server + clients
            rows.append(
                [f"paper, {name}", *(f"{one:,.1f}" for one in (put, get, 4 * server + clients, total))]
            )
        title = f"USD for a TB of objects of {label} at the paper's prices"
        page.sections.append(Section(title, ["", "put", "got", "kept a month by all", "all of it"], rows))
    middle = costs["10 kB"]
    rows = [
        [provider, f"{_alone(listed):,.1f}", *(f"{one.month(listed):,.1f}" for one in middle.values())]
        for provider, listed in load_prices().items()
    ]
    title = "USD for a TB of objects of 10 kB at list prices: put, kept a month, got once"
    page.sections.append(Section(title, ["", _BASELINE, *middle], rows))
    paper = points("depot", "Fig. 16, bytes for an object of 10 kB: Baseline, Depot")
    rows = [
        [way, f"{one.stored / one.count:,.0f}", *(significant(figure / one.count) for figure in _moved(one))]
        for way, one in middle.items()
    ]
    rows += [
        [f"paper, {name}", *(f"{paper[what][number]:,.0f}" for what in paper), "", "1", "1"]
        for number, name in enumerate(("Baseline", "Depot"))
    ]
    headings = ["", "stored on all clouds, B", "sent by a put, B", "got by a get, B", "PUTs", "GETs"]
    page.sections.append(Section("For each object of 10 kB", headings, rows))
    extra = middle["files, f=0"].stored / middle["files, f=0"].count - _SIZES["10 kB"]
    single = middle["key-value store, f=0"]
    page.targets += [
        Target("bytes added to an object of 10 kB at one cloud, in a pack: Depot", 239, extra),
        Target("... in the key-value store: Depot", 239, single.stored / single.count - _SIZES["10 kB"]),
        Target(
            "USD to put a TB of 10 kB and keep it, f=1: Depot with four servers",
            776.1,
            middle["files, f=1"].usd("put") + middle["files, f=1"].usd("kept"),
        ),
    ]
    page.figures = {
        **page.figures,
        "dollars": {
            label: {way: to_builtins(one) for way, one in some.items()} for label, some in costs.items()
        },
    }
    console.print("[dim]dollars[/]")


def _moved(costs: Costs) -> tuple[float, float, float, float]:
    """Bytes sent by the puts, and got by the gets; requests of each."""
    return costs.put.up, costs.get.down, costs.put.put, costs.get.get


def _alone(prices: Prices) -> float:
    """A TB of objects of 10 kB in one cloud without us."""
    count = round(_TB / _SIZES["10 kB"])
    return bill(Use(put=count, get=count, up=round(_TB), down=round(_TB)), _TB, prices).total


# -- latency ----------------------------------------------------------------------------------------------

_READS: Final = (0, 10, 50, 90, 100)
_LAN: Final = (0.2, 1000.0)  # round trip in ms, Mbit/s
_FAR: Final = (165.0, 100.0)
"""As long as Depot's GETs from S3 took."""
_IN_DEVICE, _IN_LOG = "HybrisFS, f=1", "HybrisFS, in the log"
_ONE_S3, _THREE_S3 = "HybrisFS, f=0", "HybrisFS, f=1"
_MOST_IN_LOG: Final = 200_000  # bytes of a value


@contextmanager
def _open(root: Path, line: tuple[float, float], f: int) -> Iterator[PatientDevice]:
    """A volume over S3 servers at lines of their own, with a container of each kind."""
    distances = [Distance(name, *line) for name in ("amber", "birch", "cedar")[: _CLOUDS[f]]]
    with (
        far_clouds(root / "clouds", distances) as wan,
        closing(PatientDevice(root / "device", wan.clouds, f, limits=[_UNCACHED])) as device,
    ):
        device.volume.key_values.create_container(ON_DEVICE, ON_DEVICE)
        device.volume.key_values.create_container(IN_LOG, IN_LOG)
        yield device


@contextmanager
def _one_server(root: Path, line: tuple[float, float]) -> Iterator[S3Store]:
    with far_clouds(root, [Distance("amber", *line)]) as wan, closing(wan.clouds[0].store()) as store:
        store.initialise()
        yield store


def _mixes(label: str) -> Sequence[int]:
    return _READS if label == "10 kB" else (0, 100)


def measure_load(root: Path, seconds: float, console: Console) -> dict[str, dict[str, Load]]:
    """What clients saw by "10 kB, 90 % reads" and system."""
    found: dict[str, dict[str, Load]] = {}
    with ExitStack() as stack:
        server = stack.enter_context(_one_server(root / "server", _LAN))
        device = stack.enter_context(_open(root / "volume", _LAN, 1))
        for label, size in _SIZES.items():
            interval, keys = (0.5, 4) if size > _MOST_IN_LOG else (0.2, 25)
            for reads in _mixes(label):
                name = f"{label}, {reads} % reads"
                folder = root / f"{size} {reads}"
                loads = found.setdefault(name, {})
                for level in LEVELS:

                    def client(number: int, level: str = level, folder: Path = folder) -> Client:
                        return LevelClient(level, folder / level / str(number), server)

                    loads[level] = run_load(client, size, reads, seconds, interval, keys)
                for system, box in ((_IN_DEVICE, ON_DEVICE), (_IN_LOG, IN_LOG)):
                    if box == ON_DEVICE or size <= _MOST_IN_LOG:
                        loads[system] = run_load(
                            lambda _, box=box: BoxClient(device, box),  # type: ignore[misc]
                            size,
                            reads,
                            seconds,
                            interval,
                            keys,
                        )
            console.print(f"[dim]load, {label}[/]", highlight=False)
    return found


def _percentiles(seconds: Sequence[float]) -> list[str]:
    parts = statistics.quantiles(seconds, n=100, method="inclusive")
    return [significant(1000 * one) for one in (statistics.fmean(seconds), parts[49], parts[89], parts[98])]


def _load(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    found = measure_load(root, options.seconds, console)
    headings = ["", "mean", "50 %", "90 %", "99 %", "paper, mean", "paper, 50 %", "paper, 99 %"]
    for operation in ("put", "get"):
        for label in _SIZES:
            for reads in _mixes(label):
                name = f"{label}, {reads} % reads"
                if (reads == 100) == (operation == "put") and reads in (0, 100):
                    continue
                theirs = points(
                    "depot", f"Fig. 10 and 11, {operation.upper()} of {name}, ms: mean, 50 %, 99 %"
                )
                rows = [
                    [
                        system,
                        *_percentiles(getattr(load, operation)),
                        *(map(significant, theirs[system]) if system in theirs else ["", "", ""]),
                    ]
                    for system, load in found[name].items()
                ]
                title = f"{operation.capitalize()} of {name}, ms"
                page.sections.append(Section(title, headings, rows))
    writes, gets = found["10 kB, 0 % reads"], found["10 kB, 100 % reads"]
    added = statistics.fmean(writes["Depot"].put) - statistics.fmean(writes["baseline"].put)
    page.targets += [
        Target("ms that Depot's level adds to a put of 10 kB: Depot", 11.5, 1000 * added),
        Target("ms that ours, f=1, adds to a put of 10 kB: Depot", 11.5, 1000 * _added(writes, "put")),
        Target("ms that ours, f=1, adds to a get of 10 kB: Depot", 0.4, 1000 * _added(gets, "get")),
    ]
    page.figures = {
        **page.figures,
        "load": {name: {system: vars(one) for system, one in some.items()} for name, some in found.items()},
    }


def _added(loads: Mapping[str, Load], operation: str) -> float:
    """Seconds that ours adds to what the baseline takes, medians."""
    ours, alone = (getattr(loads[one], operation) for one in (_IN_DEVICE, "baseline"))
    return float(statistics.median(ours) - statistics.median(alone))


def measure_s3(root: Path, seconds: float, console: Console) -> dict[str, Load]:
    """Puts and gets of 10 kB at S3 servers far away, by system."""
    size, found = _SIZES["10 kB"], dict[str, Load]()
    with _one_server(root / "server", _FAR) as server:
        for level in ("baseline", "Depot"):

            def client(number: int, level: str = level) -> Client:
                return LevelClient(level, root / f"{level} {time.monotonic_ns()}" / str(number), server)

            found[level] = _both(client, size, seconds)
    for system, f in ((_ONE_S3, 0), (_THREE_S3, 1)):
        with _open(root / system, _FAR, f) as device:
            found[system] = _both(lambda _: BoxClient(device, ON_DEVICE), size, seconds)
    console.print("[dim]s3[/]")
    return found


def _both(client: Callable[[int], Client], size: int, seconds: float) -> Load:
    """Puts alone, and then gets alone; a first round of puts has made all connections."""
    puts, gets = (run_load(client, size, reads, seconds, 0.5, 3) for reads in (0, 100))
    return Load(gets.get, puts.put, gets.get_cloud, puts.put_cloud)


def _s3(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    found = measure_s3(root, 2 * options.seconds, console)
    theirs = points("depot", "Fig. 17, ms: S3 roundtrip, client addition")
    rows = []
    for operation in ("get", "put"):
        for system, load in found.items():
            total, cloud = (getattr(load, name) for name in (operation, f"{operation}_cloud"))
            known = system in LEVELS
            rest = [whole - part for whole, part in zip(total, cloud, strict=True)]
            alone = statistics.median(getattr(found["baseline"], operation))
            rows.append(
                [
                    f"{operation}, {system}",
                    significant(1000 * statistics.median(cloud)) if known else "",
                    significant(1000 * statistics.median(rest)) if known else "",
                    f"{1000 * statistics.median(total):.1f}",
                    f"{1000 * (statistics.median(total) - alone):+.1f}",
                    f"{1000 * statistics.fmean(total):.1f} +- {1000 * statistics.stdev(total):.1f}",
                    *map(significant, theirs.get(f"{operation}, {system}", [])),
                ]
            )
            rows[-1] += [""] * (8 - len(rows[-1]))
    headings = ["", "the cloud", "added by the client", "in all", "beyond the baseline", "mean"]
    page.sections.append(
        Section(
            f"10 kB and an S3 at the end of {_FAR[0]:g} ms, ms, medians",
            [*headings, "paper, S3 roundtrip, mean", "paper, client addition, mean"],
            rows,
        )
    )
    load = found["Depot"]
    added = statistics.median(load.put) - statistics.median(load.put_cloud)
    far = statistics.median(found[_ONE_S3].put) - statistics.median(found["baseline"].put)
    page.targets += [
        Target("ms that the client adds to a put at S3, Depot's level: Depot", 6.96, 1000 * added),
        Target("ms that ours, f=0, adds to a put at S3: Depot", 6.96, 1000 * far),
    ]
    page.figures = {**page.figures, "s3": {system: vars(one) for system, one in found.items()}}


# -- the page ---------------------------------------------------------------------------------------------

_MEASURES: Final[dict[str, Callable[[Path, argparse.Namespace, Page, Console], None]]] = {
    "dollars": _dollars,
    "load": _load,
    "s3": _s3,
}


def _notes(options: argparse.Namespace) -> list[str]:
    first, second, third, fourth = _WAYS
    return [
        "Dollars: objects put into an open volume over folders and got from them once, without a cache. "
        "Requests and bytes are those of all clouds together, with log, heads and what goes on in the "
        f"background; CPU is that of the whole process, clouds that are folders included. *{first}* and "
        f"*{third}*: each object is a value, on f+1 clouds when put returns, with metadata in this "
        f"device's database, and not signed; *{second}* and *{fourth}*: each is a file, the log is signed, "
        "and files share packs; they are got in the order in which they were put, so one request brings "
        "many. Paper's prices: 0.10 USD for a GB between client and server, for a GB and month, and for "
        "an hour of CPU; a TB is 10^8 objects of 10,240 bytes. Of the paper: its measured costs (L-) for "
        "puts or gets alone, with four servers that pass objects on to each other at a tenth of the "
        "price; kept by four servers and, at the level Depot, by clients. Our own disk costs nothing.",
        f"Load: {CLIENTS} clients, threads of one process, each with keys of its own, which ask five "
        f"times a second (1 MB: twice), for {options.seconds:g} s, in the paper once; one system after the "
        f"other. So 99 % is the worst or second worst of {round(CLIENTS * 5 * options.seconds)} or fewer. "
        f"S3 servers at lines of {_LAN[0]:g} ms and {_LAN[1]:g} Mbit/s on this machine, which share its "
        "cores. The levels are made from our parts and sent by our driver to one server, which checks "
        "nothing; the paper's servers check hashes and signatures, keep a log and tell each other. "
        "*HybrisFS, f=1*: the key-value store, on two of three clouds when a put returns; *HybrisFS, in "
        "the log*: a signed update that is on this device's disk when it returns and travels later, got "
        "from this disk; values of 1 MB are too large for it.",
        f"S3: the line has {_FAR[0]:g} ms and {_FAR[1]:g} Mbit/s; puts alone, then gets alone, by "
        f"{CLIENTS} clients twice a second, {2 * options.seconds:g} s each. The paper has 90 % gets, and "
        "Amazon's S3 with standard deviations of 200 ms. Means have the first requests, which make "
        "connections. What ours adds is sealing, hashes and metadata in a database; with f=1 the second "
        "of two clouds counts.",
    ]


def _plot(folder: Path, page: Page) -> list[Path]:
    load, s3 = page.figures["load"], page.figures["s3"]
    assert isinstance(load, Mapping) and isinstance(s3, Mapping)
    panels: dict[str, list[Curve]] = {}
    for title, operation, percent, figure in (
        ("Get, 50 %", "get", 49, 12),
        ("Put, 50 %", "put", 49, 13),
        ("Get, 99 %", "get", 98, 14),
        ("Put, 99 %", "put", 98, 15),
    ):
        mixes = [reads for reads in _READS if reads != (0 if operation == "get" else 100)]
        loads = [load[f"10 kB, {reads} % reads"] for reads in mixes]
        curves = [
            Curve(
                f"ours, {system}",
                list(map(float, mixes)),
                [
                    1000 * statistics.quantiles(one[system][operation], n=100, method="inclusive")[percent]
                    for one in loads
                ],
            )
            for system in loads[0]
        ]
        for system in ("baseline", "Depot"):
            theirs = [
                points(
                    "depot",
                    f"Fig. 10 and 11, {operation.upper()} of 10 kB, {reads} % reads, ms: mean, 50 %, 99 %",
                )[system][1 if percent == 49 else 2]
                for reads in mixes
            ]
            curves.append(Curve(f"paper, {system}", list(map(float, mixes)), theirs))
        panels[f"{title} of 10 kB, ms, by % of reads (Fig. {figure})"] = curves
    drawn = {
        operation: {
            **{system: one[operation] for system, one in s3.items()},
            **{
                f"{system} (paper)": [sum(points("depot", _FIG_17)[f"{operation}, {system}"]) / 1000] * 2
                for system in ("baseline", "Depot")
            },
        }
        for operation in ("get", "put")
    }
    return [
        *plot_curves(folder, "storing", panels, logarithmic="y"),
        *plot_latencies(folder, "storing-s3", drawn),
        *plot_curves(folder, "storing-dollars", {_DOLLARS: _prices(page)}, legends=True),
    ]


_DOLLARS: Final = "USD for a TB of 10 kB (Fig. 8, 9): 0 put, 1 got, 2 kept a month"


def _prices(page: Page) -> list[Curve]:
    """Ours and the paper's, at the paper's prices."""
    costs = page.figures["dollars"]
    assert isinstance(costs, Mapping)
    x = [0.0, 1.0, 2.0]
    curves = []
    for way, facts in costs["10 kB"].items():
        one = convert(facts, Costs)
        curves.append(Curve(f"ours, {way}", x, [one.usd(what) for what in ("put", "get", "kept")]))
    theirs = points("depot", "Fig. 8, 10 kB, USD a TB: PUT, GET, a server's, clients'")
    for name in ("baseline", "Depot"):
        put, got, server, clients = theirs[name]
        curves.append(Curve(f"paper, {name}", x, [put, got, 4 * server + clients]))
    return curves


_FIG_17: Final = "Fig. 17, ms: S3 roundtrip, client addition"


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write storing.json, .md and plots to benchmarks/results."""
    parser = options_of("papers.storing", __doc__)
    parser.add_argument("--only", action="append", choices=[*_MEASURES], help="a part; may be given again")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="N", help="of each load (default 3)")
    options = parser.parse_args(argv)
    console = terminal()
    page = Page("storing", notes=_notes(options))
    with work_folder("storing") as root:
        for part in options.only or _MEASURES:
            _MEASURES[part](root / part, options, page, console)
    publish(page, options.results, None if options.only else lambda folder, _: _plot(folder, page))


if __name__ == "__main__":
    main()
