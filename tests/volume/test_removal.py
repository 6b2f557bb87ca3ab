"""Devices that are removed: who seals with which keys, whatever else happens at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.keys import EpochKeys
from hybrisfs.merge.members import Member
from hybrisfs.volume.sharing import Sharing
from sync import decode_signed_header
from tests.merge.fleet import Device, Fleet


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(4)
    for device in one.devices:
        device.mkdir(device.name)
    one.meet()
    yield one
    one.discard()


def exchange(*devices: Device) -> None:
    """All hear of all, until nobody has anything to say to that."""
    for _ in devices:
        for sender in devices:
            for receiver in devices:
                if receiver is not sender:
                    receiver.rig.sharing.receive(sender.log())


def newest(device: Device) -> EpochKeys:
    return device.rig.ring.newest


def test_the_removed_device_is_not_given_the_new_key(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    ada.rig.sharing.membership.remove("cyd")
    exchange(*fleet.devices)
    assert newest(ada) == newest(bob) == newest(dan)
    assert newest(ada).excluded == {cyd.key.device_id}
    assert cyd.rig.ring.find(newest(ada).id) is None
    assert ada.tree() == bob.tree() == dan.tree()
    with pytest.raises(HybrisError, match="removed from the volume"):
        cyd.rig.sharing.membership.rename("ada", "nobody")
    with pytest.raises(UsageError, match="is no device"):
        ada.rig.sharing.membership.remove("cyd")
    with pytest.raises(UsageError, match="cannot remove itself"):
        ada.rig.sharing.membership.remove("ada")


def test_of_two_that_are_removed_at_the_same_moment_neither_has_the_newest_key(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    ada.rig.sharing.membership.remove("cyd")
    bob.rig.sharing.membership.remove("dan")
    assert not newest(ada).excluded & newest(bob).excluded
    exchange(ada, bob)
    assert newest(ada) == newest(bob)
    assert newest(ada).excluded == {cyd.key.device_id, dan.key.device_id}
    for device in (cyd, dan):
        for member in (ada, bob):
            device.rig.sharing.receive(member.log())
        assert device.rig.ring.find(newest(ada).id) is None
    for device in (ada, bob):
        device.rig.commit()
        device.rig = device.rig.reopen()
    assert newest(ada) == newest(bob) and newest(ada).excluded == {cyd.key.device_id, dan.key.device_id}


def test_what_a_removal_asks_for_is_done_after_a_crash(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    ada.rig.sharing.membership.remove("cyd")
    bob.rig.sharing.membership.remove("dan")
    ada.receive(bob.log())  # and is killed before it can answer
    ada.rig.commit()
    ada.rig = ada.rig.reopen()
    assert not ada.rig.ring.is_fit
    ada.rig.sharing.look_after()
    assert not ada.rig.ring.is_fit, "what it wrote before may be on the clouds, if it is a backup"
    with mock.patch.object(Sharing, "has_looked", lambda _: True):
        ada.rig.sharing.look_after()
        assert newest(ada).excluded == {cyd.key.device_id, dan.key.device_id}
        before = len(ada.log())
        ada.rig.sharing.look_after()
    assert len(ada.log()) == before


def test_a_rename_at_the_same_moment_does_not_bring_a_device_back(fleet: Fleet) -> None:
    ada, bob, cyd, _ = fleet.devices
    for _ in range(3):  # so that the rename has the higher stamp
        bob.mkdir(f"more {len(bob.log())}")
        bob.sign()
    bob.rig.sharing.membership.rename("cyd", "renamed")
    ada.rig.sharing.membership.remove("cyd")
    exchange(ada, bob)
    for device in (ada, bob):
        assert cyd.key.device_id not in device.rig.sharing.current_members()
        assert cyd.key.device_id in newest(device).excluded
    assert ada.tree() == bob.tree()


def test_who_comes_later_reads_of_a_removed_device_what_others_saw_of_it_and_no_more(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    for number in range(3):
        cyd.write(f"seen {number}", b"before the removal")
        cyd.sign()
        exchange(ada, bob, cyd)
        ada.write(f"answer {number}", b"which depends on that")
        ada.sign()
    ada.rig.sharing.membership.remove("cyd")
    exchange(ada, bob)
    cyd.write("not seen", b"after the removal")
    cyd.sign()
    newcomer = dan.rig.sharing
    with dan.rig.fs.lock:
        newcomer.members.introduce([Member(cyd.key.public, "cyd", removed=True)])
        newcomer.updates.set_members(newcomer.members.writers())
    assert cyd.key.device_id in newcomer._followed()
    for _ in range(2):  # what the clouds hold of each device, in the least helpful order
        newcomer._receive_pulled(written_by(cyd))
        newcomer._receive_pulled(written_by(bob))
        newcomer._receive_pulled(written_by(ada))
    assert dan.tree() == ada.tree()
    assert "seen 2" in dan.tree() and "not seen" not in dan.tree()
    assert cyd.key.device_id not in newcomer._followed(), "its removal has been accepted"


def written_by(device: Device) -> list[bytes]:
    """The device's own updates, as its segments hold them."""
    return [data for data in device.log() if decode_signed_header(data).writer == device.key.device_id]
