"""`python -m benchmarks.services`: what each place of a container's metadata costs, for the key-value store.

There are four parts; `--only` chooses one:

* *log*: puts of 100 bytes into a container in the log, by clients that are threads of one process, on an open
  volume over three folders; each is on this machine's disk when it returns.
* *link*: two daemons on this machine, each with a network of its own, joined by a cable; how long after the
  begin of a put on one of them the other has seen it. Needs root, for the networks.
* *etcd*: values of 100 kB, with the metadata on this device and in an etcd at the other end of a line, in
  turn; the clouds take their time as in `benchmarks.ycsb`.
* *clients*: 128 threads of one process that write new keys, with values of 100 bytes and 1 kB, to an etcd on
  this machine: as metadata alone (a conditional update, with the value as the key's attributes), the same
  with the threads in four processes, each a device of its own; and as puts of a store over three
  clouds in memory. In turn with etcd's own benchmark tool, if `--tool` names it:
  `go build go.etcd.io/etcd/v3/tools/benchmark`, in a module that requires it.

Writes `services.json` and `services.md`; the part *clients*, which needs the tool, `clients.json`, `.md` and,
with matplotlib, a plot.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.corpus import work_folder
from benchmarks.dispersed import UNCACHED
from benchmarks.pages import Page, Section, draw_again, options_of, publish
from benchmarks.papers import points
from benchmarks.plots import Curve, plot_curves
from benchmarks.replication import devices
from benchmarks.report import significant, terminal
from benchmarks.shaping import Line, ShapedLines
from benchmarks.targets import Target
from benchmarks.ycsb import far_engine
from hybrisfs.api.key_value import IN_LOG, KvCreateRequest, KvPutRequest, KvSessionRequest
from hybrisfs.client import Client
from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.environment import SYSTEM
from hybrisfs.home import Home
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.etcd_client import EtcdClient
from hybrisfs.kv.metadata import Change, Garbage
from hybrisfs.kv.record import KeyMetadata, Place
from hybrisfs.kv.rmds import DeviceMetadata, DeviceStore
from hybrisfs.kv.seal import ValueSealer
from hybrisfs.kv.service import MetadataService
from hybrisfs.kv.service_metadata import ServiceMetadata
from hybrisfs.kv.service_url import NO_ACCESS, ServiceUrl
from hybrisfs.kv.store import KeyValueStore
from sync import OneKey
from tests.dispersal.fakes import Cluster
from tests.kv.etcd_servers import etcd_cluster
from tests.system.device import Device
from tests.volume.device import Device as Opened

__all__ = ["main", "metadata_in", "write_entry"]

_BOX = "box"
_VALUE = bytes(100)
_CLIENTS = (1, 8, 32)
_LINE = 0.010  # seconds one way to the etcd
_RATE = 12.5e6  # bytes per second on it
_SIZE = 100_000
_MANY = 128
_SMALL = (100, 1000)  # bytes
_QUICKER = 10  # times, are updates alone than puts: so many fewer of these are made
_PROCESSES = 4
_TOOL, _METADATA, _PUTS = "etcd's tool", "metadata alone", "puts"
_DEVICES = f"metadata alone, {_PROCESSES} processes"
_WHERE = {_METADATA: "one process", _DEVICES: f"{_PROCESSES} processes that are devices"}


def _log(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    device = Opened(root)
    try:
        values = device.volume.key_values
        values.create_container(_BOX, IN_LOG)
        store = values.of(_BOX)
        numbers = itertools.count()

        def puts(count: int) -> None:
            for _ in range(count):
                store.put(_BOX, f"key-{next(numbers)}", _VALUE)

        puts(50)
        speeds: dict[int, list[float]] = {clients: [] for clients in _CLIENTS}
        for _, clients in itertools.product(range(options.rounds), _CLIENTS):
            each = max(10, options.puts // clients)
            with ThreadPoolExecutor(clients) as pool:
                begun = time.perf_counter()
                list(pool.map(puts, [each] * clients))
                speeds[clients].append(each * clients / (time.perf_counter() - begun))
            console.print(f"[dim]log, {clients} clients: {speeds[clients][-1]:.0f} puts/s[/]")
    finally:
        device.close()
    medians = {clients: statistics.median(some) for clients, some in speeds.items()}
    page.sections.append(
        Section(
            "Puts of 100 bytes in the log",
            ["clients", "puts/s, median", "lowest", "highest"],
            [
                [str(clients), significant(medians[clients]), significant(min(some)), significant(max(some))]
                for clients, some in speeds.items()
            ],
        )
    )
    page.targets.append(
        Target("puts/s in the log from one machine", 1000, max(medians.values()), at_least=True)
    )
    page.figures = {**page.figures, "log": {str(clients): some for clients, some in speeds.items()}}


def _link(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    value = root / "value"
    value.write_bytes(_VALUE)
    returned, seen = [], []
    with ExitStack() as ends:
        _, one, other = ends.enter_context(devices(root / "devices"))
        here, there = (ends.enter_context(_connected(device)) for device in (one, other))
        here.call(KvCreateRequest(one.volume, _BOX, IN_LOG))
        for number in range(options.samples):
            begun = time.perf_counter()
            here.call(KvPutRequest(one.volume, _BOX, f"key-{number}", str(value)))
            returned.append(time.perf_counter() - begun)
            session = here.call(KvSessionRequest(one.volume)).session
            there.call(KvSessionRequest(other.volume, session))
            seen.append(time.perf_counter() - begun)
            time.sleep(0.2)
    console.print(f"[dim]link: {1000 * statistics.median(seen):.1f} ms[/]")
    page.sections.append(
        Section(
            "A put in the log, over a link",
            ["from the begin of the put until", "median, ms", "95 %, ms", "worst, ms"],
            [
                ["it returns", *_times(returned)],
                ["the other device has seen it", *_times(seen)],
            ],
        )
    )
    page.targets.append(
        Target("another device sees a put over a link, median, ms", 50, 1000 * statistics.median(seen))
    )
    page.figures = {**page.figures, "link": {"returned": returned, "seen": seen}}


def _connected(device: Device) -> Client:
    return Client.connect(Home.below(device.home), start=False)


def _times(seconds: list[float]) -> list[str]:
    figures = statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1], max(seconds)
    return [significant(1000 * one) for one in figures]


def _etcd(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    taken: dict[str, list[float]] = {
        f"{what}, {where}": [] for what in ("put", "get") for where in ("device", "etcd")
    }
    trips: list[float] = []
    with ExitStack() as ends:
        cluster = ends.enter_context(etcd_cluster(root / "etcd"))
        lines = ends.enter_context(ShapedLines([Line(cluster.nodes[0].port, _LINE, _RATE)]))
        client = EtcdClient(ServiceUrl.parse(f"etcd://127.0.0.1:{lines.ports[0]}"), NO_ACCESS, 10.0, SYSTEM)
        engine = ends.enter_context(far_engine(root))
        stores = {"device": _on_device(root, engine), "etcd": _in_etcd(root, engine, client)}
        for store in stores.values():
            ends.callback(store.close)
            store.create_container(_BOX)
            store.put(_BOX, "first", b"")
            store.get(_BOX, "first")
        for number in range(options.samples):
            for where, store in stores.items():
                key, value = f"key-{number}", os.urandom(_SIZE)
                taken[f"put, {where}"].append(_timed(partial(store.put, _BOX, key, value)))
                taken[f"get, {where}"].append(_timed(partial(store.get, _BOX, key)))
            trips.append(_timed(partial(client.get, b"s")))
    page.sections.append(
        Section(
            "Values of 100 kB",
            ["", "median, ms", "95 %, ms", "worst, ms"],
            [[name, *_times(some)] for name, some in (*taken.items(), ("request to the etcd alone", trips))],
        )
    )
    medians = {name: statistics.median(some) for name, some in taken.items()}
    for what, limit in (("put", 1.15), ("get", 1.10)):
        ratio = medians[f"{what}, etcd"] / (medians[f"{what}, device"] + 2 * _LINE)
        page.targets.append(Target(f"{what} with etcd, of that with device and a round trip", limit, ratio))
        console.print(f"[dim]etcd, {what}: {ratio:.2f}[/]")
    page.figures = {**page.figures, "etcd": {**taken, "request": trips}}


def _on_device(root: Path, engine: Engine) -> KeyValueStore:
    path = root / "kv.db"
    MetadataDatabase.create(path, os.urandom(16))
    return DeviceStore(path, engine.values, bytes(32), Redundancy(1, 1), environment=UNCACHED)


def _in_etcd(root: Path, engine: Engine, client: EtcdClient) -> KeyValueStore:
    metadata = metadata_in(root, client, 0)
    sealer = ValueSealer(bytes(32), metadata.store_id, OneKey(bytes(32)))
    return KeyValueStore(metadata, engine.values, sealer, Redundancy(1, 1), environment=UNCACHED)


def metadata_in(root: Path, client: MetadataService, device: int) -> ServiceMetadata:
    """What a device has to do with the metadata in a service. *root*: for its debts."""
    path = root / f"debts-{device}.db"
    MetadataDatabase.create(path, bytes(16))
    return ServiceMetadata(client, DeviceMetadata(path, SYSTEM), device.to_bytes(16, "big"), SYSTEM)


def write_entry(metadata: ServiceMetadata, place: Place, value: bytes) -> None:
    """What a put of a store does to the metadata; the clouds have no part in it."""
    write = metadata.new_write()
    metadata.intend([Garbage(write, 1)])
    entry = KeyMetadata(0, write, 100, 129, 1, (0, 1), (bytes(16),), attributes=value)
    metadata.update([Change(place, entry)])
    metadata.ended([write])


def _clients(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    speeds: dict[tuple[str, int], list[float]] = {}
    ways = [*([] if options.tool is None else [_TOOL]), _METADATA, _DEVICES, _PUTS]
    keys, devices, loads = itertools.count(), itertools.count(1, _PROCESSES), list[float]()
    with ExitStack() as ends:
        cluster = ends.enter_context(etcd_cluster(root / "etcd"))
        client = EtcdClient(ServiceUrl.parse(cluster.url), NO_ACCESS, 10.0, SYSTEM)
        store = _in_etcd(root, ends.enter_context(Cluster(1, 1, 3)).engine, client)
        ends.callback(store.close)
        store.create_container(_BOX)
        metadata = store.metadata
        assert isinstance(metadata, ServiceMetadata)
        place = metadata.container(_BOX)

        def update(value: bytes) -> None:
            write_entry(metadata, (place, b"key-%d" % next(keys)), value)

        def put(value: bytes) -> None:
            store.put(_BOX, f"key-{next(keys)}", value)

        for _, size, way in itertools.product(range(options.rounds), _SMALL, ways):
            loads.append(os.getloadavg()[0])
            if way == _TOOL:
                speed = _asked_tool(options, cluster.nodes[0].port, size)
            elif way == _DEVICES:
                speed = _by_devices(root, cluster.url, next(devices), bytes(size), options.writes)
            else:
                is_put = way == _PUTS
                total = options.writes // _QUICKER if is_put else options.writes
                speed = _together(put if is_put else update, bytes(size), total)
            speeds.setdefault((way, size), []).append(speed)
            console.print(f"[dim]clients, {way}, {size} bytes: {speed:.0f}/s[/]")
    medians = {key: statistics.median(some) for key, some in speeds.items()}
    page.sections.append(
        Section(
            f"Writes by {_MANY} clients to an etcd on this machine",
            ["", "bytes", "a second, median", "lowest", "highest", "of the tool"],
            [
                [
                    way,
                    str(size),
                    *map(significant, (medians[way, size], min(some), max(some))),
                    significant(medians[way, size] / medians[_TOOL, size]) if _TOOL in ways else "unknown",
                ]
                for (way, size), some in speeds.items()
            ],
        )
    )
    if _TOOL in ways:
        for (way, where), size in itertools.product(_WHERE.items(), _SMALL):
            label = f"updates of {size} bytes by {_MANY} clients in {where}, of what etcd's tool puts"
            ratio = medians[way, size] / medians[_TOOL, size]
            page.targets.append(Target(label, 0.5, ratio, at_least=True))
    else:
        console.print("The part clients has no etcd tool to compare with: --tool names it.")
    page.figures = {
        **page.figures,
        "clients": {f"{way}, {size} bytes": some for (way, size), some in speeds.items()} | {"loads": loads},
    }


def _asked_tool(options: argparse.Namespace, port: int, size: int) -> float:
    """Puts per second by etcd's own benchmark."""
    command = [
        *(str(options.tool), "--endpoints", f"127.0.0.1:{port}", "--conns", "16", "--clients", str(_MANY)),
        *("put", "--key-size", "32", "--sequential-keys", "--total", str(options.writes)),
        *("--val-size", str(size)),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"Requests/sec:\s*([0-9.]+)", done.stdout)
    if found is None:
        raise SystemExit(f"{options.tool} does not say how many requests it made a second")
    return float(found[1])


