"""What holds on all devices of a volume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from hybrisfs.errors import HybrisError, UsageError
from tests.volume.device import PATIENCE, Device, two_devices

ROOT = PurePath()


def head_time(device: Device) -> int:
    """When it announced itself last, as the clouds tell; 0 before."""
    puller = device.volume.following.puller
    puller.look_now()
    head = puller.heads().get(device.volume.sharing.device)
    return 0 if head is None else head.time_ns


def until(device: Device, holds: Callable[[], bool]) -> None:
    signals = device.volume.signals
    assert signals.wait_until(holds, device.around.environment.monotonic() + PATIENCE)


def test_devices_announce_themselves_as_often_as_any_of_them_has_said(tmp_path: Path) -> None:
    with two_devices(tmp_path) as (first, second):
        first.write("file", b"content")
        first.sync()
        assert second.volume.agreed.announce_seconds == 900
        first.volume.agreed.announce_every(30)
        assert first.volume.labels.of(ROOT) == ["announce=30"]
        until(second, lambda: second.volume.agreed.announce_seconds == 30)
        second.volume.agreed.announce_every(60)
        assert second.volume.labels.of(ROOT) == ["announce=60"]
        second.volume.agreed.announce_every(900)
        assert second.volume.labels.of(ROOT) == []
        assert second.volume.agreed.announce_seconds == 900


def test_a_device_puts_its_head_when_it_is_due(device: Device) -> None:
    device.write("file", b"content")
    device.sync()
    until(device, lambda: head_time(device) > 0)
    device.volume.agreed.announce_every(30)
    device.sync()
    before = head_time(device)
    device.around.ahead_ns = 10**12  # a head that is put now is known by its time
    device.around.passed += 31.0
    until(device, lambda: head_time(device) > before + 10**11)


def test_who_announces_itself_often_is_suspect_soon(tmp_path: Path) -> None:
    with two_devices(tmp_path) as (first, second):
        second.write("file", b"content")
        second.sync()

        def is_suspect() -> bool:
            [other] = [one for one in first.volume.devices() if not one.this]
            return bool(other.suspect) and other.seen is not None

        first.volume.agreed.announce_every(30)
        first.around.ahead_ns, first.around.passed = 200 * 10**9, 200.0
        first.volume.following.look_now()
        until(first, is_suspect)


def test_of_several_labels_the_shortest_pause_counts_and_others_none(device: Device) -> None:
    device.volume.labels.add(ROOT, ["announce=600", "announce=20", "announce=5", "announce=9999", "announce"])
    assert device.volume.agreed.announce_seconds == 20


def test_merging_texts_is_switched_off_and_on_for_all(tmp_path: Path) -> None:
    with two_devices(tmp_path) as (first, second):
        first.volume.agreed.set_merge_texts(False)
        assert first.volume.labels.of(ROOT) == ["merge=off"]
        until(second, lambda: not second.volume.agreed.merge_texts)
        second.volume.agreed.set_merge_texts(True)
        until(first, lambda: first.volume.agreed.merge_texts)


@pytest.mark.parametrize("seconds", [9, 901, -1])
def test_what_cannot_be_set(device: Device, seconds: int) -> None:
    with pytest.raises(UsageError, match="10 to 900"):
        device.volume.agreed.announce_every(seconds)


def test_a_reader_sets_nothing(device: Device) -> None:
    device.volume.fs.read_only = True
    with pytest.raises(HybrisError, match="only reads"):
        device.volume.agreed.announce_every(30)
