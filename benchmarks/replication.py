"""Two devices at the ends of a cable: how soon has one what the other did?

A tree has arrived when the other device says that it lacks nothing of it. Comparing it byte by byte comes
after that and is not counted, but it must succeed, with the cable pulled and the clouds away, so that what is
compared is what was there. Of Syncthing, the comparison that succeeds is not counted either.
"""

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
from typing import Any

from benchmarks.processes import cpu_seconds
from benchmarks.syncthing import Syncthing
from hybrisfs.client import Client
from hybrisfs.home import Home
from tests.system.clouds import away
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.network import Network
from tests.system.pairing import pair
from tests.system.relay import Relay

__all__ = [
    "Latency",
    "Tree",
    "catch_up_linked",
    "catch_up_peer",
    "catch_up_plugged",
    "devices",
    "limit_rate",
    "linked",
    "measure_latency",
    "measure_tree_linked",
    "measure_tree_peer",
    "peers",
    "relayed",
    "wire_seconds",
]

_GIVE_UP = 600.0
_LOOK_EVERY = 0.002
_LOOK_AT_TREE_EVERY = 0.25
_ASK_EVERY = 0.05
_SIGNED_LOOKS = 4  # one each second
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
    the other, until everything was. `wire` is what its bytes take on the line."""

    copied: float
    named: float
    arrived: float
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


@contextmanager
def relayed(root: Path) -> Iterator[tuple[Device, Device]]:
    """A volume on two devices behind routers of their own, linked through a relay, which is a cloud of it."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        for name in ("relay", "one", "other"):
            (root / name).mkdir(parents=True)
        run_as = network.add("relay")
        relay = stack.enter_context(Relay(root / "relay", network.address("relay"), run_as))
        one, other = (
            stack.enter_context(
                Device(root / name, run_as=network.add_behind_nat(name), variables=_AS_INSTALLED)
            )
            for name in ("one", "other")
        )
        code = str(relay.add("home"))
        one.create(3, f=1, k=1).mount()
        one.run("cloud", "add", "--code", code)
        pair(one, other, "other")
        other.run("cloud", "login", "--code", code)
        other.mount()
        _wait(lambda: linked(one), 0.2)
        yield one, other


def linked(device: Device) -> bool:
    """Whether a link to another device is up."""
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


def wire_seconds(tree: Path, megabits: float) -> float:
    """What the bytes of a tree take on a line."""
    return sum(path.stat().st_size for path in tree.rglob("*") if path.is_file()) * 8 / (megabits * 1e6)


def measure_tree_linked(root: Path, tree: Path, megabits: float) -> Tree:
    """Copy a tree into our folder and wait for it on the other device, over the line alone."""
    with _over_the_line(root, megabits) as (network, one, other):
        begun = time.monotonic()
        shutil.copytree(tree, one.mountpoint / "tree")
        copied = time.monotonic()
        named = _named(tree, other.mountpoint / "tree")
        arrived = _arrived(network, tree, other)
    return Tree(copied - begun, named - begun, arrived - begun, wire_seconds(tree, megabits))


def measure_tree_peer(root: Path, tree: Path, megabits: float) -> Tree:
    """The same of Syncthing."""
    with peers(root) as (network, one, other):
        for machine in ("one", "other"):
            limit_rate(network.prefix(machine), megabits)
        begun = time.monotonic()
        shutil.copytree(tree, one.folder / "tree")
        copied = time.monotonic()
        named = _named(tree, other.folder / "tree")
        arrived = _first_look_that_is_equal(tree, other.folder / "tree")
    return Tree(copied - begun, named - begun, arrived - begun, wire_seconds(tree, megabits))


def catch_up_linked(root: Path, tree: Path, megabits: float) -> float:
    """Seconds from the start of the other device until it has a tree that it missed while it was off."""
    with _over_the_line(root, megabits) as (network, one, other):
        other.stop()
        shutil.copytree(tree, one.mountpoint / "tree")
        _sign_all(one)
        begun = time.monotonic()
        other.mount()
        return _arrived(network, tree, other) - begun


