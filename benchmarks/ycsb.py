"""`python -m benchmarks.ycsb`: what the cache does for reads, by the size of values (Hybris 5.5).

YCSB's workload B (95 % reads, 5 % updates, keys drawn by a zipfian distribution) on a key-value store over
three clouds in this process that take their time as clouds do: a delay per request, and a rate. With and
without a cache of 128 MB. Writes `ycsb.json`, `.md` and, with matplotlib, a plot as the paper's Fig. 10.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import statistics
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from backends.file import FileStore
from backends.store import Buffer, Store, StoreWrapper
from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.plots import Curve, plot_curves
from benchmarks.report import significant
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.environment import SYSTEM, Environment, Limits
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.rmds import DeviceStore
from hybrisfs.kv.store import KeyValueLimits
from sync import OneKey

_SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_CACHE = 128_000_000
_DELAYS = (0.020, 0.035, 0.050)  # seconds per request, of each cloud
_BYTES_PER_SECOND = 12.5e6  # 100 Mbit/s
_SKEW = 0.99
_UPDATES = 0.05
_MOST_DATA = 300_000_000  # bytes of all values: more than the cache holds, when they are large
_MOST_KEYS = 300

T = TypeVar("T")


class DelayedStore(StoreWrapper):
    """A store that answers as late as one at the other end of a long line."""

    def __init__(self, store: Store, delay: float) -> None:
        super().__init__(store)
        self._delay = delay

    def delay(self) -> float:
        """Of the next request, in seconds."""
        return self._delay

    def put(self, name: str, data: Buffer) -> None:
        _travel(len(data))
        super().put(name, data)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        _travel(len(data))
        return super().put_if_absent(name, data)

    def get(self, name: str, *, limit: int) -> bytes:
        data = super().get(name, limit=limit)
        _travel(len(data))
        return data

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        _travel(length)
        return super().get_range(name, offset, length)

    def _pass_on(self, operation: str, name: str, call: Callable[[Store], T]) -> T:
        if operation != "initialise":
            time.sleep(self.delay())
        return super()._pass_on(operation, name, call)


def _travel(size: int) -> None:
    time.sleep(size / _BYTES_PER_SECOND)


@dataclass(frozen=True)
class Figures:
    """Of values of one size, with or without the cache: latencies of reads, in ms."""

    size: int
    keys: int
    cached: bool
    mean_ms: float
    median_ms: float
    p95_ms: float


@contextmanager
def far_engine(folder: Path) -> Iterator[Engine]:
    """An engine over three folders that take their time as clouds do; f = 1."""
    stores = [DelayedStore(FileStore((folder / str(delay)).as_uri()), delay) for delay in _DELAYS]
    for store in stores:
        store.initialise()
    engine = Engine(
        [Cloud(number, f"c{number}", store) for number, store in enumerate(stores)],
        1,
        Sealer(OneKey(bytes(32)), bytes(32)),
        TableSealer(OneKey(bytes(32))),
        environment=SYSTEM,
    )
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _opened(folder: Path, cache_bytes: int) -> Iterator[DeviceStore]:
    MetadataDatabase.create(folder / "kv.db", os.urandom(16))
    with far_engine(folder) as engine:
        values = DeviceStore(
            folder / "kv.db",
            engine.values,
            bytes(32),
            Redundancy(1, 1),
            environment=Environment(limits=Limits(KeyValueLimits(cache_bytes))),
        )
        with closing(values):
            yield values


def measure(folder: Path, size: int, operations: int, *, cached: bool) -> Figures:
    """Fill a store with values of this size, and work on it."""
    draw = random.Random(size)
    keys = max(10, min(_MOST_KEYS, _MOST_DATA // size))
    names = [f"user{number:08}" for number in range(keys)]
    draw.shuffle(names)
    weights = list(itertools.accumulate(1 / (rank + 1) ** _SKEW for rank in range(keys)))
    latencies = []
    with _opened(folder, _CACHE if cached else 0) as store:
        store.create_container("usertable")
        for name in names:
            store.put("usertable", name, draw.randbytes(size))
        for _ in range(operations):
            name = names[bisect(weights, draw.random() * weights[-1])]
            if draw.random() < _UPDATES:
                store.put("usertable", name, draw.randbytes(size))
                continue
            start = time.perf_counter()
            store.get("usertable", name)
            latencies.append((time.perf_counter() - start) * 1000)
    return Figures(
        size,
        keys,
        cached,
        statistics.mean(latencies),
        statistics.median(latencies),
        statistics.quantiles(latencies, n=20)[-1],
    )


def report(figures: list[Figures], operations: int) -> Page:
    """Tables, and how it was measured."""
    page = Page("ycsb")
    by_size = {one.size: [other for other in figures if other.size == one.size] for one in figures}
    rows = []
    for size, (none, cached) in by_size.items():
        pairs = [
            (none.mean_ms, cached.mean_ms),
            (none.median_ms, cached.median_ms),
            (none.p95_ms, cached.p95_ms),
        ]
        rows.append(
            [
                f"{size:,}",
                str(none.keys),
                significant(none.keys * size / 1e6),
                *(significant(one) for pair in pairs for one in pair),
                f"1/{none.mean_ms / cached.mean_ms:.1f}",
            ]
        )
    kinds = ("mean", "median", "95 %")
    headings = [f"{kind}, {cache}" for kind in kinds for cache in ("no cache", "128 MB")]
    page.sections.append(
        Section(
            "GET in ms, by the size of values",
            ["bytes", "keys", "MB in all", *headings, "mean with the cache"],
            rows,
        )
    )
    delays = ", ".join(f"{delay * 1000:.0f}" for delay in _DELAYS)
    page.notes = [
        f"GETs of {operations} operations of YCSB's workload B, f = 1, k = 1, over three clouds that answer "
        f"after {delays} ms and transfer 100 Mbit/s per request. The cache is in this process and holds at "
        "most 128 MB; the paper's is Memcached beside the clients, and its clouds "
        "are real. We have at most 300 keys and 300 MB, and the paper does not say how many it has."
    ]
    page.figures = {"operations": operations, "figures": [asdict(one) for one in figures]}
    return page


def curves(figures: list[Figures]) -> list[Curve]:
    """Mean latencies by size, with and without the cache."""
    return [
        Curve(
            f"{name}, HybrisFS",
            [one.size for one in figures if one.cached == cached],
            [one.mean_ms for one in figures if one.cached == cached],
        )
        for name, cached in (("no cache", False), ("128 MB", True))
    ]


def main(argv: list[str] | None = None) -> None:
    parser = options_of("ycsb", __doc__)
    parser.add_argument("--operations", type=int, default=500, metavar="N", help="for each row")
    parser.add_argument("--most", type=int, default=_SIZES[-1], metavar="BYTES", help="the largest values")
    options = parser.parse_args(argv)
    with work_folder("ycsb") as root:
        figures = []
        for size, cached in itertools.product((one for one in _SIZES if one <= options.most), (False, True)):
            (folder := root / f"{size}-{cached}").mkdir()
            figures.append(measure(folder, size, options.operations, cached=cached))
            shutil.rmtree(folder)
    panels = {"mean GET (ms) by bytes": curves(figures)}
    publish(
        report(figures, options.operations),
        options.results,
        lambda folder, _: plot_curves(folder, "ycsb", panels, logarithmic="xy"),
    )


if __name__ == "__main__":
    main()
