"""A volume over three kinds of real servers, of which any one may be stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.backends import servers
from tests.backends.servers import Server
from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.trees import make_tree, snapshot


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(start(tmp_path))
            for start in (servers.versitygw, servers.azurite, servers.fake_gcs)
        ]


def create(device: Device, stores: list[Server], urls: list[str]) -> None:
    """Make the volume over real servers, whose secrets are in the private file."""
    file = device.home / "config" / "credentials.json"
    file.parent.mkdir(mode=0o700, parents=True)
    secrets = {url: store.secrets for url, store in zip(urls, stores, strict=True)}
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
        json.dump({"version": 1, "clouds": secrets}, stream)
    options = [word for url in urls for word in ("--cloud", url)]
    device.run("volume", "create", device.volume, *options, "-f", "1", "-k", "1")


def test_any_one_of_three_services_may_stop(make_device: MakeDevice, stores: list[Server]) -> None:
    device = make_device()
    urls = [store.url(f"cloud-{number}") for number, store in enumerate(stores)]
    create(device, stores, urls)
    device.mount()
    make_tree(device.mountpoint / "tree", seed=1, files=40)
    (device.mountpoint / "big").write_bytes(os.urandom(20 << 20))
    device.sync()
    before = snapshot(device.mountpoint)
    checked = device.fsck(clouds=True)
    assert not any(name in checked.stdout + checked.stderr for name in ("cloud-0", "cloud-1", "cloud-2"))

    stopped = stores[0]
    stopped.process.kill()
    stopped.process.wait()
    device.cache_drop()
    device.remount()
    assert snapshot(device.mountpoint) == before
    (device.mountpoint / "later").write_bytes(b"written without one of them" * 1000)
    device.sync()

    def states() -> dict[str, str]:
        return {cloud["url"]: cloud["state"] for cloud in device.status()["clouds"]}

    until(lambda: states()[urls[0]] not in ("ok", "slow"), "the stopped one to be named")
    assert all(states()[url] in ("ok", "slow") for url in urls[1:])
    told = json.dumps(device.status()) + (device.home / "state" / "daemon.log").read_text()
    kept = b"".join(path.read_bytes() for path in device.home.rglob("*.db*"))
    for store in stores:
        for name, secret in store.secrets.items():
            if name != "access_key_id":
                assert secret not in told
                assert secret.encode() not in kept


def test_wrong_secrets_make_no_volume(make_device: MakeDevice, stores: list[Server]) -> None:
    device = make_device()
    urls = [store.url(f"cloud-{number}") for number, store in enumerate(stores)]
    wrong = [Server(0, one.make_url, one.wrong, {}, one.process) for one in stores]
    with pytest.raises(AssertionError, match="hybrisfs cloud login") as caught:
        create(device, wrong, urls)
    assert "wrong" not in str(caught.value).replace("wrong-", "")
