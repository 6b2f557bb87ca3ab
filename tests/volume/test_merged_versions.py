"""A conflict of two real volumes is merged; each version can be restored, on both devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from hybrisfs.api.versions import Version
from hybrisfs.volume.unasked import UnaskedLimits
from tests.system.deadline import until
from tests.volume.device import PATIENCE, Device, Second, two_devices

PATH = "notes"
BEFORE = b"".join(b"line %d\n" % number for number in range(9))
OURS = BEFORE.replace(b"line 1\n", b"first's\n")
THEIRS = BEFORE.replace(b"line 7\n", b"second's\n")
BOTH = OURS.replace(b"line 7\n", b"second's\n")


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    with two_devices(tmp_path) as devices:
        yield devices


def contents(device: Device) -> dict[bytes, Version]:
    found = {}
    for one in device.volume.versions.all(PATH).versions:
        reader = device.volume.versions.reader(PATH, None, one.version)
        found[reader.read(0, reader.size)] = one
    return found


def is_at(device: Device, content: bytes) -> bool:
    device.volume.signals.look_around()
    with device.volume.fs.state.transaction() as tx:
        if device.volume.fs.locate(tx, [PATH.encode()]) is None:
            return False
    return device.read(PATH) == content


def is_in_conflict(device: Device) -> bool:
    device.volume.signals.look_around()
    return bool(device.volume.conflicts())


def test_each_version_can_be_restored(devices: tuple[Device, Device]) -> None:
    first, second = devices
    first.write(PATH, BEFORE)
    first.sync()
    until(lambda: is_at(second, BEFORE), "the second to hear of the file")
    second.volume.transfers.pause(None)
    first.write(PATH, OURS)
    second.write(PATH, THEIRS)
    assert second.volume.uploads.wait_signed(PATIENCE)
    first.sync()
    second.volume.transfers.resume()
    until(lambda: is_in_conflict(second), "the second to hear of the conflict")
    merging = second.volume.merging
    found = merging.compare(PATH)
    assert sorted(found.contents) == sorted([OURS, THEIRS])
    assert found.merge.content == BOTH
    merging.settle(PATH, found.mark, BOTH)
    second.sync()
    until(lambda: is_at(first, BOTH), "the first to hear of the merge")
    for device in devices:
        assert device.volume.conflicts() == []
        assert {BEFORE, OURS, THEIRS, BOTH} <= contents(device).keys()
        assert all(one.readable for one in contents(device).values())
    for content in (OURS, THEIRS, BEFORE):
        assert first.volume.uploads.wait_signed(PATIENCE)  # so that the numbers of versions stay
        first.volume.versions.restore(PATH, None, contents(first)[content].version, None)
        assert first.read(PATH) == content
    for device in devices:
        assert device.fsck(clouds=True).problems == []


def test_texts_are_merged_unasked_on_one_of_the_devices(tmp_path: Path) -> None:
    with ExitStack() as closing:
        first = Device(tmp_path / "1", 4, limits=[UnaskedLimits(look=0.1, rest=0.5, turn=0.5)])
        closing.callback(first.close)
        second = Second(tmp_path / "2", first)
        closing.callback(second.close)
        first.write(PATH, BEFORE)
        first.sync()
        until(lambda: is_at(second, BEFORE), "the second to hear of the file")
        second.volume.transfers.pause(None)
        first.write(PATH, OURS)
        second.write(PATH, THEIRS)
        assert second.volume.uploads.wait_signed(PATIENCE)
        first.sync()
        second.volume.transfers.resume()
        for device in (first, second):
            until(partial(is_at, device, BOTH), "the changes to be merged")
            assert not is_in_conflict(device)
        merged = (*first.volume.unasked.merged, *second.volume.unasked.merged)
        assert {one.path for one in merged} == {PATH}
        assert {BEFORE, OURS, THEIRS, BOTH} <= contents(first).keys()
