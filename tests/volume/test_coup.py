"""One member tries to remove all others; and whoever was accused wrongly comes back with all that it did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.removal import Stance, encode_vote, vote_key
from hybrisfs.recovery.record import KitRecord, kit_key
from hybrisfs.recovery.sealed_key import Cost, KitSecret, seal_key
from sync import DeviceKey
from tests.tree.unlocked import unlocked
from tests.volume.device import Device
from tests.volume.recovery_rig import PASSPHRASE, First, New, Second, has, recover, waits
from tests.volume.recovery_rig import kit_of as kit_facts
from tests.volume.test_hostile_members import admission, id_of, kit_of, meet, sign

HOUR = 3600 * 10**9


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


def removals(by: Device, *accused: Device, old: bool = False) -> bytes:
    """An update that removes them all; *old*: as earlier versions did."""
    writes = []
    for one in accused:
        if old:
            member = Member(one.volume.ring.keys.device.public, "gone", removed=True)
            writes.append(admission(member))
        else:
            writes.append((vote_key(id_of(one), id_of(by)), encode_vote(Stance.REMOVE)))
    return sign(by, writes)


def is_out(device: Device, at: Device) -> bool:
    return id_of(device) not in at.volume.sharing.current_members()


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("puppets", [0, 2])
def test_who_removes_all_others_is_removed_by_them(
    first: First, second: Second, mallory: Second, puppets: int, *, old: bool
) -> None:
    for number in range(puppets):
        puppet = Member(DeviceKey.generate().public, f"puppet {number}")
        update = sign(mallory, [admission(puppet)])
        for device in (first, second):
            device.volume.sharing.receive([update])
    coup = removals(mallory, first, second, old=old)
    for device in (first, second):
        device.volume.sharing.receive([coup])
        assert sum(is_out(one, device) for one in (first, second)) == 1
    left, accused = (first, second) if is_out(second, first) else (second, first)
    left.write("still", b"open")
    left.sync()
    with pytest.raises(HybrisError, match="removed"):
        accused.volume.remove_device(id_of(mallory).hex())
    left.volume.keep_device(id_of(accused).hex())
    assert not is_out(accused, left)
    meet(first, second)
    assert not is_out(first, second) and not is_out(second, first)
    for device in (first, second):
        device.volume.remove_device(id_of(mallory).hex(), with_admitted=True)
        meet(first, second)
    for device in (first, second):
        assert set(device.volume.sharing.current_members()) >= {id_of(first), id_of(second)}
        assert is_out(mallory, device)
        assert device.volume.ring.is_fit and id_of(mallory) in device.volume.ring.newest.excluded
    accused.write("answer", b"together")
    meet(first, second)
    accused.sync()
    waits(left, lambda: has(left, "answer"))
    waits(accused, lambda: has(accused, "still"))
    assert left.read("answer") == b"together" and accused.read("still") == b"open"
    for device in (first, second):
        assert not device.fsck().problems


def test_what_was_written_by_either_side_meanwhile_arrives_after_a_veto(
    first: First, second: Second, mallory: Second
) -> None:
    mallory.volume.remove_device("second")
    meet(first, mallory)
    assert is_out(second, first)
    first.write("of first", b"sealed with keys that second lacks")
    first.sync()
    second.write("of second", b"written without knowing")
    waits(second, lambda: second.volume.following.was_removed)
    meet(first, second)
    assert not has(first, "of second")
    second.write("pending", b"cannot be signed now")
    first.volume.keep_device("second")
    first.sync()
    waits(second, lambda: has(second, "of first"))
    assert second.read("of first") == b"sealed with keys that second lacks"
    waits(first, lambda: has(first, "of second") and has(first, "pending"))
    assert first.read("of second") == b"written without knowing"
    assert not second.volume.following.was_removed
    for device in (first, second):
        assert not device.fsck().problems


@pytest.mark.usefixtures("mallory")
def test_two_remove_one_for_good(first: First, second: Second) -> None:
    removed = first.volume.remove_device("mallory")
    assert removed.counts and not removed.final
    meet(first, second)
    [fact] = second.volume.accused()
    assert (fact.name, fact.final, fact.suspended) == ("mallory", False, True)
    assert second.volume.remove_device("mallory").final
    meet(first, second)
    for device in (first, second):
        assert [fact.final for fact in device.volume.accused()] == [True]
        with pytest.raises(UsageError, match="is not a machine"):
            device.volume.remove_device("mallory")


def test_two_devices_can_remove_each_other(first: First, second: Second) -> None:
    meet(first, second)
    assert first.volume.remove_device("second").final


def test_who_stays_silent_seconds_when_the_time_is_over(
    first: First, second: Second, mallory: Second
) -> None:
    first.volume.remove_device("mallory")
    meet(first, second)
    trials, now = second.volume.sharing.trials, 10**18
    assert not trials.look_after(now)
    assert not trials.look_after(now + 71 * HOUR)
    second.reopen()
    trials = second.volume.sharing.trials
    assert trials.look_after(now + 73 * HOUR)
    assert [fact.final for fact in second.volume.accused()] == [True]
    assert not trials.look_after(now + 99 * HOUR)


def test_no_pack_ends_during_a_coup(first: First, second: Second, mallory: Second) -> None:
    """Who accuses all others does not decide alone what is deleted."""
    coup = removals(mallory, second)
    first.volume.sharing.receive([coup])
    assert is_out(second, first)
    with first.volume.fs.state.transaction():
        asked = {one.device for one in unlocked(first.volume.fs).members.asked()}
    assert asked == {id_of(first), id_of(second), id_of(mallory)}


@pytest.mark.parametrize("evicts", [False, True])
def test_a_device_with_a_proof_is_suspended_at_once(
    first: First, second: Second, mallory: Second, *, evicts: bool
) -> None:
    for device in (first, second):
        device.volume.sharing.trials.evicts = evicts
    sin = sign(mallory, [(member_key(id_of(first)), b"nonsense")])
    first.volume.sharing.receive([sin])
    assert first.volume.sharing.misconduct.look_after()
    assert first.volume.sharing.trials.look_after(10**18) == evicts
    meet(first, second)
    assert is_out(mallory, first) == is_out(mallory, second) == evicts
    if evicts:
        second.volume.keep_device("mallory")
        meet(first, second)
        assert not is_out(mallory, first)
        assert not first.volume.sharing.trials.look_after(10**18), "a person has decided"
    assert first.volume.remove_device("mallory").final, "there is a proof"


def test_of_two_devices_the_kit_brings_back_the_one_that_the_other_removed(
    first: First, second: Second
) -> None:
    first.make_kit()
    meet(first, second)
    first.volume.sharing.receive([removals(second, first)])
    assert first.volume.following.was_removed and first.volume.accused()[0].final
    with pytest.raises(HybrisError, match="removed"):
        first.volume.remove_device("second")
    with pytest.raises(UsageError, match="passphrase"):
        first.volume.keep_device(id_of(first).hex(), passphrase="another one that is long enough")
    assert first.volume.keep_device(id_of(first).hex(), passphrase=PASSPHRASE).kept
    assert not first.volume.following.was_removed
    assert first.volume.remove_device("second", passphrase=PASSPHRASE).final
    assert is_out(second, first) and first.volume.ring.is_fit
    first.write("after", b"that")
    first.sync()
    assert not first.fsck().problems


def test_what_the_kit_says_reaches_a_device_that_had_believed_the_thief(
    first: First, second: Second, mallory: Second
) -> None:
    """Nobody is at the second device; the owner of the first one has the passphrase."""
    first.make_kit()
    meet(first, second, mallory)
    coup = removals(mallory, first)
    for device in (first, second):
        device.volume.sharing.receive([coup])
        assert is_out(first, device)
    first.volume.remove_device(id_of(mallory).hex(), passphrase=PASSPHRASE)
    first.write("by the owner", b"of all")
    waits(second, lambda: has(second, "by the owner"))
    assert is_out(mallory, second) and second.read("by the owner") == b"of all"
    assert not second.volume.sharing.membership.has_removals_to_act_on()


def test_one_bare_vote_of_a_kit_of_the_thief_is_worth_no_more_than_that_of_a_device(
    first: First, second: Second, mallory: Second
) -> None:
    first.make_kit()
    kit = DeviceKey.generate()
    writes = [admission(Member(kit.public, "recovery kit", reserve=True)), kit_of(kit, mallory)]
    update = sign(mallory, writes)
    for device in (first, second):
        device.volume.sharing.receive([update])
    with first.volume.fs.state.transaction():
        verdict = unlocked(first.volume.fs).hearing.verdict_with(
            kit.device_id, [id_of(first), id_of(second)], Stance.REMOVE, 10**6
        )
    assert not verdict.ended and len(verdict.suspended) == 1


@pytest.mark.parametrize("ended", [False, True])
def test_no_member_alone_takes_a_kit_away(
    first: First, second: Second, mallory: Second, tmp_path: Path, *, ended: bool
) -> None:
    """It suspends the kit, as any member; and it changes nothing of what opens it."""
    kit = bytes.fromhex(first.make_kit().kit)
    meet(first, second, mallory)
    [reserve] = unlocked(mallory.volume.fs).members.reserves()
    removal = [(vote_key(kit, id_of(mallory)), encode_vote(Stance.REMOVE))]
    removal.append(admission(replace(reserve, removed=True, reserve=False)))
    writes = [*removal, (kit_key(kit), None)] if ended else [(kit_key(kit), forged_record(kit, mallory))]
    update = sign(mallory, writes)
    mallory.write("besides", b"so that its log goes to the clouds")
    mallory.sync()
    for device in (first, second):
        device.volume.sharing.receive([update])
        if ended:
            assert [one.final for one in device.volume.accused()] == [False]
    if ended:
        assert first.volume.keep_device(kit.hex()).kept
        meet(first, second)
    for device in (first, second):
        device.reopen()
        assert kit_in(device) == kit.hex() and kit in device.volume.sharing.key_holders()
    first.write("by the owner", b"of all")
    first.sync()
    waits(first, lambda: first.volume.recovery.refresh() and bool(kit_facts(first).complete))
    home = Home.below(tmp_path / "new")
    recover(home, first.clouds)
    new = New(home, first.clouds)
    waits(new, lambda: has(new, "by the owner"))
    new.close()
    assert first.volume.remove_device(id_of(mallory).hex(), passphrase=PASSPHRASE).final


def forged_record(kit: bytes, by: Device) -> bytes:
    """The record of the kit with another passphrase's key."""
    secret = KitSecret(DeviceKey.generate(), bytes(32), by.volume.config.id)
    return KitRecord("vol", 1, bytes(32), seal_key(secret, "what the thief knows", Cost(1, 8))).encode()


def kit_in(device: Device) -> str:
    return str(kit_facts(device).kit)
