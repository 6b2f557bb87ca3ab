"""A person edits volume.json while the volume is open."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.api.status import VolumeStatus
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.settings.config import VolumeConfig
from tests.volume.device import NAME, Device


@pytest.fixture
def edit(device: Device) -> Callable[..., None]:
    """Give entries of the file other values, as an editor does."""

    def edit(**entries: Any) -> None:
        path = path_of(device)
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}, indent=4))

    return edit


def path_of(device: Device) -> Path:
    return device.home.volume_config(NAME) / "volume.json"


def kept(device: Device) -> VolumeConfig:
    return VolumeConfig.load(device.home, NAME)


def doubts(device: Device) -> list[str]:
    return [text for text in facts_of(device).warnings if "volume.json" in text]


def facts_of(device: Device) -> VolumeStatus:
    return device.volume.status(look=False)


def test_what_can_hold_at_any_time_does(device: Device, edit: Callable[..., None]) -> None:
    transfers = {"up": "100k", "down": "off", "on_metered": "ignore", "paused": True}
    edit(
        transfers=transfers,
        stale_reads="block",
        deletion_percent=100,
        keep_versions="off",
        cache_bytes=100 << 20,
        notifications=False,
    )
    facts = facts_of(device)
    assert facts.transfers.held == "paused"
    assert facts.transfers.up.timetable == "100k"
    assert facts.cache.budget == 100 << 20
    assert facts.versions.keep == "off"
    assert (facts.stale_reads, facts.notifications) == ("block", False)
    assert device.volume.following.freshness.blocks
    assert device.volume.sharing.brake.share == 1.0
    assert doubts(device) == []


def test_what_cannot_is_said_until_the_restart(device: Device, edit: Callable[..., None]) -> None:
    before = json.loads(path_of(device).read_text())
    edit(discard_hours=5, links={"port": 5555, "addresses": [], "discover": False})
    [said] = doubts(device)
    assert "(links, discard_hours)" in said
    edit(discard_hours=before["discard_hours"], links=before["links"])
    assert doubts(device) == []
    edit(discard_hours=5)
    assert "(discard_hours)" in doubts(device)[0]
    device.reopen()
    assert doubts(device) == []
    assert device.volume.config.discard_hours == 5


def test_a_command_overwrites_no_edit(device: Device, edit: Callable[..., None]) -> None:
    edit(discard_hours=5, deletion_percent=77)
    device.volume.transfers.limit("100k", None, None)
    device.volume.settings.edit({"stale_reads": "block"})
    edit(transfers={"up": "200k", "down": "300k", "on_metered": "pause", "paused": False})
    device.volume.transfers.pause(None)
    now = kept(device)
    assert (now.discard_hours, now.deletion_share, now.stale_reads) == (5, 0.77, "block")
    assert (now.transfers.up.text, now.transfers.down.text) == ("200k", "300k")
    assert now.transfers.paused_until is not None
    assert doubts(device) != []


def test_an_edit_that_cannot_be_understood_is_said_and_left_alone(
    device: Device, edit: Callable[..., None]
) -> None:
    good = path_of(device).read_text()
    edit(cache_bytes="much")
    bad = path_of(device).read_text()
    [said] = doubts(device)
    assert "'cache_bytes' is not a number" in said
    with pytest.raises(HybrisError, match="cache_bytes"):
        device.volume.transfers.pause(None)
    assert path_of(device).read_text() == bad
    assert device.volume.transfers.held is None
    path_of(device).write_text(good)
    assert doubts(device) == []
    device.volume.transfers.pause(None)
    assert kept(device).transfers.paused_until is not None


def test_what_commands_change_is_no_edit(device: Device) -> None:
    device.volume.transfers.pause(1000.5)
    device.volume.settings.edit({"keep_versions": "off"})
    device.volume.settings.edit({"notifications": False})
    assert doubts(device) == []
    assert device.volume.transfers.held == "transfers are paused"


def test_a_slip_of_the_pen_is_named(device: Device, edit: Callable[..., None]) -> None:
    edit(cache_byte=100 << 20)
    [doubt] = doubts(device)
    assert "cache_byte" in doubt
    device.volume.settings.edit({"notifications": False})
    assert json.loads(path_of(device).read_text())["cache_byte"] == 100 << 20


def test_what_cannot_hold_at_once_is_written_and_said(device: Device) -> None:
    settings = device.volume.settings
    settings.edit({"links.port": 4711, "cache_bytes": 100 << 20, "discard_hours": 5})
    assert device.volume.fs.journal.budget == 100 << 20
    assert (settings.entries().link_port, settings.entries().discard_hours) == (4711, 5)
    [doubt] = doubts(device)
    assert "links, discard_hours" in doubt and "restarted" in doubt
    assert settings.entries().warnings == [doubt]
    device.reopen()
    assert doubts(device) == []
    assert (device.volume.config.links.port, device.volume.config.discard_hours) == (4711, 5)


def test_a_wrong_value_changes_nothing(device: Device, edit: Callable[..., None]) -> None:
    edit(cache_byte=1)
    before = path_of(device).read_text()
    for entries in ({"cache_bytes": 5}, {"links.port": "x"}, {"keep_versions": "some"}):
        with pytest.raises(UsageError):
            device.volume.settings.edit({"notifications": False, **entries})
        assert path_of(device).read_text() == before
    device.volume.settings.edit({"links.discover": False})
    assert json.loads(path_of(device).read_text())["cache_byte"] == 1
