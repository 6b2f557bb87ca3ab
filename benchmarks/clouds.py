"""`python -m benchmarks.clouds`: Hybris's Experiments 1 and 2 over emulated lines to four S3 servers.

Experiment 1: how long PUT and GET take through our engine, with whole copies (k=1) and erasure coding (k=2),
beside each single cloud through its own SDK. Experiment 2: GET while the fastest cloud tampers with all it
returns, and while it answers nothing at all. All systems take turns, each round begins with another one.

Which clouds the engine takes to be the fastest may be a matter of luck with its first requests. So all is
done several times, each with new engines and empty clouds, and the worst start has to meet the targets.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from backends.store import Store
from benchmarks.corpus import cache_directory
from benchmarks.dispersed import Dispersed, Stored
from benchmarks.pages import Page, Section
from benchmarks.plots import plot_latencies
from benchmarks.report import RESULTS, significant, terminal
from benchmarks.targets import Target
from benchmarks.wan import Distance, FarCloud, Wan, far_clouds
from tests.adversary import READS, Fault, FaultyStore

_DISTANCES = (
    Distance("amber", 20, 200),
    Distance("birch", 35, 150),
    Distance("cedar", 60, 100),
    Distance("denim", 90, 60),
)
_SIZES = {"100 kB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000}
_F = 1
_CODES = {"hybrisfs k=1": 1, "hybrisfs k=2": 2}
_WARM_UPS = 6  # rounds in which connections are made and the engine gets to know the clouds
_SEED = 1

Samples = dict[str, dict[str, list[float]]]
"""Operation and size, as in "PUT 1 MB" -> system -> seconds."""


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


class _Single:
    """One cloud through its own SDK."""

    def __init__(self, cloud: FarCloud) -> None:
        self._client: Any = cloud.sdk()
        self._bucket = cloud.bucket

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        data: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return data

    def close(self) -> None:
        self._client.close()


def _turns(names: Sequence[str], number: int) -> list[str]:
    """The systems in this round's order."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def _add(samples: Samples, operation: str, system: str, seconds: float) -> None:
    samples.setdefault(operation, {}).setdefault(system, []).append(seconds)


def experiment_1(wan: Wan, rounds: int, console: Console) -> Samples:
    """PUT and GET of new objects, all systems in turns. Stops the run when a wrong byte comes back."""
    samples: Samples = {}
    with ExitStack() as stack:
        singles = {one.distance.name: stack.enter_context(closing(_Single(one))) for one in wan.clouds}
        ours = {
            name: stack.enter_context(closing(_dispersed(wan, _connected(wan), k)))
            for name, k in _CODES.items()
        }
        systems = [*singles, *ours]
        for number in range(-_WARM_UPS, rounds):
            for size, length in _SIZES.items():
                for system in _turns(systems, number):
                    data = os.urandom(length)
                    put, get = _measure(singles.get(system) or ours[system], f"{size}-{number}", data)
                    if number >= 0:
                        _add(samples, f"PUT {size}", system, put)
                        _add(samples, f"GET {size}", system, get)
            console.print(f"[dim]Experiment 1, {_round(number, rounds)}[/]")
    return samples


def _round(number: int, rounds: int) -> str:
    return f"round {number + 1} of {rounds}" if number >= 0 else "warming up"


def _connected(wan: Wan) -> list[Store]:
    """A driver per cloud that has loaded its library and been there, as one of a mounted volume has."""
    stores: list[Store] = [one.store() for one in wan.clouds]
    for store in stores:
        store.initialise()
    return stores


def _dispersed(wan: Wan, stores: Sequence[Store], k: int) -> Dispersed:
    return Dispersed([one.distance.name for one in wan.clouds], stores, _F, k)


def _measure(system: _Single | Dispersed, key: str, data: bytes) -> tuple[float, float]:
    """Seconds of the PUT and of the GET of one object."""
    if isinstance(system, _Single):
        put = _seconds(lambda: system.put(key, data))
        begun = time.perf_counter()
        found = system.get(key)
    else:
        begun = time.perf_counter()
        stored = system.put(data)
        put = time.perf_counter() - begun
        begun = time.perf_counter()
        found = system.get(stored)
    get = time.perf_counter() - begun
    if found != data:
        raise SystemExit("what was read is not what was written")
    return put, get


