"""`python -m benchmarks.papers.geo`: metadata servers in data centers far from each other (Hybris 5.4).

Three members of an etcd, first beside each other, then with 70, 80 and 150 ms of round trip between them, as
far as San Jose, Washington and London are. Beside each member is a process with clients, which are threads.
As in the paper, what counts is metadata: no cloud has a part in it.

* *read*: a linearizable read of one key, for which etcd has its leader ask a quorum whether it leads still.
  It stands for the paper's `sync` + read.
* *quorum read*: the same after a small write, which a quorum has to take, as the paper made ZooKeeper's.
* *write*: what a put does to the metadata, each client to keys of its own.

Writes `geo.json`, `.md` and, with matplotlib, a plot of latency by throughput.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import to_builtins
from rich.console import Console

from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, draw_again, options_of, publish
from benchmarks.papers import points
from benchmarks.plots import Curve, plot_curves
from benchmarks.report import significant, terminal
from benchmarks.services import metadata_in, write_entry
from benchmarks.shaping import Line, ShapedLines
from hybrisfs.environment import SYSTEM
from hybrisfs.kv.etcd_client import EtcdClient
from hybrisfs.kv.service import Put
from hybrisfs.kv.service_url import NO_ACCESS, ServiceUrl
from tests.kv.etcd_servers import etcd_cluster

_SITES: Final = ("San Jose", "Washington", "London")
_WAY: Final = (0.070, 0.0, 0.080)
"""Seconds on the line to each member, one way. A message and its answer pass one line each, so that a round
trip takes 70, 80 and 150 ms."""
_RATE: Final = 12.5e6  # bytes per second, as in the paper
_HEARTBEAT: Final = 150  # ms
_CLIENTS: Final = (1, 16, 64, 256, 512)  # at each site
_VALUE: Final = bytes(100)
_TIMEOUT: Final = 60.0
_LOCAL, _FAR = "local", "far"
_PAPER: Final = points("hybris", "5.4, Fig. 9: clients at the most, local throughput divided by")
_FALLS: Final = {what: falls for what, (_, falls) in _PAPER.items()}
_WORK: Final = ("read", "quorum read", "write")


class _Task(NamedTuple):
    """What the clients of all sites do."""

    what: str
    clients: int
    seconds: float


class _Done(NamedTuple):
    """Of one task: the throughput of all sites, and the mean latency."""

    per_second: float
    mean_ms: float
    median_ms: float


def _site(
    root: Path,
    url: str,
    number: int,
    tasks: Sequence[_Task],
    start: Barrier,
    results: SimpleQueue[tuple[int, list[float]]],
) -> None:
    """The process of one site: all tasks, one after the other, at the same time as the other sites."""
    client = EtcdClient(ServiceUrl.parse(url), NO_ACCESS, _TIMEOUT, SYSTEM)
    metadata = metadata_in(root, client, 1 + number)
    place = metadata.container("box")
    dummy = b"dummy/%d/" % number
    metadata.new_write()  # it is announced, and has numbers
    for position, task in enumerate(tasks):

        def once(thread: int, count: int, what: str = task.what) -> None:
            if what == "write":
                write_entry(metadata, (place, b"%d-%d-%d" % (number, thread, count % 100)), _VALUE)
                return
            if what == "quorum read":
                client.transact((), (Put(dummy + b"%d" % thread, b""),))
            metadata.read((place, b"hot"))

        def work(thread: int, task: _Task = task, once: Callable[[int, int], None] = once) -> list[float]:
            taken: list[float] = []
            until = time.monotonic() + task.seconds
            while time.monotonic() < until:
                begun = time.monotonic()
                once(thread, len(taken))
                taken.append(time.monotonic() - begun)
            return taken

        start.wait()
        with ThreadPoolExecutor(task.clients) as pool:
            found = [one for some in pool.map(work, range(task.clients)) for one in some]
        results.put((position, found))
    start.wait()
    metadata.close()


@contextmanager
def _cluster(root: Path, where: str) -> Iterator[list[str]]:
    """The URL of the member at each site."""
    with ExitStack() as ends:

        def reach(ports: Sequence[int]) -> Sequence[int]:
            lines = [Line(port, way, _RATE) for port, way in zip(ports, _WAY, strict=True)]
            return ends.enter_context(ShapedLines(lines)).ports

        cluster = ends.enter_context(
            etcd_cluster(root, len(_SITES), reach=reach, heartbeat=_HEARTBEAT)
            if where == _FAR
            else etcd_cluster(root, len(_SITES))
        )
        yield [f"etcd://127.0.0.1:{node.port}" for node in cluster.nodes]


def _measure(root: Path, where: str, tasks: Sequence[_Task], console: Console) -> dict[_Task, _Done]:
    context = get_context("spawn")
    done: dict[_Task, _Done] = {}
    root.mkdir()
    with _cluster(root / "etcd", where) as urls:
        metadata = metadata_in(root, EtcdClient(ServiceUrl.parse(urls[1]), NO_ACCESS, _TIMEOUT, SYSTEM), 0)
        metadata.create_container("box")
        write_entry(metadata, (metadata.container("box"), b"hot"), _VALUE)
        metadata.close()
        start = context.Barrier(len(_SITES))
        results: SimpleQueue[tuple[int, list[float]]] = context.SimpleQueue()
        sites = [
            context.Process(target=_site, args=(root, url, number, tasks, start, results))
            for number, url in enumerate(urls)
        ]
        for site in sites:
            site.start()
        collected: dict[int, list[list[float]]] = {}
        for _ in range(len(tasks) * len(sites)):
            position, taken = results.get()
            collected.setdefault(position, []).append(taken)
            if len(collected[position]) == len(sites):
                task, every = tasks[position], [one for some in collected[position] for one in some]
                done[task] = _Done(
                    task.clients * len(sites) / statistics.mean(every),
                    1000 * statistics.mean(every),
                    1000 * statistics.median(every),
                )
                console.print(f"[dim]{where}, {task.what}, {task.clients}: {done[task].per_second:.0f}/s[/]")
        for site in sites:
            site.join()
    return done


def _page(found: dict[str, dict[_Task, _Done]]) -> Page:
    page = Page("geo")
    clients = [str(len(_SITES) * one) for one in _CLIENTS]
    cells: dict[str, Callable[[_Done], str]] = {
        "Operations per second, by clients": lambda one: significant(one.per_second),
        "Mean latency in ms (median), by clients": lambda one: f"{one.mean_ms:.1f} ({one.median_ms:.1f})",
    }
    for title, cell in cells.items():
        rows = [
            [f"{what}, {where}", *(cell(one) for task, one in done.items() if task.what == what)]
            for what in _WORK
            for where, done in found.items()
        ]
        page.sections.append(Section(title, ["", *clients], rows))
    rows = []
    for what in _WORK:
        best = {
            where: max(one.per_second for task, one in done.items() if task.what == what)
            for where, done in found.items()
        }
        few = {
            where: next(one for task, one in done.items() if task.what == what).mean_ms
            for where, done in found.items()
        }
        rows.append(
            [
                what,
                *(significant(best[where]) for where in found),
                f"1/{best[_LOCAL] / best[_FAR]:.1f}",
                f"1/{_FALLS[what]:g}" if what in _FALLS else "",
                f"{few[_FAR] / few[_LOCAL]:.0f}x",
            ]
        )
    page.sections.append(
        Section(
            "What distance costs",
            [
                "",
                "most/s, local",
                "most/s, far",
                "is left",
                "the paper",
                f"latency, {clients[0]} clients",
            ],
            rows,
        )
    )
    page.notes = [
        "Three members of one etcd, without fsync, on this machine. Far: what they send each other is late "
        f"and limited to 100 Mbit/s, so that a round trip takes {_trips()}; heartbeat {_HEARTBEAT} ms. "
        "Clients ask the member at their site, without delay; whichever member leads. Threads of a process "
        "that ask at the same time share requests, as they do in the product: for the servers these are "
        "fewer clients.",
        "Members and clients share the processors of this machine, which limit all local figures and those "
        "with many clients far away: where the paper had a machine for each, distance has less to take away "
        "here. The paper compares its own figures with those of a cluster of faster machines (5.3). It used "
        "ZooKeeper and Consul, and up to 1,600 clients.",
    ]
    page.notes.append(
        "Drawn in black: what the paper's text states of ZooKeeper, local (Fig. 7a, 7b), and what follows "
        "from it for servers far from each other (Fig. 9): a ninth or a sixth of that, and the latency with "
        "which 1,600 clients, waiting for their answers, reach it. The pictures have more points."
    )
    page.figures = {
        "done": [
            {"where": where, **task._asdict(), **to_builtins(one._asdict())}
            for where, done in found.items()
            for task, one in done.items()
        ],
        "paper divides by": _FALLS,
    }
    return page


def _trips() -> str:
    pairs = [(0, 1), (1, 2), (0, 2)]
    return ", ".join(f"{1000 * (_WAY[a] + _WAY[b]):.0f} ms ({_SITES[a]}, {_SITES[b]})" for a, b in pairs)


def _stated(what: str) -> list[Curve]:
    """Of the paper: throughput and latency, which is that of all clients at once where it states none."""
    if what not in _PAPER:
        return []
    clients, falls = _PAPER[what]
    if what == "read":
        most, ms = points("hybris", "5.3, Fig. 7a: reads per second at most, ms")["ZooKeeper"]
        local = [Curve("the paper, local", [most], [ms], stated=True)]
        speeds = [most]
    else:
        named = points("hybris", "5.3, Fig. 7b: writes per second at most")
        speeds = [most for name, [most] in named.items() if name.startswith("ZooKeeper")]
        # It states no latency: a line across all of ours.
        local = [
            Curve(f"the paper, local, {name}", named[name] * 2, [2.0, 1000.0], stated=True)
            for name in named
            if name.startswith("ZooKeeper")
        ]
    far = [most / falls for most in speeds]
    waits = [1000 * clients / one for one in far]
    return [*local, Curve(f"the paper, far, {clients:,.0f} clients", far, waits, stated=True)]


def _draw(folder: Path, figures: Mapping[str, Any]) -> list[Path]:
    panels: dict[str, list[Curve]] = {}
    for what in _WORK:
        curves = []
        for where in (_LOCAL, _FAR):
            done = [one for one in figures["done"] if (one["what"], one["where"]) == (what, where)]
            speeds, waits = ([one[name] for one in done] for name in ("per_second", "mean_ms"))
            curves.append(Curve(f"{where}, {what}", speeds, waits))
        panels[f"mean latency (ms) by {what}s per second"] = curves + _stated(what)
    return plot_curves(folder, "geo", panels, legends=True, logarithmic="xy")


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write geo.json, .md and a plot to benchmarks/results."""
    parser = options_of("papers.geo", __doc__, draws=True)
    parser.add_argument("--seconds", type=float, default=6.0, metavar="S", help="for each figure")
    options = parser.parse_args(argv)
    if options.draw:
        draw_again("geo", options.results, _draw)
        return
    tasks = [_Task(what, clients, options.seconds) for what in _WORK for clients in _CLIENTS]
    with work_folder("geo") as root:
        found = {where: _measure(root / where, where, tasks, terminal()) for where in (_LOCAL, _FAR)}
    publish(_page(found), options.results, _draw)


if __name__ == "__main__":
    main()