def catch_up_plugged(root: Path, tree: Path, megabits: float) -> float:
    """Seconds from when two devices that run have found each other again, until the other has a tree that
    was copied while the cable was out."""
    with _over_the_line(root, megabits) as (network, one, other):
        network.cut()
        until(lambda: not linked(one) and not linked(other), "the link to be given up", 180)
        shutil.copytree(tree, one.mountpoint / "tree")
        _sign_all(one)
        network.heal()
        with _asked(other) as status:
            while True:
                begun = time.monotonic()  # before it is asked, so that nothing is left out
                if any(device.get("linked") for device in status()["devices"]):
                    break
                time.sleep(_ASK_EVERY)
        return _arrived(network, tree, other) - begun


def catch_up_peer(root: Path, tree: Path, megabits: float) -> float:
    """As `catch_up_linked`, of Syncthing, whose first device has looked at everything before the second one
    starts."""
    with peers(root) as (network, one, other):
        for machine in ("one", "other"):
            limit_rate(network.prefix(machine), megabits)
        other.stop()
        shutil.copytree(tree, one.folder / "tree")
        _wait_until_idle(one.pids)
        begun = time.monotonic()
        other.start()
        _named(tree, other.folder / "tree")
        return _first_look_that_is_equal(tree, other.folder / "tree") - begun


@contextmanager
def _over_the_line(root: Path, megabits: float) -> Iterator[tuple[Network, Device, Device]]:
    """Our devices on a line of limited bandwidth and without clouds; the other one pins everything."""
    with devices(root) as (network, one, other):
        for machine in ("one", "other"):
            limit_rate(network.prefix(machine), megabits)
        other.run("pin", str(other.mountpoint))
        with away(*one.clouds):
            yield network, one, other


@contextmanager
def _asked(device: Device) -> Iterator[Callable[[], dict[str, Any]]]:
    """Ask for a device's status again and again, over one connection."""
    with Client.connect(Home.below(device.home), start=False) as client:
        yield lambda: client.exchange("status")["volumes"][0]


def _sign_all(device: Device) -> None:
    """Wait until a device has signed all that was done on it, so that it can go over the line."""
    vectors: list[object] = []

    def stands_still() -> bool:
        [this] = [one for one in status()["devices"] if one["this"]]
        vectors.append(this["vector"])
        return len(vectors) > _SIGNED_LOOKS and vectors[-1] == vectors[-1 - _SIGNED_LOOKS]

    with _asked(device) as status:
        _wait(stands_still, 1.0)


def _named(tree: Path, target: Path) -> float:
    """When all names were there."""
    wanted = _count(tree)
    _wait(lambda: _count(target) == wanted, _LOOK_AT_TREE_EVERY)
    return time.monotonic()


def _arrived(network: Network, tree: Path, device: Device) -> float:
    """When the device lacked nothing of the tree, which is then compared with what it has."""
    wanted = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())

    def has_all() -> bool:
        pinned = status()["pinned"]
        return pinned["bytes"] >= wanted and not pinned["missing_bytes"]

    with _asked(device) as status:
        _wait(has_all, _ASK_EVERY)
    arrived = time.monotonic()
    network.cut()
    if not _same(tree, device.mountpoint / "tree"):
        raise SystemExit("the other device says that it has everything, and it is not equal")
    return arrived


def _first_look_that_is_equal(tree: Path, target: Path) -> float:
    """When a comparison began that finds both equal."""
    looks: list[float] = []

    def look() -> bool:
        looks.append(time.monotonic())
        return _same(tree, target)

    _wait(look, _LOOK_AT_TREE_EVERY)
    return looks[-1]


def _count(folder: Path) -> int:
    return sum(
        not name.startswith(".syncthing.")  # a file that has not arrived as a whole
        for _, _, names in os.walk(folder)
        for name in names
    )


def _same(tree: Path, other: Path) -> bool:
    """Read both to the last byte."""
    return subprocess.run(["diff", "-rq", tree, other], capture_output=True, check=False).returncode == 0


def _wait_until_idle(pids: list[int]) -> None:
    """Wait until the processes have used next to no processor time for a few seconds."""
    before, quiet = cpu_seconds(pids), 0
    while quiet < _IDLE_SECONDS:
        time.sleep(1)
        now = cpu_seconds(pids)
        quiet = quiet + 1 if now - before < _IDLE_SHARE else 0
        before = now
