"""What `benchmarks.clouds` has measured, as tables and targets."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.pages import Page, Section
from benchmarks.papers import points
from benchmarks.plots import plot_latencies
from benchmarks.report import significant
from benchmarks.targets import Target
from benchmarks.wan import Distance
from hybrisfs.dispersal.pack import ERASURE_THRESHOLD

__all__ = [
    "AT_ONCE",
    "CODES",
    "DEPSKY",
    "FACES",
    "F",
    "SIZES",
    "STALLING",
    "TAMPERING",
    "Samples",
    "Starts",
    "clouds_page",
    "draw_clouds",
    "pooled",
]

SIZES: Final = {"100 kB": 100_000, "1 MB": 1_000_000, "10 MB": 10_000_000}
F: Final = 1
CODES: Final = {"hybrisfs k=1": 1, "hybrisfs k=2": 2}
FACES: Final = {"hybrisfs k=1": "key-value k=1", "hybrisfs k=2": "key-value k=2"}
"""The key-value store beside the packs of files."""
DEPSKY: Final = {"DepSky-A": False, "DepSky-EC": True}
"""Whether each of them stores fragments."""
TAMPERING: Final = "tampering"
STALLING: Final = "stalling"
AT_ONCE: Final = ", at once"
"""Of an operation: boto3 does not ask first."""

Samples: TypeAlias = dict[str, dict[str, list[float]]]
"""Operation and size, as in "PUT 1 MB" -> system -> seconds."""
Starts: TypeAlias = dict[str, list[dict[str, Any]]]
"""Part -> for each start what it has measured (`samples`), and its circumstances."""

_OTHERS: Final = (*CODES, *FACES.values(), *DEPSKY)
_CLAIM: Final = "k=1, as the paper has it with these clouds"


def pooled(starts: Sequence[Mapping[str, Any]]) -> Samples:
    """The samples of all starts."""
    found: Samples = {}
    for one in starts:
        for operation, by_system in one["samples"].items():
            for system, taken in by_system.items():
                found.setdefault(operation, {}).setdefault(system, []).extend(taken)
    return found


def _medians(samples: Samples, operation: str) -> dict[str, float]:
    return {system: statistics.median(taken) for system, taken in samples[operation].items()}


def _clouds_of(medians: Mapping[str, float]) -> list[float]:
    """The figures of the single clouds, the best first."""
    return sorted(seconds for system, seconds in medians.items() if system not in _OTHERS)


def _is_whole(size: str, k: int) -> bool:
    """Whether what is called k=2 is stored in whole copies."""
    return k > 1 and SIZES[size] < ERASURE_THRESHOLD


def _label(operation: str, size: str, name: str) -> str:
    return f"{operation} {size}, {name}{', stored whole' if _is_whole(size, CODES[name]) else ''}"


def _targets_latency(samples: Samples) -> Iterator[Target]:
    for size in SIZES:
        gets, puts = _medians(samples, f"GET {size}"), _medians(samples, f"PUT {size}")
        at_once = _clouds_of(_medians(samples, f"PUT {size}{AT_ONCE}"))
        for name, k in CODES.items():
            which = F + (1 if _is_whole(size, k) else k)
            label = _label("PUT", size, name)
            yield Target(
                f"{_label('GET', size, name)}, against the fastest SDK",
                1.10,
                gets[name] / _clouds_of(gets)[0],
            )
            yield Target(
                f"{label}, against the SDK that is number {which}",
                1.15,
                puts[name] / _clouds_of(puts)[which - 1],
            )
            yield Target(
                f"{label}, against that SDK if it does not ask first",
                1.15,
                puts[name] / at_once[which - 1],
            )


def _targets_fault(samples: Samples, fault: str) -> Iterator[Target]:
    """Our reads after the one that found the fault, against the fastest cloud that is left."""
    for size in SIZES:
        by_system = samples[f"GET {size}"]
        fastest = min(statistics.median(by_system[one]) for one in by_system if one not in _OTHERS)
        for name in CODES:
            later = statistics.median(by_system[name][1:])
            label = f"{_label('GET', size, name)}, one cloud {fault}, against the fastest honest SDK"
            yield Target(label, 1.15, later / fastest)


def _targets_faces(samples: Samples) -> Iterator[Target]:
    """Values beside packs, which do the same work, but for metadata."""
    for size in SIZES:
        for operation in ("PUT", "GET"):
            medians = _medians(samples, f"{operation} {size}")
            for packs, values in FACES.items():
                label = f"{operation} {size}, {values}, against {packs}"
                yield Target(label, 1.15, medians[values] / medians[packs])


def _targets(part: str, samples: Samples) -> list[Target]:
    if part == "latency":
        return [*_targets_latency(samples)]
    if part == "faces":
        return [*_targets_faces(samples)]
    return [*_targets_fault(samples, part)] if part in (TAMPERING, STALLING) else []


def _worst(part: str, starts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Target, list[str]]]:
    """Each target as the worst start has it, and a row with the median of all starts."""
    for found in zip(*(_targets(part, one["samples"]) for one in starts), strict=True):
        worst = max(found, key=lambda target: target.measured)
        middle = statistics.median(one.measured for one in found)
        yield worst, [worst.label, *(f"{one:.2f}" for one in (worst.limit, middle, worst.measured))]


def _spread(taken: Sequence[float]) -> str:
    """Median and quartiles in ms."""
    low, middle, high = statistics.quantiles(taken, n=4) if len(taken) > 1 else [taken[0]] * 3
    return f"{significant(1000 * middle)} ({significant(1000 * low)}-{significant(1000 * high)})"


def _table(title: str, samples: Samples, *, worst: bool = False) -> Section:
    """Medians and quartiles by operation and system; or the slowest."""
    systems = list(dict.fromkeys(system for by_system in samples.values() for system in by_system))
    systems.sort(key=lambda system: _OTHERS.index(system) if system in _OTHERS else -1)
    cell = (lambda taken: significant(1000 * max(taken))) if worst else _spread
    rows = [
        [operation, *(cell(samples[operation][one]) if one in samples[operation] else "" for one in systems)]
        for operation in sorted(samples, key=lambda operation: operation.startswith("GET"))
    ]
    return Section(title, ["ms: slowest" if worst else "ms: median (quartiles)", *systems], rows)


def _stored() -> Section:
    """What ours and DepSky write of an object, without what sealing adds."""
    rows = []
    for size, length in SIZES.items():
        cells = []
        for k in CODES.values():
            coded = 1 if length < ERASURE_THRESHOLD else k
            kind = "whole copies" if coded == 1 else f"fragments, {coded} give it"
            cells.append(f"{F + coded} {kind}: {(F + coded) / coded:g}x")
        n, quorum = 3 * F + 1, 2 * F + 1
        cells += [
            f"{n} whole copies: {n}x ({quorum} awaited)",
            f"{n} fragments, {F + 1} give it: {n / (F + 1):g}x ({quorum} awaited)",
        ]
        rows.append([size, *cells])
    return Section("What is really stored of an object", ["", *CODES, *DEPSKY], rows)


def _finding(samples: Samples) -> Section:
    """The reads that find a fault."""

    def cell(taken: Sequence[float]) -> str:
        worst = significant(1000 * max(taken))
        return worst if len(taken) == 1 else f"{_spread(taken)}, slowest {worst}"

    rows = [[operation, *map(cell, one.values())] for operation, one in samples.items()]
    return Section("The read that finds the fault, ms", ["median (quartiles)", *CODES], rows)


def _circumstances(starts: Starts) -> Section:
    rows = [
        [
            part,
            str(len(some)),
            " ".join(dict.fromkeys(str(one["date"]) for one in some)),
            ", ".join(str(one["load"]) for one in some),
            ", ".join(
                f"{min(map(len, by_system.values()))} of {operation}"
                for operation, by_system in pooled(some).items()
                if operation.startswith("GET") or part == "finding"
            ),
        ]
        for part, some in starts.items()
    ]
    return Section("Starts", ["part", "starts", "date", "load at the start of each", "samples"], rows)


def clouds_page(starts: Starts, distances: Sequence[Distance], home: float, warm_ups: int) -> Page:
    """Everything, of the parts that were measured."""
    page = Page("clouds")
    titles = {
        "latency": "Experiment 1: no faults",
        "faces": "Packs of files and values of the key-value store",
        "home": f"Experiment 1 when all clouds share {home:g} Mbit/s",
        TAMPERING: "Experiment 2: the fastest cloud is tampering",
        STALLING: "Experiment 2: the fastest cloud is stalling",
    }
    targets: list[list[str]] = []
    for part, title in titles.items():
        if part not in starts:
            continue
        samples = pooled(starts[part])
        page.sections.append(_table(title, samples))
        page.sections.append(_table(f"Slowest of them: {part}", samples, worst=True))
        for target, row in _worst(part, starts[part]):
            page.targets.append(target)
            targets.append(row)
    if "finding" in starts:
        page.sections.append(_finding(pooled(starts["finding"])))
    page.sections += [
        _stored(),
        Section(
            "By start",
            ["times what it is compared with", "target", "median", "worst"],
            targets,
        ),
        _circumstances(starts),
    ]
    lines = "; ".join(f"{one.name} {one.round_trip:g} ms, {one.bandwidth:g} Mbit/s" for one in distances)
    page.notes = [
        f"Rounds after {warm_ups} of warming up; new random objects in Experiment 1. Every third round has "
        f"10 MB. Clouds: versitygw behind a proxy that delays and limits (round trip, bandwidth each way): "
        f"{lines}; no loss, no slow start, no TLS. A single cloud is boto3 (`put_object`, `get_object`), as "
        "it comes: it asks for leave before it sends a body (100-continue), one round trip more per PUT. Our "
        'driver does not. "At once" is boto3 without that.',
        "Ours: sealing, packing, dispersal and verification included, no local database, no cache. Hybris "
        "asks a service for metadata, which costs a round trip nearby; here they are in this process, which "
        "flatters ours. DepSky: our drivers, Ed25519, no encryption; what it goes on doing after it has "
        "returned is not counted, and disturbs nothing that is measured.",
        "The read that finds a fault is the first that asks the faulty cloud, by an engine that has read "
        "other objects of this size only. Tables and plots have the samples of all starts with new engines "
        "and empty clouds. Targets: the worst start. In Experiment 2 the first read of ours, which finds the "
        "fault, is in the table, but not in the target.",
    ]
    page.figures = {"lines": [vars(one) for one in distances], "starts": starts}
    return page


def draw_clouds(folder: Path, figures: Mapping[str, Any]) -> list[Path]:
    """Experiments 1 and 2, with what the paper states of Hybris for such clouds."""
    starts: Starts = figures["starts"]
    paths = []
    for part in ("latency", "faces", TAMPERING, STALLING):
        if part not in starts:
            continue
        drawn = {name: one for name, one in pooled(starts[part]).items() if AT_ONCE not in name}
        if part == TAMPERING and "finding" in starts:
            found = pooled(starts["finding"])
            drawn |= {f"{name},\nthe first": found[f"{part}, {name}"] for name in [*drawn]}
        claims = {name: _claimed(part, name, starts) for name in drawn} if "latency" in starts else {}
        paths += plot_latencies(
            folder,
            f"clouds-{part}",
            drawn,
            {name: seconds for name, seconds in claims.items() if seconds is not None},
            _CLAIM,
        )
    return paths


def _claimed(part: str, operation: str, starts: Starts) -> float | None:
    """Seconds of Hybris with k = 1, if clouds as these had been the paper's."""
    operation, _, _ = operation.partition(",")
    clouds = _clouds_of(_medians(pooled(starts["latency"]), operation))
    if part == TAMPERING:
        where = "5.2, Fig. 6: GET while the fastest cloud tampers, times the two fastest clouds together"
        return points("hybris", where)["k = 1"][0] * sum(clouds[:2])
    if part != "latency":
        return None
    if operation.startswith("GET"):
        return points("hybris", "5.1, Fig. 4: GET, times the fastest cloud")["k = 1"][0] * clouds[0]
    return points("hybris", "5.1, Fig. 5: PUT, times the second fastest cloud")["k = 1"][0] * clouds[1]
