"""A relay between devices behind different NATs, with the real programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.deadline import until
from tests.system.device import Device
from tests.system.network import Network
from tests.system.pairing import device_list, pair
from tests.system.relay import Relay


class Far(NamedTuple):
    """Two devices that cannot reach each other, and a relay that both reach."""

    network: Network
    relay: Relay
    code: Path
    a: Device
    b: Device


@pytest.fixture
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        run_as = network.add("relay")
        folder = tmp_path_factory.mktemp("relay")
        relay = stack.enter_context(Relay(folder, network.address("relay"), run_as))
        a, b = (
            stack.enter_context(Device(tmp_path_factory.mktemp(name), run_as=network.add_behind_nat(name)))
            for name in ("a", "b")
        )
        code = relay.add("home")
        a.create(3).mount()
        a.run("cloud", "add", "--code", str(code))
        pair(a, b, "b")
        b.run("cloud", "login", "--code", str(code))
        b.mount()
        yield Far(network, relay, code, a, b)


def through(device: Device) -> list[str | None]:
    """By which relay each other device is linked; None: directly."""
    return [one.get("relay") for one in device_list(device) if not one["this"] and one.get("linked")]


def wait_linked(far: Far) -> None:
    address = f"{far.network.address('relay')}:{far.relay.port}"
    for device in (far.a, far.b):
        until(lambda device=device: through(device) == [address], "a link through the relay")  # type: ignore[misc]


def test_a_change_gets_from_nat_to_nat(far: Far) -> None:
    wait_linked(far)
    (far.a.mountpoint / "letter").write_bytes(b"from a")
    until((far.b.mountpoint / "letter").exists, "the file of a")
    assert (far.b.mountpoint / "letter").read_bytes() == b"from a"
    (far.b.mountpoint / "letter").write_bytes(b"from b")
    until(lambda: (far.a.mountpoint / "letter").read_bytes() == b"from b", "the answer")


def test_a_relay_that_is_killed_loses_nothing_and_is_found_again(far: Far) -> None:
    wait_linked(far)
    far.relay.kill()
    until(lambda: not through(far.a) and not through(far.b), "the link to be given up")
    content = os.urandom(3 << 20)
    (far.a.mountpoint / "kept").write_bytes(content)
    until((far.b.mountpoint / "kept").exists, "the file, through the clouds")
    assert (far.b.mountpoint / "kept").read_bytes() == content
    far.relay.start()
    wait_linked(far)
    for device in (far.a, far.b):
        device.sync()
        assert device.fsck(clouds=True).returncode == 0
    assert far.relay.folder.joinpath("objects/home/heads").is_dir()


def test_a_relay_that_lies_as_a_cloud_is_named_and_harms_nothing(tmp_path: Path) -> None:
    with Relay(tmp_path, "127.0.0.1") as relay, Device(tmp_path) as device:
        code = str(relay.add("home"))
        device.create(2, f=0, k=1).mount()
        device.run("cloud", "add", "--code", code)
        device.run("volume", "redundancy", device.volume, "-f", "1", "-k", "1")
        files = {f"file {number}": os.urandom(1 << 20) for number in range(12)}
        away = device.clouds[0].rename(tmp_path / "away")  # or folders, which are quicker, would get all
        for name, content in files.items():
            (device.mountpoint / name).write_bytes(content)
        device.sync()
        away.rename(device.clouds[0])
        packs = [path for path in (tmp_path / "objects/home/packs").rglob("*") if path.is_file()]
        assert packs
        for path in packs:
            damaged = bytearray(path.read_bytes())
            damaged[-1] ^= 1
            path.write_bytes(damaged)
        device.cache_drop()
        for name, content in files.items():
            assert (device.mountpoint / name).read_bytes() == content
        scrubbed = device.attempt("scrub", device.volume)
        assert scrubbed.returncode == 1
        assert "home" in scrubbed.stdout + scrubbed.stderr
        device.run("repair", device.volume)
        device.run("scrub", device.volume)
