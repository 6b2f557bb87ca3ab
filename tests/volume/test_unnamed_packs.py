"""A device is lost right after an upload, before it has told anybody where the bytes are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest

from hybrisfs.api.status import MachinesOnly
from hybrisfs.gc.limits import GcLimits
from tests.system.deadline import until
from tests.tree.unlocked import unlocked
from tests.volume.device import Device, Second
from tests.volume.test_garbage import noise

CONTENT = noise(7, 3 << 20)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Device, Second]]:
    with ExitStack() as stack:
        first = Device(tmp_path, limits=[GcLimits(step_seconds=0.2)])
        stack.callback(first.close)
        second = Second(tmp_path / "second", first)
        stack.callback(second.close)
        yield first, second


def log_of(device: Device) -> list[bytes]:
    with device.volume.fs.state.transaction() as tx:
        rows = tx.execute("SELECT bytes FROM log ORDER BY number").fetchall()
    return [data for (data,) in rows if data is not None]


def shares(device: Device) -> list[Path]:
    return [path for cloud in device.clouds for path in cloud.glob("packs/*/*")]


def readable_bytes(device: Device) -> int:
    """The bytes of all shares of packs that have as many as it takes to read them."""
    packs: dict[str, list[int]] = {}
    for share in shares(device):
        packs.setdefault(share.name, []).append(share.stat().st_size)
    return sum(sum(sizes) for sizes in packs.values() if len(sizes) >= 2)


def test_what_it_uploaded_last_is_found_and_can_be_read(pair: tuple[Device, Second]) -> None:
    first, second = pair
    with mock.patch("hybrisfs.write.pack.record_pack", side_effect=OSError("killed")):
        first.write("file", CONTENT)
        first.volume.signals.begin_flush()
        until(lambda: readable_bytes(first) >= len(CONTENT) and first.has_signed(), "the upload")
        log = log_of(first)
        first.close()
    assert second.volume.sharing.receiver.receive(log)  # over a link, just before
    assert second.volume.uploads.wait(60.0, lambda done, total: None)
    assert second.read("file") == CONTENT
    assert second.volume.uploads.machines_only(unlocked(second.volume.fs)) == MachinesOnly(0, 0, [])
