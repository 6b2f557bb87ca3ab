"""`python -m benchmarks.papers.distrust`: what Depot's mechanisms cost a put and a get (Fig. 4 to 7).

The levels of the paper's table, each with what the one before it has: *baseline* (key and value as they
travel), *hash* (of the value), *signature* (over key and hash), *store* (the writer keeps what it wrote, in
a database, on its disk), *Depot* (instead of these, an update of our log, with clock, chain, dependencies
and history hash, which the writer keeps; a receiver accepts it into its log and keeps it, too). They are
made here from the parts that the product has; the product has no such switches. All levels take turns.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, draw_again, options_of, publish
from benchmarks.papers import points
from benchmarks.plots import Curve, plot_curves
from benchmarks.report import significant
from benchmarks.targets import Target
from sync.codec import HASH_SIZE, digest
from sync.identity import SIGNATURE_SIZE, verify
from sync.outcome import Accepted
from sync.update import SignedUpdate, decode_writes, encode_writes
from tests.sync.support import KEYS
from tests.sync.support import Device as LogDevice

__all__ = ["LEVELS", "Database", "Pair", "check_message", "message_of"]

_SIZES: Final = {"3 B": 3, "10 kB": 10_000, "1 MB": 1_000_000}
LEVELS: Final = ("baseline", "hash", "signature", "store", "Depot")
_COUNTS: Final = {"3 B": 200, "10 kB": 200, "1 MB": 20}
_KEY_SIZE: Final = 32
_CONTEXT: Final = "hybrisfs.benchmarks 2026-11 value"
_GET_CONTEXT: Final = "hybrisfs.sync 2026-11 update body"


class Database:
    """Keys and values on the disk; each put is there when it returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = sqlite3.connect(path, isolation_level=None)
        self._rows.execute("PRAGMA journal_mode=WAL")
        self._rows.execute("PRAGMA synchronous=FULL")
        self._rows.execute("CREATE TABLE kept (key BLOB PRIMARY KEY, value BLOB)")

    def put(self, key: bytes, value: bytes) -> None:
        self._rows.execute("INSERT INTO kept VALUES (?, ?)", (key, value))

    def get(self, key: bytes) -> bytes:
        [value] = self._rows.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        return bytes(value)

    def size(self) -> int:
        self._rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self._path.stat().st_size

    def close(self) -> None:
        self._rows.close()


@dataclass
class Costs:
    """Of one level and size: a figure for each operation, seconds and bytes."""

    put_cpu: list[float] = field(default_factory=list)
    put_wall: list[float] = field(default_factory=list)
    accept_cpu: list[float] = field(default_factory=list)
    get_cpu: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    kept: float = 0.0


def message_of(level: int, key: bytes, value: bytes) -> bytes:
    """A value at the levels below Depot's; `level` is the number in `LEVELS`."""
    message = encode_writes([(key, value)])
    if level >= 1:
        message += digest(_CONTEXT, value)
    if level >= 2:
        message += KEYS[0].sign(key + message[-HASH_SIZE:])
    return message


def check_message(level: int, key: bytes, message: bytes, value: bytes) -> None:
    """What the reader of a value does with it. Raises SystemExit."""
    if level >= 2:
        signature, message = message[-SIGNATURE_SIZE:], message[:-SIGNATURE_SIZE]
        if not verify(KEYS[0].public, key + message[-HASH_SIZE:], signature):
            raise SystemExit("a signature is wrong")
    if level >= 1:
        hashed, message = message[-HASH_SIZE:], message[:-HASH_SIZE]
        if digest(_CONTEXT, value) != hashed:
            raise SystemExit("a hash is wrong")
    decode_writes(message, 1)


