"""Devices whose credentials may not delete: what all have agreed to delete goes by another that may."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import structs

from backends.s3 import S3Store
from hybrisfs.dispersal.share import parse_share_name
from hybrisfs.gc.limits import GcLimits
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.versions.retention import parse_retention
from sync.checkpoint import checkpoint_name
from tests.backends import servers
from tests.backends.buckets import WRITES
from tests.backends.servers import ORDINARY, FixedCredentials, Server
from tests.system.deadline import until
from tests.volume.bucket_device import First, Other, everything, keeping_buckets, wait_for
from tests.volume.device import NAME, Device
from tests.volume.test_compaction import AT_ONCE, rewrite
from tests.volume.test_garbage import collect, noise, remove

MIB = 1 << 20
_REST = 5.0  # seconds at most


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.versitygw(tmp_path_factory.mktemp("s3-server")) as server:
        yield server


@pytest.fixture
def urls(server: Server) -> list[str]:
    return keeping_buckets(server, 3, WRITES)


@pytest.fixture
def ordinary(tmp_path: Path, urls: list[str]) -> Iterator[First]:
    """A device that proposes at once to delete what nobody needs, but may not delete."""
    with ExitStack() as stack:
        soon = GcLimits(step_seconds=0.05, later_seconds=0.5)  # also when a busy machine is late with a chunk
        device = First(tmp_path / "ordinary", urls, 1, 1, limits=[soon])
        stack.callback(device.close)
        hurry(device)
        yield device


def hurry(device: Device) -> None:
    """Have it propose deletion at once, and keep no versions."""
    device.close()
    config = VolumeConfig.load(device.home, NAME)
    structs.replace(config, discard_hours=0, keep_versions=parse_retention("off")).save(device.home)
    device.reopen()


def shares(urls: list[str]) -> dict[bytes, int]:
    """How many clouds have a share of each pack. One may get it late, in vain, when another one was slow."""
    stores = [S3Store(url, FixedCredentials(ORDINARY)) for url in urls]
    names = [parse_share_name(name) for store in stores for name in everything(store, "packs/")]
    for store in stores:
        store.close()
    return Counter(name[0] for name in names if name is not None)


def deletions(device: Device) -> int:
    """How many requests to delete were made."""
    return sum(one.counters.delete for one in device.volume.engine.traffic())


def troubles(device: Device) -> list[str]:
    """What is amiss with its clouds; that they are slow, on a busy machine, is not."""
    clouds = device.volume.status().clouds
    assert isinstance(clouds, list)
    amiss = [one for one in clouds if one.state != "ok"]
    return [f"{one.state}: {one.reason}" for one in amiss if "in its usual time" not in one.reason]


def write_and_remove(device: Device, urls: list[str]) -> set[bytes]:
    """Write a file, remove it and collect garbage; the packs that it was in."""
    before = shares(urls)
    device.write("gone", noise(2, 3 * MIB))
    device.sync()
    made = set(shares(urls)).difference(before)
    remove(device, "gone")
    device.sync()
    collect(device)
    return made


def test_what_may_not_be_deleted_is_noted_and_no_trouble_of_a_cloud(ordinary: First, urls: list[str]) -> None:
    made = write_and_remove(ordinary, urls)
    assert made and all(shares(urls)[pack] >= 2 for pack in made)
    assert troubles(ordinary) == []
    status = ordinary.volume.status()
    assert status.undeletable
    assert any("for a machine that may delete" in one for one in status.notices)
    assert collect(ordinary).as_dict()["undeletable"] == status.undeletable
    ordinary.write("more", noise(3, MIB))
    ordinary.sync()


def test_a_refused_deletion_is_not_asked_for_again_and_again(ordinary: First, urls: list[str]) -> None:
    write_and_remove(ordinary, urls)
    requests = deletions(ordinary)
    disposer = ordinary.volume.collector._disposer
    assert disposer.run(lambda: True) == 0
    assert disposer.run(lambda: True) == 0
    assert deletions(ordinary) == requests


def test_another_device_deletes_it(tmp_path: Path, server: Server, ordinary: First, urls: list[str]) -> None:
    ordinary.write("kept", noise(1, MIB))
    ordinary.sync()
    kept = set(shares(urls))
    keeper = Other(tmp_path / "keeper", ordinary, server.secrets)
    try:
        wait_for(keeper, "kept")
        hurry(keeper)
        made = write_and_remove(ordinary, urls)

        def refused() -> bool:
            for one in (ordinary.volume, keeper.volume):
                one.signals.look_around()
            return bool(ordinary.volume.status().undeletable)

        until(refused, "all to agree, and the clouds to refuse")
        assert made and all(shares(urls)[pack] >= 2 for pack in made)
        keeper.volume.thinner.thin(time.time_ns())

        def is_gone() -> bool:
            keeper.volume.signals.look_around()
            collect(keeper)
            return made.isdisjoint(shares(urls))

        until(is_gone, "the other device to delete it")
        assert kept <= set(shares(urls))
        until(lambda: not collect(ordinary).undeletable, "the first device to see that it is gone")
        assert ordinary.volume.status().undeletable == 0
        assert troubles(ordinary) == troubles(keeper) == []
        assert ordinary.read("kept") == noise(1, MIB)
    finally:
        keeper.close()


def test_a_cloud_can_go_whose_objects_may_not_be_deleted(
    tmp_path: Path, server: Server, ordinary: First, urls: list[str]
) -> None:
    ordinary.write("kept", noise(1, MIB))
    ordinary.sync()
    values = ordinary.volume.key_values.open()
    values.create_container("things")
    values.put("things", "key", noise(4, MIB))
    clouds = ordinary.volume.clouds
    first = str(clouds.all()[0].name)
    clouds.replace(first, (tmp_path / "disk").as_uri())
    assert clouds.wait(first, 60.0, lambda done, total: None) == (True, "")
    ordinary.volume.drop_cache()
    assert ordinary.read("kept") == noise(1, MIB)
    assert values.get("things", "key").value == noise(4, MIB)


def test_old_segments_and_checkpoints_of_one_that_may_not_delete_go_as_well(
    tmp_path: Path, server: Server, urls: list[str]
) -> None:
    with ExitStack() as stack:
        ordinary = First(tmp_path / "ordinary", urls, 1, 1, limits=[AT_ONCE])
        stack.callback(ordinary.close)
        keeper = Other(tmp_path / "keeper", ordinary, server.secrets)
        stack.callback(keeper.close)
        author = ordinary.volume.sharing.device.hex()

        def listed(prefix: str) -> set[str]:
            stores = [S3Store(url, FixedCredentials(ORDINARY)) for url in urls]
            found = {name for store in stores for name in everything(store, prefix)}
            for store in stores:
                store.close()
            return found

        rewrite(ordinary, 0, keeper)
        begun = listed(f"log/{author}/")
        rounds = itertools.count(1)

        def is_gone() -> bool:
            return not begun or bool(begun - listed(f"log/{author}/"))

        def goes() -> bool:
            """With a later checkpoint than the one that covers it: by then the author says so. Then a rest,
            as a device that has stated the next checkpoint drops nothing."""
            rewrite(ordinary, next(rounds), keeper)
            return ordinary.volume.signals.wait_until(is_gone, time.monotonic() + _REST, step=0.2)

        until(goes, "segments to go that nobody needs")
        parts = keeper.volume.checkpoints.checkpointer.cloud_checkpoint.parts()
        assert checkpoint_name(parts[-1]) in listed("checkpoints/")
        assert len(listed("checkpoints/")) <= 3 * len(parts)
        for device in (ordinary, keeper):
            assert troubles(device) == []
            report = device.volume.maintenance.scrub(100.0, lambda stage, done, total: None).facts()
            assert report.wrong == 0, report.problems
