"""`python -m benchmarks.papers.mixes`: Depot's traffic, disks and processors by mixes of puts and gets.

As in the paper (Fig. 6, 7), eight clients and four servers that know each other, two clients at each server;
a client puts new keys, and gets any key. The levels are those of `benchmarks.papers.distrust`. Below *Depot*
the message of a put is kept by its server and the three others, and is the answer to a get. At *Depot* a
client signs an update of our log, which names the value by its hash. Servers accept it, check and keep the
value, and pass both on; each other client gets the update, accepts and keeps it, so that the answer to a get
is the value alone.

All run in one process, by turns. Each has a database on the disk; there is no network. So bytes
are those of the messages, as in the paper, and processor time is that of the work shown here.

Writes `mixes.json`, `.md` and, with matplotlib, plots.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, draw_again, options_of, publish
from benchmarks.papers import points
from benchmarks.papers.distrust import LEVELS, Database, check_message, message_of
from benchmarks.plots import Curve, plot_curves
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from sync.codec import digest
from sync.identity import DeviceKey, Members
from sync.outcome import Accepted
from sync.update import SignedUpdate
from tests.sync.support import Device as LogDevice

_CLIENTS: Final = 8
_SERVERS: Final = 4
_READS: Final = (100, 90, 50, 10, 0)
"""Of a hundred operations."""
_SIZES: Final = {"3 B": 3, "10 kB": 10_240, "1 MB": 1 << 20}
"""As the paper's."""
_COUNTS: Final = {"3 B": 100, "10 kB": 100, "1 MB": 20}
_BEFORE: Final = {"3 B": 4, "10 kB": 4, "1 MB": 1}
"""Values that each client has put before operations count."""
_KEY_SIZE: Final = 32
_CONTEXT: Final = "hybrisfs.benchmarks 2026-11 value"
_DEPOT: Final = len(LEVELS) - 1
_COLUMNS: Final = (
    "GET, B",
    "PUT, B",
    "servers, B a PUT",
    "clients keep, B",
    "servers keep, B",
    "CPU of clients, ms",
    "CPU of servers, ms",
)
"""As the paper's: traffic of an operation between clients and servers, and between servers; disks for each
version, of all clients and of all servers; processors for each operation."""


@dataclass
class _Counts:
    """Of one run, summed up."""

    gets: int = 0
    puts: int = 0
    got: int = 0
    put: int = 0
    between: int = 0
    cpu: dict[str, float] = field(default_factory=lambda: {"client": 0.0, "server": 0.0})

    @contextmanager
    def busy(self, who: str) -> Iterator[None]:
        begun = time.process_time()
        yield
        self.cpu[who] += time.process_time() - begun


class _Node:
    """A client or a server: a database, and a log."""

    def __init__(self, path: Path, key: DeviceKey, members: Members) -> None:
        self.database = Database(path)
        self.log = LogDevice(key, members)
        self.empty = self.database.size()

    def accept(self, update: SignedUpdate) -> None:
        if not isinstance(self.log.receive(update), Accepted):
            raise SystemExit("an update was not accepted")
        self.database.put(update.hash, update.data)

    def kept(self) -> int:
        return self.database.size() - self.empty