def experiment_2(wan: Wan, fault: str, rounds: int, console: Console) -> Samples:
    """GET of objects that were written before the first cloud began to tamper, or went silent; a new one in
    each round.

    The engines know all latencies by then. For our systems the samples are in the order in which the objects
    were read, so that the first of each size is the one that finds the fault.
    """
    samples: Samples = {}
    with ExitStack() as stack:
        honest = {one.distance.name: stack.enter_context(closing(_Single(one))) for one in wan.clouds[1:]}
        liars: list[FaultyStore] = []
        ours: dict[str, Dispersed] = {}
        for name, k in _CODES.items():
            first, *others = _connected(wan)
            liars.append(FaultyStore(first, _SEED))
            ours[name] = stack.enter_context(closing(_dispersed(wan, [liars[-1], *others], k)))
        written = _write(honest, ours, fault, rounds)
        if fault == "tampering":
            for liar in liars:
                liar.faults = [Fault("corrupt", operations=READS)]
        else:
            wan.lines.stall(0, stalled=True)
            stack.callback(lambda: wan.lines.stall(0, stalled=False))
        for number in range(rounds):
            for size in _SIZES:
                for system in _turns([*honest, *ours], number):
                    one = written[size, number]
                    begun = time.perf_counter()
                    found = (
                        honest[system].get(one.key)
                        if system in honest
                        else ours[system].get(one.stored[system])
                    )
                    taken = time.perf_counter() - begun
                    if found != one.data:
                        raise SystemExit(f"what was read is not what was written: {system}, {fault}")
                    _add(samples, f"GET {size}", system, taken)
            console.print(f"[dim]Experiment 2, {fault}, {_round(number, rounds)}[/]")
    return samples


class _Written(NamedTuple):
    """An object that every system has: under `key` on each single cloud, at `stored[system]` in ours."""

    key: str
    data: bytes
    stored: dict[str, Stored]


def _write(
    singles: dict[str, _Single], ours: dict[str, Dispersed], name: str, rounds: int
) -> dict[tuple[str, int], _Written]:
    """Objects of each size with every system, one for each round, after some rounds of practice.

    Where ours put an object is a matter of what they know of the clouds at that moment, so that one object
    would tell little; the sizes take turns.
    """
    written = {}
    for number in range(-_WARM_UPS, rounds):
        for size, length in _SIZES.items():
            data, key = os.urandom(length), f"{name}-{size}-{number}"
            for single in singles.values():
                single.put(key, data)
                single.get(key)
            stored = {}
            for system, one in ours.items():
                stored[system] = one.put(data)
                one.get(stored[system])
            if number >= 0:
                written[size, number] = _Written(key, data, stored)
    return written


def _targets_1(samples: Samples) -> list[Target]:
    targets = []
    for size in _SIZES:
        for name, k in _CODES.items():
            get, put = (_medians(samples, f"{operation} {size}") for operation in ("GET", "PUT"))
            ranked_get, ranked_put = (
                sorted(seconds for system, seconds in medians.items() if system not in _CODES)
                for medians in (get, put)
            )
            which = _F + k
            targets.append(
                Target(f"GET {size}, {name}, against the fastest SDK", 1.10, get[name] / ranked_get[0])
            )
            targets.append(
                Target(
                    f"PUT {size}, {name}, against the SDK that is number {which}",
                    1.15,
                    put[name] / ranked_put[which - 1],
                )
            )
    return targets


def _targets_2(samples: Samples, fault: str) -> list[Target]:
    """Our reads after the one that found the fault, against the fastest cloud that is left."""
    targets = []
    for size in _SIZES:
        by_system = samples[f"GET {size}"]
        fastest = min(statistics.median(by_system[one]) for one in by_system if one not in _CODES)
        for name in _CODES:
            later = statistics.median(by_system[name][1:])
            label = f"GET {size}, {name}, one cloud {fault}, against the fastest honest SDK"
            targets.append(Target(label, 1.15, later / fastest))
    return targets


def _medians(samples: Samples, operation: str) -> dict[str, float]:
    return {system: statistics.median(taken) for system, taken in samples[operation].items()}


def _spread(taken: Sequence[float]) -> str:
    """Median and quartiles in ms."""
    low, middle, high = statistics.quantiles(taken, n=4) if len(taken) > 1 else [taken[0]] * 3
    return f"{significant(1000 * middle)} ({significant(1000 * low)}-{significant(1000 * high)})"


def _latency_table(title: str, samples: Samples) -> Section:
    systems = list(dict.fromkeys(system for by_system in samples.values() for system in by_system))
    systems.sort(key=lambda system: system in _CODES)  # ours last; the clouds in the order given
    names = [one.name for one in _DISTANCES]
    systems.sort(key=lambda system: names.index(system) if system in names else len(names))
    operations = sorted(samples, key=lambda operation: operation.startswith("GET"))
    rows = [
        [operation, *(_spread(samples[operation][system]) for system in systems)] for operation in operations
    ]
    return Section(title, ["ms: median (quartiles)", *systems], rows)


