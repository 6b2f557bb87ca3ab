"""Reads of metadata by other processes than the one that has them in memory."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.services import metadata_in, write_entry
from hybrisfs.api.key_value import KvCreateRequest, KvPutRequest, KvStatRequest
from hybrisfs.client import Client
from hybrisfs.home import Home
from tests.kv.services import client_of, service_cluster
from tests.system.device import Device

__all__ = ["APART_CLIENTS", "MOST_PROCESSES", "Apart", "read_apart"]

APART_CLIENTS: Final = (1, 4, 16, 64, 128)
"""Threads in all, in as many processes or in `MOST_PROCESSES`."""
MOST_PROCESSES: Final = 4
_BOX: Final = "box"
_KEYS: Final = 100
_VALUE: Final = bytes(100)
_MEMBERS: Final = 3
_TIMEOUT: Final = 30.0
_DAEMON: Final = "processes of this machine that ask its daemon"
_SERVICES: Final = {
    "machines that ask an etcd of three members": "etcd",
    "machines that ask a ZooKeeper of three servers": "zookeeper",
}

_Ask = Callable[[str], object]
"""Reads the metadata of a key."""


@dataclass(frozen=True)
class Apart:
    """Reads by so many clients in other processes."""

    way: str
    clients: int
    per_second: float
    mean_ms: float
    median_ms: float


@dataclass(frozen=True)
class _Place:
    """Whom the processes ask: the daemon of a home, or the members of a service at these URLs."""

    root: Path
    volume: str = ""
    urls: tuple[str, ...] = ()


def _key(number: int) -> str:
    return f"key-{number}"


@contextmanager
def _asking(place: _Place, number: int) -> Iterator[Callable[[], _Ask]]:
    """What gives each thread of a process a way to ask."""
    if place.urls:
        client = client_of(place.urls[number % len(place.urls)], "", _TIMEOUT)
        metadata = metadata_in(place.root, client, number)
        box = metadata.container(_BOX)
        yield lambda: lambda key: metadata.read((box, key.encode()))
        metadata.close()
        return
    with ExitStack() as ends:

        def connected() -> _Ask:
            client = ends.enter_context(Client.connect(Home.below(place.root), start=False))
            return lambda key: client.call(KvStatRequest(place.volume, _BOX, key))

        yield connected


def _process(
    place: _Place,
    number: int,
    threads: int,
    seconds: float,
    start: Barrier,
    results: SimpleQueue[list[float]],
) -> None:
    """One process, device *number*: each thread reads one key after the other."""
    with _asking(place, number) as connect, ThreadPoolExecutor(threads) as pool:

        def work(thread: int, ask: _Ask) -> list[float]:
            chance, taken = random.Random(f"{number} {thread}"), list[float]()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                key, begun = _key(chance.randrange(_KEYS)), time.monotonic()
                if ask(key) is None:
                    raise RuntimeError("a key is missing")
                taken.append(time.monotonic() - begun)
            return taken

        asks = [connect() for _ in range(threads)]
        for ask in asks:
            ask(_key(0))
        start.wait()
        results.put([one for some in pool.map(work, range(threads), asks) for one in some])


def _read(place: _Place, way: str, clients: int, seconds: float) -> Apart:
    context = get_context("spawn")
    processes = min(clients, MOST_PROCESSES)
    start = context.Barrier(processes)
    results: SimpleQueue[list[float]] = context.SimpleQueue()
    workers = [
        context.Process(target=_process, args=(place, number, clients // processes, seconds, start, results))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    taken = [one for _ in workers for one in results.get()]
    for worker in workers:
        worker.join()
    mean = statistics.mean(taken)
    return Apart(way, clients, clients / mean, 1000 * mean, 1000 * statistics.median(taken))


@contextmanager
def _daemon(root: Path) -> Iterator[_Place]:
    value = root / "value"
    value.write_bytes(_VALUE)
    with Device(root / "device") as device:
        device.create(3, f=1, k=1).mount()
        with Client.connect(Home.below(device.home), start=False) as client:
            client.call(KvCreateRequest(device.volume, _BOX))
            for number in range(_KEYS):
                client.call(KvPutRequest(device.volume, _BOX, _key(number), str(value)))
        yield _Place(device.home, device.volume)


@contextmanager
def _service(root: Path, service: str) -> Iterator[_Place]:
    with service_cluster(service, root / "servers", _MEMBERS) as servers:
        metadata = metadata_in(root, client_of(servers.url, "", _TIMEOUT), 0)
        metadata.create_container(_BOX)
        box = metadata.container(_BOX)
        for number in range(_KEYS):
            write_entry(metadata, (box, _key(number).encode()), _VALUE)
        metadata.close()
        scheme = servers.url.partition("://")[0]
        yield _Place(root, urls=tuple(f"{scheme}://127.0.0.1:{node.port}" for node in servers.nodes))


def read_apart(root: Path, seconds: float, console: Console) -> Sequence[Apart]:
    """All ways, by clients."""
    found: list[Apart] = []
    for way in (_DAEMON, *_SERVICES):
        (folder := root / str(len(found))).mkdir()
        place = _daemon(folder) if way == _DAEMON else _service(folder, _SERVICES[way])
        with place as asked:
            for clients in APART_CLIENTS:
                found.append(_read(asked, way, clients, seconds))
                console.print(f"[dim]{way}, {clients}: {found[-1].per_second:.0f}/s[/]")
    return found
