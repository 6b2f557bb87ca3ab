"""`python -m benchmarks.metadata`: how many operations per second the metadata store takes (Hybris 5.3).

Clients are threads of one process. Writes are conditional updates, each durable when it returns; what a write
replaces is queued for deletion in the same transaction. Both are measured with every client on the same key,
and on keys of its own. Such reads come from the memory of the process; beside them are reads by other
processes, which ask the daemon, or a service as a device of their own, see `benchmarks.metadata_apart`.

Writes `metadata.json`, `metadata.md` and, with matplotlib, a plot as Fig. 7a.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.corpus import work_folder
from benchmarks.metadata_apart import APART_CLIENTS, MOST_PROCESSES, Apart, read_apart
from benchmarks.pages import Page, Section, draw_again, options_of, publish
from benchmarks.papers import points
from benchmarks.plots import Curve, plot_curves
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from hybrisfs.environment import SYSTEM
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.metadata import Change
from hybrisfs.kv.record import KeyMetadata, Place
from hybrisfs.kv.rmds import DeviceMetadata

_CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128)
_KEYS_PER_CLIENT = 100
_READS_AT_ONCE = 64  # between two looks at the clock
_KEY_SIZE = 24
_SIZED_KEYS = 100_000
_PAPER: Final = "5.3, Fig. 7a: reads per second at most, ms"


@dataclass(frozen=True)
class Figures:
    """Operations per second of so many clients, all on one key or each on its own."""

    clients: int
    hot_writes: float
    cold_writes: float
    hot_reads: float
    cold_reads: float


def _entry(sn: int, write: int) -> KeyMetadata:
    return KeyMetadata(sn, write, 1 << 20, (1 << 20) + 29, 1, (0, 2), (bytes(16),))


@contextmanager
def _opened(folder: Path) -> Iterator[DeviceMetadata]:
    path = folder / "kv.db"
    MetadataDatabase.create(path, bytes(16))
    store = DeviceMetadata(path, SYSTEM)
    store.create_container("box")
    try:
        yield store
    finally:
        store.close()


def _rate(clients: int, seconds: float, work: Callable[[int, Callable[[], bool]], int]) -> float:
    """Operations per second that `work(client, is_over)` reports, of all clients side by side."""
    gate = threading.Barrier(clients + 1)
    over = threading.Event()
    done = [0] * clients
    begun = [0.0] * clients

    def client(number: int) -> None:
        gate.wait()
        begun[number] = time.perf_counter()
        done[number] = work(number, over.is_set)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    gate.wait()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - min(begun))


def _write(store: DeviceMetadata, places: list[Place], is_over: Callable[[], bool]) -> int:
    count = 0
    while not is_over():
        place = places[count % len(places)]
        old = store.read(place)
        store.update([Change(place, _entry(old.sn + 1 if old else 1, store.new_write()))])
        count += 1
    return count


def _read(store: DeviceMetadata, places: list[Place], is_over: Callable[[], bool]) -> int:
    count = 0
    while not is_over():
        for _ in range(_READS_AT_ONCE):
            if store.read(places[count % len(places)]) is None:
                raise RuntimeError("a key is missing")
            count += 1
    return count


def measure(folder: Path, clients: int, seconds: float) -> Figures:
    """All four figures, in a fresh store."""
    with _opened(folder) as store:
        box = store.container("box")
        hot = [(box, b"hot")]
        own = [
            [(box, b"%08d/%08d" % (client, key)) for key in range(_KEYS_PER_CLIENT)]
            for client in range(clients)
        ]
        places = hot + [place for some in own for place in some]
        store.update([Change(place, _entry(1, store.new_write())) for place in places])
        return Figures(
            clients,
            hot_writes=_rate(clients, seconds, lambda _, is_over: _write(store, hot, is_over)),
            cold_writes=_rate(clients, seconds, lambda one, is_over: _write(store, own[one], is_over)),
            hot_reads=_rate(clients, seconds, lambda _, is_over: _read(store, hot, is_over)),
            cold_reads=_rate(clients, seconds, lambda one, is_over: _read(store, own[one], is_over)),
        )


def bytes_per_key(folder: Path, keys: int) -> float:
    """What a key takes in the database beyond its own bytes; the keys come in random order."""
    draw = random.Random(1)
    chosen = [b"%0*x" % (_KEY_SIZE, draw.getrandbits(90)) for _ in range(keys)]
    with _opened(folder) as store:
        box = store.container("box")
        for start in range(0, keys, 1000):
            some = chosen[start : start + 1000]
            store.update([Change((box, key), _entry(1, store.new_write())) for key in some])
    return (folder / "kv.db").stat().st_size / keys - _KEY_SIZE


def targets(figures: list[Figures], size: float) -> list[Target]:
    """The targets for the metadata store: of the number of clients that serves it best."""
    writes = max(min(one.hot_writes, one.cold_writes) for one in figures)
    reads = max(min(one.hot_reads, one.cold_reads) for one in figures)
    most = figures[-1]
    return [
        Target("conditional writes/s, hot and cold", 20_000, writes, at_least=True),
        Target("reads/s, hot and cold", 100_000, reads, at_least=True),
        Target(
            f"writes to a hot key, against cold keys, {most.clients} clients",
            0.7,
            most.hot_writes / most.cold_writes,
            at_least=True,
        ),
        Target("metadata per key beyond the key, bytes", 60, size),
    ]


def _page(figures: list[Figures], size: float, apart: Sequence[Apart]) -> Page:
    page = Page("metadata", targets=targets(figures, size))
    page.sections.append(
        Section(
            "Operations per second, by threads of one process, which has the metadata in its memory",
            [
                "clients",
                "writes/s, one key",
                "writes/s, own keys",
                "reads/s, one key",
                "reads/s, own keys",
            ],
            [
                [
                    str(one.clients),
                    *map(significant, (one.hot_writes, one.cold_writes, one.hot_reads, one.cold_reads)),
                ]
                for one in figures
            ],
        )
    )
    by_way = {
        way: [one for one in apart if one.way == way] for way in dict.fromkeys(one.way for one in apart)
    }
    if by_way:
        most, ms = points("hybris", _PAPER)["ZooKeeper"]
        page.sections.append(
            Section(
                f"Reads by up to {MOST_PROCESSES} other processes: per second (mean "
                "latency in ms), by clients",
                ["", *map(str, APART_CLIENTS)],
                [
                    *(
                        [way, *(f"{significant(one.per_second)} ({one.mean_ms:.2f})" for one in some)]
                        for way, some in by_way.items()
                    ),
                    [
                        "the paper: ZooKeeper on three machines, some 2,000 clients on others",
                        *[""] * (len(APART_CLIENTS) - 1),
                        f"{significant(most)} ({ms:g} at most)",
                    ],
                ],
            )
        )
        for way, some in by_way.items():
            best = max(one.per_second for one in some)
            page.targets.append(Target(f"reads/s, {way}: the paper's", most, best, at_least=True))
    page.notes = [
        "Threads of one process: each write is durable when it returns. **Reads are function calls**: the "
        "process has the entries in its memory, and no network or other process has a part in them. So they "
        "compare with nothing of the paper's, whose clients ask servers over a network.",
        "Other processes: what a read costs those who do not have the memory. To ask the daemon is `kv stat` "
        "over its socket, as a command or a program of the same machine does; the metadata are on this "
        "device. Of machines that ask a service, each process is a device of its own and reads linearizably "
        "from a member of three, as its daemon would; threads that ask at the same time share requests. "
        "**All on this machine**: servers and clients share its processors, where the paper had a machine "
        "for each server and others for clients. Neither service waits for a disk to answer a read.",
    ]
    page.figures = {
        "figures": [asdict(one) for one in figures],
        "bytes_per_key": size,
        "apart": [asdict(one) for one in apart],
    }
    return page


def _draw(folder: Path, figures: Mapping[str, Any]) -> list[Path]:
    """Fig. 7a: latency by throughput."""
    apart = [Apart(**one) for one in figures["apart"]]
    curves = []
    for way in dict.fromkeys(one.way for one in apart):
        some = [one for one in apart if one.way == way]
        curves.append(Curve(f"here, {way}", [one.per_second for one in some], [one.mean_ms for one in some]))
    for name, (most, ms) in points("hybris", _PAPER).items():
        curves.append(Curve(f"the paper, {name}, at most", [most], [ms], stated=True))
    title = "mean latency (ms) by reads per second by other processes (Fig. 7a)"
    return plot_curves(folder, "metadata", {title: curves}, legends=True, logarithmic="xy")


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write metadata.json, .md and a plot to benchmarks/results."""
    parser = options_of("metadata", __doc__, draws=True)
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="for each figure")
    options = parser.parse_args(argv)
    if options.draw:
        draw_again("metadata", options.results, _draw)
        return
    with work_folder("metadata") as root:
        figures = []
        for clients in _CLIENTS:
            (folder := root / str(clients)).mkdir()
            figures.append(measure(folder, clients, options.seconds))
        (folder := root / "size").mkdir()
        size = bytes_per_key(folder, _SIZED_KEYS)
        (folder := root / "apart").mkdir()
        apart = read_apart(folder, options.seconds, terminal())
    publish(_page(figures, size, apart), options.results, _draw)


if __name__ == "__main__":
    main()