class Pair:
    """A writer and a receiver at one level, with a database each."""

    def __init__(self, level: str, root: Path) -> None:
        root.mkdir(parents=True)
        self._level = LEVELS.index(level)
        self._mine, self._theirs = Database(root / "writer"), Database(root / "receiver")
        self._writer, self._receiver = LogDevice(KEYS[0]), LogDevice(KEYS[1])
        self.empty = self._mine.size()

    def put(self, key: bytes, value: bytes) -> bytes | SignedUpdate:
        """Make what is sent, and keep it as far as the level has that. *key*: one that is new."""
        if self._level == 4:
            update = self._writer.write((key, value))
            self._mine.put(key, update.data)
            return update
        message = message_of(self._level, key, value)
        if self._level >= 3:
            self._mine.put(key, message)
        return message

    def accept(self, key: bytes, sent: bytes | SignedUpdate) -> None:
        """What the receiver does: a plain server keeps the bytes, a replica of the log accepts an update."""
        if isinstance(sent, SignedUpdate):
            if not isinstance(self._receiver.receive(sent), Accepted):
                raise SystemExit("an update was not accepted")
            sent = sent.data
        self._theirs.put(key, sent)

    def get(self, key: bytes, sent: bytes | SignedUpdate, value: bytes) -> None:
        """What the reader of a value does when it has come."""
        if isinstance(sent, SignedUpdate):
            # The update is accepted, its signature checked: the value is compared with the hash it holds.
            digest(_GET_CONTEXT, sent.data[len(sent.header.data) :])
            return
        check_message(self._level, key, sent, value)

    def kept(self, count: int) -> float:
        return (self._mine.size() - self.empty) / count

    def close(self) -> None:
        self._mine.close()
        self._theirs.close()


