"""`python -m benchmarks.edits`: how much travels when little of a file changes?

Over three clouds that are folders, with f=1 and k=1, so that every byte is stored twice. After each change
comes `hybrisfs sync --wait`; reported are the bytes that the daemon has sent to all clouds by then. The
changes: a byte in a large file, scattered writes of 4 KiB, appends to a log, a large file that is written
again with a byte in front, and second versions of the tar of a source tree (this project at two commits), of
a mailbox and of the dump of a database. What restic stores of these second versions stands beside it.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.corpus import work_folder
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.processes import cpu_seconds
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from tests.system.device import REPOSITORY, Device

_MIB = 1 << 20
_BLOCK = 4096
_COPIES = 2  # of every byte, with f=1 and k=1
_COUNTED = re.compile(r'^hybrisfs_cloud_bytes_total\{.*direction="sent".*\} (\d+)', re.MULTILINE)
_PASSWORD = {"RESTIC_PASSWORD": "benchmark"}


@dataclass(frozen=True)
class Figures:
    """One change: bytes of the file and bytes sent to all clouds, CPU seconds of the daemon, shares of packs,
    and bytes that restic added (0 where it was not asked)."""

    size: int
    sent: int
    cpu: float
    packs: int
    restic: int = 0


class _Bench:
    def __init__(self, device: Device, console: Console) -> None:
        self.device = device
        self.folder = device.mountpoint
        self._console = console
        self.found: dict[str, Figures] = {}

    def _sent(self) -> int:
        counted = re.findall(
            r'^hybrisfs_cloud_bytes_total\{.*direction="sent".*\} (\d+)',
            self.device.run("metrics"),
            re.MULTILINE,
        )
        return sum(map(int, counted))

    def _packs(self) -> int:
        return sum(1 for _ in self.device.clouds[0].parent.rglob("packs/*/*.?"))

    def measure(self, label: str, size: int, change: Callable[[], object], restic: int = 0) -> None:
        """Make the change, and bring it to the clouds."""
        self.device.sync(timeout=900)
        before, cpu, packs = self._sent(), cpu_seconds(self.device.daemon_pids()), self._packs()
        change()
        self.device.sync(timeout=900)
        cpu = cpu_seconds(self.device.daemon_pids()) - cpu
        self.found[label] = one = Figures(size, self._sent() - before, cpu, self._packs() - packs, restic)
        self._console.print(f"[dim]{label}: {one.sent:,} bytes[/]")


@contextmanager
def _open(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_large(path: Path, size: int, in_front: bytes) -> None:
    noise = random.Random(1)
    with path.open("wb") as stream:
        stream.write(in_front)
        for _ in range(size // _MIB):
            stream.write(noise.randbytes(_MIB))


def _large_file(bench: _Bench, size: int) -> None:
    path = bench.folder / "large"
    _write_large(path, size, b"")

    def one_byte() -> None:
        with _open(path) as file:
            os.pwrite(file, b"!", size // 2 + 12345)

    def scattered() -> None:
        where = random.Random(2)
        with _open(path) as file:
            for _ in range(50):
                os.pwrite(file, os.urandom(_BLOCK), where.randrange(size // _BLOCK) * _BLOCK)
            os.fsync(file)

    bench.measure("one byte changed", size, one_byte)
    bench.measure("50 random writes of 4 KiB, one fsync", size, scattered)
    _write_large(path, size, b"")
    bench.measure("written again, one byte in front", size, lambda: _write_large(path, size, b"!"))
    path.unlink()


def _log(bench: _Bench) -> None:
    path = bench.folder / "log"
    path.write_bytes(os.urandom(500_000))

    def appends() -> None:
        for _ in range(10):
            with path.open("ab") as stream:
                stream.write(os.urandom(_BLOCK))
            bench.device.sync()

    bench.measure("ten appends of 4 KiB, a sync after each", 500_000, appends)


def _tar(commit: str) -> bytes:
    made = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", "--format=tar", commit], capture_output=True, check=True
    )
    return made.stdout


def _mailbox() -> tuple[bytes, bytes]:
    """Of 2,000 letters; then the tenth is deleted, the thousandth gets a flag, and there are three more."""
    words = random.Random(3)
    letters = [
        b"From someone Thu Jan  1 00:00:00 2026\nX-Status: RO\n\n"
        + b" ".join(b"%x" % words.getrandbits(32) for _ in range(words.randrange(100, 6000)))
        + b"\n"
        for _ in range(2003)
    ]
    later = letters[:10] + letters[11:]
    later[1000] = later[1000].replace(b"Status: RO", b"Status: ROA")
    return b"".join(letters[:2000]), b"".join(later)


def _dump() -> tuple[bytes, bytes]:
    """A table of 400,000 rows; then one in a thousand is another one, and there are a hundred more."""
    values = random.Random(4)
    rows = [
        b"INSERT INTO sale VALUES (%d, %d, '%x');\n"
        % (number, values.getrandbits(20), values.getrandbits(96))
        for number in range(400_100)
    ]
    later = list(rows)
    for number in values.sample(range(400_000), 400):
        later[number] = later[number].replace(b"'", b"'0", 1)
    return b"".join(rows[:400_000]), b"".join(later)


def _restic(root: Path, first: bytes, second: bytes) -> int:
    """What restic adds to its repository for the second version."""
    repository, file = root / "restic", root / "source" / "file"
    file.parent.mkdir(exist_ok=True)
    environment = {**os.environ, **_PASSWORD, "RESTIC_REPOSITORY": str(repository)}

    def restic(*words: str) -> None:
        subprocess.run(["restic", "--quiet", "--no-cache", *words], env=environment, check=True)

    def stored() -> int:
        return sum(path.stat().st_size for path in repository.rglob("*") if path.is_file())

    restic("init")
    file.write_bytes(first)
    restic("backup", str(file))
    before = stored()
    file.write_bytes(second)
    restic("backup", str(file))
    added = stored() - before
    shutil.rmtree(repository)
    return added


def _versions(bench: _Bench, root: Path, label: str, first: bytes, second: bytes) -> None:
    path = bench.folder / label.replace(" ", "-")
    path.write_bytes(first)
    restic = _restic(root, first, second)
    bench.measure(f"second version of {label}", len(second), lambda: path.write_bytes(second), restic)


def _page(found: dict[str, Figures], size: int) -> Page:
    headings = ["", "file, MB", "sent to all clouds, kB", "packs", "CPU of the daemon, s", "restic, kB"]
    rows = [
        [
            label,
            significant(one.size / 1e6),
            significant(one.sent / 1e3),
            str(one.packs // _COPIES),
            significant(one.cpu),
            significant(one.restic / 1e3) if one.restic else "",
        ]
        for label, one in found.items()
    ]
    tar = found["second version of a tar"]
    targets = [
        Target("one byte in a large file, kB", 40, found["one byte changed"].sent / 1e3),
        Target("50 random writes, kB", 1000, found["50 random writes of 4 KiB, one fsync"].sent / 1e3),
        Target("ten appends, kB", 200, found["ten appends of 4 KiB, a sync after each"].sent / 1e3),
        Target("one byte in front, kB", 20_000, found["written again, one byte in front"].sent / 1e3),
        Target("second version of a tar, of one copy, to restic's", 1.3, tar.sent / _COPIES / tar.restic),
    ]
    notes = [
        f"Three clouds (f=1, k=1): {_COPIES} copies of all are sent, the log and its head. The large file "
        f"has {size >> 20:,} MiB. restic stores one copy.",
    ]
    figures = {label: asdict(one) for label, one in found.items()}
    return Page("edits", [Section("What travels", headings, rows)], targets, notes, figures)


def run(root: Path, size: int, commits: int, console: Console) -> Page:
    """Make all changes, the large file being of *size* bytes and the tars *commits* apart."""
    (root / "device").mkdir()
    with Device(root / "device") as device:
        device.create()
        device.mount()
        bench = _Bench(device, console)
        _log(bench)
        _versions(bench, root, "a tar", _tar(f"HEAD~{commits}"), _tar("HEAD"))
        _versions(bench, root, "a mailbox", *_mailbox())
        _versions(bench, root, "a dump", *_dump())
        _large_file(bench, size)
    return _page(bench.found, size)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write edits.json and edits.md to benchmarks/results."""
    parser = options_of("edits", __doc__)
    parser.add_argument(
        "--mib", type=int, default=2048, metavar="N", help="the large file (default 2048 MiB)"
    )
    parser.add_argument("--commits", type=int, default=50, metavar="N", help="between the tars (default 50)")
    options = parser.parse_args(argv)
    console = terminal()
    with work_folder("edits") as root:
        page = run(root, options.mib * _MIB, options.commits, console)
    publish(page, options.results)


if __name__ == "__main__":
    main()
