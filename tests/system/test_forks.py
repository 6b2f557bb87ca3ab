"""A device that is restored from a backup, and one that exists twice: nothing that either wrote is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.system.clouds import away
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.group import Group, make_group
from tests.system.pairing import all_sound, forked, same_trees, this_device
from tests.system.shell import run


@pytest.fixture
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Each test has devices of its own: a device that has forked remains one that has."""
    with ExitStack() as stack:
        made = make_group(tmp_path_factory, stack)
        yield made
        # What a forked device has lost comes to the clouds a while later: one test waits for that.
        all_sound(made.devices, clouds=False)


def _back_up(device: Device) -> Path:
    """Copy all that a device keeps, while it is off; returns where."""
    backup = device.root / "backup"
    device.stop()
    run("cp", "-a", device.home, backup)
    device.mount()
    return backup


def _restore(device: Device, backup: Path) -> None:
    """The device as it was, still off."""
    device.stop()
    shutil.rmtree(device.home)
    run("cp", "-a", backup, device.home)


def _have(group: Group, *texts: str) -> None:
    """Every one of the texts is in some file on every device."""
    tree = same_trees(group.devices)
    found = {(group.a.mountpoint / path.decode()).read_text() for path in tree}
    assert set(texts) <= found


@contextmanager
def _signing(*devices: Device) -> Iterator[None]:
    """What the devices write in the block, they have signed after it: it cannot be unsaid."""
    before = [this_device(device)["vector"] for device in devices]
    yield
    for device, vector in zip(devices, before, strict=True):
        until(partial(_has_grown, device, vector), "what was written to be signed")


def _has_grown(device: Device, vector: dict[str, int]) -> bool:
    return bool(this_device(device)["vector"] != vector)


def _all_know(devices: Sequence[Device], names: set[str]) -> None:
    """All devices say that these have forked, and no others."""
    for device in devices:
        until(partial(_knows, device, names), f"{device.root} to know that {names} forked", 20)


def _knows(device: Device, names: set[str]) -> bool:
    return forked(device) == names


def test_restored_device_that_hears_of_its_past_first_does_not_fork(group: Group) -> None:
    (group.c.mountpoint / "early").write_text("before the backup")
    same_trees(group.devices)
    backup = _back_up(group.c)
    (group.c.mountpoint / "late").write_text("after the backup")
    (group.c.mountpoint / "early").write_text("changed after the backup")
    same_trees(group.devices)

    _restore(group.c, backup)
    group.c.mount()
    until(lambda: (group.c.mountpoint / "late").exists(), "the device to get back what it had forgotten")
    (group.c.mountpoint / "new").write_text("after the restoration")
    _have(group, "changed after the backup", "after the backup", "after the restoration")
    _all_know(group.devices, set())


def test_restored_device_that_writes_before_it_hears_of_its_past_forks(group: Group) -> None:
    early = group.c.mountpoint / "early"
    early.write_text("before the backup")
    same_trees(group.devices)
    backup = _back_up(group.c)
    (group.c.mountpoint / "late").write_text("after the backup")
    early.write_text("changed after the backup")
    same_trees(group.devices)

    expected = ["after the backup", "changed after the backup"]
    for round_ in ("first", "second"):
        with group.network.without(), away(*group.clouds):
            _restore(group.c, backup)
            group.c.mount()
            assert early.read_text() == "before the backup"
            with _signing(group.c):
                early.write_text(f"changed on the {round_} branch")
                (group.c.mountpoint / round_).write_text(f"new on the {round_} branch")
        expected += [f"changed on the {round_} branch", f"new on the {round_} branch"]
        _have(group, *expected)
        _all_know(group.devices, {"carol"})
    for device in group.devices:
        assert "carol has forked its history" in device.run("status")
        [notice] = json.loads(device.run("status", "--json"))["volumes"][0]["notices"]
        assert notice.startswith("carol has forked its history")


def test_two_devices_with_one_state(group: Group, tmp_path: Path) -> None:
    for round_ in range(2):
        (group.c.mountpoint / f"early{round_}").write_text("before the clone")
    same_trees(group.devices)
    group.c.stop()
    twin = Device(tmp_path / "twin", run_as=group.network.add("twin"))
    twin.root.mkdir()
    with twin:
        run("cp", "-a", group.c.home, twin.home)
        (twin.home / "state" / "mounts.json").unlink(missing_ok=True)
        group.c.mount()
        twin.mount()
        everybody = [*group.devices, twin]
        same_trees(everybody)
        texts = []
        for round_ in range(2):
            with group.network.without(), away(*group.clouds), _signing(group.c, twin):
                for device, who in ((group.c, "original"), (twin, "clone"), (group.a, "alice")):
                    texts.append(f"{who} {round_}")
                    (device.mountpoint / f"{who}{round_}").write_text(texts[-1])
                (group.c.mountpoint / f"early{round_}").write_text(f"changed {round_} by the original")
                (twin.mountpoint / f"early{round_}").write_text(f"changed {round_} by the clone")
            texts += [f"changed {round_} by the original", f"changed {round_} by the clone"]
            tree = same_trees(everybody)
        found = {(twin.mountpoint / path.decode()).read_text() for path in tree}
        assert set(texts) <= found
        _all_know(everybody, {"carol"})
    all_sound(group.devices)
