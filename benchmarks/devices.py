"""`python -m benchmarks.devices`: how soon is on one device what was done on another?

Two daemons on this machine, each with a network of its own, joined by a cable; Syncthing, where it is
installed, on two more in the same run. A small file over the link, over the clouds with the cable pulled, and
through a relay between two homes; a tree of 10,000 files over a line of limited bandwidth; the cost of signed
updates. Needs root, for the networks. How soon a large volume can be browsed on a new device:
`benchmarks.joining`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks import syncthing
from benchmarks.corpus import work_folder, write_random_files
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.replication import (
    Latency,
    Tree,
    catch_up_linked,
    catch_up_peer,
    catch_up_plugged,
    devices,
    linked,
    measure_latency,
    measure_tree_linked,
    measure_tree_peer,
    peers,
    relayed,
    wire_seconds,
)
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from benchmarks.updates import UpdateFigures, measure_updates
from sync.follow import SHORTEST_PAUSE
from tests.system.deadline import until

_PARTS = ("latency", "tree", "updates")
_CLOUD_SAMPLES = 10  # each takes seconds
_PEER_SAMPLES = 10
_UPDATES = 1000


def _latency(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    rows: list[tuple[str, Latency]] = []
    with devices(root / "ours") as (network, one, other):
        rows.append(("over the link", measure_latency(one.mountpoint, other.mountpoint, options.samples)))
        console.print(f"[dim]over the link: {1000 * rows[0][1].median:.0f} ms[/]")
        network.cut()
        until(lambda: not linked(one) and not linked(other), "the link to be given up", 180)
        rows.append(
            (
                "over the clouds, cable pulled",
                measure_latency(one.mountpoint, other.mountpoint, min(options.samples, _CLOUD_SAMPLES)),
            )
        )
        console.print(f"[dim]over the clouds: {1000 * rows[1][1].median:.0f} ms[/]")
    with relayed(root / "relayed") as (far, farther):
        taken = measure_latency(far.mountpoint, farther.mountpoint, options.samples)
        rows.append(("through a relay, between NATs", taken))
        console.print(f"[dim]through a relay: {1000 * rows[-1][1].median:.0f} ms[/]")
    page.targets += [
        Target("4 KiB file over the link, median, ms", 100, 1000 * rows[0][1].median),
        Target("... through a relay, ms", 300, 1000 * rows[2][1].median),
        Target(
            "... over the clouds, ms: two poll intervals", 2000 * SHORTEST_PAUSE, 1000 * rows[1][1].median
        ),
    ]
    if syncthing.version() is not None:
        with peers(root / "peer") as (_, first, second):
            taken = measure_latency(first.folder, second.folder, min(options.samples, _PEER_SAMPLES))
        rows.append(("Syncthing", taken))
        page.targets.append(
            Target("... over the link, share of Syncthing's time", 1, rows[0][1].median / taken.median)
        )
    page.sections.append(
        Section(
            "A file of 4 KiB, closed on one device, can be read on the other",
            ["", "median, ms", "worst, ms", "samples"],
            [
                [name, significant(1000 * one.median), significant(1000 * one.worst), str(one.samples)]
                for name, one in rows
            ],
        )
    )
    page.figures = {**page.figures, "latency": {name: asdict(one) for name, one in rows}}


def _tree(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    tree = root / "tree"
    size = write_random_files(tree, options.files)
    wire = wire_seconds(tree, options.bandwidth)
    plugged = catch_up_plugged(root / "ours plugged", tree, options.bandwidth)
    console.print(f"[dim]tree, when the cable is in again: {plugged:.1f} s[/]")
    copied = {"hybrisfs": measure_tree_linked(root / "ours", tree, options.bandwidth)}
    console.print(f"[dim]tree, from the first file copied: {copied['hybrisfs'].arrived:.1f} s[/]")
    started = {"hybrisfs": catch_up_linked(root / "ours off", tree, options.bandwidth)}
    console.print(f"[dim]tree, from the start of the other device: {started['hybrisfs']:.1f} s[/]")
    if syncthing.version() is not None:
        copied["Syncthing"] = measure_tree_peer(root / "peer", tree, options.bandwidth)
        console.print(f"[dim]Syncthing: {copied['Syncthing'].arrived:.1f} s[/]")
        started["Syncthing"] = catch_up_peer(root / "peer off", tree, options.bandwidth)
    rows: list[tuple[str, Callable[[Tree], float]]] = [
        ("copied while both are linked: copy returns, s", lambda one: one.copied),
        ("... all names are on the other device, from the first file copied, s", lambda one: one.named),
        ("... and all that is in them, s", lambda one: one.arrived),
        ("... which is so long after the copy returned, s", lambda one: one.arrived - one.copied),
    ]
    page.sections.append(
        Section(
            f"A tree of {options.files:,} files, {size / 1e6:.0f} MB, over {options.bandwidth:g} Mbit/s, "
            f"which takes {significant(wire)} s for the bytes alone",
            ["", *copied],
            [
                [
                    "copied while the cable was out: all is on the other device, from when they found "
                    "each other, s",
                    significant(plugged),
                    *["" for _ in list(copied)[1:]],
                ],
                *([label, *(significant(pick(one)) for one in copied.values())] for label, pick in rows),
                [
                    "copied while the other device was off: all is there, from its start, s",
                    *map(significant, started.values()),
                ],
            ],
        )
    )
    page.targets.append(
        Target("tree arrived, against the time of its bytes on the line", 1.3, plugged / wire)
    )
    if "Syncthing" in copied:
        for label, ours, theirs in (
            (
                "tree arrived, from the first file copied",
                copied["hybrisfs"].arrived,
                copied["Syncthing"].arrived,
            ),
            ("... from the start of a device that was off", started["hybrisfs"], started["Syncthing"]),
        ):
            page.targets.append(Target(f"{label}, share of Syncthing's time", 1, ours / theirs))
    page.figures = {
        **page.figures,
        "tree": {name: asdict(one) for name, one in copied.items()},
        "started": started,
        "plugged": plugged,
        "wire": wire,
    }


def _updates(_root: Path, options: argparse.Namespace, page: Page, _console: Console) -> None:
    figures: UpdateFigures = measure_updates(options.updates)
    page.sections.append(
        Section(
            "Signed updates",
            ["", ""],
            [
                ["bytes beyond keys and values, median", significant(figures.overhead)],
                ["... largest", str(figures.largest)],
                ["CPU to sign one, ms", significant(1000 * figures.sign)],
                ["CPU to verify and accept one, ms", significant(1000 * figures.accept)],
            ],
        )
    )
    page.targets += [
        Target("bytes of an update beyond its values", 300, figures.largest),
        Target(
            "CPU of a signed update, signing and accepting, ms", 1, 1000 * (figures.sign + figures.accept)
        ),
    ]
    page.figures = {**page.figures, "updates": asdict(figures)}


_MEASURES: dict[str, Callable[[Path, argparse.Namespace, Page, Console], None]] = {
    "latency": _latency,
    "tree": _tree,
    "updates": _updates,
}


def _notes(bandwidth: float) -> list[str]:
    peer = syncthing.version()
    return [
        f"Peer: {peer}, with the shortest delay that it has for changes (1 s)."
        if peer
        else "Syncthing is not installed, so there is no peer in this run.",
        "Two devices in network namespaces of this machine, joined by a cable; f=1, k=1, three folders as "
        "clouds, which answer at once: over the clouds there is no round trip to add. What the other "
        "device shows is looked at all the time, which costs both of them processor time.",
        f"The tree: random bytes; the kernel limits each direction to {bandwidth:g} Mbit/s; our clouds are "
        "taken away meanwhile and the other device pins everything, so that all bytes go over the line. It "
        "has arrived when the other device lacks nothing; that both are equal is found out afterwards, by "
        "`diff -r` with the cable pulled. When the other device was off meanwhile, time runs from the "
        "start of its daemon; of Syncthing's once the first one has looked at the tree.",
        "Updates: the protocol alone, in memory. How many a device takes in: `benchmarks.catchup`.",
    ]


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = options_of("devices", __doc__)
    parser.add_argument("--only", action="append", choices=_PARTS, metavar="PART", help=", ".join(_PARTS))
    parser.add_argument("--files", type=int, default=10_000, metavar="N", help="files in the tree")
    parser.add_argument("--samples", type=int, default=30, metavar="N", help="small files over the link")
    parser.add_argument("--updates", type=int, default=_UPDATES, metavar="N", help="files to make updates of")
    parser.add_argument("--bandwidth", type=float, default=200.0, metavar="MBIT", help="of the tree's line")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write devices.json and .md to benchmarks/results."""
    options = _arguments(argv)
    if os.geteuid() != 0:
        raise SystemExit("benchmarks.devices must run as root: only root can make networks")
    console = terminal()
    page = Page("devices", notes=_notes(options.bandwidth))
    with work_folder("devices") as root:
        for part in options.only or _PARTS:
            (root / part).mkdir()
            _MEASURES[part](root / part, options, page, console)
    publish(page, options.results)


if __name__ == "__main__":
    main()
