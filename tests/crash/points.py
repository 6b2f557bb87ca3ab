"""One recorded life of a volume, and what must hold wherever it is cut off."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.environment import Environment, Limits
from hybrisfs.home import Home
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.state.database import DatabaseLimits
from hybrisfs.state.journal import JournalLimits
from hybrisfs.tree.commit import CommitLimits
from hybrisfs.verify.fsck import FsckReport
from hybrisfs.volume.volume import Volume
from tests.crash.disk import Disk, Tree
from tests.crash.recorder import RecordedDisk
from tests.crash.trace import Mark, Step, read_trace
from tests.crash.workload import Node, Programs, Shown, shown_tree
from tests.surroundings import Surroundings
from tests.tree.rig import small_chunks
from tests.volume.device import ALONE, NAME, PATIENCE, Device, Second

__all__ = ["VARIANTS", "Life", "Point", "check", "points", "record"]

CLOUDS: Final = tuple(f"cloud-{number}" for number in range(3))
_BUDGET: Final = 1 << 20
_SECOND_SHARE: Final = 0.05  # of the deaths are looked at by another device, too
_BEGIN: Final = "begin"

KILLED: Final = "killed"
POWERLESS: Final = "powerless"
POWERLESSCLOUDS: Final = "powerless, clouds too"
VARIANTS: Final = (KILLED, POWERLESS, POWERLESSCLOUDS)


_LIMITS: Final = (
    JournalLimits(segment_size=128 << 10),
    CommitLimits(checkpoint_interval=0.0),
    DatabaseLimits(checkpoint_bytes=64 << 10, log_bytes=256 << 10, spare_pages=4, redo_bytes=32 << 10),
    CheckpointLimits(look_seconds=0.05, quiet_seconds=0.0, least_bytes=1, slice_bytes=1000),
    small_chunks(16 << 10),
)
"""Segments end, files have many chunks, logs are emptied and checkpoints made with little data."""


class _Device(Device):
    """A device whose cache overflows with little data."""

    def reopen(self, *limits: object) -> None:
        super().reopen(*limits)
        self.volume.fs.journal.budget = _BUDGET


@dataclass(frozen=True)
class Life:
    """What was recorded: all changes of the disk, and the trees that programs saw."""

    seed: int
    where: Path  # the disk was mounted there
    steps: list[Step]
    states: list[Shown]


@dataclass(frozen=True)
class Point:
    """A moment to die: after so many steps, in which way."""

    step: int
    variant: str


def record(seed: int, root: Path, steps: int) -> Life:
    """Live, on a disk mounted below *root*."""
    where, trace = root / "disk", root / "trace"
    with RecordedDisk(where, trace) as disk, ExitStack() as undo:
        device = _Device(where, limits=_LIMITS)
        undo.callback(device.close)
        device.close()
        config = VolumeConfig.load(device.home, NAME)
        replace(config, links=ALONE).save(device.home)
        device.reopen()
        disk.mark(_BEGIN)
        programs = Programs(device, seed, disk.mark)
        programs.run(steps)
        device.close()
    return Life(seed, where, list(read_trace(trace)), programs.states)


def points(life: Life) -> Iterator[Point]:
    """All there are: after each step since the volume has been made."""
    begun = life.steps.index(Mark(_BEGIN))
    for number, step in enumerate(life.steps[begun:], begun + 1):
        if not isinstance(step, Mark):
            for variant in VARIANTS:
                yield Point(number, variant)


def check(life: Life, chosen: list[Point], root: Path) -> Iterator[tuple[Point, str | None]]:
    """Die at each of the points, in their order, come back, and look; what is wrong, if anything is.

    Each point is a life of its own, in a folder below *root* that is removed afterwards.
    """
    disk, at, begun, durable = Disk(), 0, 0, 0
    for point in chosen:
        for step in life.steps[at : point.step]:
            disk.apply(step)
            if isinstance(step, Mark):
                word, _, number = step.text.partition(" ")
                begun = int(number) if word == "step" else begun
                durable = int(number) if word == "durable" else durable
        at = point.step
        choose = random.Random(f"{life.seed} {point}")
        where = Path(tempfile.mkdtemp(prefix="died-", dir=root))
        try:
            _leave(disk, life, point, choose, where)
            allowed = life.states[durable : begun + 1]
            wrong = _come_back(where, allowed, with_second=choose.random() < _SECOND_SHARE)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is to be told with its point
            wrong = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(where)
        yield point, wrong


def _leave(disk: Disk, life: Life, point: Point, choose: random.Random, where: Path) -> None:
    if point.variant == KILLED:
        tree: Tree = disk.now
    else:
        tree = disk.after_power_cut(choose, CLOUDS if point.variant == POWERLESS else ())

    def rewrite(name: bytes, content: bytes) -> bytes:
        # The clouds are where the copy is.
        return content.replace(bytes(life.where), bytes(where)) if name == b"volume.json" else content

    where.rmdir()
    tree.write(where, rewrite)
    for shared_memory in where.rglob("*-shm"):
        shared_memory.unlink()  # it died with its processes


def _come_back(where: Path, allowed: list[Shown], *, with_second: bool) -> str | None:
    device = _Returned(where)
    with closing(device):
        device.reopen()
        first = shown_tree(device.volume)
        if first not in allowed:
            return f"the tree is none of the {len(allowed)} it may be: {_difference(allowed[0], first)}"
        wrong = _problems(device.fsck())
        device.sync()
        device.volume.drop_cache()
        wrong += _problems(device.fsck(clouds=True))
        if shown_tree(device.volume) != first:
            wrong.append("the clouds hold another tree")
        if with_second:
            _let_go(device.volume)
            wrong += _seen_by(Second(where / "second", device), first)
        if (branches := _branches(device.volume)) != 1:
            wrong.append(f"the device has forked itself: {branches} branches")
    return "; ".join(wrong) or None


def _let_go(volume: Volume) -> None:
    """No rule keeps anything from other devices any more."""
    rules = [one.pattern for one in volume.ignoring.list(0).rules]
    if rules:
        volume.ignoring.remove(rules)


def _seen_by(second: Device, tree: Shown) -> list[str]:
    """What is wrong when the other device has had the time to see this tree."""

    def sees_it() -> bool:
        second.volume.signals.look_around()
        try:
            return shown_tree(second.volume) == tree
        except OSError:  # it changes while it is looked at
            return False

    with closing(second):
        if not second.volume.signals.wait_until(sees_it, time.monotonic() + PATIENCE, step=0.05):
            return [f"another device sees another tree: {_difference(tree, shown_tree(second.volume))}"]
        return [f"another device: {problem}" for problem in _problems(second.fsck())]


class _Returned(_Device):
    """The device whose disk is below *where*."""

    def __init__(self, where: Path) -> None:
        self.around = Surroundings(Environment(limits=Limits(*_LIMITS)))
        self.home = Home.below(where / "home")
        self.clouds = [where / cloud for cloud in CLOUDS]
        self._open = False


def _problems(report: FsckReport) -> list[str]:
    return [f"{one.where}: {one.what}" for one in report.problems]


def _branches(volume: Volume) -> int:
    with volume.fs.state.transaction() as tx:
        own = volume.sharing.device
        count = tx.execute("SELECT count(*) FROM log_branch WHERE device = ?", (own,)).fetchone()[0]
        return int(count)


def _difference(durable: Shown, found: Shown) -> str:
    """How what was found differs from the oldest tree that would do, in short."""
    told = [f"{path} is gone" for path in durable.keys() - found.keys()]
    told += [f"{path} has come" for path in found.keys() - durable.keys()]
    for path in durable.keys() & found.keys():
        if durable[path] != found[path]:
            told.append(f"{path}: {_short(durable[path])} -> {_short(found[path])}")
    return ", ".join(sorted(told))


def _short(node: Node) -> str:
    return f"{node.kind:o} {len(node.content)}:{node.content[:8].hex()} {sorted(node.xattrs)}"
