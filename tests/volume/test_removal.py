"""Devices that are removed: who seals with which keys, whatever else happens at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from unittest import mock

import pytest

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.exchange.following import Following
from hybrisfs.keys import EpochKeys
from hybrisfs.members.epochs import encode_grant, epoch_key, given_to, open_grant
from hybrisfs.members.members import Member
from hybrisfs.members.removal import Stance, encode_vote, vote_key
from hybrisfs.members.roles import Role
from sync import Members, decode_signed_header
from tests.merge.fleet import Device, Fleet
from tests.tree.rig import VOLUME


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
    with pytest.raises(UsageError, match="is not a machine"):
        ada.rig.sharing.membership.remove("cyd")
    with pytest.raises(UsageError, match="leaves in another way"):
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


class Looked(Following):
    """There are no clouds here."""

    def has_looked(self) -> bool:
        return True


def test_what_a_removal_asks_for_is_done_after_a_crash(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    ada.rig.sharing.membership.remove("cyd")
    bob.rig.sharing.membership.remove("dan")
    ada.receive(bob.log())  # and is killed before it can answer
    ada.rig.commit()
    ada.rig = ada.rig.reopen()
    assert not ada.rig.ring.is_fit
    following = Following(ada.rig.local, cast("Any", None), cast("Any", None))
    following.look_after()
    assert not ada.rig.ring.is_fit, "what it wrote before may be on the clouds, if it is a backup"
    following = Looked(ada.rig.local, cast("Any", None), cast("Any", None))
    following.look_after()
    assert newest(ada).excluded == {cyd.key.device_id, dan.key.device_id}
    before = len(ada.log())
    following.look_after()
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
    with dan.rig.fs.state.transaction() as tx:
        tx.members.introduce([Member(cyd.key.public, "cyd", removed=True)])
        tx.updates.set_members(tx.members.writers())
    assert cyd.key.device_id in newcomer.followed()
    for _ in range(2):  # what the clouds hold of each device, in the least helpful order
        newcomer.receive_pulled(written_by(cyd))
        newcomer.receive_pulled(written_by(bob))
        newcomer.receive_pulled(written_by(ada))
    assert dan.tree() == ada.tree()
    assert "seen 2" in dan.tree() and "not seen" not in dan.tree()
    assert cyd.key.device_id not in newcomer.followed(), "its removal has been accepted"


def written_by(device: Device) -> list[bytes]:
    """The device's own updates, as its segments hold them."""
    return [data for data in device.log() if decode_signed_header(data).writer == device.key.device_id]


def given_back(fleet: Fleet) -> EpochKeys:
    """Ada and cyd have removed dan for good. Bob, who has not heard of the second, has vetoed that, and given
    dan the keys that had been made without it: these."""
    ada, bob, cyd, _ = fleet.devices
    ada.rig.sharing.membership.remove("dan")
    keys = newest(ada)
    exchange(ada, bob, cyd)
    bob.rig.sharing.membership.keep("dan")
    assert cyd.rig.sharing.membership.remove("dan").final
    assert newest(cyd) == keys, "it is without dan already"
    return keys


