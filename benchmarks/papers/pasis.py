"""`python -m benchmarks.papers.pasis`: PASIS's Table 1, Fig. 5 and 5.5 with the product's own code.

There are three parts; `--only` chooses one:

* *computation* (Table 1): the client's work for a block of 16 KiB on N clouds. Any m give it back, and b may
  lie. It makes the fragments, their cross checksum, and the verifier in the name, and checks a fragment.
* *throughput* (Fig. 5): reads and writes of 16 KiB per second, by clients, b = 1: m = 2 of N = 5 clouds, and
  m = 3 of N = 6.
* *contention* (5.5): four clients with four operations at a time, half of them reads, each over a range of
  eight blocks. They share more and more of these. Counted is what reads find.

Writes `pasis.json`, `.md` and, with matplotlib, a plot with the paper's figures.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from rich.console import Console

from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.plots import Curve, plot_curves
from benchmarks.registers import System, timed
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from hybrisfs.dispersal.erasure import join, split
from hybrisfs.environment import SYSTEM
from hybrisfs.kv.cloud_objects import ObjectCodec
from hybrisfs.kv.seal import ValueSealer
from hybrisfs.quorums.names import Names
from hybrisfs.quorums.register import Found, Lists, Part, Register
from hybrisfs.quorums.rounds import Protocol
from hybrisfs.quorums.thresholds import Standing
from sync import OneKey

_BLOCK: Final = 16 << 10
_FAULTS: Final = (1, 2, 3, 4)
_TABLE_1: Final = {
    "encode": (1250.0, 1500.0, 1730.0, 1990.0),
    "cross checksum": (360.0, 440.0, 480.0, 510.0),
    "validate": (82.0, 58.0, 48.0, 40.0),
    "verifier": (1.6, 2.3, 3.6, 4.3),
}
"""The paper's, in microseconds, by b from 1 to 4: "Erasure coding" and so on."""
_FIG_5: Final = {2: 733.0, 3: 954.0}
"""The paper's writes per second at high load, by m (5.4.2)."""
_COMPLETE, _REPAIRED = 89.0, 3.0
"""The paper's, in percent of reads: the first candidate was complete; it was repaired (5.5)."""
_CLIENTS: Final = (1, 2, 4, 8, 16)
_LAN: Final = 0.0002  # seconds per request
_OPERATIONS: Final = 4  # of each client at a time
_CONTENDERS: Final = 4
_RANGE: Final = 8  # blocks
_BATCH: Final = 5  # operations of each client; then all begin anew
_SHARED: Final = (0, 2, 4, 8)

Panels = dict[str, list[Curve]]


def _microseconds(work: Callable[[], object], repeats: int) -> float:
    """The median of some batches."""
    batch = 20
    work()
    spans = []
    for _ in range(repeats):
        begun = time.perf_counter()
        for _ in range(batch):
            work()
        spans.append((time.perf_counter() - begun) / batch * 1e6)
    return statistics.median(spans)


def _computed(b: int, repeats: int) -> dict[str, float]:
    m, n = b + 1, 4 * b + 1
    block, names = os.urandom(_BLOCK), Names(bytes(32), bytes(16))
    codec = ObjectCodec(names, ValueSealer(bytes(32), bytes(16), OneKey(bytes(32))), SYSTEM)
    pieces = split(m, n, block)
    checksums = [names.checksum(piece) for piece in pieces]
    some = {number: pieces[number] for number in range(n - m, n)}  # none of them is a part of the block
    works: dict[str, Callable[[], object]] = {
        "encode": lambda: split(m, n, block),
        "cross checksum": lambda: [names.checksum(piece) for piece in pieces],
        "validate": lambda: names.checksum(pieces[0]) == checksums[0],
        "verifier": lambda: names.verifier(b"".join(checksums)),
        "decode, none of the m a part of the block": lambda: join(m, n, some, _BLOCK),
        "all that a write computes, with the seal": lambda: codec.draft(
            "key", block, b"", 0, m, range(n)
        ).objects(0),
    }
    return {what: _microseconds(work, repeats) for what, work in works.items()}


def _computation(root: Path, options: argparse.Namespace, page: Page, console: Console) -> Panels:
    found = {b: _computed(b, options.repeats) for b in _FAULTS}
    console.print("[dim]computation is there[/]")
    rows = []
    for what in found[1]:
        rows.append([what, *(significant(found[b][what]) for b in _FAULTS)])
        if what in _TABLE_1:
            rows.append([f"{what}, the paper", *map(significant, _TABLE_1[what])])
    headings = [f"b = {b}: {b + 1} of {4 * b + 1}" for b in _FAULTS]
    page.sections.append(Section("Table 1: microseconds for 16 KiB", ["", *headings], rows))
    page.targets.append(
        Target(
            "encode, cross checksum and verifier of 16 KiB, b = 1, microseconds",
            1250,
            sum(found[1][what] for what in ("encode", "cross checksum", "verifier")),
        )
    )
    page.figures = {**page.figures, "microseconds by b": found, "paper's microseconds by b": _TABLE_1}
    faults = [float(b) for b in _FAULTS]
    return {
        "microseconds for 16 KiB, by b (Table 1)": [
            Curve(f"{who}, {what}", faults, [*figures])
            for what in _TABLE_1
            for who, figures in (
                ("HybrisFS", [found[b][what] for b in _FAULTS]),
                ("PASIS", _TABLE_1[what]),
            )
        ]
    }