class _World:
    """The clients and servers at one level."""

    def __init__(self, level: int, root: Path) -> None:
        root.mkdir(parents=True)
        keys = [DeviceKey.from_seed(bytes([1 + number]) * 32) for number in range(_CLIENTS + _SERVERS)]
        members = Members(key.public for key in keys)
        nodes = [_Node(root / str(number), key, members) for number, key in enumerate(keys)]
        self.clients, self.servers = nodes[:_CLIENTS], nodes[_CLIENTS:]
        self._level = level
        self._values: dict[bytes, bytes] = {}  # to check what is read
        self.counts = _Counts()

    def put(self, number: int, key: bytes, value: bytes) -> None:
        self._values[key] = value
        self.counts.puts += 1
        if self._level == _DEPOT:
            self._put_update(number, key, value)
        else:
            self._put_message(number, key, value)

    def _around(self, number: int) -> Sequence[_Node]:
        """The server of a client, and then the others."""
        first = number % _SERVERS
        return [*self.servers[first:], *self.servers[:first]]

    def _put_message(self, number: int, key: bytes, value: bytes) -> None:
        counts = self.counts
        with counts.busy("client"):
            message = message_of(self._level, key, value)
            if LEVELS[self._level] == "store":
                self.clients[number].database.put(key, message)
        counts.put += len(message)
        counts.between += (_SERVERS - 1) * len(message)
        with counts.busy("server"):
            for server in self.servers:
                server.database.put(key, message)

    def _put_update(self, number: int, key: bytes, value: bytes) -> None:
        counts = self.counts
        with counts.busy("client"):
            hashed = digest(_CONTEXT, value)
            update = self.clients[number].log.write((key, hashed))
            self.clients[number].database.put(key, value)
            self.clients[number].database.put(update.hash, update.data)
        both = len(update.data) + len(value)
        counts.put += both
        counts.between += (_SERVERS - 1) * both
        with counts.busy("server"):
            for server in self._around(number):
                server.accept(update)
                if digest(_CONTEXT, value) != hashed:
                    raise SystemExit("a value is not what was signed")
                server.database.put(key, value)
        others = [one for place, one in enumerate(self.clients) if place != number]
        counts.put += len(others) * len(update.data)
        with counts.busy("client"):
            for other in others:
                other.accept(update)

    def get(self, number: int, key: bytes) -> None:
        counts, value = self.counts, self._values[key]
        counts.gets += 1
        with counts.busy("server"):
            answer = self._around(number)[0].database.get(key)
        if self._level == _DEPOT:
            counts.got += _KEY_SIZE + len(answer)
            with counts.busy("client"):
                hashed = digest(_CONTEXT, answer)
            if hashed != digest(_CONTEXT, value):
                raise SystemExit("what was read is not what was written")
            return
        counts.got += len(answer)  # the key is in it
        with counts.busy("client"):
            check_message(self._level, key, answer, value)

    def close(self) -> None:
        for node in (*self.clients, *self.servers):
            node.database.close()


def _run(root: Path, level: int, size: str, reads: int) -> list[float]:
    """A row of the table, as `_COLUMNS`."""
    chance, world = random.Random(f"{size} {reads}"), _World(level, root)
    keys = []
    for number in range(_CLIENTS * _BEFORE[size]):
        keys.append(os.urandom(_KEY_SIZE))
        world.put(number % _CLIENTS, keys[-1], os.urandom(_SIZES[size]))
    world.counts = _Counts()
    for number in range(_COUNTS[size]):
        if chance.random() * 100 < reads:
            world.get(number % _CLIENTS, chance.choice(keys))
        else:
            keys.append(os.urandom(_KEY_SIZE))
            world.put(number % _CLIENTS, keys[-1], os.urandom(_SIZES[size]))
    counts, operations = world.counts, _COUNTS[size]
    row = [
        counts.got / max(1, counts.gets),
        counts.put / max(1, counts.puts),
        counts.between / max(1, counts.puts),
        sum(one.kept() for one in world.clients) / len(keys),
        sum(one.kept() for one in world.servers) / len(keys),
        1000 * counts.cpu["client"] / operations,
        1000 * counts.cpu["server"] / operations,
    ]
    world.close()
    return row


@dataclass(frozen=True)
class Row:
    """Of one size, mix and level: ours and the paper's, as `_COLUMNS`."""

    size: str
    reads: int
    level: str
    ours: list[float]
    theirs: list[float]


def measure(root: Path, console: Console) -> list[Row]:
    """All rows of the paper's Fig. 7."""
    rows = []
    for size in _SIZES:
        theirs = points(
            "depot",
            f"Fig. 7, {size}, reads/writes: B of GET, PUT, servers, client's disks, servers'; "
            "CPU ms of clients, servers",
        )
        for reads in _READS:
            for level, name in enumerate(LEVELS):
                paper = theirs.get(f"{reads}/{100 - reads}, {name}")
                if paper is not None:
                    ours = _run(root / f"{size} {reads} {name}", level, size, reads)
                    rows.append(Row(size, reads, name, ours, paper))
        console.print(f"[dim]{size} is there[/]")
    return rows


def _cell(column: int, figures: Sequence[float]) -> str:
    figure = figures[column]
    if not figure:
        return ""
    return significant(figure) if column >= len(_COLUMNS) - 2 else f"{figure:,.0f}"


