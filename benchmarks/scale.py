"""`python -m benchmarks.scale`: what grows with the number of devices, and with the number of files?

Heads and updates of 5, 20 and 50 devices are made and read by the product's own code, with contents that are
made up: each device has written, and an update names either no other device's or the newest of each.

A hundred thousand and a million tiny files are made and signed on one device without clouds or network, as
`benchmarks.adoption` does it; another device begins with the checkpoint of them. Each size has a process of
its own. What is only multiplied from these figures is marked "arithmetic". Traffic: `benchmarks.lives`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.adoption import adopt, cpu, fill, snapshot
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.report import significant, terminal
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.environment import SYSTEM
from hybrisfs.sharing.agreement import state_hash
from hybrisfs.state.checkpoints import StoredSnapshot
from sync import OneKey
from sync.checkpoint import Root, Statement
from sync.head import CheckpointId, Head, LogOnClouds, OwnTip, StateClaim, decode_head, encode_head
from sync.identity import DeviceKey
from sync.segment import SegmentId
from sync.update import PREFIX_SIZE, Update, UpdateStamp, decode_signed, encode_signed
from sync.vector import VersionVector
from tests.merge.fleet import Fleet
from tests.tree.rig import SEALER, VOLUME

__all__ = ["Figures", "measure"]

_DEVICES: Final = (5, 20, 50)
_FILES: Final = (100_000, 1_000_000)
_TENFOLD: Final = 10_000_000
_CLOCK: Final = 1_000_000  # of each device's newest update
_VOLUME: Final = b"HFS\x02" + bytes(12)
_SEAL: Final = OneKey(bytes(32))
_HASH: Final = bytes([1]) * 32
_VALUE: Final = bytes(120)


@dataclass(frozen=True)
class Figures:
    """Of one number of devices: bytes, and CPU seconds for one."""

    devices: int
    head: int
    read_head: float
    alone: int
    """An update that names no other device's."""
    joining_all: int
    """One that names the newest update of each other device."""
    accept: float
    """To decode the latter and verify its signature."""


def _cpu(action: Callable[[], object], rounds: int) -> float:
    begun = time.process_time()
    for _ in range(rounds):
        action()
    return (time.process_time() - begun) / rounds


def measure(devices: int, rounds: int) -> Figures:
    """All figures of a volume of so many devices."""
    keys = [DeviceKey.from_seed(number.to_bytes(32, "big")) for number in range(1, devices + 1)]
    key, *others = keys
    vector = VersionVector({one.device_id: _CLOCK for one in keys})
    head = Head(
        _VOLUME,
        key.device_id,
        _CLOCK,
        time.time_ns(),
        vector,
        (OwnTip(_CLOCK, _HASH),),
        LogOnClouds(1000, SegmentId(_CLOCK, _HASH[:8]), _CLOCK),
        stated=Statement(vector, bytes(32), bytes(64)),
        checkpoint=CheckpointId(bytes(32), bytes(32)),
        state=StateClaim(bytes(32), bytes(32)),
    )
    sealed = encode_head(head, key, _SEAL, bytes(24))
    stamps = sorted(UpdateStamp(one.device_id, _CLOCK, _HASH[:PREFIX_SIZE]) for one in others)

    def update(deps: tuple[UpdateStamp, ...]) -> bytes:
        writes = [(bytes(17), _VALUE)]
        clock = _CLOCK + 1
        return encode_signed(
            Update(_VOLUME, key.device_id, clock, _CLOCK, _HASH, deps, _HASH, time.time_ns(), writes),
            key,
        )

    joining_all = update(tuple(stamps))
    return Figures(
        devices,
        len(sealed),
        _cpu(lambda: decode_head(sealed, _VOLUME, key.public, _SEAL), rounds),
        len(update(())),
        len(joining_all),
        _cpu(lambda: decode_signed(joining_all).header.verify(key.public), rounds),
    )


_OF_DEVICES: Final = (
    ("head, bytes", "head"),
    ("to open and verify a head, CPU us", "read_head"),
    ("update that names no other, bytes", "alone"),
    ("update that names all others, bytes", "joining_all"),
    ("to decode and verify the latter, CPU us", "accept"),
)
_MICROSECONDS: Final = ("read_head", "accept")


