"""`python -m benchmarks.papers.updates`: how long an update takes, and how many there are (Pond 6.2).

There are three parts; `--only` chooses one:

* *latency* (Tables 2 and 4): a program writes a file of 4 kB or 2 MB into the mount of one device, and waits
  until all is on enough clouds; another device hears of it through the clouds. The clouds are S3 servers at
  lines as in Pond's local and wide area. The times of the servers' files say how long each step took.
* *phases* (Table 3): what the device's own work for such an update takes, step by step, without a network.
* *throughput* (Fig. 5, Table 5): many new files at once, until all are on enough clouds; then, after a month
  by a clock that is set forward, until all are in the archive, 4 of 5. Beside it, files that are erasure
  coded at once.

Writes `updates.json`, `.md` and, with matplotlib, plots.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.papers import points
from benchmarks.papers.archive import PatientDevice, stored
from benchmarks.papers.sync import GIVE_UP, Kind, Pair, far_devices, until_there
from benchmarks.plots import Curve, plot_curves
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from benchmarks.wan import Distance, far_clouds
from hybrisfs.api.status import SyncRequest
from hybrisfs.dispersal.pack import EncodedPack, Redundancy
from hybrisfs.state.journal import JournalLimits
from hybrisfs.write.cut import FileSnapshot
from sync import NONCE_SIZE, encode_segment
from tests.merge.fleet import Device, Fleet
from tests.tree.rig import SEALER, SEGMENT_KEYS

_NAMES: Final = ("amber", "birch", "cedar", "dogwood", "elm")
_LINES: Final = {"LAN": (0.2, 1000.0), "WAN": (23.2, 100.0)}
"""Round trip in ms, as between Pond's machines, and Mbit/s of each cloud's line."""
_KINDS: Final = {"whole copies": Kind(3, 1, 1), "erasure coded": Kind(5, 1, 3)}
_SIZES: Final = {"4 kB": 4 << 10, "2 MB": 2 << 20}
_PAUSE: Final = 0.1  # seconds between two updates, as in Pond
_WARM_UPS: Final = 2
_STEPS: Final = {
    "written": "the program's calls have returned",
    "pack": "the content is on f+k clouds",
    "log": "the signed update is, too",
    "head": "f+1 clouds say that it is there",
    "done": "the device knows that, and says so",
    "seen": "the other device shows the file",
    "read": "a program has read it there",
}
_OWN: Final = (
    "write",
    "cut",
    "name",
    "sign",
    "pack",
    "seal",
    "record",
    "segment",
    "commit",
    "take in",
    "open",
)
_LIKE: Final = {"take in": "Check Validity", "sign": "Sign Result", "cut": "Update", "pack": "Archive"}
"""Which phases of Pond's do the like of ours."""
_PER_FLEET: Final = 10
"""Updates that devices which are driven by hand have room for."""
_BURSTS: Final = {4: 1500, 32: 500, 256: 120, 2048: 24}
"""How many files of so many kB."""
_CLIENTS: Final = 4
_LARGE: Final = 2048
_ROWS: Final = ("whole copies", "archived then", "with the archive", "erasure coded at once")

Samples = dict[str, list[float]]
"""Seconds by step."""


def _distances(line: str, count: int) -> list[Distance]:
    return [Distance(name, *_LINES[line]) for name in _NAMES[:count]]


# -- latency ----------------------------------------------------------------------------------------------


def _on_clouds(clouds: Path, begun_ns: int, kind: Kind) -> dict[str, float]:
    """Seconds after the beginning when packs and log were on f+k clouds, and a head of the writer on f+1, by
    the times of the servers' files."""
    writer = ""
    when: dict[str, list[float]] = {"pack": [], "log": [], "head": []}
    for name in _NAMES[: kind.clouds]:
        bucket = clouds / name / "s3" / name
        for step, pattern in (("pack", "packs/*/*"), ("log", "log/*/*")):
            found = {path: path.stat().st_mtime_ns for path in bucket.glob(pattern)}
            new = [path for path, at in found.items() if at >= begun_ns]
            if new:
                when[step].append(max(found[path] for path in new) / 1e9)
            if step == "log" and new:
                writer = new[0].parent.name
    for name in _NAMES[: kind.clouds]:
        head = clouds / name / "s3" / name / "heads" / writer
        if head.is_file() and head.stat().st_mtime_ns >= begun_ns:
            when["head"].append(head.stat().st_mtime_ns / 1e9)
    needed = {"pack": kind.f + kind.k, "log": kind.f + kind.k, "head": kind.f + 1}
    if kind.k > 1 and len(when["pack"]) < needed["pack"]:
        needed["pack"] = kind.f + 1  # small packs are whole copies
    return {step: sorted(times)[needed[step] - 1] - begun_ns / 1e9 for step, times in when.items()}


