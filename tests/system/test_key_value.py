"""The key-value store of a volume, while a cloud lies and the daemon is killed."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.system.clouds import away, objects
from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import Device


def values(cloud: Path) -> list[Path]:
    return [path for path in objects(cloud) if path.relative_to(cloud).parts[0] == "kv"]


def names(device: Device) -> set[str]:
    return {path.name for cloud in device.clouds for path in values(cloud)}


def test_values_survive_a_killed_daemon_and_a_lying_cloud(make_device: MakeDevice, tmp_path: Path) -> None:
    device: Device = make_device().create(3)
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"small")
    large.write_bytes(os.urandom(3 << 20))
    device.run("kv", "create", device.volume, "box", "--metadata", "device")
    device.run("kv", "put", device.volume, "box/small", str(large))
    device.run("kv", "put", device.volume, "box/small", str(small))
    writes = ["--put", "box/large", str(large), "--put", "box/gone", str(small)]
    device.run("kv", "tput", device.volume, *writes)
    device.kill()
    device.run("kv", "delete", device.volume, "box/gone")
    until(lambda: len(names(device)) == 2, "old versions to be deleted")
    for path in values(device.clouds[0]):
        path.write_bytes(os.urandom(path.stat().st_size))
    device.kill()  # and with it what is cached
    for name, expected in (("small", small), ("large", large)):
        target = tmp_path / "target"
        for _ in range(3):
            device.run("kv", "get", device.volume, f"box/{name}", str(target))
            assert target.read_bytes() == expected.read_bytes()
    listed = json.loads(device.run("kv", "list", device.volume, "box", "--json"))
    assert [one["key"] for one in listed["keys"]] == ["large", "small"]
    assert not any(b"small" in path.read_bytes() for cloud in device.clouds for path in values(cloud))


def test_scrub_names_the_keys_of_damaged_values_and_repair_rebuilds_them(
    make_device: MakeDevice, tmp_path: Path
) -> None:
    device: Device = make_device().create(3)
    large = tmp_path / "large"
    large.write_bytes(os.urandom(3 << 20))
    device.run("kv", "create", device.volume, "box", "--metadata", "device")
    with away(device.clouds[2]):  # so it is known which clouds have it on record
        device.run("kv", "put", device.volume, "box/large", str(large))
    [path] = values(device.clouds[0])
    path.write_bytes(os.urandom(path.stat().st_size))
    left_behind = path.with_name("ab" * 16)
    left_behind.write_bytes(b"of a write that kv.db does not know")
    done = device.attempt("scrub", device.volume)
    assert done.returncode == 1
    assert "the value of box/large: kv/" in done.stdout
    assert "1 object of the key-value store on the clouds, named by no key" in done.stdout
    device.run("repair", device.volume)
    facts = json.loads(device.run("scrub", device.volume, "--json"))
    assert (facts["problems"], facts["values"]["unnamed"]) == ([], 1)
    device.run("kv", "clean", device.volume)
    assert not left_behind.exists()
    device.run("kv", "get", device.volume, "box/large", str(tmp_path / "target"))
    assert (tmp_path / "target").read_bytes() == large.read_bytes()
