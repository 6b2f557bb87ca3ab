"""Plots as SVG and PNG, where matplotlib is installed (`pip install -e '.[bench]'`)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Curve", "plot_curves", "plot_latencies"]


def plot_latencies(
    folder: Path, name: str, samples: Mapping[str, Mapping[str, Sequence[float]]]
) -> list[Path]:
    """Draw a group of bars per operation, medians with quartiles; returns the paths of both files.

    `samples` are seconds by operation and system. Returns nothing where matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    operations = list(samples)
    systems = list(dict.fromkeys(system for by_system in samples.values() for system in by_system))
    figure, axes = pyplot.subplots(figsize=(1.6 * len(operations) + 3, 4.5), layout="constrained")
    width = 0.8 / len(systems)
    for number, system in enumerate(systems):
        middles, lows, highs = [], [], []
        for operation in operations:
            low, middle, high = statistics.quantiles(samples[operation][system], n=4)
            middles.append(1000 * middle)
            lows.append(1000 * (middle - low))
            highs.append(1000 * (high - middle))
        places = [place + width * (number - (len(systems) - 1) / 2) for place in range(len(operations))]
        axes.bar(places, middles, width, yerr=[lows, highs], label=system, capsize=2)
    axes.set_xticks(range(len(operations)), operations)
    axes.set_yscale("log")
    axes.set_ylabel("milliseconds (median, quartiles)")
    axes.legend(ncols=2, fontsize="small")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
    for path in paths:
        figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return paths


@dataclass(frozen=True)
class Curve:
    """A line through points; those of one kind, "KIND, SYSTEM", are drawn alike."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def plot_curves(
    folder: Path,
    name: str,
    panels: Mapping[str, Sequence[Curve]],
    *,
    legends: bool = False,
    logarithmic: str = "",
) -> list[Path]:
    """Draw panels side by side, by their titles; returns the paths of both files, see `plot_latencies`.

    *legends*: each panel has curves of its own. *logarithmic*: axes, as in "xy".
    """
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(
        1, len(panels), figsize=(5 * len(panels), 4.5), layout="constrained", squeeze=False
    )
    for axes, (title, curves) in zip(all_axes[0], panels.items(), strict=True):
        kinds = list(dict.fromkeys(one.name.partition(", ")[0] for one in curves))
        systems = list(dict.fromkeys(one.name.partition(", ")[2] for one in curves))
        for one in curves:
            kind, _, system = one.name.partition(", ")
            axes.plot(
                one.x,
                one.y,
                ("o-", "s--")[kinds.index(kind) % 2],
                color=f"C{systems.index(system)}",
                label=one.name,
            )
        axes.set_title(title, fontsize="medium")
        if "x" in logarithmic:
            axes.set_xscale("log")
        if "y" in logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
    for axes in all_axes[0] if legends else all_axes[0][:1]:
        axes.legend(fontsize="small")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
    for path in paths:
        figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return paths
