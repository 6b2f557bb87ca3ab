"""`python -m benchmarks.papers.storage`: what objects take on the clouds, by their size (Pond 6.1, Fig. 4).

What all clouds hold together, over what was written: one object alone, and a hundred in one go; as whole
copies (k=1) and erasure coded (k=2 to 4), with f=1.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.papers import points
from benchmarks.plots import Curve, plot_curves
from benchmarks.report import significant, terminal
from tests.system.device import Device

_SIZES: Final = (2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20)
_CODES: Final = (1, 2, 3, 4)
_MANY: Final = 100


def _volume(root: Path, k: int, stack: ExitStack) -> Device:
    root.mkdir(parents=True)
    device = stack.enter_context(Device(root))
    return device.create(2 + k, f=1, k=k).mount()


def _stored(device: Device) -> int:
    """Bytes that all clouds hold."""
    return sum(
        (Path(parent) / name).stat().st_size
        for cloud in device.clouds
        for parent, _, names in os.walk(cloud)
        for name in names
    )


def measure(root: Path, page: Page, console: Console) -> dict[int, list[float]]:
    """Add what each size takes; returns it for one object alone, by k."""
    alone: dict[int, list[float]] = {k: [] for k in _CODES}
    together: dict[int, list[float]] = {k: [] for k in _CODES}
    for k in _CODES:
        with ExitStack() as stack:
            device = _volume(root / f"storage {k}", k, stack)
            for size in _SIZES:
                for count, figures in ((1, alone), (_MANY, together)):
                    device.sync()
                    before = _stored(device)
                    for number in range(count):
                        name = f"{size} {count} {number}"
                        (device.mountpoint / name).write_bytes(os.urandom(size))
                    device.sync(timeout=300)
                    figures[k].append((_stored(device) - before) / (size * count))
        console.print(f"[dim]k={k}: {', '.join(map(significant, alone[k]))}[/]", highlight=False)
    rows = [
        [f"{label} {size >> 10}", *(significant(figures[k][number]) for k in _CODES)]
        for label, figures in (("one of", alone), (f"{_MANY} of", together))
        for number, size in enumerate(_SIZES)
    ]
    page.sections.append(
        Section("Stored on all clouds, over what was written", ["kB", *(f"k={k}" for k in _CODES)], rows)
    )
    page.figures = {**page.figures, "stored_alone": alone, "stored_together": together}
    return alone


def _plot(folder: Path, alone: dict[int, list[float]]) -> list[Path]:
    kilobytes = [size / 1024 for size in _SIZES]
    curves = [Curve(f"ours, k={k}", kilobytes, some) for k, some in alone.items()]
    for name, [value] in points("pond", "Fig. 4, stored / written at 8 kB").items():
        curves.append(Curve(f"paper, {name}", [8.0], [value]))
    return plot_curves(folder, "storage", {"stored / written by size in kB (Fig. 4)": curves})


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write storage.json, .md, .svg and .png to benchmarks/results."""
    parser = options_of("papers.storage", __doc__)
    options = parser.parse_args(argv)
    console = terminal()
    notes = [
        "Random bytes, so that nothing shrinks; packs, log and heads are counted. Whole copies go to f+1 "
        "clouds, codes to f+k: what survives is the loss of one cloud, against 16 of 32 fragments in Pond. "
        "What is below 1 MiB and goes alone is replicated whatever k is."
    ]
    page = Page("storage", notes=notes)
    with work_folder("storage") as root:
        alone = measure(root, page, console)
    publish(page, options.results, lambda folder, _: _plot(folder, alone))


if __name__ == "__main__":
    main()
