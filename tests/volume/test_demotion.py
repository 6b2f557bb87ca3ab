"""One member says that all others only read: nobody is bound by that, until another one agrees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.api.devices import Proposal
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home
from hybrisfs.members.roles import Role, RoleRecord, new_role_key
from hybrisfs.state.schema import ROOT_INO
from tests.volume.device import Device
from tests.volume.recovery_rig import PASSPHRASE, First, New, Second, has, recover, waits
from tests.volume.test_hostile_members import id_of, meet, sign


@pytest.fixture
def second(tmp_path: Path, first: First) -> Iterator[Second]:
    device = Second(tmp_path / "second", first, "second")
    yield device
    device.close()


@pytest.fixture
def mallory(tmp_path: Path, first: First, second: Second) -> Iterator[Second]:
    device = Second(tmp_path / "mallory", first, "mallory")
    meet(first, second, device)
    yield device
    device.close()


def demotion(by: Device, *others: Device, from_first: bool = False) -> bytes:
    """An update that says of them all that they only read."""
    record = RoleRecord(Role.READER, from_first).encode()
    return sign(by, [(new_role_key(id_of(one)), record) for one in others])


def make_reader(by: Device, device: Device, passphrase: str | None = None) -> bool:
    """Say so, where the device only reads then."""
    return bool(by.volume.set_role(id_of(device).hex(), reader=True, passphrase=passphrase).reader)


def proposals(device: Device) -> dict[str, list[str]]:
    """By whom, of each device that is called so."""
    listed = device.volume.following.devices()
    return {str(one.name): [by.by for by in one.proposed] for one in listed if one.proposed}


@pytest.mark.parametrize("from_first", [False, True])
def test_a_thief_locks_nobody_out_of_writing(
    first: First, second: Second, mallory: Second, *, from_first: bool
) -> None:
    coup = demotion(mallory, first, second, from_first=from_first)
    for device, name in ((first, "one"), (second, "two")):
        device.volume.sharing.receive([coup])
        assert not device.volume.fs.read_only
        device.write(name, b"still")
        device.sync()
    meet(first, second)
    for device in (first, second):
        assert has(device, "one") and has(device, "two")
        assert list(proposals(device).values()) == [["mallory"], ["mallory"]]
        (this, other) = (one for one in device.volume.status(look=False).warnings if "wants" in one)
        assert "mallory wants" in this and "mallory wants" in other and "device role" in this
    assert make_reader(first, mallory), "it had let it in"
    first.volume.set_role("second", reader=False)
    assert "second" not in proposals(first), "that refuses"
    with pytest.raises(HybrisError, match="let it in"):
        second.volume.set_role(id_of(first).hex(), reader=False)
    first.volume.remove_device("mallory")
    assert not proposals(first), "nobody needs to refuse what a removed one wants"


def test_two_that_agree_make_a_reader_of_the_first(first: First, second: Second, mallory: Second) -> None:
    assert not make_reader(second, first)
    meet(first, second, mallory)
    assert not first.volume.fs.read_only and list(proposals(mallory).values()) == [["second"]]
    assert make_reader(mallory, first)
    meet(first, second, mallory)
    for device in (first, second, mallory):
        assert device.volume.role_of(id_of(first).hex()).reader and not proposals(device)
    assert first.volume.fs.read_only
    with pytest.raises(HybrisError, match="only reads"):
        make_reader(first, second)
    first.reopen()
    assert first.volume.fs.read_only


def test_of_two_devices_the_one_that_let_in_the_other_decides(first: First, second: Second) -> None:
    meet(first, second)
    assert not make_reader(second, first)
    meet(first, second)
    first.write("still", b"open")
    assert make_reader(first, second)
    meet(first, second)
    assert second.volume.fs.read_only and not first.volume.fs.read_only


def test_the_kit_decides(first: First, second: Second) -> None:
    first.make_kit()
    meet(first, second)
    assert make_reader(second, first, PASSPHRASE)
    waits(first, lambda: first.volume.fs.read_only)
    second.volume.set_role(id_of(first).hex(), reader=False, passphrase=PASSPHRASE)
    waits(first, lambda: not first.volume.fs.read_only)
    first.write("again", b"a member")
    first.sync()


def test_to_limit_a_device_to_folders_takes_as_much(first: First, second: Second) -> None:
    with first.volume.fs.state.transaction() as tx:
        first.volume.fs.make(tx, ROOT_INO, b"my folder", 0o040755, 1, 1)
    first.make_kit()
    first.sync()
    meet(first, second)
    founder = id_of(first).hex()
    told = second.volume.set_role(founder, folders=["my folder"])
    assert told.folders is None
    assert told.proposed == [Proposal("second", "contributor", ["my folder"])]
    (warning,) = (one for one in second.volume.status(look=False).warnings if "wants" in one)
    assert f"device role {founder[:8]} contributor --folder 'my folder' on another machine" in warning
    told = second.volume.set_role(founder, folders=["my folder"], passphrase=PASSPHRASE)
    assert told.folders == ["my folder"] and not told.proposed
    waits(first, lambda: not first.volume.fs.is_full)
    with pytest.raises(PermissionError):
        first.write("file", b"elsewhere")
    second.volume.set_role(founder, reader=False, passphrase=PASSPHRASE)
    waits(first, lambda: first.volume.fs.is_full)
    first.write("file", b"elsewhere")
    first.sync()


def test_who_recovered_by_the_kit_is_not_below_the_device_that_made_it(tmp_path: Path, first: First) -> None:
    """That may be the one that was stolen."""
    first.make_kit()
    first.write("file", b"content")
    first.sync()
    home = Home.below(tmp_path / "home")
    recover(home, first.clouds)
    new = New(home, first.clouds)
    try:
        meet(first, new)
        new.write("mine", b"work")
        new.sync()
        meet(first, new)
        assert not make_reader(first, new)
        meet(first, new)
        assert not new.volume.fs.read_only
        assert make_reader(new, first, PASSPHRASE)
    finally:
        new.close()


def test_a_kit_of_the_thief_decides_nothing(first: First, mallory: Second) -> None:
    first.make_kit()
    meet(first, mallory)
    mallory.volume.recovery.cost = first.volume.recovery.cost
    mallory.volume.recovery.make("a passphrase of the thief")
    assert not make_reader(mallory, first, "a passphrase of the thief")
    meet(first, mallory)
    assert not first.volume.fs.read_only
