"""`python -m benchmarks.registers`: what a read and a write cost when the clouds hold the keys, too.

PoWerStore and PASIS as the product has them, beside the two baselines of PoWerStore's Fig. 2. ABD with full
write-back (M-ABD) needs no proof: it stores whole copies on 2t+1 clouds that do not lie, and each of its
reads puts the value back. Phalanx does the same with 3t+1 clouds that may lie, and signs what it writes
(`benchmarks.phalanx`). All clouds are folders behind the same line: a delay per request, drawn again for each
by a Pareto distribution with a mean of 20 ms, and 100 Mbit/s for each request (PoWerStore 6.3).

Systems take turns, sample by sample. Writes `registers.json`, `.md` and, with matplotlib, a plot as Fig. 2.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from backends.file import FileStore
from backends.store import Page as Listed
from backends.store import Store
from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, draw_again, options_of, publish
from benchmarks.papers import points
from benchmarks.phalanx import FullWriteBack, Phalanx, SignedCodec
from benchmarks.plots import Curve, plot_curves
from benchmarks.report import terminal
from benchmarks.targets import Target
from benchmarks.ycsb import DelayedStore
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.environment import SYSTEM
from hybrisfs.kv.cloud_objects import ObjectCodec
from hybrisfs.kv.seal import ValueSealer
from hybrisfs.quorums.names import Names, Version
from hybrisfs.quorums.reading import read
from hybrisfs.quorums.register import Part, Register
from hybrisfs.quorums.runner import Runner
from hybrisfs.quorums.thresholds import PASIS, POWERSTORE, Thresholds
from sync import OneKey

__all__ = ["System", "timed"]

_MEAN: Final = 0.020  # seconds
_SHAPE: Final = 6.0  # of the Pareto distribution: a standard deviation of 4 ms
_SIZES: Final = (64, 128, 256, 512, 1024)  # KiB
_SIZE: Final = 256 << 10
_FAILURES: Final = (1, 2, 3)
_CLIENTS: Final = (1, 2, 4, 8)
_OURS: Final = "PoWerStore"
_SYSTEMS: Final = (_OURS, "PASIS", "ABD", "Phalanx")
_NAMES: Final = tuple(f"{what}, {name}" for what in ("read", "write") for name in _SYSTEMS)
_EACH: Final = 4  # operations of each client in a round


class FarStore(DelayedStore):
    """A store behind a line whose delay changes, that counts what it sends."""

    def __init__(self, store: Store, seed: str, mean: float = _MEAN) -> None:
        super().__init__(store, mean)
        self._mean = mean
        self._chance = random.Random(seed)
        self.sent = 0

    def delay(self) -> float:
        return self._chance.paretovariate(_SHAPE) * self._mean * (_SHAPE - 1) / _SHAPE

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        data = super().get_range(name, offset, length)
        self.sent += len(data)
        return data

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Listed:
        page = super().list(prefix, after=after, limit=limit)
        self.sent += sum(map(len, page.names))
        return page


class System:
    """One of the systems, over clouds of its own, the answers of which take *mean* seconds."""

    def __init__(
        self,
        name: str,
        folder: Path,
        t: int,
        ends: ExitStack,
        *,
        more: int = 0,
        mean: float = _MEAN,
        kind: type[Register] = Register,
    ) -> None:
        """*more*: clouds than are needed. *kind*: of the registers, if it is one of ours."""
        self.name = name
        self.thresholds = {
            _OURS: Thresholds(POWERSTORE, 3 * t + 1 + more, t, t),
            "PASIS": Thresholds(PASIS, 4 * t + 1 + more, t, t),
            "ABD": Thresholds(PASIS, 2 * t + 1, t, 0),
            "Phalanx": Thresholds(PASIS, 3 * t + 1, t, 0),
        }[name]
        self._kind = {"ABD": FullWriteBack, "Phalanx": Phalanx}.get(name, kind)
        self.stores = [
            FarStore(FileStore((folder / name / str(number)).as_uri()), f"{name} {number}", mean)
            for number in range(self.thresholds.clouds)
        ]
        for store in self.stores:
            (folder / name).mkdir(parents=True, exist_ok=True)
            store.initialise()
        clouds = [Cloud(number, f"c{number}", store) for number, store in enumerate(self.stores)]
        key = OneKey(bytes(32))
        self._engine = Engine(clouds, t, Sealer(key, bytes(32)), TableSealer(key), environment=SYSTEM)
        ends.callback(self._engine.close)
        self._names = Names(bytes(32), bytes(16))
        self._codec = ObjectCodec(self._names, ValueSealer(bytes(32), bytes(16), key), SYSTEM)
        self._signed = SignedCodec(self._codec) if name == "Phalanx" else None
        self._runner = Runner(self._engine.clouds, SYSTEM)

    def _register(self, key: str, size: int) -> Register:
        numbers = range(self.thresholds.clouds)
        order = self._runner.order([*numbers], size)
        names = self._names.of_register("box", key.encode())
        return self._kind(names, order, self.thresholds, self._signed or self._codec)

    def write(self, key: str, value: bytes) -> Version:
        clouds = range(self.thresholds.clouds)
        if self._signed is None:
            draft = self._codec.draft(key, value, b"", 0, self.thresholds.k, clouds)
        else:
            draft = self._signed.draft(key, value, clouds)
        return self._runner.run("write", self._register(key, len(value)).write(draft))

    def read(self, key: str, size: int) -> bytes:
        found = self._runner.run("read", read(self._register(key, size), Part.VALUE))
        assert found is not None
        if self._signed is not None:
            return self._signed.value(found.version, found.parts)
        return self._codec.value(found.version, found.parts)[0]

    @property
    def sent(self) -> int:
        """The bytes that all clouds have sent."""
        return sum(store.sent for store in self.stores)


def timed(work: Callable[[], object]) -> float:
    """How many seconds it takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


