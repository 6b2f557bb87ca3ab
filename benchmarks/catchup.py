"""`python -m benchmarks.catchup`: what it costs a device to catch up with another, without any network.

One device has a tree of files; another, which has it too, then takes in many updates of one new file each, as
it does after it was away: signatures checked, updates accepted, registers and placements stored, files shown.
A third, which has nothing, takes in the tree as few large updates, as one that joins does; a fourth is given
the registers of the tree and makes its first view of them. CPU times are those of all threads together.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks.report import RESULTS, machine, significant, terminal
from benchmarks.targets import Target
from hybrisfs.merge.newcomers import build_view
from hybrisfs.merge.origins import LogOrigins
from tests.merge.beginner import filled_like
from tests.merge.fleet import Device, Fleet
from tests.tree.rig import Rig
from tests.tree.unlocked import unlocked

_PER_FOLDER: Final = 100
_FOLDERS_PER_UPDATE: Final = 25
_UPDATES_PER_PACK: Final = 100
_TREE: Final = 20_000
_UPDATES: Final = 20_000


@dataclass(frozen=True)
class Cost:
    """Seconds for `count` updates, or files."""

    count: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        """How many a second of wall time."""
        return self.count / self.wall

    @property
    def each(self) -> float:
        """Microseconds of CPU time for one."""
        return self.cpu / self.count * 1e6


@dataclass(frozen=True)
class Figures:
    """What one round gave: `updates` of one file each, a tree that `joined` by its log, its `first_view`."""

    updates: Cost
    joined: Cost
    first_view: Cost


def _measured(count: int, work: Callable[[], object]) -> Cost:
    gc.collect()  # of what came before
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(count, time.perf_counter() - wall, time.process_time() - cpu)


def _fill(device: Device, files: int) -> None:
    for folder in range(-(-files // _PER_FOLDER)):
        device.mkdir(f"tree {folder}")
        for file in range(_PER_FOLDER):
            device.write(f"tree {folder}/{file}", b"%d %d" % (folder, file))
        if folder % _FOLDERS_PER_UPDATE == _FOLDERS_PER_UPDATE - 1:
            device.sign()
    device.sign()


def _write_one_by_one(device: Device, updates: int) -> None:
    for number in range(updates):
        folder = f"later {number // _PER_FOLDER}"
        if number % _PER_FOLDER == 0:
            device.mkdir(folder)
        device.write(f"{folder}/{number}", b"%d" % number)
        while device.rig.publish(everything=True):
            pass
        if number % _UPDATES_PER_PACK == 0:
            device.rig.pack()
    device.sign()


def _one_round(fleet: Fleet, tree: list[bytes], later: list[bytes], beginner: Rig, files: int) -> Figures:
    new, away = fleet[1], fleet[2]
    joined = _measured(files, lambda: _take(new, tree))
    _take(away, tree)
    caught_up = _measured(len(later), lambda: _take(away, later))
    tx = unlocked(beginner.fs)
    first_view = _measured(files, lambda: build_view(tx, beginner.fs, tx.registers, LogOrigins(tx)))
    return Figures(caught_up, joined, first_view)


def measure(files: int, updates: int) -> Figures:
    """The costs of one round."""
    fleet = Fleet(3)
    writer = fleet[0]
    try:
        _fill(writer, files)
        tree = writer.log()
        beginner = filled_like(writer)
        _write_one_by_one(writer, updates)
        try:
            return _one_round(fleet, tree, writer.log()[len(tree) :], beginner, files)
        finally:
            beginner.abandon()
    finally:
        fleet.discard()


def _take(device: Device, updates: list[bytes]) -> None:
    if not device.receive(updates):
        raise SystemExit("updates were not accepted")
    device.rig.commit()


def _markdown(rows: list[tuple[str, str, str]]) -> str:
    facts = machine()
    lines = ["| | per second | CPU of each, us |", "| --- | ---: | ---: |"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(
        [
            *lines,
            "",
            f"On {facts['cpus']} cores with load {facts['load_average']}, Linux {facts['kernel']}, "
            f"Python {facts['python']}, {facts['date']}.",
            "",
        ]
    )


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write catchup.json and .md to benchmarks/results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catchup", description=__doc__)
    parser.add_argument("--files", type=int, default=_TREE, metavar="N", help="files in the tree")
    parser.add_argument("--updates", type=int, default=_UPDATES, metavar="N", help="updates to catch up with")
    options = parser.parse_args(argv)
    figures = measure(options.files, options.updates)
    rows = [
        (label, significant(cost.rate), significant(cost.each))
        for label, cost in (
            ("updates of one file", figures.updates),
            ("files of a tree, by its log", figures.joined),
            ("files of a tree, by its registers", figures.first_view),
        )
    ]
    console = terminal()
    for label, rate, each in rows:
        console.print(f"{label}: {rate}/s, {each} us of CPU each")
    target = Target("updates/s", 25_000, figures.updates.rate, at_least=True)
    console.print(f"{'[green]pass[/]' if target.met else '[red]miss[/]'} {target.label}: {target.limit:,g}")
    RESULTS.mkdir(exist_ok=True)
    facts = {"machine": machine(), "figures": asdict(figures)}
    (RESULTS / "catchup.json").write_text(json.dumps(facts, indent=1) + "\n")
    (RESULTS / "catchup.md").write_text(_markdown(rows))


if __name__ == "__main__":
    main()
