"""What a member that lies signs about members and keys, and what is left of that once it was removed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hybrisfs.errors import UsageError
from hybrisfs.keys import EpochKeys, VolumeKeys
from hybrisfs.members.epochs import encode_grant, encode_grant_object, epoch_key, grant_name
from hybrisfs.members.kinship import MAX_ADMITTED
from hybrisfs.members.lineage import let_in
from hybrisfs.members.members import Member, member_key
from hybrisfs.recovery.record import KitRecord, kit_key
from hybrisfs.recovery.sealed_key import VOUCHER_SIZE, Cost, KitSecret, seal_key
from sync import FIRST_EPOCH, MAX_WRITERS, DeviceKey, Update, encode_signed
from sync.update import history_hash
from tests.tree.unlocked import unlocked
from tests.volume.device import Device, Second
from tests.volume.recovery_rig import Second as Another

COUNT = 1100


@pytest.fixture
def honest(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path / "first")
    yield device
    device.close()


@pytest.fixture
def mallory(tmp_path: Path, honest: Device) -> Iterator[Second]:
    device = Second(tmp_path / "second", honest)
    meet(honest, device)
    yield device
    device.close()


@pytest.fixture
def third(tmp_path: Path, honest: Device, mallory: Second) -> Iterator[Another]:
    device = Another(tmp_path / "third", honest, "third")
    meet(honest, mallory, device)
    yield device
    device.close()


def log_of(device: Device) -> list[bytes]:
    with device.volume.fs.state.transaction() as tx:
        rows = tx.execute("SELECT bytes FROM log WHERE bytes IS NOT NULL ORDER BY number")
        return [data for (data,) in rows]


def meet(*devices: Device) -> None:
    for _ in devices:
        for sender in devices:
            for receiver in devices:
                if receiver is not sender:
                    receiver.volume.sharing.receive(log_of(sender))


def sign(device: Device, writes: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    """An update that says anything."""
    volume = device.volume
    with volume.fs.state.log_transaction():
        return unlocked(volume.fs).updates.sign(list(writes), time.time_ns(), 0).data


def admission(member: Member) -> tuple[bytes, bytes]:
    return member_key(member.device), member.encode()


def kit_of(reserve: DeviceKey, device: Device) -> tuple[bytes, bytes]:
    secret = KitSecret(reserve, os.urandom(VOUCHER_SIZE), device.volume.config.id)
    record = KitRecord("vol", 1, secret.voucher, seal_key(secret, "a passphrase that is good", Cost(1, 8)))
    return kit_key(reserve.device_id), record.encode()


def id_of(device: Device) -> bytes:
    return device.volume.sharing.device


def names(device: Device) -> list[str]:
    return sorted(str(one.name) for one in device.volume.devices())


def grant_of(device: Device, epochs: Iterable[EpochKeys]) -> bytes:
    with device.volume.fs.state.transaction():
        members = unlocked(device.volume.fs).members.keys()
    return encode_grant(device.volume.config.id, epochs, members)


def planted(number: int, *excluded: bytes) -> EpochKeys:
    """An epoch that says of itself that it is above all others, and that these do not know it."""
    return replace(EpochKeys.after(0, excluded), number=number)


def test_whoever_pretends_to_have_let_in_the_founder_has_not(
    honest: Device, mallory: Second, third: Another
) -> None:
    founder, liar = id_of(honest), id_of(mallory)
    puppets = [DeviceKey.from_seed(number.to_bytes(32)) for number in range(COUNT)]
    writes = [let_in(founder, liar), admission(Member(honest.volume.ring.keys.device.public, "mine"))]
    for puppet in puppets:
        writes += [admission(Member(puppet.public, "puppet")), let_in(puppet.device_id, liar)]
    # As if it had signed that before it saw anything, even how it came into the volume itself.
    update = Update(
        honest.volume.config.id, liar, 1, 0, bytes(32), (), history_hash([]), time.time_ns(), tuple(writes)
    )
    forged = encode_signed(update, mallory.volume.ring.keys.device)
    for device in (honest, third):
        device.volume.sharing.receive([forged])
        members = unlocked(device.volume.fs).members
        with device.volume.fs.state.transaction():
            assert members.inviter_of(founder) is None and members.inviter_of(liar) == founder
            assert founder in members.devices() and id_of(third) in members.devices()
            assert len(members.admitted_by(liar)) == MAX_ADMITTED
    # Nor does it have the founder's say over others.
    mallory.volume.sharing.receive([forged])
    mallory.volume.remove_device("third")
    honest.volume.sharing.receive(log_of(mallory))
    assert honest.volume.sharing.membership.keep("third")[1]


@pytest.mark.parametrize("count", [1, 511])
def test_what_is_written_after_the_removal_is_sealed_with_keys_that_it_lacks(
    honest: Device, mallory: Second, count: int
) -> None:
    mine = [planted(number + 1, id_of(mallory)) for number in range((1 << 32) - 1 - count, (1 << 32) - 1)]
    honest.volume.sharing.receive([sign(mallory, [(epoch_key(mine[-1].id), grant_of(mallory, mine))])])
    honest.volume.remove_device("second")
    ring = honest.volume.ring
    assert ring.is_fit and ring.newest.id not in [one.id for one in mine]
    assert ring.newest.excluded == {id_of(mallory)}
    honest.reopen()
    ring = honest.volume.ring
    assert ring.is_fit and ring.newest.id not in [one.id for one in mine]


def test_a_member_that_begins_epochs_without_end_does_not_keep_others_from_it(
    honest: Device, mallory: Second
) -> None:
    for _ in range(6):
        mine = [planted(1 << 32, id_of(mallory)) for _ in range(100)]
        honest.volume.sharing.receive(
            [sign(mallory, [(epoch_key(one.id), grant_of(mallory, [one])) for one in mine])]
        )
    honest.volume.remove_device("second")
    assert honest.volume.ring.newest.excluded == {id_of(mallory)}
    honest.reopen()
    assert honest.volume.ring.is_fit and honest.volume.ring.newest.excluded == {id_of(mallory)}


def test_the_highest_number_of_an_epoch_keeps_nobody_from_opening_the_volume(
    honest: Device, mallory: Second
) -> None:
    mine = planted(1 << 32)
    honest.volume.sharing.receive([sign(mallory, [(epoch_key(mine.id), grant_of(mallory, [mine]))])])
    honest.reopen()
    honest.volume.remove_device("second")
    honest.reopen()
    assert honest.volume.ring.is_fit and honest.volume.ring.newest.id != mine.id


def test_keys_of_which_only_a_cloud_tells_seal_nothing(
    honest: Device, mallory: Second, third: Another
) -> None:
    mine = planted(7, id_of(mallory))
    data = encode_grant_object(mine.id, grant_of(mallory, [mine]), mallory.volume.ring.keys.device)
    for cloud in honest.clouds:
        path = cloud / grant_name(mine.id, id_of(mallory))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for device in (honest, third):
        assert device.volume.grants.fetch(id_of(mallory), mine.id), "for reading it will do"
        device.reopen()
    honest.volume.remove_device("second")
    meet(honest, third)
    for device in (honest, third):
        ring = device.volume.ring
        assert ring.find(mine.id) is not None and ring.is_fit and ring.newest.id != mine.id
    assert honest.volume.ring.newest == third.volume.ring.newest


@pytest.mark.parametrize("state", ["device", "reserve"])
def test_who_has_no_kit_is_no_reserve(honest: Device, mallory: Second, state: str) -> None:
    puppet = DeviceKey.generate()
    member = Member(puppet.public, "puppet", reserve=state == "reserve")
    honest.volume.sharing.receive([sign(mallory, [admission(member)])])
    holders = honest.volume.sharing.key_holders()
    assert (puppet.device_id in holders) == (state == "device"), "whoever gets the keys is shown"
    assert ("puppet" in names(honest)) == (state == "device")
    removed = honest.volume.remove_device("second")
    remain = [one.device for one in removed.remain]
    assert remain == (["puppet"] if state == "device" else [])


def test_whoever_it_let_in_is_removed_with_it(honest: Device, mallory: Second, third: Another) -> None:
    puppet, of_puppet, kit = (DeviceKey.generate() for _ in range(3))
    honest.volume.sharing.receive([sign(mallory, [admission(Member(puppet.public, "puppet"))])])
    kit_writes = [admission(Member(kit.public, "recovery kit", reserve=True)), kit_of(kit, mallory)]
    honest.volume.sharing.receive([sign(mallory, kit_writes)])
    with honest.volume.fs.state.transaction():
        unlocked(honest.volume.fs).members.admit(
            [Member(of_puppet.public, "puppet")],
            puppet.device_id,
            unlocked(honest.volume.fs).updates.state.vector.highest,
        )
    shown = {one.id: one.let_in_by or None for one in honest.volume.devices()}
    assert shown[puppet.device_id.hex()] == "second"
    assert (
        shown[id_of(mallory).hex()] == shown[id_of(third).hex()] == honest.volume.sharing.membership.own_name
    )
    assert shown[id_of(honest).hex()] is None, "it made the volume"
    assert [one.kit for one in honest.volume.recovery.all()] == [kit.device_id.hex()]
    removed = honest.volume.remove_device("second", with_admitted=True)
    gone = {bytes.fromhex(one.id) for one in removed.removed}
    assert gone == {puppet.device_id, of_puppet.device_id, kit.device_id}
    assert not removed.remain
    meet(honest, third)
    for device in (honest, third):
        holders = set(device.volume.sharing.key_holders())
        assert holders == {id_of(honest), id_of(third)}
        assert device.volume.ring.newest.excluded == {id_of(mallory), *gone}
        assert device.volume.recovery.all() == []


def test_devices_of_one_name_are_told_apart(honest: Device, mallory: Second) -> None:
    puppets = [Member(DeviceKey.generate().public, name) for name in ("second", id_of(mallory).hex())]
    honest.volume.sharing.receive([sign(mallory, map(admission, puppets))])
    assert len(set(names(honest))) == 4
    assert f"second ({id_of(mallory).hex()[:8]})" in names(honest)
    with pytest.raises(UsageError, match="names several"):
        honest.volume.remove_device("second")
    removed = honest.volume.remove_device(id_of(mallory).hex())
    assert removed.id == id_of(mallory).hex()
    assert "second" in names(honest), "only one is called so now"


def test_who_came_by_the_removed_device_keeps_those_that_it_let_in_itself(
    honest: Device, mallory: Second, tmp_path: Path
) -> None:
    by_mallory = Another(tmp_path / "by mallory", mallory, "victim")
    meet(honest, mallory, by_mallory)
    phone = Member(DeviceKey.generate().public, "phone")
    by_mallory.volume.sharing.membership.admit(phone)
    mallory.volume.sharing.membership.admit(Member(DeviceKey.generate().public, "puppet"))
    meet(honest, mallory, by_mallory)
    told = {one.device for one in honest.volume.admitted_by("second").admitted}
    assert told == {"victim", "phone", "puppet"}
    removed = by_mallory.volume.remove_device("second", with_admitted=True)
    assert [one.device for one in removed.removed] == ["puppet"]
    meet(honest, by_mallory)
    for device in (honest, by_mallory):
        assert names(device)[0] == "phone" and len(names(device)) == 3
    by_mallory.close()


@pytest.mark.parametrize("with_kit", [False, True])
def test_a_device_never_becomes_a_reserve(
    honest: Device, mallory: Second, third: Another, *, with_kit: bool
) -> None:
    key = third.volume.ring.keys.device
    writes = [admission(Member(key.public, "third", reserve=True))]
    update = sign(mallory, [*writes, kit_of(key, mallory)] if with_kit else writes)
    for device in (honest, third):
        device.volume.sharing.receive([update])
        assert "third" in names(device) and id_of(third) in device.volume.sharing.current_members()
        device.reopen()
        assert "third" in names(device)


def test_members_with_keys_that_are_none_and_names_that_cannot_be_shown(
    honest: Device, mallory: Second
) -> None:
    nonsense = [Member(bytes(31) + bytes((number,)), "ghost") for number in (2, 5, 7)]
    nonsense += [Member(b"\xff" * 32, "ghost"), Member(DeviceKey.generate().public, "evil\x1b]0;pwned\x07")]
    honest.volume.sharing.receive([sign(mallory, [admission(one)]) for one in nonsense])
    honest.volume.sharing.receive([sign(mallory, map(admission, nonsense))])
    assert len(names(honest)) == 2
    honest.volume.remove_device("second")
    assert honest.volume.ring.newest.id != FIRST_EPOCH and honest.volume.ring.is_fit
    honest.write("after", b"that")
    honest.sync()


@pytest.mark.parametrize("at_once", [False, True])
def test_more_members_than_there_may_be(
    honest: Device, mallory: Second, third: Another, *, at_once: bool
) -> None:
    ghosts = [Member(DeviceKey.generate().public, f"ghost {number}") for number in range(COUNT)]
    size = COUNT if at_once else COUNT // 4
    updates = [sign(mallory, map(admission, ghosts[start : start + size])) for start in range(0, COUNT, size)]
    honest.volume.sharing.receive(updates)
    third.volume.sharing.receive(updates)
    for device in (honest, third):
        device.reopen()
        members = set(device.volume.sharing.current_members())
        assert {id_of(honest), id_of(mallory), id_of(third)} <= members and len(members) <= MAX_WRITERS
    assert set(honest.volume.sharing.current_members()) == set(third.volume.sharing.current_members())
    honest.volume.remove_device("second", with_admitted=True)
    third.write("work", b"goes on")
    third.sync()
    meet(honest, third)
    for device in (honest, third):
        assert set(device.volume.sharing.current_members()) == {id_of(honest), id_of(third)}
        device.reopen()
        assert device.volume.ring.is_fit and device.read("work") == b"goes on"
    assert honest.volume.ring.newest == third.volume.ring.newest
    assert not honest.fsck().problems


def test_those_who_are_removed_without_ever_having_been_in_do_not_fill_the_list(
    honest: Device, mallory: Second, third: Another
) -> None:
    strangers = [Member(DeviceKey.generate().public, "gone", removed=True) for _ in range(COUNT)]
    update = sign(mallory, map(admission, strangers))
    for device in (honest, third):
        device.volume.sharing.receive([update])
    honest.volume.remove_device("second")
    meet(honest, third)
    assert honest.volume.ring.is_fit and honest.volume.ring.newest == third.volume.ring.newest


def test_what_it_let_in_after_its_removal_is_nobody(honest: Device, mallory: Second, third: Another) -> None:
    puppet = DeviceKey.generate()
    honest.volume.remove_device("second")
    update = sign(mallory, [admission(Member(puppet.public, "puppet"))])
    meet(honest, third)
    for device in (honest, third):
        device.volume.sharing.receive([update])
        assert puppet.device_id not in device.volume.sharing.key_holders()
        assert "puppet" not in names(device)


def test_who_was_let_in_while_the_removal_was_under_way_is_shown(
    honest: Device, mallory: Second, third: Another
) -> None:
    """... if a member had seen that: then it is a member, and the person is told by whom."""
    puppet = DeviceKey.generate()
    third.volume.sharing.receive([sign(mallory, [admission(Member(puppet.public, "puppet"))])])
    honest.volume.remove_device("second")
    meet(honest, third)
    for device in (honest, third):
        shown = {one.name: one.let_in_by or None for one in device.volume.devices()}
        assert shown["puppet"] == "second"
    honest.volume.remove_device("puppet")
    assert honest.volume.ring.newest.excluded == {id_of(mallory), puppet.device_id}


def test_a_removal_that_cannot_be_signed_changes_nothing(
    honest: Device, mallory: Second, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before, newest = log_of(honest), honest.volume.ring.newest
    for owner, method in ((VolumeKeys, "replace"), (unlocked(honest.volume.fs).updates, "sign")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, full)
            with pytest.raises(OSError, match="No space"):
                honest.volume.remove_device("second")
        assert "second" in names(honest)
        assert honest.volume.ring.is_fit and honest.volume.ring.newest == newest
        assert log_of(honest) == before
    honest.reopen()
    assert honest.volume.ring.is_fit and honest.volume.ring.newest == newest, "nobody else has the keys"
    honest.volume.remove_device("second")
    assert honest.volume.ring.is_fit and honest.volume.ring.newest.excluded == {id_of(mallory)}


def test_keys_whose_grant_a_crash_took_back_are_not_used(
    honest: Device, mallory: Second, third: Another
) -> None:
    for cloud in honest.clouds:  # nothing is heard but what the test tells
        cloud.rename(cloud.with_suffix(".away"))
    honest.volume.remove_device("second")
    removal = log_of(honest)[-1]
    database = third.home.volume_state("vol") / "volume.db"
    third.close()
    saved = database.read_bytes()
    third.reopen()
    hear_of_removal(third, mallory)
    third.volume.sharing.membership.act_on_removals()
    lost = third.volume.ring.newest
    assert third.volume.ring.is_fit and lost.excluded == {id_of(mallory)}
    third.close()
    database.write_bytes(saved)
    third.reopen()
    hear_of_removal(third, mallory)
    ring = third.volume.ring
    assert ring.find(lost.id) is not None and ring.newest != lost
    assert not ring.is_fit, "somebody has to begin another"
    third.volume.sharing.receive([removal])
    assert ring.is_fit and ring.newest == honest.volume.ring.newest


def hear_of_removal(device: Device, removed: Device) -> None:
    sharing = device.volume.sharing
    with device.volume.fs.state.transaction() as tx:
        tx.members.admit([Member(removed.volume.ring.keys.device.public, "second", removed=True)])
        sharing.membership._epochs.learn(tx)
