"""Containers in the log, on open volumes: every device has them, a recovered one too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from hybrisfs.api.key_value import IN_LOG, ON_DEVICE, Place
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.kv.containers import Key
from hybrisfs.kv.errors import ContainerExistsError, ContainerMovingError, NoSuchContainerError
from hybrisfs.kv.log_moves import MovedContainer
from hybrisfs.kv.migrate import left_behind
from hybrisfs.kv.opening import KeyValues
from tests.volume.device import Device
from tests.volume.recovery_rig import First, New, Second, recover
from tests.volume.test_clouds_of_two import hears

BOX = "box"


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[First, Second]]:
    first = First(tmp_path / "1")
    try:
        second = Second(tmp_path / "2", first)
        try:
            yield first, second
        finally:
            second.close()
    finally:
        first.close()


def values(device: Device) -> KeyValues:
    return device.volume.key_values


def put(device: Device, key: str, value: bytes) -> None:
    values(device).of(BOX).put(BOX, key, value)


def get(device: Device, key: str) -> bytes:
    return values(device).of(BOX).get(BOX, key).value


def has(device: Device, key: str) -> bool:
    try:
        return key in [one.key for one in values(device).of(BOX).list(BOX)]
    except NoSuchContainerError:
        return False


def has_conflict(device: Device) -> bool:
    return values(device).conflicts() == [(Key(BOX, "a"), 2)]


def test_a_container_of_one_device_is_there_on_all_with_its_values(devices: tuple[First, Second]) -> None:
    first, second = devices
    values(first).create_container(BOX, IN_LOG)
    values(first).create_container("mine", ON_DEVICE)
    put(first, "a", b"1")
    first.sync()
    hears(second, lambda: has(second, "a"))
    assert get(second, "a") == b"1"
    assert values(second).containers() == [Place(ON_DEVICE, [], ""), Place(IN_LOG, [BOX], "")]
    put(second, "a", b"2")
    second.sync()
    hears(first, lambda: get(first, "a") == b"2")
    assert values(first).containers() == [Place(ON_DEVICE, ["mine"], ""), Place(IN_LOG, [BOX], "")]
    for device in devices:
        with pytest.raises(ContainerExistsError):
            values(device).create_container(BOX, ON_DEVICE)
        assert device.fsck().problems == []
        device.reopen()
        assert get(device, "a") == b"2"
    values(first).of(BOX).delete(BOX, "a")
    values(first).delete_container(BOX)
    assert values(first).containers() == [Place(ON_DEVICE, ["mine"], "")]


def test_without_a_place_a_container_of_the_only_device_is_on_it(tmp_path: Path) -> None:
    first = First(tmp_path)
    try:
        first.make_kit()  # which is not a device, though it has a key
        assert values(first).create_container(BOX, None) == ON_DEVICE
    finally:
        first.close()


def test_without_a_place_a_container_of_several_devices_is_in_the_log(devices: tuple[First, Second]) -> None:
    first, second = devices
    assert values(second).create_container(BOX, None) == IN_LOG
    put(second, "a", b"1")
    second.sync()
    session = values(second).session(None, 0.0)
    values(first).session(session, 60.0)
    assert get(first, "a") == b"1"


def test_conflicts_name_the_keys_that_have_several_values(devices: tuple[First, Second]) -> None:
    first, second = devices
    values(first).create_container(BOX, IN_LOG)
    first.sync()
    hears(second, lambda: values(second).containers()[1:] == [Place(IN_LOG, [BOX], "")])
    put(first, "a", b"1")
    put(second, "a", b"2")
    first.sync()
    second.sync()
    for device in devices:
        hears(device, partial(has_conflict, device))
        assert device.volume.status(look=False).conflicts == 1
    assert get(first, "a") == get(second, "a")


def test_a_container_of_this_device_goes_before_one_of_that_name_in_the_log(
    devices: tuple[First, Second],
) -> None:
    first, second = devices
    values(first).create_container(BOX, IN_LOG)
    values(second).create_container(BOX, ON_DEVICE)
    put(first, "a", b"in the log")
    put(second, "a", b"here")
    first.sync()
    hears(second, lambda: Place(IN_LOG, [BOX], "") in values(second).containers())
    assert get(second, "a") == b"here"
    values(second).of(BOX).delete(BOX, "a")
    values(second).delete_container(BOX)
    assert get(second, "a") == b"in the log"


def quiet(stage: str, done: int, total: int) -> None:
    """Nobody looks at the progress."""


def test_what_moves_to_the_log_goes_from_where_it_was_once_the_clouds_have_the_log(tmp_path: Path) -> None:
    first = First(tmp_path)
    try:
        values(first).create_container(BOX, ON_DEVICE)
        put(first, "a", b"1")
        first.volume.transfers.pause(None)
        for _ in range(2):
            with pytest.raises(HybrisError, match="the clouds have yet to get"):
                values(first).migrate(BOX, IN_LOG, quiet)
            assert get(first, "a") == b"1"
            assert values(first).containers()[-1] == Place(IN_LOG, [BOX], "")
            assert left_behind(BOX, values(first).open()) is not None
        first.volume.transfers.resume()
        first.sync()
        values(first).migrate(BOX, IN_LOG, quiet)
        assert left_behind(BOX, values(first).open()) is None
    finally:
        first.close()


def test_a_container_on_its_way_is_here_only_until_its_move_has_ended(devices: tuple[First, Second]) -> None:
    first, _ = devices
    values(first).create_container(BOX, ON_DEVICE)
    values(first).create_container("shared", IN_LOG)
    put(first, "a", b"1")

    def cut(stage: str, done: int, total: int) -> None:
        if stage == "waiting":
            raise HybrisError("cut short")

    with pytest.raises(HybrisError, match="cut short"):
        values(first).migrate(BOX, IN_LOG, cut)
    assert BOX not in [name for place in values(first).containers() for name in place.containers]
    assert values(first).only_here() == [BOX]
    values(first).migrate(BOX, IN_LOG, quiet)
    assert values(first).only_here() == []


def test_a_container_moves_to_the_log_and_all_devices_have_it(devices: tuple[First, Second]) -> None:
    first, second = devices
    values(first).create_container(BOX, ON_DEVICE)
    put(first, "a", b"1")
    assert values(first).migrate(BOX, IN_LOG, quiet).keys == 1
    assert values(first).containers() == [Place(ON_DEVICE, [], ""), Place(IN_LOG, [BOX], "")]
    with pytest.raises(UsageError, match="there already"):
        values(first).migrate(BOX, IN_LOG, quiet)
    first.sync()
    hears(second, lambda: has(second, "a"))
    put(second, "a", b"2")
    assert values(second).migrate(BOX, ON_DEVICE, quiet).keys == 1
    second.sync()
    hears(first, lambda: not has(first, "a"))
    with pytest.raises(NoSuchContainerError):
        put(first, "a", b"3")
    assert get(second, "a") == b"2"
    for device in devices:
        assert device.fsck().problems == []


def test_what_a_device_writes_that_has_not_heard_of_a_move_is_brought_over(
    devices: tuple[First, Second],
) -> None:
    first, second = devices
    values(first).create_container(BOX, IN_LOG)
    put(first, "a", b"before")
    put(first, "b", b"before")
    first.sync()
    hears(second, lambda: has(second, "b"))
    with silent(first):
        values(first).migrate(BOX, ON_DEVICE, quiet)
        put(first, "b", b"here")
        put(second, "a", b"late")
        put(second, "b", b"late")
    second.sync()
    hears(first, lambda: values(first).moved() == [MovedContainer(BOX, 2, False)])
    assert first.volume.status(look=False).conflicts == 1
    assert (get(first, "a"), get(first, "b")) == (b"before", b"here")
    first.sync()
    hears(second, lambda: values(second).moved() != [])
    with pytest.raises(ContainerMovingError):
        put(second, "a", b"later")
    moved = values(first).migrate(BOX, ON_DEVICE, quiet)
    assert (moved.keys, len(moved.beside)) == (0, 1)
    assert (get(first, "a"), get(first, "b"), get(first, moved.beside[0])) == (b"late", b"here", b"late")
    assert values(first).moved() == []
    with pytest.raises(UsageError, match="there already"):
        values(first).migrate(BOX, ON_DEVICE, quiet)
    first.sync()
    hears(second, lambda: values(second).moved() == [])
    with pytest.raises(NoSuchContainerError):
        put(second, "a", b"later")


def test_late_values_follow_a_container_that_has_moved_on(devices: tuple[First, Second]) -> None:
    """From the log to this device, and back to the log, where it has another space."""
    first, second = devices
    values(first).create_container(BOX, IN_LOG)
    put(first, "a", b"before")
    first.sync()
    hears(second, lambda: has(second, "a"))
    with silent(first):
        values(first).migrate(BOX, ON_DEVICE, quiet)
        with pytest.raises(HybrisError, match="the clouds have yet to get"):
            values(first).migrate(BOX, IN_LOG, quiet)
        put(second, "a", b"late")
    second.sync()
    hears(first, lambda: values(first).moved() == [MovedContainer(BOX, 1, False)])
    assert get(first, "a") == b"before"
    values(first).migrate(BOX, IN_LOG, quiet)
    assert values(first).conflicts() == [(Key(BOX, "a"), 2)]
    put(first, "a", b"both")
    assert values(first).migrate(BOX, ON_DEVICE, quiet).keys == 1
    assert get(first, "a") == b"both"


def test_a_container_that_two_devices_have_moved_is_told_of_until_one_is_dropped(
    devices: tuple[First, Second],
) -> None:
    first, second = devices
    values(first).create_container(BOX, IN_LOG)
    put(first, "a", b"before")
    first.sync()
    hears(second, lambda: has(second, "a"))
    with silent(first):
        for device in devices:
            values(device).migrate(BOX, ON_DEVICE, quiet)
    for device in devices:
        device.sync()
    told = [MovedContainer(BOX, 0, True)]
    for device in devices:
        hears(device, partial(is_told, device, told))
        assert get(device, "a") == b"before"
    values(second).of(BOX).delete(BOX, "a")
    values(second).delete_container(BOX)
    second.sync()
    hears(first, partial(is_told, first, []))
    assert get(first, "a") == b"before"


@contextmanager
def silent(device: Device) -> Iterator[None]:
    """Nobody hears of a device until the end."""
    device.volume.signals.pause_transfers(True)
    try:
        yield
    finally:
        device.volume.signals.pause_transfers(False)


def is_told(device: Device, told: list[MovedContainer]) -> bool:
    return values(device).moved() == told


def test_a_place_that_does_not_exist_is_refused_with_those_that_do(devices: tuple[First, Second]) -> None:
    with pytest.raises(UsageError, match=r"(?s)kept at 'lgo'.*device, log, clouds, or the URL"):
        values(devices[0]).create_container(BOX, "lgo")


def test_a_recovered_device_has_them(devices: tuple[First, Second], tmp_path: Path) -> None:
    first, _ = devices
    values(first).create_container(BOX, IN_LOG)
    put(first, "a", b"1")
    first.make_kit()
    first.sync()
    home = Home.below(tmp_path / "3")
    home.prepare()
    recover(home, first.clouds)
    recovered = New(home, first.clouds)
    try:
        hears(recovered, lambda: has(recovered, "a"))
        assert get(recovered, "a") == b"1"
    finally:
        recovered.close()