def _cpu_of(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def measure(root: Path) -> dict[str, dict[str, Costs]]:
    """Costs by size and level."""
    found = {}
    for label, size in _SIZES.items():
        pairs = {level: Pair(level, root / label / level) for level in LEVELS}
        costs = {level: Costs() for level in LEVELS}
        for _ in range(_COUNTS[label]):
            key, value = os.urandom(_KEY_SIZE), os.urandom(size)
            for level, pair in pairs.items():
                one = costs[level]
                wall, cpu = time.perf_counter(), time.process_time()
                sent = pair.put(key, value)
                one.put_cpu.append(time.process_time() - cpu)
                one.put_wall.append(time.perf_counter() - wall)
                one.accept_cpu.append(_cpu_of(partial(pair.accept, key, sent)))
                one.get_cpu.append(_cpu_of(partial(pair.get, key, sent, value)))
                one.sent.append(len(sent.data if isinstance(sent, SignedUpdate) else sent))
        for level, pair in pairs.items():
            costs[level].kept = pair.kept(_COUNTS[label])
            pair.close()
        found[label] = costs
    return found


def measure_parts(root: Path) -> dict[str, list[float]]:
    """Wall seconds of single operations, by their names (Fig. 4 and 5)."""
    root.mkdir()
    samples: dict[str, list[float]] = {}

    def take(name: str, work: Callable[[], object]) -> None:
        begun = time.perf_counter()
        work()
        samples.setdefault(name, []).append(time.perf_counter() - begun)

    for label, size in _SIZES.items():
        database = Database(root / label)
        for _ in range(_COUNTS[label]):
            key, value = os.urandom(_KEY_SIZE), os.urandom(size)
            take(f"hash, {label}", partial(digest, _CONTEXT, value))
            take(f"database put, {label}", partial(database.put, key, value))
            take(f"database get, {label}", partial(database.get, key))
            message = digest(_CONTEXT, value)
            if label == "10 kB":
                take("sign, a hash", partial(KEYS[0].sign, message))
                signed = KEYS[0].sign(message)
                take(
                    "verify, a hash",
                    partial(verify, KEYS[0].public, message, signed),
                )
        database.close()
    return samples


def _mean(figures: float | list[float]) -> float:
    return statistics.fmean(figures) if isinstance(figures, list) else figures


def _page(costs: dict[str, dict[str, Costs]], parts: dict[str, list[float]]) -> Page:
    theirs = points("depot", "Fig. 4 and 5, mean ms")
    sections = [
        Section(
            "Cryptography and database alone, ms",
            ["", "median", "90 %", "paper, mean"],
            [
                [
                    name,
                    significant(1000 * statistics.median(some)),
                    significant(1000 * statistics.quantiles(some, n=10)[-1]),
                    significant(theirs[name][0]),
                ]
                for name, some in sorted(parts.items())
            ],
        )
    ]
    for label, by_level in costs.items():
        paper = points("depot", f"Fig. 7, {label}: bytes per put, client CPU ms per put")
        rows = [
            [
                level,
                f"{statistics.median(one.sent):,.0f}",
                f"{one.kept:,.0f}",
                *(
                    significant(1000 * statistics.fmean(some))
                    for some in (one.put_cpu, one.accept_cpu, one.get_cpu)
                ),
                significant(1000 * statistics.median(one.put_wall)),
                f"{paper[level][0]:,.0f}",
                significant(paper[level][1]),
            ]
            for level, one in by_level.items()
        ]
        headings = [
            "",
            "sent, B",
            "kept by the writer, B",
            "CPU of a put, ms",
            "CPU to accept it, ms",
            "CPU of a get, ms",
            "time of a put, ms",
            "paper: sent, B",
            "paper: client CPU of a put, ms",
        ]
        sections.append(Section(f"A value of {label}", headings, rows))
    middle = costs["10 kB"]
    added = statistics.median(middle["Depot"].sent) - statistics.median(middle["baseline"].sent)
    waited = statistics.median(middle["Depot"].put_wall) - statistics.median(middle["baseline"].put_wall)
    return Page(
        "distrust",
        sections,
        [
            Target("bytes that Depot adds to a put of 10 kB: 285 less 38", 247, added),
            Target("time that it adds to a put of 10 kB, ms", 11.5, 1000 * waited),
            Target("CPU of a put of 10 kB, ms", 14.0, 1000 * statistics.fmean(middle["Depot"].put_cpu)),
        ],
        [
            "Keys of 32 bytes, random values; the levels take turns. CPU is that of this process, means; "
            "times are medians. Everything runs in one process: no network, one writer and one receiver, "
            "where Depot had eight clients and four servers; the 2 kB that it adds to a put there are mostly "
            "the updates of seven other clients, which are not counted here. The database is SQLite with a "
            "commit to the disk for each put, the hash BLAKE3 instead of SHA-256, the signature Ed25519 "
            "instead of RSA. The log keeps its index in memory here; in the product it is a table, "
            "and large values are in packs, not in updates. A get of the level Depot is that of a "
            "value whose update has been accepted before.",
        ],
        {
            "means": {
                label: {
                    level: {name: _mean(some) for name, some in vars(one).items()}
                    for level, one in by_level.items()
                }
                for label, by_level in costs.items()
            },
            "parts": {name: statistics.median(some) for name, some in parts.items()},
        },
    )


def _draw(folder: Path, figures: Mapping[str, Any]) -> list[Path]:
    x = list(map(float, range(len(LEVELS))))
    panels = {}
    for label, by_level in figures["means"].items():
        paper = points("depot", f"Fig. 7, {label}: bytes per put, client CPU ms per put")
        panels[f"CPU of a put of {label}, ms: {', '.join(LEVELS)}"] = [
            Curve("ours, put", x, [1000 * by_level[one]["put_cpu"] for one in LEVELS]),
            Curve("paper, put", x, [paper[one][1] for one in LEVELS]),
        ]
    return plot_curves(folder, "distrust", panels)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write distrust.json, .md, .svg and .png to benchmarks/results."""
    options = options_of("papers.distrust", __doc__, draws=True).parse_args(argv)
    if options.draw:
        draw_again("distrust", options.results, _draw)
        return
    with work_folder("distrust") as root:
        parts = measure_parts(root / "parts")
        costs = measure(root / "levels")
    publish(_page(costs, parts), options.results, _draw)


if __name__ == "__main__":
    main()
