"""`python -m benchmarks.papers.andrew`: the Andrew benchmark (Pond 6.5, Table 7), beside ext4 and sshfs.

Its five phases: make a tree of folders, copy the sources of a C program into it, look at every file (stat),
read every byte, and compile. Every round makes all systems anew. Each phase runs on one system after the
other; another one is the first in each round. Two mounts have the wide area between them and what
keeps their files: ours over three S3 servers, and sshfs. A phase ends when the program's calls have returned;
how long it takes from then until all is on enough clouds has a row of its own.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from rich.console import Console

from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.papers import points
from benchmarks.plots import plot_latencies
from benchmarks.processes import share_in_use
from benchmarks.report import significant, terminal
from benchmarks.shaping import Line, ShapedLines
from benchmarks.systems import Gocryptfs, HybrisFS, JuiceFS, Plain, System
from benchmarks.targets import Target
from benchmarks.upload import create
from benchmarks.wan import Distance, far_clouds
from tests.backends import servers
from tests.system.deadline import until
from tests.system.device import is_mounted

_ROUND_TRIP: Final = 23.2  # ms, between Pond's client and its servers (Table 4)
_BANDWIDTH: Final = 100.0  # Mbit/s
_FOLDERS, _PER_FOLDER = 20, 4
_LINES: Final = 45
_CLOUDS: Final = ("amber", "birch", "cedar")
_LOOK: Final = 3.0  # seconds for which is looked how busy the machine is
_LIMIT: Final = 1.3
_SELDOM: Final = 2  # the slowest system takes part in every second round

Phase = Callable[[Path, Path], None]
"""Works on a tree of sources and on the folder that is measured."""


class FarHybrisFS(HybrisFS):
    """Our mount over three S3 servers in the wide area."""

    name = "hybrisfs, WAN"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._stack = ExitStack()

    def open(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        distances = [Distance(name, _ROUND_TRIP, _BANDWIDTH) for name in _CLOUDS]
        wan = self._stack.enter_context(far_clouds(self.root / "servers", distances))
        create(self._device, wan.clouds)
        self._device.mount()

    def close(self) -> None:
        super().close()
        self._stack.close()


class SshFS(System):
    """sshfs with its defaults, to an SSH server on this machine."""

    name = "sshfs"
    delay = 0.0  # seconds one way

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._stack = ExitStack()

    @staticmethod
    def version() -> str | None:
        if shutil.which("sshfs") is None:
            return None
        shown = subprocess.run(["sshfs", "--version"], capture_output=True, text=True, check=True).stdout
        return shown.splitlines()[0].rpartition(" ")[2]

    @property
    def folder(self) -> Path:
        return self.root / "mnt"

    def open(self) -> None:
        self.folder.mkdir(parents=True)
        server = self._stack.enter_context(servers.sshd(self.root))
        line = Line(server.port, self.delay, _BANDWIDTH * 1e6 / 8)
        port = server.port
        if self.delay:
            [port] = self._stack.enter_context(ShapedLines([line])).ports
        url = urlsplit(server.url("far", f"127.0.0.1:{port}"))
        Path(url.path).mkdir()
        [known] = parse_qs(url.query)["known_hosts"]
        options = f"IdentityFile={self.root}/sftp/user_key,UserKnownHostsFile={known},Port={port}"
        subprocess.run(
            ["sshfs", f"{url.username}@127.0.0.1:{url.path}", str(self.folder), "-o", options],
            check=True,
            timeout=60,
        )
        until(lambda: is_mounted(self.folder), "sshfs to mount")

    def close(self) -> None:
        if is_mounted(self.folder):
            subprocess.run(["fusermount3", "-u", "-z", str(self.folder)], check=False)
        self._stack.close()


class FarSshFS(SshFS):
    """The same over the wide area."""

    name = "sshfs, WAN"
    delay = _ROUND_TRIP / 2000


_SYSTEMS: Final[tuple[type[System], ...]] = (
    Plain,
    Gocryptfs,
    JuiceFS,
    HybrisFS,
    FarHybrisFS,
    SshFS,
    FarSshFS,
)


def write_sources(folder: Path) -> int:
    """Write the sources of a program: 80 files in 20 folders, about 200 kB as in the original, a quarter of
    them headers. Returns how many bytes."""
    source, total = random.Random(7), 0
    for number in range(_FOLDERS):
        package = folder / f"package{number:02}"
        package.mkdir(parents=True)
        for file in range(_PER_FOLDER):
            name = f"part{number:02}{file}"
            if file == 0:
                lines = [f"int {name}_{line}(int value, int other);" for line in range(_LINES)]
            else:
                lines = [f'#include "part{number:02}0.h"', "#include <stdio.h>"]
                lines += [
                    f"int {name}_{line}(int value, int other) {{ return value * {source.randrange(1000)} "
                    f"+ other; }}"
                    for line in range(_LINES)
                ]
            path = package / f"{name}.{'c' if file else 'h'}"
            total += path.write_text("\n".join(lines) + "\n")
    return total


def _make_folders(sources: Path, target: Path) -> None:
    for package in sorted(sources.iterdir()):
        (target / package.name).mkdir()


def _copy(sources: Path, target: Path) -> None:
    for path in sorted(sources.rglob("*.*")):
        shutil.copyfile(path, target / path.relative_to(sources))


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "script"]
        yield from (Path(parent, name) for name in names)


def _scan(_sources: Path, target: Path) -> None:
    for path in _files(target):
        path.stat()


def _read(_sources: Path, target: Path) -> None:
    for path in _files(target):
        with open(path, "rb") as stream:
            stream.read()


def _make_folders_by_program(sources: Path, target: Path) -> None:
    (target / "script").mkdir()
    _shell(sources, target, 'cd "$1"; for name in *; do mkdir "$2/script/$name"; done')


def _copy_by_program(sources: Path, target: Path) -> None:
    _shell(sources, target, 'cd "$1"; for name in */*; do cp "$name" "$2/script/$name"; done')


def _scan_by_program(sources: Path, target: Path) -> None:
    _shell(sources, target, 'find "$2/script" -type f -exec ls -l {} \\;')


def _read_by_program(sources: Path, target: Path) -> None:
    _shell(sources, target, 'find "$2/script" -type f -exec grep kangaroo {} \\; -exec wc {} \\;')


def _shell(sources: Path, target: Path, script: str) -> None:
    words = ["sh", "-ec", script, "sh", str(sources), str(target)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def _compile(_sources: Path, target: Path) -> None:
    for package in sorted((target / "script").iterdir()):
        names = sorted(path.name for path in package.glob("*.c"))
        subprocess.run(["cc", "-O0", "-c", *names], cwd=package, check=True)
        objects = [name.replace(".c", ".o") for name in names]
        subprocess.run(["ar", "rc", "package.a", *objects], cwd=package, check=True)


_PHASES: Final[dict[str, Phase]] = {
    "I, mkdir": _make_folders_by_program,
    "II, cp": _copy_by_program,
    "III, ls": _scan_by_program,
    "IV, grep and wc": _read_by_program,
    "V, cc": _compile,
    "I, calls alone": _make_folders,
    "II, calls alone": _copy,
    "III, calls alone": _scan,
    "IV, calls alone": _read,
}
_AS_PUBLISHED: Final = 5
"""So many of the phases are those of the benchmark, which starts a program for each file."""
Samples = dict[str, dict[str, list[float]]]
"""Seconds by phase and system."""


def measure(root: Path, kinds: list[type[System]], rounds: int, console: Console) -> tuple[Samples, Samples]:
    """The seconds of each phase, and those until all was on the clouds after the last one."""
    sources = root / "sources"
    write_sources(sources)
    samples: Samples = {phase: {kind.name: [] for kind in kinds} for phase in _PHASES}
    durable: Samples = {"durable": {kind.name: [] for kind in kinds}}
    for number in range(rounds):
        taking_part = [kind for kind in kinds if kind is not FarSshFS or number % _SELDOM == 0]
        first = number % len(taking_part)
        with ExitStack() as stack:
            in_turn = taking_part[first:] + taking_part[:first]
            systems = [_opened(kind, root, stack) for kind in in_turn]
            for phase, work in _PHASES.items():
                for system in systems:
                    begun = time.perf_counter()
                    work(sources, system.folder / "work")
                    samples[phase][system.name].append(time.perf_counter() - begun)
            for system in systems:
                begun = time.perf_counter()
                system.wait_durable()
                durable["durable"][system.name].append(time.perf_counter() - begun)
        console.print(f"[dim]round {number + 1}[/]", highlight=False)
    return samples, durable


def _opened(kind: type[System], root: Path, stack: ExitStack) -> System:
    system = kind(Path(tempfile.mkdtemp(prefix="system-", dir=root)))
    stack.callback(system.close)
    system.open()
    system.wait_durable()
    (system.folder / "work").mkdir()
    return system


def _page(samples: Samples, durable: Samples, rounds: int, busy: float) -> Page:
    names = list(next(iter(samples.values())))
    medians = {
        phase: {name: statistics.median(some) for name, some in by_system.items()}
        for phase, by_system in samples.items()
    }
    rows = [
        [phase, *(significant(1000 * by_system[name]) for name in names)]
        for phase, by_system in medians.items()
    ]
    published = list(medians.values())[:_AS_PUBLISHED]
    totals = [sum(by_system[name] for by_system in published) for name in names]
    rows.insert(_AS_PUBLISHED, ["total", *(significant(1000 * total) for total in totals)])
    rows.append(
        [
            "... and until all is on f+k clouds",
            *(
                significant(1000 * statistics.median(durable["durable"][name])) if "hybris" in name else ""
                for name in names
            ),
        ]
    )
    shown = ["ext4" if name == Plain.name else name for name in names]
    theirs = points("pond", "Table 7, seconds")
    own, far, plain = HybrisFS.name, FarHybrisFS.name, Plain.name
    ratios = [
        [
            phase,
            *(significant(by_system[name] / by_system[plain]) for name in (own, far)),
            significant(by_system[far] / by_system[FarSshFS.name]) if FarSshFS.name in names else "",
            *(
                significant(theirs[f"Pond, {place}"][number] / theirs[f"NFS, {place}"][number])
                if number < _AS_PUBLISHED and theirs[f"NFS, {place}"][number]
                else ""
                for place in ("LAN", "WAN")
            ),
        ]
        for number, (phase, by_system) in enumerate(medians.items())
    ]
    return Page(
        "andrew",
        [
            Section("The Andrew benchmark, ms, medians", ["", *shown], rows),
            Section(
                "How many times as long",
                [
                    "",
                    "ours / ext4",
                    "ours, WAN / ext4",
                    "ours, WAN / sshfs, WAN",
                    "Pond / NFS, LAN",
                    "Pond / NFS, WAN",
                ],
                ratios,
            ),
        ],
        [
            Target(f"{phase}: ours to ext4", _LIMIT, by_system[own] / by_system[plain])
            for phase, by_system in medians.items()
        ],
        [
            f"{rounds} interleaved rounds; others used {busy:.0%} of the processors just before. "
            f"{_FOLDERS * _PER_FOLDER} files in {_FOLDERS} folders. The phases as they were published start "
            "a program for each file, which takes the same time on all systems and hides differences "
            "between them; *calls alone*: the same work by one process. Compiling runs cc and ar for each "
            f"folder. sshfs over the WAN takes part in one round of {_SELDOM}. WAN: round trips of "
            f"{_ROUND_TRIP} ms, {_BANDWIDTH:g} Mbit/s. What is there is warm, as in the original: nothing "
            "drops the kernel's cache between the phases. Our calls return when the data are on this "
            "device, which may be lost before they are on the clouds; those of sshfs return when the data "
            "are with the server, which reads them. Pond ran beside NFS on machines of 2003; sshfs stands "
            "for NFS here.",
        ],
        {"samples": samples, **durable, "rounds": rounds, "busy": busy},
    )


def _plotted(samples: Samples) -> Samples:
    """Ours and the paper's, as far as they are above nothing."""
    theirs = points("pond", "Table 7, seconds")
    drawn = {name: seconds for name, seconds in theirs.items() if all(seconds)}
    return {
        phase: {
            **{"ext4" if name == Plain.name else name: some for name, some in by_system.items()},
            **{f"{name} (paper)": [seconds[number]] * 2 for name, seconds in drawn.items()},
        }
        for number, (phase, by_system) in enumerate(list(samples.items())[:_AS_PUBLISHED])
    }


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write andrew.json, .md, .svg and .png to benchmarks/results."""
    parser = options_of("papers.andrew", __doc__)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds to take medians of")
    options = parser.parse_args(argv)
    if options.rounds <= _SELDOM:
        parser.error(f"{_SELDOM + 1} rounds at least")
    console = terminal()
    kinds = [kind for kind in _SYSTEMS if kind.version() is not None]
    busy = share_in_use(_LOOK)
    with work_folder("andrew") as root:
        samples, durable = measure(root, kinds, options.rounds, console)
    page = _page(samples, durable, options.rounds, busy)
    publish(page, options.results, lambda folder, _: plot_latencies(folder, "andrew", _plotted(samples)))


if __name__ == "__main__":
    main()
