"""Two devices of one volume whose clouds change: each hears of it, and moves what is its own to move."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from backends.credentials import Credentials
from backends.file import FileStore
from backends.sftp import SftpStore
from backends.store import Store
from hybrisfs.errors import UsageError
from hybrisfs.merge.cloud_records import CloudRecord, free_number
from hybrisfs.settings.config import VolumeConfig
from tests.volume.device import ALONE, NAME, PATIENCE, Device, Second

CONTENT = os.urandom(50_000)


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    first = Device(tmp_path / "first", clouds=4)
    first.close()
    replace(VolumeConfig.load(first.home, NAME), links=ALONE).save(first.home)
    first.reopen()
    second = Second(tmp_path / "second", first)
    first.write("file", CONTENT)
    first.sync()
    hears(second, lambda: has(second, "file"))
    second.write("answer", CONTENT[::-1])
    second.sync()
    yield first, second
    second.close()
    first.close()


def has(device: Device, name: str) -> bool:
    with device.volume.fs.state.transaction() as tx:
        return device.volume.fs.lookup(tx, 1, name.encode()) is not None


def reads(device: Device, name: str, content: bytes) -> bool:
    return device.read(name) == content


def hears(device: Device, what: Callable[[], bool]) -> None:
    """Wait until the device has heard of what another one did."""

    def look() -> bool:
        device.volume.signals.look_around()
        return what()

    assert device.volume.signals.wait_until(look, _deadline(), step=0.2)


def _deadline() -> float:
    return time.monotonic() + PATIENCE


def gone(device: Device, name: str) -> tuple[bool, str]:
    return device.volume.clouds.wait(name, PATIENCE, lambda done, total: None)


def uses(device: Device) -> list[str]:
    return sorted(one.name for one in device.volume.config.clouds if one.in_use)


def is_sound(device: Device) -> bool:
    return device.fsck(clouds=True).problems == []


def assert_readable(device: Device) -> None:
    device.sync()
    device.volume.drop_cache()
    assert device.read("file") == CONTENT
    assert device.read("answer") == CONTENT[::-1]


def test_the_other_device_follows(devices: tuple[Device, Device], tmp_path: Path) -> None:
    first, second = devices
    new = tmp_path / "new"
    first.volume.clouds.replace("cloud-0", new.as_uri())
    assert gone(first, "cloud-0") == (True, "")
    expected = ["cloud-1", "cloud-2", "cloud-3", "new"]
    hears(second, lambda: uses(second) == expected)
    hears(first, lambda: has(first, "answer"))
    shutil.rmtree(first.clouds[0])
    for device in devices:
        assert_readable(device)
        assert uses(device) == expected
        hears(device, partial(is_sound, device))


def test_a_cloud_is_called_otherwise_on_all_devices(devices: tuple[Device, Device]) -> None:
    first, second = devices
    assert first.volume.clouds.rename("cloud-0", "hetzner").cloud == "hetzner"
    expected = ["cloud-1", "cloud-2", "cloud-3", "hetzner"]
    hears(first, lambda: has(first, "answer"))
    for device in devices:
        hears(device, lambda: uses(device) == expected)  # noqa: B023 - at once
        assert device.volume.status().clouds[0].name == "hetzner"
        assert_readable(device)
        assert is_sound(device)
    with pytest.raises(UsageError, match="already"):
        second.volume.clouds.rename("hetzner", "cloud-1")
    assert second.volume.clouds.rename("hetzner", "hetzner").cloud == "hetzner"
    for wrong in ("", "a://b", "x" * 256, "a\nb"):
        with pytest.raises(UsageError, match="cannot name"):
            second.volume.clouds.rename("hetzner", wrong)


def test_a_device_that_was_away_finds_the_new_clouds(devices: tuple[Device, Device], tmp_path: Path) -> None:
    first, second = devices
    second.close()
    for number, cloud in enumerate(first.clouds):
        first.volume.clouds.replace(cloud.name, (tmp_path / f"new-{number}").as_uri())
        assert gone(first, cloud.name) == (True, "")
    first.write("later", CONTENT)
    first.sync()
    second.reopen()
    hears(second, lambda: has(second, "later"))
    assert second.read("later") == CONTENT
    hears(second, lambda: uses(second) == [f"new-{number}" for number in range(4)])
    assert_readable(second)


def test_two_devices_that_add_clouds_under_one_number_have_both(
    devices: tuple[Device, Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = devices[0].volume.config.id
    one, other = two_of_one_number(volume, tmp_path)
    with monkeypatch.context() as patch:
        for device in devices:
            patch.setattr(device.volume.sharing.receiver, "receive", deaf)
        for device, url, name in zip(devices, (one, other), ("file", "answer"), strict=True):
            device.volume.clouds.add(url, None)
            for cloud in device.clouds[1:]:
                cloud.rename(cloud.with_suffix(".away"))
            device.write(name, b"new " + CONTENT if name == "file" else CONTENT + b" new")
            device.sync()
            for cloud in device.clouds[1:]:
                cloud.with_suffix(".away").rename(cloud)
        numbers = [{cloud.url: cloud.number for cloud in device.volume.config.clouds} for device in devices]
        assert numbers[0][one] == numbers[1][other]
    for device in devices:
        hears(device, partial(has, device, "answer"))
        hears(device, partial(both, device, one, other))
        hears(device, partial(is_sound, device))
        device.volume.drop_cache()
        hears(device, partial(reads, device, "file", b"new " + CONTENT))
        hears(device, partial(reads, device, "answer", CONTENT + b" new"))
    numbers = [{cloud.url: cloud.number for cloud in device.volume.config.clouds} for device in devices]
    assert numbers[0] == numbers[1]


def both(device: Device, one: str, other: str) -> bool:
    urls = [cloud.url for cloud in device.volume.config.clouds if cloud.in_use]
    return {one, other} <= set(urls)


def deaf(updates: object) -> bool:
    raise OSError("not now")


def two_of_one_number(volume: bytes, folder: Path) -> tuple[str, str]:
    found: dict[int, str] = {}
    for count in range(1000):
        url = (folder / f"new-{count}").as_uri()
        number = free_number(volume, url, range(4))
        if number in found:
            return found[number], url
        found[number] = url
    raise AssertionError("no two URLs have one number")


def test_what_one_device_writes_anew_the_other_reads(devices: tuple[Device, Device]) -> None:
    first, second = devices
    first.volume.clouds.change_redundancy(1, 2)
    hears(second, lambda: second.volume.config.k == 2)
    first.volume.clouds.change_redundancy(0, 1)
    assert first.volume.clouds.wait_rewritten(PATIENCE, lambda done, total: None) == (True, "")
    first.sync()
    for device in devices:
        hears(device, partial(has, device, "answer"))
        hears(device, partial(all_single, device))
        assert_readable(device)
        hears(device, partial(is_sound, device))


def all_single(device: Device) -> bool:
    query = "SELECT DISTINCT k, n FROM pack WHERE number IN (SELECT pack FROM chunk)"
    with device.volume.fs.state.transaction() as tx:
        return tx.execute(query).fetchall() == [(1, 1)]


class Folders:
    """Folders that play SSH servers; every URL by which one was opened is kept."""

    kind = SftpStore.kind

    def __init__(self, root: Path) -> None:
        self._root = root
        self.opened: list[str] = []

    def __call__(self, url: str, credentials: Credentials) -> Store:
        self.opened.append(url)
        return FileStore((self._root / urlsplit(url).path.strip("/")).as_uri())


def test_files_that_a_url_names_count_where_it_was_typed(
    devices: tuple[Device, Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = devices
    folders = Folders(tmp_path / "nas")
    monkeypatch.setattr("backends.sftp.SftpStore", folders)
    url = "sftp://me@nas/box?known_hosts=/tmp/shared/known&key=/home/b/key"
    second.volume.clouds.add(url, "nas")
    assert folders.opened[-1] == url
    [typed] = [one for one in second.volume.config.clouds if one.name == "nas"]
    assert not typed.heard

    folders.opened.clear()
    hears(first, lambda: any(one.name == "nas" and one.proven for one in first.volume.config.clouds))
    [heard] = [one for one in first.volume.config.clouds if one.name == "nas"]
    assert (heard.url, heard.heard) == (url, True)
    first.reopen()
    first.volume.clouds.test("nas")
    assert set(folders.opened) == {"sftp://me@nas/box"}

    first.volume.clouds.replace("nas", url.replace("box", "another"))
    [typed] = [one for one in first.volume.config.clouds if one.name == "another"]
    assert not typed.heard
    assert folders.opened[-1] == url.replace("box", "another")


def test_a_cloud_whose_url_means_another_machine_says_what_to_do(
    devices: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = devices
    url = "sftp://me@127.0.0.1:1/box?known_hosts=/tmp/shared/known"
    second.volume.clouds._cloud_set.sign_new(CloudRecord("nas", url))

    def trouble() -> str:
        found = [str(one.reason) for one in first.volume.clouds.all() if one.name == "nas"]
        return found[0] if found else ""

    hears(first, lambda: "known_hosts in its URL, from another machine, does not count here" in trouble())
    assert "cloud login" in trouble() and '"heard"' in trouble()
