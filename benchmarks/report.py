"""A run as a table on the terminal, as JSON and as Markdown."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.metrics import METRICS, relative_speed
from benchmarks.targets import Medians, Target

__all__ = ["RESULTS", "Run", "machine", "print_run", "significant", "terminal", "write_run"]

RESULTS = Path(__file__).parent / "results"

_OURS = "hybrisfs"


def machine() -> dict[str, str | int | float]:
    """What the figures depend on."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
        "date": time.strftime("%Y-%m-%d"),
    }


@dataclass
class Run:
    """All samples of a run: metric -> system -> one figure per round."""

    name: str
    """Of the files that `write_run` writes."""
    systems: dict[str, str]
    rounds: int
    busy: float
    """The share of the machine's processors that others used just before, from 0 to 1."""
    machine: dict[str, str | int | float] = field(default_factory=machine)
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)

    def add(self, system: str, figures: Mapping[str, float]) -> None:
        for metric, figure in figures.items():
            self.samples.setdefault(metric, {}).setdefault(system, []).append(figure)

    def medians(self) -> Medians:
        return {
            metric: {system: statistics.median(figures) for system, figures in by_system.items()}
            for metric, by_system in self.samples.items()
        }


def terminal() -> Console:
    """Where to print; wide enough for the table also when it is a file."""
    return Console() if sys.stdout.isatty() else Console(width=110)


def significant(figure: float | None) -> str:
    """Three digits are all that such a figure is worth."""
    if figure is None:
        return ""
    if figure >= 1000:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"


def _rows(run: Run) -> Iterator[list[str]]:
    medians = run.medians()
    for name, metric in METRICS.items():
        figures = medians.get(name)
        if not figures:
            continue
        ours = figures.get(_OURS)
        label = f"{metric.label}, {metric.unit}" if metric.unit else metric.label
        ratios = [relative_speed(name, ours, figures.get(peer)) for peer in run.systems if peer != _OURS]
        yield [
            label,
            *(significant(figures.get(system)) for system in run.systems),
            *(f"{ratio:.2f}x" if ratio else "" for ratio in ratios),
        ]


def _headings(run: Run) -> list[str]:
    return ["", *run.systems, *(f"vs {peer}" for peer in run.systems if peer != _OURS)]


_TARGET_HEADINGS = ["target", "limit", "measured", ""]


def _target_rows(run: Run) -> Iterator[list[str]]:
    for target in run.targets:
        sign = ">=" if target.at_least else "<="
        yield [
            target.label,
            f"{sign} {significant(target.limit)}",
            significant(target.measured),
            "pass" if target.met else "miss",
        ]


def _explanation(run: Run) -> str:
    facts = run.machine
    versions = ", ".join(f"{name} ({version})" for name, version in run.systems.items())
    return (
        f"Medians of {run.rounds} interleaved round(s), {facts['date']}: {versions}. Others used "
        f"{run.busy:.0%} of {facts['cpus']} core(s) just before. {facts['memory_gib']} GiB, Linux "
        f"{facts['kernel']}, Python {facts['python']}. "
        '"vs" is how many times as fast (or frugal) hybrisfs is.'
    )


def print_run(run: Run, console: Console) -> None:
    for headings, rows in ((_headings(run), _rows(run)), (_TARGET_HEADINGS, _target_rows(run))):
        table = Table()
        for heading in headings:
            table.add_column(heading, justify="left" if heading in ("", "target") else "right")
        for row in rows:
            table.add_row(*row, style="red" if row[-1] == "miss" else None)
        if table.row_count:
            console.print(table)
    console.print(_explanation(run))


def _markdown_table(headings: list[str], rows: Iterator[list[str]]) -> list[str]:
    body = [f"| {' | '.join(row)} |" for row in rows]
    if not body:
        return []
    alignment = ["---" if heading in ("", "target") else "---:" for heading in headings]
    return [f"| {' | '.join(headings)} |", f"| {' | '.join(alignment)} |", *body, ""]


def write_run(run: Run, folder: Path) -> list[Path]:
    """Write the run as JSON and as Markdown into `folder`; returns both paths."""
    folder.mkdir(exist_ok=True)
    as_json, as_markdown = folder / f"{run.name}.json", folder / f"{run.name}.md"
    facts = dataclasses.asdict(run)
    facts["targets"] = [{**dataclasses.asdict(target), "met": target.met} for target in run.targets]
    as_json.write_text(json.dumps({**facts, "medians": run.medians()}, indent=1) + "\n")
    lines = [
        *_markdown_table(_headings(run), _rows(run)),
        *_markdown_table(_TARGET_HEADINGS, _target_rows(run)),
        _explanation(run),
        "",
    ]
    as_markdown.write_text("\n".join(lines))
    return [as_json, as_markdown]