def _work(system: System, what: str, number: int) -> None:
    """Some operations of one client, at a block of its own."""
    for _ in range(_BATCH):
        if what == "read":
            system.read(f"block-{number}", _BLOCK)
        else:
            system.write(f"{what}-{number}", os.urandom(_BLOCK))


def _speeds(root: Path, m: int, clients: int, options: argparse.Namespace) -> dict[str, float]:
    """Operations per second: each client does one after the other."""
    spans = dict.fromkeys(("warm", "write", "read"), 0.0)
    with ThreadPoolExecutor(clients) as pool:
        for batch in range(options.each // _BATCH):
            with ExitStack() as ends:
                system = System("PASIS", root / f"{m}-{clients}-{batch}", 1, ends, more=m - 2, mean=_LAN)
                assert system.thresholds.k == m
                for number in range(clients):
                    system.write(f"block-{number}", bytes(_BLOCK))
                for what in spans:
                    begun = time.perf_counter()
                    list(pool.map(partial(_work, system, what), range(clients)))
                    spans[what] += time.perf_counter() - begun
    return {what: clients * (options.each // _BATCH) * _BATCH / span for what, span in spans.items()}


def _throughput(root: Path, options: argparse.Namespace, page: Page, console: Console) -> Panels:
    found: dict[tuple[int, int], dict[str, float]] = {}
    for m in _FIG_5:
        for clients in _CLIENTS:
            rounds = [_speeds(root / str(number), m, clients, options) for number in range(options.rounds)]
            found[m, clients] = {
                what: statistics.median(one[what] for one in rounds) for what in ("read", "write")
            }
            console.print(f"[dim]throughput, m = {m}, {clients} clients: {found[m, clients]}[/]")
    rows = [
        [f"{what}, m = {m} of {m + 3}", *(significant(found[m, clients][what]) for clients in _CLIENTS)]
        for m in _FIG_5
        for what in ("read", "write")
    ]
    rows += [[f"write, the paper at high load, m = {m}", *[""] * 4, significant(_FIG_5[m])] for m in _FIG_5]
    page.sections.append(
        Section("Fig. 5: operations of 16 KiB per second, b = 1, by clients", ["", *map(str, _CLIENTS)], rows)
    )
    page.figures = {
        **page.figures,
        "operations per second": {f"m={m}, {clients} clients": one for (m, clients), one in found.items()},
        "paper's writes per second by m": _FIG_5,
    }
    numbers = [float(one) for one in _CLIENTS]
    return {
        "writes of 16 KiB per second, by clients (Fig. 5; PASIS: at high load)": [
            curve
            for m in _FIG_5
            for curve in (
                Curve(f"HybrisFS, m = {m}", numbers, [found[m, one]["write"] for one in _CLIENTS]),
                Curve(f"PASIS, m = {m}", [1.0, 16.0], [_FIG_5[m]] * 2),
            )
        ]
    }


class _Classifying(Register):
    """Counts what reads find."""

    found: ClassVar[Counter[str]] = Counter()
    lock: ClassVar = threading.Lock()

    def complete(self, lists: Lists, part: Part) -> Protocol[Found | None]:
        first = max(lists.holders, key=lambda one: (one.time, one.write), default=None)
        latest = self.latest(lists)
        if part is Part.VALUE and first is not None:
            standing = self.thresholds.classify(len(lists.holders[first]))
            with self.lock:
                self.found["reads"] += 1
                self.found[standing.value] += 1
                is_last = latest is not None and (
                    self.thresholds.classify(len(lists.holders[latest])) is Standing.COMPLETE
                )
                self.found["repaired"] += not is_last
        return (yield from super().complete(lists, part))


def _contend(
    system: System, blocks: Mapping[int, Sequence[str]], batch: int, place: int
) -> list[tuple[str, float]]:
    """Some operations of one thread, and how many seconds each took."""
    client, slot = divmod(place, _OPERATIONS)
    chance = random.Random(f"{place} {batch}")
    # No two operations of a client are at one block: each of its threads has some of them.
    mine = blocks[client][slot::_OPERATIONS]
    taken = []
    for _ in range(_BATCH):
        name, what = chance.choice(mine), chance.choice(("read", "write"))
        work = (
            partial(system.read, name, _BLOCK)
            if what == "read"
            else partial(system.write, name, os.urandom(_BLOCK))
        )
        taken.append((what, timed(work)))
    return taken


def _contended(root: Path, shared: int, options: argparse.Namespace) -> tuple[dict[str, float], Counter[str]]:
    """Operations per second, mean seconds of each, and what the reads found."""
    taken: list[tuple[str, float]] = []
    blocks = {
        client: [f"shared-{one}" if one < shared else f"{client}-{one}" for one in range(_RANGE)]
        for client in range(_CONTENDERS)
    }
    counted: Counter[str] = Counter()
    span = 0.0
    with ThreadPoolExecutor(_CONTENDERS * _OPERATIONS) as pool:
        for batch in range(options.each // _BATCH):
            with ExitStack() as ends:
                system = System("PASIS", root / f"{shared}-{batch}", 1, ends, kind=_Classifying)
                every = sorted({name for names in blocks.values() for name in names})
                list(pool.map(partial(system.write, value=bytes(_BLOCK)), every))
                _Classifying.found = Counter()
                begun = time.perf_counter()
                places = range(_CONTENDERS * _OPERATIONS)
                for some in pool.map(partial(_contend, system, blocks, batch), places):
                    taken += some
                span += time.perf_counter() - begun
                counted += _Classifying.found
    speeds = {"operations per second": len(taken) / span}
    for what in ("read", "write"):
        speeds[f"{what}, mean ms"] = 1000 * statistics.mean(seconds for one, seconds in taken if one == what)
    return speeds, counted


def _contention(root: Path, options: argparse.Namespace, page: Page, console: Console) -> Panels:
    found = {shared: _contended(root, shared, options) for shared in _SHARED}
    console.print("[dim]contention is there[/]")

    def share(shared: int, what: str) -> float:
        counted = found[shared][1]
        return 100 * counted[what] / counted["reads"]

    whats = {
        "first candidate complete": "complete",
        "first candidate repairable": "repairable",
        "first candidate incomplete: an earlier one is looked at": "incomplete",
        "repaired by the read": "repaired",
    }
    rows = [[what, *(significant(found[shared][0][what]) for shared in _SHARED), ""] for what in found[0][0]]
    theirs = {"complete": f"{_COMPLETE:g}", "repaired": f"{_REPAIRED:g}"}
    rows += [
        [f"{label}, % of reads", *(f"{share(shared, what):.1f}" for shared in _SHARED), theirs.get(what, "")]
        for label, what in whats.items()
    ]
    headings = ["", *(f"{shared} of {_RANGE} blocks shared" for shared in _SHARED), "the paper, all shared"]
    page.sections.append(Section("5.5: four clients with four operations each", headings, rows))
    page.figures = {
        **page.figures,
        "contention": {str(shared): {**speeds, **counted} for shared, (speeds, counted) in found.items()},
        "paper's percent of reads": {"complete": _COMPLETE, "repaired": _REPAIRED},
    }
    shares = [float(shared) for shared in _SHARED]
    return {
        "% of reads, by shared blocks (5.5)": [
            Curve("HybrisFS, first candidate complete", shares, [share(one, "complete") for one in _SHARED]),
            Curve("PASIS, first candidate complete", [8.0], [_COMPLETE]),
            Curve("HybrisFS, repaired", shares, [share(one, "repaired") for one in _SHARED]),
            Curve("PASIS, repaired", [8.0], [_REPAIRED]),
        ]
    }


_PARTS: Final[Mapping[str, Callable[[Path, argparse.Namespace, Page, Console], Panels]]] = {
    "computation": _computation,
    "throughput": _throughput,
    "contention": _contention,
}
_NOTES: Final = [
    "Computation: one thread. Fragments by zfec, which is C, keyed BLAKE3 for checksums; the paper's are MD5 "
    "on processors of 2003. In the paper storage nodes validate what they take; clouds run no code, so here "
    "readers do. The verifier hashes as many bytes as the paper's.",
    "Throughput: clients are threads of one process, and clouds folders of this machine with "
    f"{1000 * _LAN:g} ms and 100 Mbit/s for each request: this machine's processors are the limit, not a "
    "network. In the paper each of the clients has a machine of its own, and servers keep what they take in "
    "memory.",
    "Contention: lines with 20 ms, as in `benchmarks.registers`, so that writes take longer than in the "
    "paper and overlap more; half of the operations are reads. Of a read that begins again each attempt "
    "counts.",
    f"After {_BATCH} operations of each client all begin anew with empty folders: nothing deletes here what "
    "was overwritten, and a folder with many objects takes longer to list, as no cloud does.",
]


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write pasis.json, .md and a plot to benchmarks/results."""
    parser = options_of("papers.pasis", __doc__)
    parser.add_argument("--only", action="append", choices=[*_PARTS], help="a part; may be given again")
    parser.add_argument("--repeats", type=int, default=100, metavar="N", help="of each computation")
    parser.add_argument("--each", type=int, default=40, metavar="N", help="operations of each client")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of the throughput")
    options = parser.parse_args(argv)
    page, panels = Page("pasis", notes=[*_NOTES]), Panels()
    with work_folder("pasis") as root:
        for part in options.only or _PARTS:
            panels |= _PARTS[part](root / part, options, page, terminal())
    publish(
        page,
        options.results,
        lambda folder, _: plot_curves(folder, "pasis", panels, legends=True, logarithmic="y"),
    )


if __name__ == "__main__":
    main()