Samples = dict[str, list[float]]


def _latencies(root: Path, t: int, samples: int) -> Samples:
    """Seconds of single reads and writes of 256 KiB, by what and system, when t clouds may fail."""
    taken: Samples = {}
    with ExitStack() as ends:
        systems = [System(name, root / f"t{t}", t, ends) for name in _SYSTEMS]
        for number in range(samples + 2):  # the first ones make connections, threads and codes
            for one in systems:
                key, value = f"key-{number}", os.urandom(_SIZE)
                for what, work in (
                    ("write", partial(one.write, key, value)),
                    ("read", partial(one.read, key, _SIZE)),
                ):
                    seconds = timed(work)
                    if number > 1:
                        taken.setdefault(f"{what}, {one.name}", []).append(seconds)
    return taken


def _busy(root: Path, size: int, clients: int, rounds: int, t: int = 1) -> Samples:
    """Seconds that clients that work at the same time took for each operation, likewise; each has a key."""
    taken: Samples = {}
    with ExitStack() as ends, ThreadPoolExecutor(clients) as pool:
        systems = [System(name, root / f"busy-{size}-{clients}-{t}", t, ends) for name in _SYSTEMS]
        for one in systems:
            list(pool.map(lambda n, one=one: one.write(f"key-{n}", os.urandom(size)), range(clients)))
        for _ in range(rounds):
            for one in systems:
                for what in ("write", "read"):

                    def work(n: int, what: str = what, one: System = one) -> list[float]:
                        if what == "read":
                            return [timed(partial(one.read, f"key-{n}", size)) for _ in range(_EACH)]
                        return [timed(partial(one.write, f"key-{n}", os.urandom(size))) for _ in range(_EACH)]

                    for seconds in pool.map(work, range(clients)):
                        taken.setdefault(f"{what}, {one.name}", []).extend(seconds)
    return taken


