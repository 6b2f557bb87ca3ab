"""Plots as SVG and PNG, where matplotlib is installed (`pip install -e '.[bench]'`)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Curve", "plot_curves", "plot_latencies"]


def plot_latencies(
    folder: Path,
    name: str,
    samples: Mapping[str, Mapping[str, Sequence[float]]],
    claims: Mapping[str, float] | None = None,
    claim: str = "",
) -> list[Path]:
    """Draw a group of bars per operation, medians with quartiles; returns the paths of both files.

    `samples` are seconds by operation and system; a system may lack operations. `claims`: a line across the
    group of an operation, seconds; `claim` says whose. Returns nothing where matplotlib is missing.
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
        places, middles, lows, highs = [], [], [], []
        for place, operation in enumerate(operations):
            taken = samples[operation].get(system)
            if not taken:
                continue
            low, middle, high = statistics.quantiles(taken, n=4) if len(taken) > 1 else [taken[0]] * 3
            places.append(place + width * (number - (len(systems) - 1) / 2))
            middles.append(1000 * middle)
            lows.append(1000 * (middle - low))
            highs.append(1000 * (high - middle))
        axes.bar(places, middles, width, yerr=[lows, highs], label=system, capsize=2)
    if claims:
        places = [operations.index(operation) for operation in claims]
        axes.hlines(
            [1000 * seconds for seconds in claims.values()],
            [place - 0.45 for place in places],
            [place + 0.45 for place in places],
            colors="black",
            linestyles="dashed",
            label=claim,
        )
    axes.set_xticks(range(len(operations)), operations)
    axes.set_yscale("log")
    axes.set_ylabel("milliseconds (median, quartiles)")
    figure.legend(loc="outside upper center", ncols=5, fontsize="small")
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
    stated: bool = False
    """A paper states it, or it follows from what a paper states: drawn in black."""


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

    height = 4.5 + (0.25 * max(map(len, panels.values())) if legends else 0)
    figure, all_axes = pyplot.subplots(
        1, len(panels), figsize=(5 * len(panels), height), layout="constrained", squeeze=False
    )
    for axes, (title, curves) in zip(all_axes[0], panels.items(), strict=True):
        ours = [one for one in curves if not one.stated]
        kinds = list(dict.fromkeys(one.name.partition(", ")[0] for one in ours))
        systems = list(dict.fromkeys(one.name.partition(", ")[2] for one in ours))
        for one in ours:
            kind, _, system = one.name.partition(", ")
            axes.plot(
                one.x,
                one.y,
                ("o-", "s--")[kinds.index(kind) % 2],
                color=f"C{systems.index(system)}",
                label=one.name,
            )
        for number, one in enumerate(curve for curve in curves if curve.stated):
            axes.plot(one.x, one.y, f"{'*Xdv'[number % 4]}:", color="black", label=one.name)
        axes.set_title(title, fontsize="medium")
        if "x" in logarithmic:
            axes.set_xscale("log")
        if "y" in logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        if legends:
            axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.08))
    if not legends:
        all_axes[0][0].legend(fontsize="small")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
    for path in paths:
        figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return paths
