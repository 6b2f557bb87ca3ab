"""What must be so when all is healed: equal trees, sound clouds, no false word."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.system.chaos.oracle import judge_contents
from tests.system.chaos.record import Record
from tests.system.chaos.world import NAMES, World
from tests.system.clouds import away
from tests.system.deadline import until
from tests.system.device import CommandFailedError, Device
from tests.system.pairing import forked
from tests.system.trees import Entry, snapshot

__all__ = ["judge"]

_AGREE_SECONDS = 90.0
_UNEXPECTED = ("Traceback", "unexpected", "background work")


def judge(world: World) -> None:
    """Everything that can be asked of devices at rest; what is wrong goes to the record."""
    record, devices = world.record, [world.devices[name] for name in NAMES]
    tree = _agreed(record, devices)
    judge_contents(record, [world.area(name, "work") for name in NAMES[: 1 if tree else None]])
    if tree is None:
        return
    record.counts["names"] = len(tree)
    _conflicts(record, devices)
    _forks(world)
    _held(world)
    _clouds(record, devices)
    _readable(world, tree)
    _safe(world)
    _daemon_logs(world)


def _agreed(record: Record, devices: list[Device]) -> dict[bytes, Entry] | None:
    """The tree that all devices have come to show, or None and a finding."""
    end = time.monotonic() + _AGREE_SECONDS
    while True:
        with ThreadPoolExecutor() as pool:
            first, *others = pool.map(_reads, devices)
        if isinstance(first, dict) and all(one == first for one in others):
            return first
        if time.monotonic() > end:
            break
    for name, other in zip(NAMES[1:], others, strict=True):
        if isinstance(first, str) or isinstance(other, str):
            record.find("trees", f"a: {_in_short(first)}; {name}: {_in_short(other)}")
        elif other != first:
            record.find("trees", f"{name}, compared with a: {_differences(other, first)}")
    return None


def _in_short(seen: dict[bytes, Entry] | str) -> str:
    return seen if isinstance(seen, str) else f"{len(seen)} names"


def _conflicts(record: Record, devices: list[Device]) -> None:
    lists = [json.loads(one.run("conflicts", "list", "--json")) for one in devices]
    record.counts["conflicts"] = len(lists[0].get("conflicts", ()))
    if any(one != lists[0] for one in lists):
        record.find("conflicts", "\n".join(json.dumps(one) for one in lists))


def _forks(world: World) -> None:
    for name in NAMES:
        wrong = forked(world.devices[name]) - world.restored
        if wrong:
            world.record.find("forks", f"{name} says that {wrong} forked; restored were {world.restored}")


def _held(world: World) -> None:
    for name in NAMES:
        device = world.devices[name]
        held = json.loads(device.run("deletions", "list", "--json"))["deletions"]
        if held:
            world.record.find("held", f"{name}: {json.dumps(held)[:500]}")


def _clouds(record: Record, devices: list[Device]) -> None:
    """Put everything right, then look; who repairs first does not know all that the others do."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(Device.sync, devices))
        before = list(pool.map(lambda one: one.fsck(clouds=True), devices))
        if all(done.returncode == 0 for done in before):
            return
        for device in devices:
            device.attempt("repair", device.volume, timeout=300)
        for name, done in zip(NAMES, pool.map(lambda one: one.fsck(clouds=True), devices), strict=True):
            if done.returncode != 0:
                record.find("clouds", f"{name}, after repair: {(done.stdout + done.stderr)[:1500]}")


def _readable(world: World, tree: dict[bytes, Entry]) -> None:
    """Nothing comes over links, nothing is cached, and one cloud after the other is away."""
    for cloud in world.clouds:
        with world.network.without(), ThreadPoolExecutor() as pool:
            list(pool.map(Device.forget, world.devices.values()))
            with away(cloud):
                for name, what in zip(NAMES, pool.map(_reads, world.devices.values()), strict=True):
                    if what != tree:
                        text = what if isinstance(what, str) else _differences(what, tree)
                        world.record.find("readable", f"{name}, without {cloud.name}: {text}")


def _reads(device: Device) -> dict[bytes, Entry] | str:
    try:
        return snapshot(device.mountpoint)
    except OSError as error:
        return str(error)


def _differences(found: dict[bytes, Entry], expected: dict[bytes, Entry]) -> str:
    wrong = [path for path in sorted({*found, *expected}) if found.get(path) != expected.get(path)]
    return "; ".join(f"{path!r}: {found.get(path)} instead of {expected.get(path)}" for path in wrong[:5])


def _safe(world: World) -> None:
    """What was written while all clouds are away is on none; nobody who shows it may say otherwise."""
    with away(*world.clouds):
        written = world.area("a", "work") / "written while all clouds are away"
        written.write_bytes(b"on no cloud\n" * 5000)
        for name in NAMES:
            shown = world.area(name, "work") / written.name
            until(lambda at=shown: _is_whole(at), f"{name} to show what a wrote", 60)  # type: ignore[misc]
            device = world.devices[name]
            sentence = device.run("status", device.volume).splitlines()
            calm = [line for line in sentence if line.strip().startswith("Everything is")]
            if calm:
                world.record.find("safe", f"status on {name}: {calm[0].strip()}")
            done = device.attempt("sync", device.volume, "--wait", "--timeout", "3")
            if done.returncode == 0:
                world.record.find("safe", f"sync --wait on {name} succeeds: {done.stdout.strip()}")
    try:
        for device in world.devices.values():
            device.sync()
    except CommandFailedError as error:
        world.record.find("safe", f"clouds are back: {error}")


def _is_whole(path: Path) -> bool:
    try:
        return len(path.read_bytes()) == 60_000
    except OSError:
        return False


def _daemon_logs(world: World) -> None:
    for name in NAMES:
        lines = (world.devices[name].home / "state" / "daemon.log").read_text().splitlines()
        for number, line in enumerate(lines):
            if any(word in line for word in _UNEXPECTED):
                around = lines[max(0, number - 2) : number + 40]
                world.record.find("traceback", f"{name}: " + "\n".join(around))
                break
