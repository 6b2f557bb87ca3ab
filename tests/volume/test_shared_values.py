"""Containers in a service: all devices of a volume use them, whichever made them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from hybrisfs.api.key_value import ON_DEVICE
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.errors import ContainerExistsError, ContainerMovingError, NoSuchContainerError
from hybrisfs.kv.migrate import left_behind
from hybrisfs.kv.opening import KeyValues
from hybrisfs.kv.record import leaving
from hybrisfs.kv.shared import ServiceLimits
from hybrisfs.kv.store import KeyValueStore
from tests.kv.services import SERVICES, Servers, service_cluster
from tests.system.deadline import until
from tests.volume.device import Device, two_devices
from tests.volume.test_clouds import gone
from tests.volume.test_clouds_of_two import hears

BOX = "box"


@pytest.fixture(scope="module", params=SERVICES)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with service_cluster(request.param, tmp_path_factory.mktemp("service")) as cluster:
        yield cluster


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    with two_devices(tmp_path) as devices:
        yield devices


def values(device: Device) -> KeyValues:
    return device.volume.key_values


def learns(device: Device, url: str) -> None:
    hears(device, lambda: url in values(device).shared.services.urls())


def box(device: Device) -> KeyValueStore:
    store = values(device).of(BOX)
    assert isinstance(store, KeyValueStore)
    return store


def test_a_container_of_one_device_is_there_on_all(devices: tuple[Device, Device], service: Servers) -> None:
    first, second = devices
    values(first).create_container(BOX, service.url)
    values(first).create_container("mine", ON_DEVICE)
    put = box(first).put(BOX, "key", b"value")
    learns(second, service.url)
    found = box(second).get(BOX, "key")
    assert (found.value, found.timestamp) == (b"value", put)
    box(second).put(BOX, "key", b"another")
    assert box(first).get(BOX, "key").value == b"another"
    assert [(one.metadata, one.containers) for one in values(second).containers()] == [
        (ON_DEVICE, []),
        (service.url, [BOX]),
    ]
    assert [(one.metadata, one.containers) for one in values(first).containers()] == [
        (ON_DEVICE, ["mine"]),
        (service.url, [BOX]),
    ]
    with pytest.raises(NoSuchContainerError):
        values(second).of("mine")
    for url in (None, service.url):
        with pytest.raises(ContainerExistsError):
            values(second).create_container(BOX, url)


def test_all_is_there_after_a_restart_and_old_values_go(device: Device, service: Servers) -> None:
    values(device).create_container(BOX, service.url)
    for number in range(3):
        box(device).put(BOX, "key", b"value %d" % number)
    device.reopen()
    assert box(device).get(BOX, "key").value == b"value 2"
    box(device).collector.collect()  # its thread may be in the midst of it
    until(lambda: objects(device) == 2, "copies of the newest value only")


def objects(device: Device) -> int:
    """How many objects of values the clouds hold."""
    return sum(path.is_file() for cloud in device.clouds for path in cloud.rglob("kv/*/*"))


def test_values_of_all_stores_leave_with_their_cloud(service: Servers, tmp_path: Path) -> None:
    device = Device(tmp_path / "four", 4)
    try:
        values(device).create_container(BOX, service.url)
        for number in range(6):
            box(device).put(BOX, f"{number}", b"value %d" % number)
        cloud = next(one for one in device.clouds if any(one.rglob("kv/*/*")))
        device.volume.clouds.drain(cloud.name)
        assert gone(device, cloud.name)[0]
        assert not [path for path in cloud.rglob("kv/*/*") if path.is_file()]
        assert [box(device).get(BOX, f"{number}").value for number in range(6)] == [
            b"value %d" % number for number in range(6)
        ]
        report = device.fsck(clouds=True)
        assert report.problems == []
    finally:
        device.close()


def test_what_another_device_has_put_there_leaves_with_a_cloud(
    devices: tuple[Device, Device], service: Servers
) -> None:
    """Also since the values were counted here; a device that has not opened the store hears of the end."""
    first, second = devices
    values(first).create_container(BOX, service.url)
    assert list(box(first).metadata.values()) == []
    learns(second, service.url)
    for number in range(6):
        box(second).put(BOX, f"{number}", b"value %d" % number)
    values(second).shared.at(service.url).close()  # it looks after nothing any more
    values(second).shared._stores.clear()
    cloud = next(one for one in first.clouds if any(one.rglob("kv/*/*")))
    first.volume.clouds.drain(cloud.name)
    assert gone(first, cloud.name)[0]
    hears(second, lambda: cloud.name not in [one.name for one in second.volume.config.clouds])
    kept = [path for one in first.clouds if one != cloud for path in one.rglob("kv/*/*") if path.is_file()]
    assert len(kept) >= 2 * 6
    assert [box(first).get(BOX, f"{number}").value for number in range(6)] == [
        b"value %d" % number for number in range(6)
    ]


@pytest.mark.parametrize("kind", SERVICES)
def test_a_service_that_is_away_is_named_and_keeps_no_other_container_from_working(
    tmp_path: Path, kind: str
) -> None:
    with ExitStack() as ends:
        cluster = ends.enter_context(service_cluster(kind, tmp_path / "service"))
        device = Device(tmp_path, limits=[ServiceLimits(patience=0.5)])
        ends.callback(device.close)
        values(device).create_container(BOX, cluster.url)
        values(device).create_container("mine", ON_DEVICE)
        box(device).put(BOX, "key", b"value")
        device.reopen()
        cluster.nodes[0].kill()
        with pytest.raises(HybrisError, match="has not answered"):
            values(device).of(BOX)
        values(device).of("mine").put("mine", "key", b"value")
        assert [bool(one.trouble) for one in values(device).containers()] == [False, True]
        cluster.nodes[0].start()
        cluster.nodes[0].wait_until_ready()
        assert box(device).get(BOX, "key").value == b"value"


def test_a_service_can_be_forgotten_and_found_again(devices: tuple[Device, Device], service: Servers) -> None:
    first, second = devices
    values(first).create_container(BOX, service.url)
    box(first).put(BOX, "key", b"value")
    learns(second, service.url)
    values(second).forget_service(service.url)
    with pytest.raises(NoSuchContainerError):
        values(second).of(BOX)
    with pytest.raises(UsageError):
        values(second).forget_service(service.url)
    with pytest.raises(ContainerExistsError):
        values(second).create_container(BOX, service.url)
    assert box(second).get(BOX, "key").value == b"value"


def quiet(stage: str, done: int, total: int) -> None:
    """Nobody looks at the progress."""


def test_a_container_moves_to_a_service_and_all_devices_use_it(
    devices: tuple[Device, Device], service: Servers
) -> None:
    first, second = devices
    values(first).create_container(BOX, ON_DEVICE)
    put = box(first).put(BOX, "key", b"value")
    assert values(first).migrate(BOX, service.url, quiet).keys == 1
    learns(second, service.url)
    found = box(second).get(BOX, "key")
    assert (found.value, found.timestamp.sn) == (b"value", put.sn)
    box(second).put(BOX, "key", b"another")
    assert box(first).get(BOX, "key").value == b"another"
    with pytest.raises(UsageError, match="there already"):
        values(second).migrate(BOX, service.url, quiet)
    assert values(second).migrate(BOX, ON_DEVICE, quiet).keys == 1
    with pytest.raises(NoSuchContainerError):
        box(first).get(BOX, "key")
    with pytest.raises(NoSuchContainerError):
        values(first).migrate(BOX, service.url, quiet)
    assert box(second).get(BOX, "key").value == b"another"


def test_nothing_else_is_done_with_a_container_on_its_way(device: Device, service: Servers) -> None:
    values(device).create_container(BOX, ON_DEVICE)
    box(device).put(BOX, "key", b"value")
    store = box(device)
    store.metadata.rename_container(BOX, leaving(BOX, "mark"))
    with pytest.raises(ContainerMovingError):
        values(device).of(BOX)
    with pytest.raises(ContainerMovingError):
        values(device).create_container(BOX, ON_DEVICE)
    with pytest.raises(UsageError):
        values(device).of(leaving(BOX, "mark"))
    assert [one.containers for one in values(device).containers()] == [[]]
    assert values(device).migrate(BOX, service.url, quiet).keys == 1
    assert box(device).get(BOX, "key").value == b"value"


def test_what_a_move_has_left_goes_when_the_container_is_dropped_or_moved_again(
    device: Device, service: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move was cut short at the very end. Nothing of it must come back later."""
    values(device).create_container(BOX, ON_DEVICE)
    store = box(device)
    store.put(BOX, "key", b"value")
    with monkeypatch.context() as patch:
        patch.setattr(store.metadata, "discard_container", lambda name: None)
        values(device).migrate(BOX, service.url, quiet)
    assert left_behind(BOX, store) is not None
    box(device).delete(BOX, "key")
    values(device).delete_container(BOX)
    assert left_behind(BOX, store) is None
    values(device).create_container(BOX, ON_DEVICE)
    assert box(device).list(BOX) == []
    with monkeypatch.context() as patch:
        patch.setattr(store.metadata, "discard_container", lambda name: None)
        values(device).migrate(BOX, service.url, quiet)
    assert values(device).migrate(BOX, service.url, quiet).keys == 0, "it is finished"
    assert left_behind(BOX, store) is None
    assert values(device).migrate(BOX, ON_DEVICE, quiet).keys == 0, "it is empty"
    box(device).put(BOX, "key", b"value")
    with monkeypatch.context() as patch:
        patch.setattr(store.metadata, "discard_container", lambda name: None)
        values(device).migrate(BOX, service.url, quiet)
    assert values(device).migrate(BOX, ON_DEVICE, quiet).keys == 1, "back, beside what is left there"
    assert store.metadata.containers() == [BOX]
    assert box(device).get(BOX, "key").value == b"value"