def _update(pair: Pair, clouds: Path, name: str, size: int, kind: Kind) -> dict[str, float]:
    """Seconds from the beginning of one update to the end of each step."""
    content = os.urandom(size)
    begun, begun_ns = time.monotonic(), time.time_ns() // 10**7 * 10**7  # as coarse as the times of files
    (pair.one.mountpoint / name).write_bytes(content)
    written = time.monotonic()
    pair.client.call(SyncRequest(pair.one.volume, wait=True, timeout=GIVE_UP))
    done = time.monotonic()
    until_there(pair.other.mountpoint, [name], begun)
    seen = time.monotonic()
    if (pair.other.mountpoint / name).read_bytes() != content:
        raise SystemExit("what was read is not what was written")
    read = time.monotonic()
    ends = {"written": written, "done": done, "seen": seen, "read": read}
    return {
        **{step: end - begun for step, end in ends.items()},
        **_on_clouds(clouds, begun_ns, kind),
    }


def measure_latency(root: Path, rounds: int, console: Console) -> dict[str, Samples]:
    """Seconds of each step, by "LAN, whole copies, 4 kB"."""
    found: dict[str, Samples] = {}
    for line in _LINES:
        for label, kind in _KINDS.items():
            folder = root / f"{line} {label}"
            with far_devices(folder, _distances(line, kind.clouds), kind) as pair:
                for number in range(-_WARM_UPS, rounds):
                    for size, length in _SIZES.items():
                        name = f"{size} {number}"
                        steps = _update(pair, folder / "clouds", name, length, kind)
                        samples = found.setdefault(f"{line}, {label}, {size}", {step: [] for step in _STEPS})
                        for step, seconds in steps.items() if number >= 0 else ():
                            samples[step].append(seconds)
                        time.sleep(_PAUSE)
            console.print(f"[dim]{line}, {label}[/]", highlight=False)
    return found


