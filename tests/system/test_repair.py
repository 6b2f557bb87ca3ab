"""A cloud loses or damages what it has: scrub names it, repair heals it, and then another one may go."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.system.clouds import away, objects
from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.trees import Entry, make_tree, snapshot

CODES = [(1, 1), (1, 2)]  # f, k, over four clouds


@pytest.fixture(params=CODES, ids=lambda code: f"f{code[0]}k{code[1]}")
def device(request: pytest.FixtureRequest, make_device: MakeDevice) -> Device:
    f, k = request.param
    return make_device().create(4, f=f, k=k).mount()


def fill(device: Device) -> dict[bytes, Entry]:
    for batch in range(3):
        make_tree(device.mountpoint / f"batch {batch}", seed=batch, files=15)
        device.sync()
    return snapshot(device.mountpoint)


def wrong(device: Device) -> set[str]:
    """The clouds that scrub finds something wrong on; its exit code must say so."""
    done = device.attempt("scrub", device.volume, "--json", timeout=300)
    facts = json.loads(done.stdout)
    assert (done.returncode == 1) == bool(facts["wrong"]), done.stdout + done.stderr
    return {problem["cloud"] for problem in facts["problems"]}


def assert_readable_without(device: Device, cloud: Path, before: dict[bytes, Entry]) -> None:
    with away(cloud):
        device.cache_drop()
        device.remount()
        assert snapshot(device.mountpoint) == before


def wipe(cloud: Path) -> None:
    for path in objects(cloud):
        path.unlink()


def flip_every_other(cloud: Path) -> None:
    for path in objects(cloud)[::2]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x20
        path.write_bytes(data)


@pytest.mark.parametrize("harm", [wipe, flip_every_other])
def test_scrub_names_and_repair_heals(device: Device, harm: object) -> None:
    before = fill(device)
    assert wrong(device) == set()
    victim = max(device.clouds, key=lambda cloud: len(objects(cloud)))
    assert callable(harm)
    harm(victim)
    assert wrong(device) == {victim.name}
    done = device.attempt("repair", device.volume, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert victim.name in done.stdout
    assert wrong(device) == set()
    clean = device.fsck(clouds=True)
    assert clean.returncode == 0, clean.stdout
    assert device.bad_clouds() == set()
    for cloud in device.clouds:
        if cloud != victim:
            assert_readable_without(device, cloud, before)
    until(lambda: not device.bad_clouds(), "all clouds to be well again", 120)


def test_a_dead_clouds_shares_are_rebuilt_elsewhere(device: Device) -> None:
    before = fill(device)
    dead = max(device.clouds, key=lambda cloud: len(objects(cloud / "packs")))
    shutil.rmtree(dead)
    done = device.attempt("repair", device.volume, "--json", timeout=300)
    facts = json.loads(done.stdout)
    by_name = {cloud["name"]: cloud for cloud in facts["clouds"]}
    assert by_name[dead.name]["moved"] > 0
    assert {problem["cloud"] for problem in facts["problems"]} == {dead.name}  # its own marker and head
    device.sync()
    device.kill()
    device.mount()
    for cloud in device.clouds:
        if cloud != dead:
            assert_readable_without(device, cloud, before)
    assert device.fsck().returncode == 0
