"""A file that one device removes while another edits it lives: what it held then is a version like others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from hybrisfs.versions.account import Account
from hybrisfs.versions.catalog import Catalog, Version
from hybrisfs.versions.retention import DEFAULT_RETENTION
from tests.merge.fleet import Device, Fleet
from tests.versions.support import Clock


@pytest.fixture
def fleet(clock: Clock) -> Iterator[Fleet]:
    """One device has removed the file, later the other has edited it."""
    fleet = clock.fleet(2)
    fleet[0].mkdir("folder")
    fleet[0].write("folder/file", b"1")
    fleet.meet()
    clock.tick()
    fleet[0].remove("folder/file")
    fleet[0].sign()
    clock.tick()
    fleet[1].write("folder/file", b"22")
    fleet.meet()
    clock.tick()
    yield fleet
    fleet.discard()


def versions(device: Device) -> Sequence[Version]:
    device.rig.commit()
    with device.rig.db.snapshot() as db:
        return Catalog(db, DEFAULT_RETENTION).versions([b"folder", b"file"])


def told(device: Device) -> list[str]:
    device.rig.commit()
    with device.rig.db.snapshot() as db:
        changes = Account(db, Catalog(db, DEFAULT_RETENTION)).changes([b"folder", b"file"])
        return [word for change in changes for word in change.what]


def test_while_it_lives(fleet: Fleet) -> None:
    for device in fleet.devices:
        assert device.read("folder/file") == b"22"
        assert [(one.size, one.until is None) for one in versions(device)] == [(2, True), (1, False)]
        assert "content: 2 bytes" in told(device)


def test_when_it_has_been_removed_again(fleet: Fleet, clock: Clock) -> None:
    fleet[1].remove("folder/file")
    fleet.meet()
    clock.tick()
    for device in fleet.devices:
        assert [(one.size, one.path) for one in versions(device)] == [(2, "folder/file"), (1, "folder/file")]
        assert all(one.until is not None and one.kept_until is not None for one in versions(device))
        assert "content: 2 bytes" in told(device)


def test_when_another_has_taken_its_name(fleet: Fleet, clock: Clock) -> None:
    fleet[1].write("draft", b"333")
    fleet[1].move("draft", "folder/file")
    fleet.meet()
    for device in fleet.devices:
        assert [one.size for one in versions(device)] == [3, 2, 1]


def test_removed_twice_at_once_it_is_gone(fleet: Fleet, clock: Clock) -> None:
    """The one who had not seen the edit has removed it as well: that does not make it look alive."""
    fleet[0].write("folder/file", b"4444")
    fleet.meet()
    clock.tick()
    fleet[0].remove("folder/file")
    clock.tick()
    fleet[1].remove("folder/file")
    fleet.meet()
    for device in fleet.devices:
        assert device.names() == ["folder"]
        assert [one.size for one in versions(device)] == [4, 2, 1]
        assert all(one.until is not None for one in versions(device))
