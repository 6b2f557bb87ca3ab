"""`python -m benchmarks.adoption`: what does it cost to begin with a checkpoint, and what with the log?

Fills a volume with folders of 100 tiny files and some thousand updates of one file each, without clouds or
network. Then new devices take in all of it, in turns by the log and by a checkpoint; what counts is the CPU
time of each, with all checks that belong to it, until the tree is there.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.report import significant, terminal
from hybrisfs.checkpoint.intake import Adoption, check_snapshot
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.checkpoint.snapshot import SnapshotHash, Snapshotter
from hybrisfs.environment import SYSTEM
from hybrisfs.process import without_collections
from hybrisfs.sharing.agreement import state_hash
from hybrisfs.state.checkpoints import StoredSnapshot
from sync.checkpoint import Root
from tests.merge.fleet import Device, Fleet
from tests.tree.rig import SEALER, VOLUME

_PER_FOLDER = 100


def fill(device: Device, files: int, edits: int) -> None:
    """So many files, and as many updates that change one of them."""
    for folder in range(files // _PER_FOLDER):
        device.mkdir(f"folder {folder}")
        for number in range(_PER_FOLDER):
            device.write(f"folder {folder}/file {number}", b"%d/%d" % (folder, number))
        device.sign()
    for number in range(edits):
        device.write(f"folder 0/file {number % _PER_FOLDER}", b"edit %d" % number)
        device.sign()


def snapshot(device: Device, snapshots: LocalSnapshots) -> StoredSnapshot:
    """A snapshot of all."""
    device.rig.commit()
    hasher = SnapshotHash()
    with device.rig.db.snapshot() as database:
        snapshotter = Snapshotter(database, VOLUME)

        def pieces() -> Iterator[bytes]:
            for piece in snapshotter.slices():
                hasher.update(piece)
                yield piece

        return snapshots.put(pieces(), snapshotter.hints(), hasher.digest)


def adopt(device: Device, snapshots: LocalSnapshots, stored: StoredSnapshot, root: Root) -> None:
    """Check the snapshot and take it in."""
    check_snapshot(snapshots, stored, root)
    fs, sharing = device.rig.fs, device.rig.sharing
    with without_collections(), fs.state.log_transaction() as tx:
        Adoption(fs, sharing.arrivals).run(tx, snapshots, stored)
        sharing.checkpoint_taken_in(tx)


def cpu(action: Callable[[], object]) -> float:
    """The CPU seconds that it takes."""
    begun = time.process_time()
    action()
    return time.process_time() - begun


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adoption", description=__doc__)
    parser.add_argument("--files", type=int, default=20_000, metavar="N")
    parser.add_argument("--updates", type=int, default=5000, metavar="N", help="of one file each")
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    options = parser.parse_args(argv)
    fleet = Fleet(1 + 2 * options.rounds)
    first, *others = fleet.devices
    fill(first, options.files, options.updates)
    log = first.log()
    times: dict[str, list[float]] = {"the log": [], "a checkpoint": []}
    with tempfile.TemporaryDirectory() as directory:
        snapshots = LocalSnapshots(Path(directory), SEALER, SYSTEM)
        made: list[StoredSnapshot] = []
        stating = cpu(lambda: made.append(snapshot(first, snapshots)))
        [stored] = made
        root = Root(VOLUME, stored.snapshot, first.rig.updates.state.vector, stored.slices, stored.hints, {})
        for by_log, by_checkpoint in zip(others[::2], others[1::2], strict=True):
            times["the log"].append(cpu(partial(by_log.receive, log)))
            times["a checkpoint"].append(cpu(partial(adopt, by_checkpoint, snapshots, stored, root)))
    assert len({state_hash(device.rig.db.rows) for device in fleet.devices}) == 1
    fleet.discard()
    console = terminal()
    console.print(f"{options.files:,} files, {len(log):,} updates, CPU seconds:")
    console.print(f"making the snapshot: {significant(stating)}")
    for what, found in times.items():
        console.print(f"beginning with {what}: {significant(median(found))}")


if __name__ == "__main__":
    main()
