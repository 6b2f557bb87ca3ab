"""`python -m benchmarks.idle`: what the program costs while nothing happens, and how soon its page is there.

A volume over three folders is filled through its mount, and left alone until everything is on the clouds and
a checkpoint says so. Then the processor time of a daemon that has just been started, as after a login, is
counted for some minutes, and its memory. The dashboard is opened in headless Chromium several times, each
time by a link and with a browser profile of its own.
"""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final

from playwright.sync_api import sync_playwright

from benchmarks.corpus import work_folder
from benchmarks.million import fill
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.processes import cpu_seconds, peak_rss_mib, rss_mib
from benchmarks.report import significant
from benchmarks.targets import Target
from tests.system.deadline import until
from tests.system.device import Device

_FILES_PER_FOLDER: Final = 100
_SETTLING: Final = 30.0  # seconds after the start that are not counted: what a start costs, `recovery` says
_PATIENCE: Final = 3600.0
_OPENINGS: Final = 7
_PAINTS: Final = """() => Object.fromEntries(
    performance.getEntriesByType("paint").map((one) => [one.name, one.startTime]))"""


@dataclass(frozen=True)
class Figures:
    """`share` of one core, memory in MiB, milliseconds until the first content is painted (median, worst)."""

    files: int
    seconds: float
    share: float
    rss: float
    peak_rss: float
    paint: float
    worst_paint: float


def measure(device: Device, files: int, seconds: float) -> Figures:
    """All figures of a volume with so many files, watched for so many seconds."""
    device.create(3, f=1, k=1).mount()
    fill(device.mountpoint, 0, -(-files // _FILES_PER_FOLDER))
    device.sync(timeout=_PATIENCE)
    until(lambda: device.status()["checkpoint"]["current"], "a checkpoint", _PATIENCE)
    device.stop()
    device.mount()
    time.sleep(_SETTLING)
    pids = device.daemon_pids()
    before = cpu_seconds(pids)
    time.sleep(seconds)
    share = (cpu_seconds(pids) - before) / seconds
    memory = rss_mib(pids), peak_rss_mib(pids)
    paints = [_first_paint(device) for _ in range(_OPENINGS)]
    return Figures(files, seconds, share, *memory, statistics.median(paints), max(paints))


def _first_paint(device: Device) -> float:
    """Milliseconds from the navigation until the page shows something."""
    with sync_playwright() as playwright, _dashboard(device) as link:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(link)
        page.get_by_role("heading").first.wait_for()
        painted = float(page.evaluate(_PAINTS)["first-contentful-paint"])
        browser.close()
    return painted


@contextmanager
def _dashboard(device: Device) -> Iterator[str]:
    process = device.start("ui", "--json")
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def _page(figures: Figures) -> Page:
    page = Page("idle")
    page.sections.append(
        Section(
            f"A daemon with nothing to do, {figures.files:,} files",
            ["", ""],
            [
                ["share of one core, %", significant(100 * figures.share)],
                ["memory, MiB", significant(figures.rss)],
                ["... at its peak, MiB", significant(figures.peak_rss)],
                ["first paint of the dashboard, ms: median", significant(figures.paint)],
                ["... worst", significant(figures.worst_paint)],
            ],
        )
    )
    page.targets = [
        Target("idle, % of a core", 0.5, 100 * figures.share),
        Target("memory, MiB", 120, figures.rss),
        Target("first paint of the dashboard, ms", 300, figures.paint),
    ]
    page.notes = [
        f"Processor time over {figures.seconds:g} s, from {_SETTLING:g} s after the start of the daemon; one "
        f"device, three folders as clouds. First contentful paint in headless Chromium, {_OPENINGS} openings."
    ]
    page.figures = {"figures": asdict(figures)}
    return page


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write idle.json and .md to benchmarks/results."""
    parser = options_of("idle", __doc__)
    parser.add_argument("--files", type=int, default=100_000, metavar="N", help="files in the volume")
    parser.add_argument("--seconds", type=float, default=180.0, metavar="S", help="how long to watch it")
    options = parser.parse_args(argv)
    if shutil.which("chromium") is None:
        raise SystemExit("benchmarks.idle needs chromium")
    with work_folder("idle") as root, Device(root) as device:
        page = _page(measure(device, options.files, options.seconds))
    publish(page, options.results)


if __name__ == "__main__":
    main()
