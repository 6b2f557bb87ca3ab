"""Copies of folders on several devices, on open volumes that hear of each other through the clouds."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path, PurePath

import pytest

from hybrisfs.api.copies import FileCopies
from hybrisfs.api.files import Freed
from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.read.copies import CopiesLimits
from hybrisfs.registers.labels import MOST_COPIES
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.residency import WHERE_XATTR
from hybrisfs.write.ship import ShipLimits
from tests.volume.device import PATIENCE, Device, Second

PHOTOS, PHOTO = PurePath("photos"), PurePath("photos/one")
MIB = 1 << 20
SOON = (
    CopiesLimits(settled=1.0, behind=0.0),
    CheckpointLimits(look_seconds=0.1),
    ShipLimits(state_seconds=0.1, linger_seconds=0.1),
)


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[list[Device]]:
    with ExitStack() as closing:
        first = Device(tmp_path / "1", 4, limits=SOON)
        closing.callback(first.close)
        second = Second(tmp_path / "2", first)
        closing.callback(second.close)
        yield [first, second]


def put(device: Device, name: bytes = b"one", size: int = MIB) -> None:
    """A file in the folder of photos."""
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        folder = fs.lookup(tx, ROOT_INO, b"photos") or fs.make(
            tx, ROOT_INO, b"photos", stat.S_IFDIR | 0o755, 1, 1
        )
        _, handle = fs.create(tx, folder.ino, name, 0o644, 1, 1, os.O_WRONLY)
    device.write_at(handle, 0, os.urandom(size))
    with fs.state.transaction() as tx:
        fs.release(tx, handle)
    device.sync()


def until(devices: list[Device], holds: Callable[[], bool]) -> None:
    signals = devices[0].volume.signals
    deadline = devices[0].around.environment.monotonic() + PATIENCE

    def looked() -> bool:
        for one in devices:
            one.volume.signals.content_wanted()
        return holds()

    assert signals.wait_until(looked, deadline)


def on(device: Device) -> list[str]:
    """Who has all of the photos, as far as the device knows."""
    return next((sorted(one.on) for one in device.volume.copies.all()), [])


def is_here(device: Device, path: PurePath) -> bool:
    """Whether the device knows the file, and has all of it."""
    try:
        on = device.volume.copies.of(path).on
    except HybrisError:
        return False
    [this] = [one.name for one in device.volume.devices() if one.this]
    return this in on


def test_a_folder_is_kept_on_two_devices(devices: list[Device]) -> None:
    first, second = devices
    put(first)
    first.volume.copies.ask(PHOTOS, 2)
    [asked] = first.volume.labels.of(PHOTOS)
    assert asked == "copies=2"
    until(devices, lambda: len(on(first)) == 2)
    until(devices, lambda: len(on(second)) == 2)
    assert second.volume.copies.of(PHOTO).clouds >= 2
    assert len(second.volume.copies.of(PHOTO).on) == 2
    for device in devices:  # both are chosen, so neither lets it go
        assert device.volume.content.evict(PHOTOS) == Freed(0, 0, 0, MIB)
        device.volume.drop_cache()
        assert device.volume.copies.of(PHOTO).on[0] == device.volume.copies.all()[0].on[0]
    put(first, b"two")
    until(devices, lambda: is_here(second, PHOTOS / "two"))  # it is fetched unasked
    assert first.volume.status(look=False).copies == first.volume.copies.all()


def test_a_device_that_keeps_everything_frees_the_others(devices: list[Device]) -> None:
    first, second = devices
    put(first)
    first.volume.copies.ask(PHOTOS, 1)
    until(devices, lambda: len(on(first)) == 1)
    second.volume.settings.edit({"hoard": "all"})
    until(devices, lambda: is_here(second, PHOTO))
    until(devices, lambda: len(on(first)) == 2)
    assert first.volume.content.evict(PHOTOS).freed_bytes == 0  # it has said that it has it
    first.around.ahead_ns = second.around.ahead_ns = 26 * 3600 * 10**9
    until(devices, lambda: len(on(second)) >= 1)

    def freed() -> bool:
        second.volume.writing.announce()
        return first.volume.content.evict(PHOTOS).freed_bytes == MIB

    until(devices, freed)
    assert first.volume.copies.of(PHOTO).on == ["second"]
    first.volume.status(look=False)


def test_too_few_copies_are_a_warning_until_there_are_enough(devices: list[Device]) -> None:
    first, second = devices
    second.volume.settings.edit({"hoard": "none"})
    put(first)
    first.volume.copies.ask(PHOTOS, 2)

    def warned() -> bool:
        return any(
            "photos is to be on 2 machines" in text for text in first.volume.status(look=False).warnings
        )

    until(devices, warned)
    second.volume.settings.edit({"hoard": "asked"})
    until(devices, lambda: not warned())


def test_what_cannot_be_asked_for(devices: list[Device]) -> None:
    first, _ = devices
    put(first, size=10)
    copies = first.volume.copies
    with pytest.raises(HybrisError, match="No such file"):
        copies.ask(PurePath("nothing"), 1)
    with pytest.raises(UsageError, match="is not a file"):
        copies.of(PHOTOS)
    copies.ask(PHOTOS, MOST_COPIES)
    copies.ask(PHOTOS, 3)
    assert first.volume.labels.of(PHOTOS) == ["copies=3"]
    copies.ask(PHOTOS, 0)
    assert first.volume.labels.of(PHOTOS) == []
    first.volume.fs.read_only = True
    with pytest.raises(HybrisError, match="only reads"):
        copies.ask(PHOTOS, 1)


def test_where_a_file_is(devices: list[Device]) -> None:
    first, _ = devices
    first.write("empty", b"")
    first.write("full", b"content")
    first.sync()
    [name] = [one.name for one in first.volume.devices() if one.this]
    clouds = first.volume.config.f + first.volume.config.k
    assert first.volume.copies.of(PurePath("empty")) == FileCopies(clouds, [name])
    assert where(first, b"full") == f"{clouds} clouds, {name}"
    first.volume.drop_cache()
    assert first.volume.copies.of(PurePath("full")) == FileCopies(clouds, [])
    assert where(first, b"full") == f"{clouds} clouds"
    first.volume.transfers.pause(None)
    first.write("new", b"content")
    assert where(first, b"new") == f"no cloud yet, {name}"


def where(device: Device, name: bytes) -> str:
    """What programs read of it."""
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        inode = fs.lookup(tx, ROOT_INO, name)
        assert inode is not None
        value = device.volume.residency.attribute(tx, inode, WHERE_XATTR)
    assert value is not None
    return value.decode()