def _moved(root: Path) -> float:
    """How many bytes a read of 1 MiB moves, per byte of the value."""
    size = 1 << 20
    with ExitStack() as ends:
        system = System(_OURS, root / "moved", 1, ends)
        system.write("key", os.urandom(size))
        system.read("key", size)
        before = system.sent
        system.read("key", size)
        return (system.sent - before) / size


def _medians(samples: Samples) -> dict[str, float]:
    return {name: statistics.median(some) for name, some in samples.items()}


def speed(samples: list[float], clients: int, unit: float) -> float:
    """Of so many clients at the same time, in units per second."""
    return clients / statistics.mean(samples) * unit


def _speed(samples: Samples, name: str, kib: int, clients: int = max(_CLIENTS)) -> float:
    """MB/s."""
    return speed(samples[name], clients, kib * 1024 / 1e6)


def measure(root: Path, samples: int, rounds: int, page: Page, console: Console) -> None:
    """Measure everything."""
    by_t = {t: _latencies(root, t, samples) for t in _FAILURES}
    console.print("[dim]latencies are there[/]")
    by_size = {size: _busy(root, size << 10, max(_CLIENTS), rounds) for size in _SIZES}
    console.print("[dim]sizes are there[/]")
    by_clients = {clients: _busy(root, _SIZE, clients, rounds) for clients in _CLIENTS}
    console.print("[dim]clients are there[/]")
    busy_by_t = {t: _busy(root, _SIZE, max(_CLIENTS), rounds, t) for t in _FAILURES}
    page.sections += [
        Section(
            "One client, 256 KiB: median latency in ms, by how many clouds may fail",
            ["", *(f"t = {t}" for t in _FAILURES)],
            [[name, *(f"{1000 * _medians(by_t[t])[name]:.0f}" for t in _FAILURES)] for name in _NAMES],
        ),
        Section(
            f"{max(_CLIENTS)} clients, 256 KiB: MB/s, by how many clouds may fail",
            ["", *(f"t = {t}" for t in _FAILURES)],
            [
                [name, *(f"{_speed(busy_by_t[t], name, _SIZE >> 10):.1f}" for t in _FAILURES)]
                for name in _NAMES
            ],
        ),
        Section(
            f"{max(_CLIENTS)} clients, t = 1: MB/s, by the size of values in KiB",
            ["", *map(str, _SIZES)],
            [[name, *(f"{_speed(by_size[s], name, s):.1f}" for s in _SIZES)] for name in _NAMES],
        ),
        Section(
            "256 KiB, t = 1: operations per second (mean latency in ms), by clients",
            ["", *map(str, _CLIENTS)],
            [
                [
                    name,
                    *(
                        f"{speed(by_clients[n][name], n, 1):.0f} "
                        f"({1000 * statistics.mean(by_clients[n][name]):.0f})"
                        for n in _CLIENTS
                    ),
                ]
                for name in _NAMES
            ],
        ),
    ]
    page.targets.append(Target("bytes that a read of 1 MiB moves, per byte of the value", 1.4, _moved(root)))
    page.figures = {
        "seconds by t": by_t,
        "seconds by KiB": by_size,
        "seconds by clients": by_clients,
        f"seconds of {max(_CLIENTS)} clients by t": busy_by_t,
    }


