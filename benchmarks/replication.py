"""Two devices at the ends of a cable: how soon has one what the other did?"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import cpu_seconds
from benchmarks.syncthing import Syncthing
from tests.system.clouds import away
from tests.system.device import Device
from tests.system.network import Network
from tests.system.pairing import pair

__all__ = [
    "Latency",
    "Tree",
    "catch_up_linked",
    "catch_up_peer",
    "devices",
    "limit_rate",
    "linked",
    "measure_latency",
    "measure_tree",
    "measure_tree_linked",
    "peers",
]

_GIVE_UP = 600.0
_LOOK_EVERY = 0.002
_LOOK_AT_TREE_EVERY = 0.25
_PAUSE = 0.3
_ADDRESSES = ("10.77.0.1", "10.77.0.2")  # of the first two machines of a Network
_AS_INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}  # a program that is installed is not compiled at each start
_IDLE_SECONDS = 4
_IDLE_SHARE = 0.1  # of a second


@dataclass(frozen=True)
class Latency:
    """From the close of a file of 4 KiB on one device until it can be read on the other, in seconds."""

    median: float
    worst: float
    samples: int


@dataclass(frozen=True)
class Tree:
    """Seconds from the first file copied into one folder: until the copy returned, until all names were in
    the other, until all had been read there and was equal. `wire` is what its bytes take on the line."""

    copied: float
    named: float
    equal: float
    wire: float


def _wait(seen: Callable[[], bool], every: float) -> None:
    give_up = time.monotonic() + _GIVE_UP
    while True:
        begun = time.monotonic()
        if seen():
            return
        looked = time.monotonic()
        if looked > give_up:
            raise SystemExit(f"it did not arrive within {_GIVE_UP:.0f} s")
        time.sleep(max(every, 2 * (looked - begun)))  # looking costs those who are measured


@contextmanager
def devices(root: Path) -> Iterator[tuple[Network, Device, Device]]:
    """A volume on two devices, each with a network of its own; linked, and over clouds that both reach."""
    with ExitStack() as stack:
        network, one, other = _machines(root, stack)
        one.create(3, f=1, k=1).mount()
        pair(one, other, "other")
        other.mount()
        _wait(lambda: linked(one), 0.2)
        yield network, one, other


def _machines(root: Path, stack: ExitStack) -> tuple[Network, Device, Device]:
    network = stack.enter_context(Network())
    made = []
    for name in ("one", "other"):
        (root / name).mkdir(parents=True)
        made.append(
            stack.enter_context(Device(root / name, run_as=network.add(name), variables=_AS_INSTALLED))
        )
    return network, made[0], made[1]


def linked(device: Device) -> bool:
    """Whether a direct link to another device is up."""
    return any(one.get("linked") for one in device.status()["devices"])


@contextmanager
def peers(root: Path) -> Iterator[tuple[Network, Syncthing, Syncthing]]:
    """A folder of Syncthing's on two such machines, connected."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        one, other = (
            stack.enter_context(Syncthing(root / name, address, network.add(name)))
            for name, address in zip(("one", "other"), _ADDRESSES, strict=True)
        )
        one.share(other)
        other.share(one)
        one.start()
        other.start()
        (one.folder / "first").write_bytes(b"connected")
        _wait((other.folder / "first").exists, 0.2)
        yield network, one, other


def limit_rate(network: Sequence[str], megabits: float) -> None:
    """Limit what a machine sends; `network` is the prefix that runs a command there."""
    words = f"tc qdisc replace dev eth0 root tbf rate {megabits}mbit burst 256kb latency 200ms"
    done = subprocess.run([*network, *words.split()], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the line cannot be shaped: {done.stderr.strip()}")


def measure_latency(source: Path, target: Path, samples: int) -> Latency:
    """Write files into one folder and look for them in the other; the first does not count."""
    taken = []
    for number in range(samples + 1):
        content, name = os.urandom(4096), f"latency {number}"
        (source / name).write_bytes(content)
        begun = time.monotonic()

        def is_there(path: Path = target / name, wanted: bytes = content) -> bool:
            try:
                return path.read_bytes() == wanted
            except OSError:
                return False

        _wait(is_there, _LOOK_EVERY)
        taken.append(time.monotonic() - begun)
        time.sleep(_PAUSE)
    return Latency(statistics.median(taken[1:]), max(taken[1:]), samples)


def measure_tree(tree: Path, source: Path, target: Path, megabits: float) -> Tree:
    """Copy a tree into one folder and wait for the other to be equal."""
    sizes = [path.stat().st_size for path in tree.rglob("*") if path.is_file()]
    begun = time.monotonic()
    shutil.copytree(tree, source / "tree")
    copied = time.monotonic() - begun
    _wait(lambda: _count(target / "tree") == len(sizes), _LOOK_AT_TREE_EVERY)
    named = time.monotonic() - begun
    _wait(lambda: _same(tree, target / "tree"), _LOOK_AT_TREE_EVERY)
    return Tree(copied, named, time.monotonic() - begun, sum(sizes) * 8 / (megabits * 1e6))


def _count(folder: Path) -> int:
    return sum(
        not name.startswith(".syncthing.")  # a file that has not arrived as a whole
        for _, _, names in os.walk(folder)
        for name in names
    )


def _same(tree: Path, other: Path) -> bool:
    """Read both to the last byte."""
    return subprocess.run(["diff", "-rq", tree, other], capture_output=True, check=False).returncode == 0


def measure_tree_linked(root: Path, tree: Path, megabits: float) -> Tree:
    """Ours over the line alone: the clouds are away meanwhile; the other device pins everything."""
    with devices(root) as (network, one, other):
        for machine in ("one", "other"):
            limit_rate(network.prefix(machine), megabits)
        other.run("pin", str(other.mountpoint))
        with away(*one.clouds):
            return measure_tree(tree, one.mountpoint, other.mountpoint, megabits)


def catch_up_linked(root: Path, tree: Path, megabits: float) -> float:
    """Seconds from the start of the other device until it has a tree that it missed while it was off."""
    with devices(root) as (network, one, other):
        for machine in ("one", "other"):
            limit_rate(network.prefix(machine), megabits)
        other.run("pin", str(other.mountpoint))
        other.stop()
        shutil.copytree(tree, one.mountpoint / "tree")
        one.sync(timeout=600)
        with away(*one.clouds):
            begun = time.monotonic()
            other.mount()
            return _arrival(tree, other.mountpoint / "tree") - begun


def catch_up_peer(root: Path, tree: Path, megabits: float) -> float:
    """The same of Syncthing, whose first device has looked at everything before the second one starts."""
    with peers(root) as (network, one, other):
        for machine in ("one", "other"):
            limit_rate(network.prefix(machine), megabits)
        other.stop()
        shutil.copytree(tree, one.folder / "tree")
        _wait_until_idle(one.pids)
        begun = time.monotonic()
        other.start()
        return _arrival(tree, other.folder / "tree") - begun


def _arrival(tree: Path, target: Path) -> float:
    """When the target was equal to the tree."""
    wanted = _count(tree)
    _wait(lambda: _count(target) == wanted, _LOOK_AT_TREE_EVERY)
    _wait(lambda: _same(tree, target), _LOOK_AT_TREE_EVERY)
    return time.monotonic()


def _wait_until_idle(pids: list[int]) -> None:
    """Wait until the processes have used next to no processor time for a few seconds."""
    before, quiet = cpu_seconds(pids), 0
    while quiet < _IDLE_SECONDS:
        time.sleep(1)
        now = cpu_seconds(pids)
        quiet = quiet + 1 if now - before < _IDLE_SHARE else 0
        before = now
