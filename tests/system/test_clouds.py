"""Clouds of a mounted volume come and go: through the commands, with the daemon killed in between."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.system.clouds import objects
from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.pairing import pair
from tests.system.trees import make_tree, snapshot


def clouds(device: Device) -> dict[str, str]:
    """How each cloud is used, by its name."""
    facts = json.loads(device.run("cloud", "list", device.volume, "--json"))
    return {one["name"]: one["use"] for one in facts["clouds"]}


def packs(cloud: Path) -> list[Path]:
    return [path for path in objects(cloud) if "packs" in path.parts]


def test_a_cloud_is_replaced_though_the_daemon_is_killed(make_device: MakeDevice, tmp_path: Path) -> None:
    device = make_device().create(3).mount()
    for batch in range(3):
        make_tree(device.mountpoint / f"batch {batch}", seed=batch, files=10)
        device.sync()
    before = snapshot(device.mountpoint)
    old, new = device.clouds[0], tmp_path / "new"
    device.run("cloud", "test", old.name)
    device.run("cloud", "replace", old.name, new.as_uri())
    device.kill()
    device.mount()
    until(lambda: clouds(device) == {"birch": "in use", "cedar": "in use", "new": "in use"}, "amber to go")
    assert packs(old) == []
    shutil.rmtree(old)
    device.clouds[0] = new
    device.forget()
    assert snapshot(device.mountpoint) == before
    done = device.fsck(clouds=True)
    assert done.returncode == 0, done.stdout
    assert device.bad_clouds() == set()


def test_another_device_hears_of_it(make_device: MakeDevice, tmp_path: Path) -> None:
    one, other = make_device("one").create(3).mount(), make_device("other")
    make_tree(one.mountpoint / "tree", seed=1, files=10)
    one.sync()
    pair(one, other, "other")
    other.mount()
    one.run("cloud", "add", (tmp_path / "new").as_uri())
    lost = one.clouds[1]
    lost.rename(lost.with_suffix(".lost"))
    one.run("cloud", "remove", lost.name, "--wait")
    expected = {one.clouds[0].name, one.clouds[2].name, "new"}
    until(lambda: set(clouds(other)) == expected, "the other device to hear of the clouds")
    until(lambda: (other.mountpoint / "tree").is_dir(), "the tree to arrive")
    until(lambda: snapshot(other.mountpoint) == snapshot(one.mountpoint), "both to show the same")
    (other.mountpoint / "answer").write_bytes(b"answer" * 1000)
    other.sync()
    for device in (one, other):
        done = device.fsck(clouds=True)
        assert done.returncode == 0, done.stdout