def _fault_table(title: str, samples: Samples) -> Section:
    rows = []
    for operation, by_system in samples.items():
        honest = {system: taken for system, taken in by_system.items() if system not in _CODES}
        best = min(honest, key=lambda system: statistics.median(honest[system]))
        row = [operation, f"{best} {_spread(honest[best])}"]
        for name in _CODES:
            taken = by_system[name]
            row += [significant(1000 * taken[0]), _spread(taken[1:])]
        rows.append(row)
    headings = ["ms: median (quartiles)", "fastest honest SDK"]
    for name in _CODES:
        headings += [f"{name}, first", "later"]
    return Section(title, headings, rows)


class _Start(NamedTuple):
    """What engines that knew nothing at first have done."""

    first: Samples
    faults: dict[str, Samples]

    def targets(self) -> list[Target]:
        """The targets of both experiments, in the same order for each start."""
        found = _targets_1(self.first)
        for fault, samples in self.faults.items():
            found += _targets_2(samples, fault)
        return found


def _start(rounds: int, console: Console) -> _Start:
    root = Path(tempfile.mkdtemp(prefix="work-clouds-", dir=cache_directory()))
    try:
        with far_clouds(root, _DISTANCES) as wan:
            first = experiment_1(wan, rounds, console)
            faults = {fault: experiment_2(wan, fault, rounds, console) for fault in ("tampering", "stalling")}
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return _Start(first, faults)


def _worst(starts: Sequence[_Start]) -> tuple[list[Target], Section]:
    """Each target as the worst start has it, and a table of all starts."""
    targets, rows = [], []
    for found in zip(*(one.targets() for one in starts), strict=True):
        worst = max(found, key=lambda target: target.measured)
        targets.append(worst)
        measured = [one.measured for one in found]
        middle = statistics.median(measured)
        rows.append([worst.label, *(f"{one:.2f}" for one in (worst.limit, middle, worst.measured))])
    title = f"Fresh starts: {len(starts)}"
    return targets, Section(title, ["times what it is compared with", "target", "median", "worst"], rows)


def _page(starts: Sequence[_Start], rounds: int) -> Page:
    page = Page("clouds")
    first, faults = starts[0]
    page.sections.append(_latency_table("Experiment 1: no faults", first))
    for fault, samples in faults.items():
        page.sections.append(_fault_table(f"Experiment 2: the fastest cloud is {fault}", samples))
    page.targets, by_start = _worst(starts)
    page.sections.append(by_start)
    lines = "; ".join(f"{one.name} {one.round_trip:g} ms, {one.bandwidth:g} Mbit/s" for one in _DISTANCES)
    page.notes = [
        f"{rounds} rounds after {_WARM_UPS} of warming up; new random objects in Experiment 1. Clouds: "
        f"versitygw behind a proxy that delays and limits (round trip, bandwidth each way): {lines}; no "
        "loss, no slow start, no TLS. A single cloud is boto3 as it comes (`put_object`, `get_object`), "
        "which asks for leave before it sends a body (100-continue: one round trip more per PUT) where "
        "our driver does not.",
        "Ours: sealing, packing, dispersal and verification included, no local database, no cache. Packs "
        "below 1 MiB are replicated also with k=2, as in a volume; so only 10 MB is erasure-coded there.",
        f"Tables and plots of latencies: the first of {len(starts)} starts with new engines and empty "
        "clouds. Targets: the worst of them.",
    ]
    page.figures = {
        "rounds": rounds,
        "lines": [vars(one) for one in _DISTANCES],
        "starts": [{"experiment_1": one.first, "experiment_2": one.faults} for one in starts],
    }
    return page


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write clouds.json, .md and plots to benchmarks/results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clouds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="rounds (default 10)")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="DIR", help="where to write (benchmarks/results)"
    )
    parser.add_argument("--starts", type=int, default=10, metavar="N", help="fresh starts (default 10)")
    options = parser.parse_args(argv)
    if options.starts < 1:
        parser.error("at least one start")
    if options.rounds < 2:
        parser.error("at least 2 rounds: the first read with a fault is not like the others")
    console = terminal()
    cache_directory().mkdir(parents=True, exist_ok=True)
    starts = []
    for number in range(options.starts):
        console.print(f"Start {number + 1} of {options.starts}")
        starts.append(_start(options.rounds, console))
    page = _page(starts, options.rounds)
    first, faults = starts[0]
    page.show(console)
    written = page.write(options.results)
    written += plot_latencies(options.results, "clouds-latency", first)
    for fault, samples in faults.items():
        written += plot_latencies(options.results, f"clouds-{fault}", samples)
    for path in written:
        console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
