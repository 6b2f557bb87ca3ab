"""`python -m benchmarks.metadata`: how many operations per second the metadata store takes (Hybris 5.3).

Clients are threads of one process. Writes are conditional updates, each durable when it returns; what a write
replaces is queued for deletion in the same transaction. Both are measured with every client on the same key,
and on keys of its own. Writes `metadata.json` and `metadata.md`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.corpus import cache_directory
from benchmarks.report import RESULTS, machine, significant, terminal
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


_HEADINGS = ["clients", "writes/s, one key", "writes/s, own keys", "reads/s, one key", "reads/s, own keys"]


def _row(one: Figures) -> list[str]:
    return [
        str(one.clients),
        *map(significant, (one.hot_writes, one.cold_writes, one.hot_reads, one.cold_reads)),
    ]


def report(figures: list[Figures], size: float, folder: Path, console: Console) -> None:
    """Print the tables; write metadata.json and metadata.md."""
    table = Table(*_HEADINGS)
    for one in figures:
        table.add_row(*_row(one))
    console.print(table)
    reached = targets(figures, size)
    facts = machine()
    lines = [f"| {' | '.join(_HEADINGS)} |", "| ---: | ---: | ---: | ---: | ---: |"]
    lines += [f"| {' | '.join(_row(one))} |" for one in figures]
    lines += ["", "| target | limit | measured | |", "| --- | ---: | ---: | ---: |"]
    for target in reached:
        sign, verdict = (">=" if target.at_least else "<="), ("pass" if target.met else "miss")
        measured, limit = significant(target.measured), f"{sign} {significant(target.limit)}"
        console.print(f"{verdict}: {target.label}: {measured} ({limit})")
        lines.append(f"| {target.label} | {limit} | {measured} | {verdict} |")
    lines += [
        "",
        f"Threads of one process on {facts['cpus']} cores, Linux {facts['kernel']}, "
        f"Python {facts['python']}, load {facts['load_average']}, {facts['date']}. "
        "Each write is durable when it returns.",
        "",
    ]
    folder.mkdir(exist_ok=True)
    record = {
        "machine": facts,
        "figures": [asdict(one) for one in figures],
        "bytes_per_key": size,
        "targets": [{**asdict(target), "met": target.met} for target in reached],
    }
    (folder / "metadata.json").write_text(json.dumps(record, indent=1) + "\n")
    (folder / "metadata.md").write_text("\n".join(lines))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metadata", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="for each figure")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, metavar="DIR", help="where results are written"
    )
    options = parser.parse_args(argv)
    cache_directory().mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="work-metadata-", dir=cache_directory()))
    try:
        figures = []
        for clients in _CLIENTS:
            (folder := root / str(clients)).mkdir()
            figures.append(measure(folder, clients, options.seconds))
        (folder := root / "size").mkdir()
        report(figures, bytes_per_key(folder, _SIZED_KEYS), options.output, terminal())
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