def _together(write: Callable[[bytes], None], value: bytes, total: int, threads: int = _MANY) -> float:
    """Writes per second by many threads."""
    each = max(1, total // threads)

    def client(_: int) -> None:
        for _ in range(each):
            write(value)

    with ThreadPoolExecutor(threads) as pool:
        begun = time.perf_counter()
        list(pool.map(client, range(threads)))
        return each * threads / (time.perf_counter() - begun)


def _by_devices(root: Path, url: str, first: int, value: bytes, total: int) -> float:
    """Updates per second by as many threads in several processes, which are devices from *first* on."""
    context = get_context("spawn")
    start = context.Barrier(_PROCESSES)
    spans: SimpleQueue[tuple[float, float]] = context.SimpleQueue()
    workers = [
        context.Process(target=_device, args=(root, url, first + number, value, total, start, spans))
        for number in range(_PROCESSES)
    ]
    for worker in workers:
        worker.start()
    times = [spans.get() for _ in workers]
    for worker in workers:
        worker.join()
    return total / (max(end for _, end in times) - min(begin for begin, _ in times))


def _device(
    root: Path,
    url: str,
    device: int,
    value: bytes,
    total: int,
    start: Barrier,
    spans: SimpleQueue[tuple[float, float]],
) -> None:
    """One of these processes: its share of the updates."""
    client = EtcdClient(ServiceUrl.parse(url), NO_ACCESS, 10.0, SYSTEM)
    metadata, keys = metadata_in(root, client, device), itertools.count()
    place = metadata.container(_BOX)
    metadata.new_write()  # it is announced, and has numbers
    start.wait()
    begun = time.monotonic()
    _together(
        lambda value: write_entry(metadata, (place, b"key-%d-%d" % (device, next(keys))), value),
        value,
        total // _PROCESSES,
        _MANY // _PROCESSES,
    )
    spans.put((begun, time.monotonic()))
    metadata.close()


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


_MEASURES: dict[str, Callable[[Path, argparse.Namespace, Page, Console], None]] = {
    "log": _log,
    "link": _link,
    "etcd": _etcd,
    "clients": _clients,
}

_NOTES = {
    "log": "In the log: f=1, k=1, three folders as clouds; every client puts new keys, one after the other.",
    "link": "Over a link: the other device waits for the session that the first one has after the put.",
    "etcd": "With etcd: one node, without fsync, behind a line of 20 ms round trip; the clouds answer after "
    "20, 35 and 50 ms and transfer 100 Mbit/s per request. One client; the two stores take turns, without a "
    "cache.",
    "clients": "Clients are threads of one process, or of four where it says so; one etcd without fsync; all "
    "on this machine. The tool of etcd puts one key each time; an update puts two keys and compares four, a "
    "put looks at two before it. Hybris 5.3 has processes that emulate clients, on machines of their own.",
}


def _draw(folder: Path, figures: Mapping[str, Any]) -> list[Path]:
    """Writes by many clients, with those of the paper's, which write 100 bytes."""
    medians = {
        tuple(name.rsplit(", ", 1)): statistics.median(some)
        for name, some in figures["clients"].items()
        if name != "loads"
    }
    ways = dict.fromkeys(way for way, _ in medians)
    curves = [
        Curve(
            f"here, {way}",
            [float(size) for size in _SMALL],
            [medians[way, f"{size} bytes"] for size in _SMALL],
        )
        for way in ways
    ]
    curves += [
        Curve(f"the paper, {name}", [100.0], most, stated=True)
        for name, most in points("hybris", "5.3, Fig. 7b: writes per second at most").items()
    ]
    title = f"writes per second by {_MANY} clients, by bytes (the paper: at most)"
    return plot_curves(folder, "clients", {title: curves}, legends=True, logarithmic="xy")


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write the results to benchmarks/results."""
    parser = options_of("services", __doc__, draws=True)
    parser.add_argument("--only", action="append", choices=[*_MEASURES], help="a part; may be given again")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="in the log, and by 128 clients")
    parser.add_argument("--puts", type=int, default=2000, metavar="N", help="of these, for each round")
    parser.add_argument(
        "--writes", type=int, default=20_000, metavar="N", help="by many clients, in each round"
    )
    parser.add_argument("--tool", type=Path, metavar="FILE", help="etcd's own benchmark, for clients")
    parser.add_argument("--samples", type=int, default=50, metavar="N", help="over the link, and with etcd")
    options = parser.parse_args(argv)
    if options.draw:
        draw_again("clients", options.results, _draw)
        return
    parts = options.only or [*_MEASURES]
    if "link" in parts and os.geteuid() != 0:
        raise SystemExit("the part link must run as root: only root can make networks")
    pages = {
        page: [part for part in parts if (part == "clients") == (page == "clients")]
        for page in ("services", "clients")
    }
    with work_folder("services") as root:
        for name, some in pages.items():
            if some:
                page = Page(name, notes=[_NOTES[part] for part in some])
                for part in some:
                    (root / part).mkdir()
                    _MEASURES[part](root / part, options, page, terminal())
                publish(page, options.results, _draw if name == "clients" else None)


if __name__ == "__main__":
    main()