def _page(rows: Sequence[Row]) -> Page:
    page = Page("mixes")
    for size in _SIZES:
        some = [one for one in rows if one.size == size]
        page.sections.append(
            Section(
                f"{size}: ours (the paper's)",
                ["reads/writes, level", *_COLUMNS],
                [
                    [
                        f"{one.reads}/{100 - one.reads}, {one.level}",
                        *(
                            f"{_cell(column, one.ours)} ({_cell(column, one.theirs)})"
                            if one.ours[column] or one.theirs[column]
                            else ""
                            for column in range(len(_COLUMNS))
                        ),
                    ]
                    for one in some
                ],
            )
        )
    found = {(one.size, one.reads, one.level): one for one in rows}

    def rise(column: int, reads: int) -> tuple[float, float]:
        """The paper's and ours: Depot's figure over the baseline's for 10 kB."""
        most, least = (found["10 kB", reads, level] for level in (LEVELS[_DEPOT], LEVELS[0]))
        return most.theirs[column] / least.theirs[column], most.ours[column] / least.ours[column]

    for column, reads in ((0, 100), (1, 0), (2, 0), (4, 0), (5, 0), (6, 0)):
        label = f"10 kB, {reads}/{100 - reads}, {_COLUMNS[column]}: Depot over the baseline, as in the paper"
        page.targets.append(Target(label, *rise(column, reads)))
    page.sections.append(
        Section(
            "10 kB, Depot over the baseline (Fig. 6)",
            ["", "ours", "the paper"],
            [
                [f"{_COLUMNS[column]}, {reads}/{100 - reads}", f"{ours:.4g}", f"{theirs:.4g}"]
                for column, reads in ((0, 100), (1, 0), (2, 0), (4, 0), (5, 0), (6, 0))
                for theirs, ours in [rise(column, reads)]
            ],
        )
    )
    page.notes = [
        f"{_CLIENTS} clients and {_SERVERS} servers, two clients at each server; each client has put "
        f"{_BEFORE['10 kB']} values ({_BEFORE['1 MB']} of 1 MB) before; then {_COUNTS['10 kB']} operations "
        f"({_COUNTS['1 MB']} of 1 MB), one after the other: a client hears of all others before "
        "it writes. Keys have 32 bytes, values are random, of 10,240 bytes and 1 MiB, as the paper's.",
        "**There is no network, and no server of the product**: servers here are made of the log and a "
        "database, as the paper's are; in the product they are clouds, which run no code and pass on "
        "nothing. So these columns say what our updates would cost such servers. Processor time is that of "
        "one Python process for the work shown; the paper's is of whole processes with all that they do in "
        "the background. SQLite commits to the disk for each value that is kept; BLAKE3 and Ed25519 instead "
        "of SHA-256 and RSA.",
        "An update of ours names the newest update of each device that its writer has heard of since it "
        "wrote last, 33 bytes each: the more others write meanwhile, the larger it is.",
        "Kept: of all clients, and of all servers, for each version; at the level Depot a client keeps the "
        "values that it has put itself, and all updates.",
    ]
    page.figures = {"columns": _COLUMNS, "rows": [asdict(one) for one in rows]}
    return page


def _draw(folder: Path, figures: Mapping[str, Any]) -> list[Path]:
    rows = [Row(**one) for one in figures["rows"] if one["size"] == "10 kB"]
    panels = {}
    for column in (1, 2, 4, 5, 6):
        curves = []
        for who, name in (("ours", "ours"), ("paper", "theirs")):
            for level in LEVELS:
                shown = [
                    (100.0 - one.reads, getattr(one, name)[column]) for one in rows if one.level == level
                ]
                x, y = zip(*(point for point in shown if point[1]), strict=True)
                curves.append(Curve(f"{who}, {level}", x, y))
        panels[f"{_COLUMNS[column]}, by % of puts, 10 kB"] = curves
    return plot_curves(folder, "mixes", panels, legends=True)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write mixes.json, .md and a plot to benchmarks/results."""
    parser = options_of("papers.mixes", __doc__, draws=True)
    options = parser.parse_args(argv)
    if options.draw:
        draw_again("mixes", options.results, _draw)
        return
    with work_folder("mixes") as root:
        rows = measure(root, terminal())
    publish(_page(rows), options.results, _draw)


if __name__ == "__main__":
    main()
