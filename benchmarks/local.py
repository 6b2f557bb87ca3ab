"""`python -m benchmarks.local`: our mount beside a plain directory and its peers, in one go.

Every round makes all systems anew and runs phase after phase, each on one system after the other, the first
of them changing from round to round, so that whatever else the machine does hits all alike. Needs root, to
drop the kernel's caches, and a machine on which nothing else runs: a processor that others keep awake answers
sooner, so a busy machine flatters those that sleep. `--one-cpu` has it all on one processor, where nobody
has to wake another.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from benchmarks.corpus import cache_directory, git_repository, source_tree
from benchmarks.kernel import drop_caches
from benchmarks.phases import PHASES, Work
from benchmarks.processes import cpu_seconds, peak_rss_mib, share_in_use
from benchmarks.report import RESULTS, Run, print_run, significant, terminal, write_run
from benchmarks.systems import SYSTEMS, System
from benchmarks.targets import targets

_FULL_FILES, _SMALL_FILES = 11_478, 400
_LOOK = 3.0
"""Seconds for which is looked how busy the machine is."""
_MOST_BUSY = 0.1


def run_rounds(run: Run, rounds: int, phases: list[str], work: Work, console: Console) -> None:
    """Run all rounds; whatever happens, nothing stays mounted and no file is left behind."""
    kinds = [kind for kind in SYSTEMS if kind.name in run.systems]
    for number in range(rounds):
        first = number % len(kinds)
        with ExitStack() as stack:
            systems = [_opened(kind, stack) for kind in kinds[first:] + kinds[:first]]
            for phase in phases:
                for system in systems:
                    drop_caches()
                    figures = PHASES[phase](system, work)
                    system.wait_durable()
                    run.add(system.name, figures)
                    shown = ", ".join(
                        f"{name.split('.')[1]} {significant(it)}" for name, it in figures.items()
                    )
                    console.print(
                        f"[dim]round {number + 1}[/] {phase:7} {system.name:10} {shown}", highlight=False
                    )
            for system in systems:
                if pids := system.daemon_pids():
                    run.add(system.name, {"daemon.rss": peak_rss_mib(pids), "daemon.cpu": cpu_seconds(pids)})


def _opened(kind: type[System], stack: ExitStack) -> System:
    root = Path(tempfile.mkdtemp(prefix=f"work-{kind.name}-", dir=cache_directory()))
    stack.callback(shutil.rmtree, root)
    system = kind(root)
    stack.callback(system.close)
    system.open()
    return system


def _arguments(argv: list[str] | None, installed: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="rounds to take medians of (default 3)"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[*PHASES],
        metavar="PHASE",
        help=f"one of {', '.join(PHASES)}; repeatable",
    )
    parser.add_argument(
        "--system",
        action="append",
        choices=installed,
        metavar="NAME",
        help=f"one of {', '.join(installed)}; repeatable",
    )
    parser.add_argument(
        "--one-cpu", action="store_true", help="all on one processor; writes local-one-cpu.json and .md"
    )
    parser.add_argument("--busy", action="store_true", help="measure although others use the machine")
    parser.add_argument(
        "--small", action="store_true", help="little data, to see that all runs; figures mean nothing"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write JSON and Markdown: to benchmarks/results, but not what means nothing."""
    versions = {kind.name: version for kind in SYSTEMS if (version := kind.version()) is not None}
    options = _arguments(argv, list(versions))
    if os.geteuid() != 0:
        raise SystemExit("benchmarks.local must run as root: only root can drop the kernel's caches")
    busy = share_in_use(_LOOK)
    if busy > _MOST_BUSY and not (options.busy or options.small):
        raise SystemExit(
            f"others use {busy:.0%} of this machine's processors, so figures would mean nothing: stop them, "
            "or say --busy"
        )
    if options.one_cpu:
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    console = terminal()
    tree = source_tree(_SMALL_FILES if options.small else _FULL_FILES)
    repository = git_repository(100 if options.small else 1000)
    work = (Work.small if options.small else Work.full)(tree, repository)
    chosen = options.system or list(versions)
    name = "local-one-cpu" if options.one_cpu else "local"
    found = {system: version for system, version in versions.items() if system in chosen}
    run = Run(name, found, options.rounds, busy)
    run_rounds(run, options.rounds, options.only or list(PHASES), work, console)
    sizes = [path.stat().st_size for path in tree.rglob("*") if path.is_file()]
    run.targets = targets(run.medians(), len(sizes), sum(sizes))
    print_run(run, console)
    for path in write_run(run, cache_directory() if options.small or options.busy else RESULTS):
        console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