def _draw(folder: Path, figures: Mapping[str, Any]) -> list[Path]:
    """As Fig. 2, with what the paper's text states, and the ends of its axes."""
    by_t, by_size, by_clients = (figures[f"seconds by {what}"] for what in ("t", "KiB", "clients"))
    busy_by_t = figures[f"seconds of {max(_CLIENTS)} clients by t"]
    faults = [float(t) for t in _FAILURES]

    def theirs(where: str) -> Mapping[str, list[float]]:
        return points("powerstore", where)

    axes = theirs("6.2, Fig. 2a: ends of its axes, operations per second and ms")
    (left, right), (bottom, top) = axes["operations"], axes["ms"]
    box = Curve(
        "the paper's axes", [left, right, right, left, left], [bottom, bottom, top, top, bottom], True
    )
    latencies = {name: [1000 * _medians(by_t[str(t)])[name] for t in _FAILURES] for name in _NAMES}
    speeds = {name: [_speed(busy_by_t[str(t)], name, _SIZE >> 10) for t in _FAILURES] for name in _NAMES}
    panels = {
        "latency (ms) by operations per second, t = 1, 256 KiB (Fig. 2a)": [
            *(
                Curve(
                    name,
                    [speed(by_clients[str(n)][name], n, 1) for n in _CLIENTS],
                    [1000 * statistics.mean(by_clients[str(n)][name]) for n in _CLIENTS],
                )
                for name in _NAMES
            ),
            box,
        ],
        "MB/s by t, 256 KiB (Fig. 2b)": [
            *(Curve(name, faults, some) for name, some in speeds.items()),
            *(
                Curve(
                    f"the paper, read: {times:g} times {system} here",
                    [1.0],
                    [times * speeds[f"read, {system}"][0]],
                    True,
                )
                for system, [times] in theirs(
                    "6.2, Fig. 2b: peak throughput of reads at t = 1, times the other system's"
                ).items()
            ),
            *_ends(theirs("6.2, Fig. 2b: ends of its axis, MB/s")["MB/s"], faults),
        ],
        "MB/s by KiB, t = 1 (Fig. 2c)": [
            *(
                Curve(name, [float(s) for s in _SIZES], [_speed(by_size[str(s)], name, s) for s in _SIZES])
                for name in _NAMES
            ),
            *(
                Curve(f"the paper, {what}", [1024.0], peak, True)
                for what, peak in theirs("6.2, Fig. 2c: peak MB/s for 1 MB").items()
            ),
        ],
        "latency (ms) by t, 256 KiB (Fig. 2d)": [
            *(Curve(name, faults, some) for name, some in latencies.items()),
            *(
                Curve(
                    f"the paper, {what}: as with t = 1 here",
                    faults,
                    [times * latencies[f"{what}, {_OURS}"][0] for times in [1.0, *rises]],
                    True,
                )
                for what, rises in theirs("6.3, Fig. 2d: latency at t = 2 and 3, times that at t = 1").items()
            ),
            *_ends(theirs("6.3, Fig. 2d: ends of its axis, ms")["ms"][:1], faults),
        ],
    }
    return plot_curves(folder, "registers", panels, legends=True)


def _ends(ends: Sequence[float], x: Sequence[float]) -> list[Curve]:
    return [Curve(f"end of the paper's axis: {end:g}", x, [end] * len(x), True) for end in ends]


_NOTES: Final = [
    "PoWerStore has 3t+1 clouds and PASIS 4t+1; t of them may lie. ABD has 2t+1, the fewest that it works "
    "with, and none of them may lie: this flatters ABD. Phalanx has 3t+1, of which t may lie, and "
    "signs with Ed25519, where the paper has DSA. All seal values and name objects as the product does. "
    "Values do not compress.",
    "The clouds are folders of this machine, and a client is a thread: with many clients this machine's "
    "processors are the limit, not the lines.",
    "Drawn in black is what the paper's text states; of Fig. 2a, 2b and 2d it compares systems "
    "without values, so only the ends of the axes are drawn.",
]


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write registers.json and .md to benchmarks/results."""
    parser = options_of("registers", __doc__, draws=True)
    parser.add_argument("--samples", type=int, default=30, metavar="N", help="of one client")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of many clients")
    options = parser.parse_args(argv)
    if options.draw:
        draw_again("registers", options.results, _draw)
        return
    page = Page(
        "registers",
        notes=[
            *_NOTES,
            f"{options.samples} samples of one client; {options.rounds} rounds of many, with {_EACH} "
            "operations each.",
        ],
    )
    with work_folder("registers") as root:
        measure(root, options.samples, options.rounds, page, terminal())
    publish(page, options.results, _draw)


if __name__ == "__main__":
    main()
