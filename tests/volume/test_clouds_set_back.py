"""All clouds at once go back to an old copy of themselves: what the devices hold is put there again."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from hybrisfs.api.maintenance import Repair
from hybrisfs.clouds.maintenance import MaintenanceLimits
from hybrisfs.dispersal.errors import ChunkUnavailable
from tests.volume.device import PATIENCE, Device, Second

OLD = {f"old{number}": os.urandom(4000 + number) for number in range(3)}
NEW = {f"new{number}": os.urandom(5000 + number) for number in range(3)} | {"big": os.urandom(3 << 20)}


@pytest.fixture(params=[(1, 1, 3), (1, 2, 4)], ids=lambda code: f"f{code[0]}k{code[1]}")
def first(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Device]:
    f, k, clouds = request.param
    with ExitStack() as stack:
        one = Device(tmp_path / "first", clouds=clouds, f=f, k=k)
        stack.callback(one.close)
        yield one


@pytest.fixture
def second(first: Device, tmp_path: Path) -> Iterator[Device]:
    with ExitStack() as stack:
        one = Second(tmp_path / "second", first)
        stack.callback(one.close)
        yield one


def write(device: Device, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        device.write(name, content)
        device.sync()


def copies(device: Device) -> dict[Path, Path]:
    found = {cloud: cloud.with_name(f"{cloud.name}.copy{time.monotonic_ns()}") for cloud in device.clouds}
    for cloud, copy in found.items():
        shutil.copytree(cloud, copy)
    return found


def set_back(to: dict[Path, Path]) -> None:
    for cloud, copy in to.items():
        shutil.rmtree(cloud)
        shutil.copytree(copy, cloud)


def lose_new(device: Device) -> dict[Path, Path]:
    """Write; the clouds lose what was written last. What they were before that."""
    write(device, OLD)
    old = copies(device)
    write(device, NEW)
    return old


def wait_for(device: Device, files: dict[str, bytes]) -> None:
    """Wait until the device has heard of the files, and read them."""
    until = time.monotonic() + PATIENCE

    def told() -> bool:
        with device.volume.fs.state.transaction() as tx:
            return all(device.volume.fs.lookup(tx, 1, name.encode()) is not None for name in files)

    device.volume.signals.look_around()
    assert device.volume.signals.wait_until(told, until)
    assert_reads(device, files)


def assert_reads(device: Device, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        assert device.read(name) == content, name


def repair(device: Device) -> Repair:
    report = device.volume.maintenance.repair(lambda stage, done, total: None)
    return report.facts()


def warned(device: Device) -> bool:
    """Whether the status says that something is on no cloud."""
    warnings = device.volume.status().warnings
    return any("the clouds have lost content" in one for one in warnings)


def test_repair_writes_anew_what_this_device_holds(first: Device) -> None:
    old = lose_new(first)
    set_back(old)
    assert first.fsck(clouds=True).problems
    done = repair(first)
    assert done.failed == 0, done
    assert done.repaired > 0
    first.sync()
    assert first.fsck(clouds=True).problems == []
    assert {one.state for one in first.volume.engine.health()} == {"ok"}
    assert not warned(first)
    assert repair(first).repaired == 0
    first.volume.drop_cache()
    assert_reads(first, OLD | NEW)


def test_a_device_that_joins_afterwards_reads_all(first: Device, tmp_path: Path) -> None:
    old = lose_new(first)
    set_back(old)
    repair(first)
    first.sync()
    later = Second(tmp_path / "later", first)
    try:
        wait_for(later, OLD | NEW)
        assert later.fsck(clouds=True).problems == []
    finally:
        later.close()


def test_every_device_finds_out_and_tells(first: Device, second: Device) -> None:
    old = lose_new(first)
    wait_for(second, OLD | NEW)
    set_back(old)
    for device in (first, second):
        until = time.monotonic() + PATIENCE
        assert device.volume.signals.wait_until(partial(warned, device), until, step=0.3)
    for device in (first, second):
        assert repair(device).failed == 0
        device.sync()
    wait_for(second, OLD | NEW)
    for device in (first, second):
        assert device.fsck(clouds=True).problems == []
        assert not warned(device)


def test_the_cache_keeps_what_the_clouds_have_lost(first: Device, second: Device) -> None:
    old = lose_new(first)
    wait_for(second, OLD | NEW)
    first.close()
    set_back(old)
    second.volume.drop_cache()
    assert_reads(second, NEW)
    assert repair(second).failed == 0
    second.sync()
    second.volume.drop_cache()
    assert_reads(second, OLD | NEW)


def test_each_device_puts_back_what_it_holds(first: Device, second: Device) -> None:
    old = lose_new(first)
    wait_for(second, OLD | NEW)
    first.volume.drop_cache()
    assert first.read("new0") == NEW["new0"]
    set_back(old)
    assert repair(first).failed > 0
    assert warned(first)
    assert repair(second).failed == 0
    second.sync()
    first.volume.signals.look_around()
    until = time.monotonic() + PATIENCE
    assert first.volume.signals.wait_until(lambda: not warned(first), until)
    first.sync()
    assert repair(first).failed == 0
    assert first.fsck(clouds=True).problems == []
    assert_reads(first, OLD | NEW)


def test_clouds_that_have_it_again_are_believed(first: Device) -> None:
    old = lose_new(first)
    new = copies(first)
    first.volume.drop_cache()
    set_back(old)
    assert repair(first).failed > 0
    assert warned(first)
    with pytest.raises(ChunkUnavailable):
        first.read("new0")
    set_back(new)
    assert_reads(first, OLD | NEW)
    first.volume.drop_cache()
    assert repair(first).failed == 0
    assert not warned(first)
    assert first.fsck(clouds=True).problems == []
    assert_reads(first, OLD | NEW)


def test_it_is_put_right_without_a_command(first: Device) -> None:
    old = lose_new(first)
    first.close()
    set_back(old)
    first.reopen(MaintenanceLimits(first_pause=0.1))
    first.volume.checkup.refresh(PATIENCE)
    until = time.monotonic() + PATIENCE
    whole = first.volume.signals.wait_until(lambda: first.fsck(clouds=True).problems == [], until, step=0.5)
    assert whole, first.fsck(clouds=True).problems
    first.volume.drop_cache()
    assert_reads(first, OLD | NEW)


def test_a_restart_forgets_none_of_it(first: Device) -> None:
    old = lose_new(first)
    set_back(old)
    first.volume.checkup.refresh(PATIENCE)
    first.reopen()
    assert warned(first)
    first.volume.drop_cache()
    assert_reads(first, NEW)