def _latency(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    found = measure_latency(root, options.rounds, console)
    headings = ["until ...", *found]
    rows = [
        [text, *(significant(1000 * statistics.median(one[step])) for one in found.values())]
        for step, text in _STEPS.items()
    ]
    page.sections.append(Section("An update, ms from its beginning, medians", headings, rows))
    spread = [
        [name, *(significant(1000 * one) for one in _percentiles(steps["done"]))]
        for name, steps in found.items()
    ]
    theirs = points("pond", "Tables 2 and 4, 1024 bit, ms: 5 %, median, 95 %")
    spread += [[f"Pond: {name}", *map(significant, figures)] for name, figures in theirs.items()]
    title = "Until the device knows that it is on enough clouds, ms"
    page.sections.append(Section(title, ["", "5 %", "median", "95 %"], spread))
    pond = {"LAN": "cluster, archive on", "WAN": "Bay Area to UCSD"}
    for line, setting in pond.items():
        for size in _SIZES:
            median = 1000 * statistics.median(found[f"{line}, whole copies, {size}"]["done"])
            page.targets.append(Target(f"{size}, {line}, ms: Pond", theirs[f"{size}, {setting}"][1], median))
    page.figures = {**page.figures, "latency": found}


def _percentiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    parts = statistics.quantiles(seconds, n=20, method="inclusive")
    return parts[0], statistics.median(seconds), parts[-1]


# -- phases -----------------------------------------------------------------------------------------------


class _Watch:
    """Splits time into phases, one after the other."""

    def __init__(self) -> None:
        self.took: dict[str, float] = {}
        self._last = time.perf_counter()

    def done(self, phase: str) -> None:
        """What ran since the phase before was this one."""
        now = time.perf_counter()
        self.took[phase] = self.took.get(phase, 0.0) + now - self._last
        self._last = now

    def skip(self) -> None:
        """What ran since belongs to no phase."""
        self._last = time.perf_counter()


def _by_hand(writer: Device, reader: Device, name: str, size: int) -> dict[str, float]:
    """Seconds of each phase of one update, made and taken in with nothing else going on."""
    content, known = os.urandom(size), len(writer.log())
    rig, watch, packs = writer.rig, _Watch(), list[EncodedPack]()

    def before_chunks(_: FileSnapshot) -> None:
        watch.done("cut")

    def after_chunks(_: FileSnapshot) -> None:
        watch.done("name")

    def before_put(pack: EncodedPack) -> None:
        watch.done("pack")
        packs.append(pack)

    rig.chunker.before, rig.chunker.after = before_chunks, after_chunks
    rig.clouds.before_put = before_put
    watch.skip()
    rig.make(name.encode(), content)
    watch.done("write")
    rig.publish(everything=True)
    watch.done("sign")
    rig.commit()
    watch.done("commit")
    rig.pack()
    watch.done("record")
    rig.commit()
    watch.done("commit")
    updates = writer.log()[known:]
    watch.skip()
    encode_segment(updates, None, SEGMENT_KEYS, os.urandom(NONCE_SIZE))
    watch.done("segment")
    if not reader.receive(updates):
        raise SystemExit("an update was not accepted")
    watch.done("take in")
    if reader.read(name) != content:
        raise SystemExit("what was read is not what was written")
    watch.done("open")
    chunks = [(one.chunk_id, rig.plaintexts[one.chunk_id]) for pack in packs for one in pack.entries]
    watch.skip()
    list(SEALER.seal_all(chunks))
    watch.done("seal")
    return watch.took


def measure_phases(rounds: int) -> dict[str, dict[str, Samples]]:
    """Seconds of each phase by the code, and by the size of the update."""
    found: dict[str, dict[str, Samples]] = {}
    for label, kind in _KINDS.items():
        for size, length in _SIZES.items():
            samples = found.setdefault(label, {}).setdefault(size, {phase: [] for phase in _OWN})
            for first in range(0, rounds, _PER_FLEET):
                fleet = Fleet(2, segment_size=JournalLimits().segment_size)
                try:
                    for device in fleet.devices:
                        device.rig.packs.redundancy = Redundancy(kind.f, kind.k)
                    for number in range(first - _WARM_UPS, min(first + _PER_FLEET, rounds)):
                        took = _by_hand(fleet[0], fleet[1], f"file {number}", length)
                        for phase, seconds in took.items() if number >= first else ():
                            samples[phase].append(seconds)
                finally:
                    fleet.discard()
    return found


_WORK: Final = {
    "write": "write",
    "cut": "cut: changes are gathered",
    "name": "chunk: ends found, and hashes",
    "sign": "sign, and keep the update",
    "pack": "pack: read, verify, seal, encode",
    "seal": "... of that, compress and seal",
    "record": "sign where the pack is",
    "segment": "seal both updates for the clouds",
    "commit": "sync of the disk, twice",
    "take in": "other device: check, take in",
    "open": "other device: open, verify",
}


def _phases(_root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    found = measure_phases(options.updates)
    theirs = points("pond", "Table 3, ms: 4 kB, 2 MB")
    heads = [f"{label}, {size}" for label in _KINDS for size in _SIZES]
    rows = [
        [
            text,
            *(
                significant(1000 * statistics.median(found[label][size][phase]))
                for label in _KINDS
                for size in _SIZES
            ),
            *([_LIKE[phase], *map(significant, theirs[_LIKE[phase]])] if phase in _LIKE else ["", "", ""]),
        ]
        for phase, text in _WORK.items()
    ]
    agreed = map(significant, theirs["Serialize"])
    rows.append(["(agree on an order)", *["" for _ in heads], "Serialize", *agreed])
    title = "What the devices' own work takes, ms, medians; Pond's phases that do the like"
    page.sections.append(Section(title, ["", *heads, "Pond", "4 kB", "2 MB"], rows))
    page.figures = {**page.figures, "phases": found}
    console.print("[dim]phases[/]")


# -- throughput -------------------------------------------------------------------------------------------


def _burst(device: PatientDevice, name: str, size: int, count: int) -> float:
    """Bytes a second of new files by several clients, until all are on enough clouds."""
    content = os.urandom(size * count)
    begun = time.monotonic()
    with ThreadPoolExecutor(_CLIENTS) as clients:

        def write(number: int) -> None:
            device.write(f"{name} {number}", content[number * size : (number + 1) * size])

        list(clients.map(write, range(count)))
    device.sync()
    return len(content) / (time.monotonic() - begun)


def _archived(device: PatientDevice, clouds: Path, size: int, before: int) -> float:
    """Bytes a second at which what was written since rests no longer whole, but in the archive."""
    device.rest()
    begun = time.monotonic()
    device.collect()
    seconds = time.monotonic() - begun
    device.sync()
    device.collect()
    if (stored(clouds) - before) / size > 1.9:
        raise SystemExit("nothing was archived")
    return size / seconds


def measure_throughput(root: Path, rounds: int, console: Console) -> dict[str, dict[str, list[float]]]:
    """MB a second by "LAN, 4 kB" and what was done."""
    found: dict[str, dict[str, list[float]]] = {}
    coded = _KINDS["erasure coded"].k
    for line in _LINES:
        folder = root / line
        bursts = _BURSTS if line == "LAN" else {_LARGE: _BURSTS[_LARGE]}
        turns = [(number, *burst) for number in range(rounds) for burst in bursts.items()]
        with _device(folder / "whole", line, 1) as device:
            device.volume.agreed.archive("30d", "4+1")
            for number, kilobytes, count in turns:
                size, before = kilobytes << 10, stored(folder / "whole" / "clouds")
                written = _burst(device, f"{number} {kilobytes}", size, count)
                moved = _archived(device, folder / "whole" / "clouds", size * count, before)
                rates = (written, moved, 1 / (1 / written + 1 / moved))
                _note(found, line, kilobytes, dict(zip(_ROWS, rates, strict=False)))
        with _device(folder / "coded", line, coded) as device:
            for number, kilobytes, count in turns:
                rate = _burst(device, f"{number} {kilobytes}", kilobytes << 10, count)
                _note(found, line, kilobytes, {_ROWS[-1]: rate})
        console.print(f"[dim]throughput, {line}[/]")
    return found


@contextmanager
def _device(root: Path, line: str, k: int) -> Iterator[PatientDevice]:
    """An open volume over five clouds, which keep their files below *root*/clouds."""
    with (
        far_clouds(root / "clouds", _distances(line, len(_NAMES))) as wan,
        closing(PatientDevice(root / "device", wan.clouds, k=k)) as device,
    ):
        yield device


def _note(found: dict[str, dict[str, list[float]]], line: str, size: int, rates: Mapping[str, float]) -> None:
    of_size = found.setdefault(f"{line}, {size} kB", {})
    for row, rate in rates.items():
        of_size.setdefault(row, []).append(rate / 1e6)


def _throughput(root: Path, options: argparse.Namespace, page: Page, console: Console) -> None:
    found = measure_throughput(root, options.bursts, console)
    medians = {
        name: {row: statistics.median(rates) for row, rates in by_row.items()}
        for name, by_row in found.items()
    }
    rows = [[name, *(significant(by_row[row]) for row in _ROWS)] for name, by_row in medians.items()]
    page.sections.append(Section("Updates of new files, MB/s, medians", ["", *_ROWS], rows))
    per_second = [
        [name, *(significant(1e6 * by_row[row] / (int(name.split()[1]) << 10)) for row in _ROWS)]
        for name, by_row in medians.items()
    ]
    page.sections.append(Section("... files a second", ["", *_ROWS], per_second))
    theirs = points("pond", "Fig. 5 and Table 5, MB/s at most")
    best = {row: max(by_row[row] for by_row in medians.values()) for row in _ROWS}
    page.targets += [
        Target("MB/s without the archive: Pond", theirs["LAN, without the archive"][0], best[_ROWS[0]], True),
        Target("MB/s with the archive: Pond", theirs["LAN, with the archive"][0], best[_ROWS[2]], True),
        Target(
            "MB/s with the archive, WAN: Pond",
            theirs["WAN, with the archive"][0],
            medians[f"WAN, {_LARGE} kB"][_ROWS[2]],
            True,
        ),
    ]
    page.figures = {**page.figures, "throughput": found}


# -- the page ---------------------------------------------------------------------------------------------


_MEASURES: Final[dict[str, Callable[[Path, argparse.Namespace, Page, Console], None]]] = {
    "latency": _latency,
    "phases": _phases,
    "throughput": _throughput,
}


def _notes(options: argparse.Namespace) -> list[str]:
    lines = "; ".join(f"{name}: {trip:g} ms, {rate:g} Mbit/s" for name, (trip, rate) in _LINES.items())
    return [
        f"Lines, one for each cloud: {lines}. Servers, lines and devices share the machine's cores. Whole "
        "copies: f=1, k=1; erasure coded: f=1, k=3, five clouds, 1.33 times what is written. What is "
        "below 1 MiB is whole copies there, too.",
        f"Latency: {options.rounds} updates of each kind after {_WARM_UPS} that do not count, one at a time, "
        "new files of random bytes, through the mount of a device with a daemon. The times of the servers' "
        "files are exact to 4 ms; the times when the clouds' answers are back come after these. The other "
        "device looks at the clouds now and then, which is most of the time until it shows the file; over a "
        "link it is faster: `benchmarks.devices`. **Pond's client waits until four servers have agreed on "
        "the order of updates; with us nobody agrees**: of two updates of a file at once, both are kept.",
        f"Phases: medians of {options.updates} updates on devices that are driven by hand, one step after "
        "the other, with clouds in memory. Pond's phases run on its servers, and beside each other.",
        f"Throughput: {_CLIENTS} threads write new files into an open volume without a mount, medians of "
        f"{options.bursts} bursts; five clouds. *Archived then*: files that have rested for "
        "a month are encoded, and their shares stored; all their chunks are on this disk. *With the "
        "archive*: both, one after the other. Pond archives each version at once, so its figures have "
        "something of "
        "both columns, with the archive and erasure coded at once.",
    ]


def _plot(folder: Path, page: Page) -> list[Path]:
    """Latency and throughput by the size of the update."""
    latency, throughput = page.figures["latency"], page.figures["throughput"]
    assert isinstance(latency, dict) and isinstance(throughput, dict)
    kilobytes = [size / 1024 for size in _SIZES.values()]
    theirs = points("pond", "Tables 2 and 4, 1024 bit, ms: 5 %, median, 95 %")
    times = [
        Curve(
            f"ours, {line}, {label}",
            kilobytes,
            [1000 * statistics.median(latency[f"{line}, {label}, {size}"]["done"]) for size in _SIZES],
        )
        for line in _LINES
        for label in _KINDS
    ]
    times += [
        Curve(f"paper, {setting}", kilobytes, [theirs[f"{size}, {setting}"][1] for size in _SIZES])
        for setting in ("cluster, archive on", "cluster, archive off", "Bay Area to UCSD")
    ]
    sizes = [float(kilobytes) for kilobytes in _BURSTS]
    rates = [
        Curve(
            f"ours, {row}",
            sizes,
            [statistics.median(throughput[f"LAN, {size} kB"][row]) for size in _BURSTS],
        )
        for row in _ROWS
        if row != "archived then"
    ]
    most = points("pond", "Fig. 5 and Table 5, MB/s at most")
    rates += [
        Curve(f"paper, {name} (most)", [float(_LARGE)], most[f"LAN, {name}"])
        for name in ("without the archive", "with the archive")
    ]
    return plot_curves(
        folder,
        "updates",
        {
            "ms until it is on enough clouds, by kB (Tables 2, 4)": times,
            "MB/s in a LAN by kB of an update (Fig. 5)": rates,
        },
        legends=True,
        logarithmic="xy",
    )


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write updates.json, .md, .svg and .png to benchmarks/results."""
    parser = options_of("papers.updates", __doc__)
    parser.add_argument("--only", action="append", choices=[*_MEASURES], help="a part; may be given again")
    parser.add_argument("--rounds", type=int, default=12, metavar="N", help="updates of each kind, latency")
    parser.add_argument("--updates", type=int, default=50, metavar="N", help="of each kind, phases")
    parser.add_argument("--bursts", type=int, default=3, metavar="N", help="of each size, throughput")
    options = parser.parse_args(argv)
    if options.rounds < 2:
        parser.error("at least 2 rounds, or there are no percentiles")
    console, parts = terminal(), options.only or [*_MEASURES]
    page = Page("updates", notes=_notes(options))
    with work_folder("updates") as root:
        for part in parts:
            _MEASURES[part](root / part, options, page, console)
    publish(page, options.results, None if options.only else lambda folder, _: _plot(folder, page))


if __name__ == "__main__":
    main()