@dataclass(frozen=True)
class FileFigures:
    """Of one number of files: CPU seconds, and bytes."""

    files: int
    making: float
    """To make and sign all of them."""
    database: int
    """On the disk of the device that made them."""
    snapshot: int
    """On each cloud that holds the checkpoint."""
    stating: float
    """To make the snapshot."""
    adopting: float
    """To check it and take it in, on another device."""
    memory: int
    """By how much that device grew meanwhile, at its peak."""


_OF_FILES: Final = (
    ("to make and sign them, CPU s", "making"),
    ("database, MB", "database"),
    ("checkpoint, MB on each cloud that holds it", "snapshot"),
    ("to make the checkpoint, CPU s", "stating"),
    ("to begin with it, CPU s", "adopting"),
    ("memory that this takes, MB", "memory"),
)
_MEGABYTES: Final = ("database", "snapshot", "memory")


def measure_files(files: int) -> FileFigures:
    """All figures of a volume of so many files; in a process that does nothing else."""
    fleet = Fleet(2)
    first, second = fleet.devices
    try:
        making = cpu(lambda: fill(first, files, 0))
        with tempfile.TemporaryDirectory() as directory:
            snapshots = LocalSnapshots(Path(directory), SEALER, SYSTEM)
            made: list[StoredSnapshot] = []
            stating = cpu(lambda: made.append(snapshot(first, snapshots)))
            [stored] = made
            size = sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())
            vector = first.rig.updates.state.vector
            root = Root(VOLUME, stored.snapshot, vector, stored.slices, stored.hints, {})
            database = sum(path.stat().st_size for path in first.rig.directory.glob("volume.db*"))
            before = _memory("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            adopting = cpu(lambda: adopt(second, snapshots, stored, root))
            memory = _memory("VmHWM") - before
        assert state_hash(first.rig.db.rows) == state_hash(second.rig.db.rows)
    finally:
        fleet.discard()
    return FileFigures(files, making, database, size, stating, adopting, memory)


def _memory(name: str) -> int:
    """Bytes, by that line of what the kernel knows of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise LookupError(name)


def _measured_apart(files: int) -> FileFigures:
    command = [sys.executable, "-m", "benchmarks.scale", "--only-files", str(files)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return FileFigures(**json.loads(done.stdout))


def _page(found: list[Figures], of_files: list[FileFigures], rounds: int) -> Page:
    def of_device(one: Figures, name: str) -> str:
        return significant(getattr(one, name) * (1e6 if name in _MICROSECONDS else 1))

    def of_file(one: FileFigures, name: str, factor: float = 1.0) -> str:
        return significant(getattr(one, name) / (1e6 if name in _MEGABYTES else 1) * factor)

    most = of_files[-1]
    tens = _TENFOLD // most.files
    devices = Section(
        "By devices",
        ["", *(f"{one.devices} devices" for one in found)],
        [[label, *(of_device(one, name) for one in found)] for label, name in _OF_DEVICES],
    )
    files = Section(
        "By files",
        ["", *(f"{one.files:,} files, measured" for one in of_files), f"{_TENFOLD:,}, arithmetic"],
        [
            [label, *(of_file(one, name) for one in of_files), of_file(most, name, tens)]
            for label, name in _OF_FILES
        ],
    )
    notes = [
        f"Heads and updates: means of {rounds}. Files: one run; a hundred in a folder, some bytes in each, "
        "signed by folders; without clouds and mount."
    ]
    figures = {"devices": [asdict(one) for one in found], "files": [asdict(one) for one in of_files]}
    return Page("scale", [devices, files], [], notes, {"rounds": rounds, **figures})


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write scale.json and .md to benchmarks/results."""
    parser = options_of("scale", __doc__)
    parser.add_argument("--rounds", type=int, default=2000, metavar="N", help="heads and updates")
    parser.add_argument("--quick", action="store_true", help="fewer files; figures mean nothing")
    parser.add_argument("--only-files", type=int, metavar="N", help="print the figures of so many as JSON")
    options = parser.parse_args(argv)
    if options.only_files:
        print(json.dumps(asdict(measure_files(options.only_files))))
        return
    console = terminal()
    found = [measure(devices, options.rounds) for devices in _DEVICES]
    of_files = []
    for files in (1000, 10_000) if options.quick else _FILES:
        of_files.append(_measured_apart(files))
        console.print(f"[dim]{files:,} files are done[/]")
    page = _page(found, of_files, options.rounds)
    publish(page, options.results)


if __name__ == "__main__":
    main()
