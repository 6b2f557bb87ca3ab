"""What clouds owe of this device's head, also of that which was put before the volume was opened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.volume.device import PATIENCE, Device


@contextmanager
def away(cloud: Path) -> Iterator[None]:
    hidden = cloud.rename(cloud.with_name(f"{cloud.name} away"))
    yield
    hidden.rename(cloud)


def heads(device: Device) -> list[Path]:
    """Where the head is, by cloud."""
    return [cloud / device.volume.maintenance.objects.expected.head for cloud in device.clouds]


def reopen_after_boot(device: Device) -> None:
    """Open the volume again on a machine that has just started: a head is put much later, unless there is
    something to tell. Wait until all clouds have been looked at, so that nobody has it put."""
    device.close()
    device.around.passed = -time.monotonic()
    device.reopen()
    clouds, puller = set(device.volume.engine.numbers), device.volume.following.puller
    until = device.around.environment.monotonic() + PATIENCE
    assert device.volume.signals.wait_until(lambda: clouds <= puller.earlier_heads().clouds, until)


def states(device: Device) -> set[str]:
    return {one.state for one in device.volume.engine.health()}


def test_a_cloud_that_was_away_before_the_start_is_not_accused(device: Device) -> None:
    with away(device.clouds[2]):
        device.write("file", b"content")
        device.sync()
        device.close()
    reopen_after_boot(device)
    assert [head.exists() for head in heads(device)] == [True, True, False]
    assert device.fsck(clouds=True).problems == []
    assert states(device) == {"ok"}


def test_a_cloud_that_lost_the_head_since_the_last_time_is_accused(device: Device) -> None:
    device.write("file", b"content")
    device.sync()
    device.close()
    for head in heads(device):
        assert head.exists()
    heads(device)[1].unlink()
    reopen_after_boot(device)
    (problem,) = device.fsck(clouds=True).problems
    assert "missing although it was acknowledged" in problem.what
    assert problem.where == f"cloud {device.volume.config.clouds[1].name}"
    assert states(device) == {"ok", "lying"}