def test_sealed_names_are_apart_from_plain_ones_of_the_same_service(
    devices: tuple[Device, Device], service: Servers
) -> None:
    """The URL tells, also the other devices: none takes what is sealed for plain text."""
    first, second = devices
    plain = f"{service.url}/{uuid4().hex}"
    sealed = f"{plain}?names=sealed"
    values(first).create_container(BOX, sealed)
    values(first).create_container("open", plain)
    box(first).put(BOX, "key", b"value")
    values(first).of("open").put("open", "key", b"other")
    learns(second, sealed)
    learns(second, plain)
    assert {one.metadata: list(one.containers) for one in values(second).containers()} == {
        ON_DEVICE: [],
        sealed: [BOX],
        plain: ["open"],
    }
    assert box(second).get(BOX, "key").value == b"value"
    assert values(second).of("open").get("open", "key").value == b"other"
    assert values(second).migrate(BOX, plain, lambda stage, done, total: None).keys == 1
    assert values(first).migrate("open", sealed, lambda stage, done, total: None).keys == 1
    assert box(second).get(BOX, "key").value == b"value"
    assert values(first).of("open").get("open", "key").value == b"other"
    for one in (first, second):
        assert values(one).shared.at(sealed).containers() == ["open"]
        assert values(one).shared.at(plain).containers() == [BOX]