def test_who_was_given_keys_back_is_kept_from_what_is_written_after_the_next_removal(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    keys = given_back(fleet)
    dan.receive(bob.log())
    assert dan.rig.ring.find(keys.id) == keys
    exchange(ada, bob, cyd)
    for device in (ada, bob, cyd):
        assert dan.key.device_id not in device.rig.sharing.current_members()
        assert device.rig.ring.is_fit and newest(device) == newest(ada)
        dan.receive(device.log())
        assert dan.rig.ring.find(newest(device).id) is None
        device.rig.commit()
        device.rig = device.rig.reopen()
        assert device.rig.ring.is_fit and newest(device) == newest(ada)


def test_who_hears_that_a_removed_device_has_the_keys_makes_new_ones(fleet: Fleet) -> None:
    _, bob, cyd, dan = fleet.devices
    keys = given_back(fleet)
    before = set(cyd.rig.sharing.key_holders())
    cyd.rig.sharing.receive(bob.log())
    assert set(cyd.rig.sharing.key_holders()) == before
    assert cyd.rig.ring.is_fit and newest(cyd) != keys
    dan.receive(cyd.log())
    assert dan.rig.ring.find(newest(cyd).id) is None


def test_keys_that_were_given_back_stay_known_for_that_when_another_one_gets_them(fleet: Fleet) -> None:
    """Who begins with a checkpoint has the latest value of each register only."""
    ada, bob, cyd, dan = fleet.devices
    bob.rig.sharing.membership.remove("dan")
    exchange(ada, bob, cyd)
    cyd.rig.sharing.membership.remove("bob")
    keys = newest(cyd)
    assert keys.excluded == {bob.key.device_id, dan.key.device_id}
    exchange(ada, cyd)
    ada.rig.sharing.membership.keep("dan")
    assert cyd.rig.sharing.membership.remove("dan").final
    exchange(ada, cyd)
    ada.rig.sharing.membership.keep("bob")
    exchange(ada, bob, cyd)
    assert bob.rig.ring.find(keys.id) == keys
    [value] = cyd.rig.tx.registers.values(epoch_key(keys.id))
    assert given_to(value.value or b"") == {one.key.device_id for one in fleet.devices}
    assert open_grant(value.value or b"", VOLUME, dan.key) == [], "it is only named"


def test_a_member_that_gives_keys_away_again_and_again_can_be_removed(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    ada.rig.sharing.membership.remove("dan")
    exchange(ada, bob, cyd)
    both = Members([cyd.key.public, dan.key.public])
    with mock.patch.multiple("hybrisfs.sharing.epochs", MAX_BEGUN=8):
        for _ in range(20):
            keys = newest(ada)
            grant = encode_grant(VOLUME, [keys], both)
            with cyd.rig.fs.state.transaction():
                cyd.rig.sharing.signer.sign(cyd.rig.tx, [(epoch_key(keys.id), grant)], 0)
            exchange(ada, bob, cyd)
        assert bob.rig.sharing.membership.remove("cyd").counts
        exchange(ada, bob)
    for device in (ada, bob):
        assert device.rig.ring.is_fit
        assert newest(device).excluded == {cyd.key.device_id, dan.key.device_id}
        for removed in (cyd, dan):
            removed.receive(device.log())
            assert removed.rig.ring.find(newest(device).id) is None


def test_a_device_that_alone_has_heard_that_it_is_accused_makes_others_hear(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    ada.rig.sharing.membership.remove("cyd")
    exchange(ada, dan)
    cyd.rig.sharing.membership.remove("bob")
    exchange(bob, cyd)
    assert not bob.rig.sharing.signer.may_sign(bob.rig.tx)
    bob.write("file", b"content")
    exchange(ada, bob, dan)
    assert not bob.rig.sharing.membership.has_removals_to_act_on(), "it asks once"
    for device in (ada, dan):
        facts = {one.name: one.suspended for one in device.rig.sharing.trials.facts()}
        assert facts == {"bob": True, "cyd": True}
    ada.rig.sharing.membership.keep("bob")
    exchange(ada, bob, dan)
    assert bob.rig.sharing.signer.may_sign(bob.rig.tx)
    bob.sign()
    exchange(ada, bob, dan)
    assert ada.tree() == bob.tree() == dan.tree()
    assert ada.read("file") == b"content"


def test_after_a_restart_the_vote_of_a_reader_counts_no_more_than_before(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    fleet.tell_who_came_by_whom(dict.fromkeys((1, 2, 3), 0))
    ada.rig.sharing.membership.set_role("cyd", Role.READER)
    ada.sign()
    exchange(ada, bob, dan)
    cyd.rig.updates.sign([(vote_key(bob.key.device_id, cyd.key.device_id), encode_vote(Stance.REMOVE))], 1, 0)
    exchange(cyd, dan)
    exchange(ada, dan)
    ada.rig = ada.rig.reopen()
    bob.write("file", b"content")
    bob.sign()
    exchange(ada, bob)
    assert ada.read("file") == b"content"


def test_a_suspended_device_looks_at_its_own_head_until_it_is_removed_for_good(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    ada.rig.sharing.membership.remove("bob")
    exchange(*fleet.devices)
    this = bob.key.device_id
    assert this in bob.rig.sharing.followed(), "it may put no head where it has not looked"
    assert this not in cyd.rig.sharing.followed()
    assert dan.rig.sharing.membership.remove("bob").final
    exchange(*fleet.devices)
    assert this not in bob.rig.sharing.followed()


def test_what_was_on_its_way_to_the_clouds_when_a_device_was_accused_is_told_of_after_a_veto(
    fleet: Fleet,
) -> None:
    ada, bob, cyd, _ = fleet.devices
    bob.rig.sharing.membership.remove("ada")
    ada.write("file", b"content")
    ada.rig.publish(everything=True)
    ada.rig.clouds.after_put = lambda _: ada.rig.sharing.receive(bob.log())
    ada.rig.pack()
    ada.rig.clouds.after_put = lambda _: None
    assert not ada.rig.sharing.signer.may_sign(ada.rig.tx) and ada.rig.unpacked()
    exchange(bob, cyd)
    cyd.rig.sharing.membership.keep("ada")
    exchange(ada, bob, cyd)
    ada.sign()
    assert not ada.rig.unpacked()
    exchange(ada, bob, cyd)
    assert bob.read("file") == cyd.read("file") == b"content"


# -- devices that leave --------------------------------------------------------------------------


def test_who_leaves_is_gone_for_all_and_gets_no_new_keys(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    cyd.rig.sharing.membership.leave()
    cyd.rig.sharing.membership.leave()  # once is enough
    exchange(*fleet.devices)
    assert newest(ada) == newest(bob) == newest(dan)
    assert newest(ada).excluded == {cyd.key.device_id}
    assert cyd.rig.ring.find(newest(ada).id) is None
    for device in fleet.devices:
        assert cyd.key.device_id not in device.rig.members.devices()
        assert not device.rig.members.suspended
        assert cyd.key.device_id not in [one.device for one in device.rig.members.asked()]
    with pytest.raises(HybrisError, match="removed from the volume"):
        cyd.rig.sharing.membership.rename("ada", "nobody")
    ada.mkdir("after")
    ada.sign()
    exchange(ada, bob, dan)
    assert ada.tree() == bob.tree() == dan.tree()


def test_a_reader_can_leave(fleet: Fleet) -> None:
    ada, bob, cyd, _ = fleet.devices
    for device in (ada, bob):
        device.rig.sharing.membership.set_role("cyd", Role.READER)
        exchange(*fleet.devices)
    assert cyd.rig.fs.read_only
    cyd.rig.sharing.membership.leave()
    exchange(*fleet.devices)
    assert all(cyd.key.device_id not in one.rig.members.devices() for one in (ada, bob))


def test_a_device_hears_of_all_that_one_wrote_before_it_left(fleet: Fleet) -> None:
    ada, bob, cyd, dan = fleet.devices
    cyd.mkdir("of cyd")
    cyd.sign()
    cyd.rig.sharing.membership.leave()
    exchange(ada, bob, cyd)
    dan.rig.sharing.receive(bob.log())
    dan.rig.sharing.receive(cyd.log())
    exchange(ada, bob, dan)
    assert "of cyd" in dan.tree() and ada.tree() == bob.tree() == dan.tree()
    assert cyd.key.device_id not in dan.rig.members.devices()


def test_what_a_device_says_after_it_has_left_counts_for_nobody(fleet: Fleet) -> None:
    ada, bob, cyd, _ = fleet.devices
    cyd.rig.sharing.membership.leave()
    exchange(ada, bob, cyd)
    cyd.rig.sharing.signer.plead(cyd.rig.tx)  # says that it is to be kept
    exchange(ada, bob, cyd)
    assert all(cyd.key.device_id not in one.rig.members.devices() for one in (ada, bob))
