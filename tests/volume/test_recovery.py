"""Recovery kits of an open volume: made, kept on the clouds, renewed, removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.admit.kit import decode_kit, encode_kit, kit_name
from hybrisfs.admit.rebuild import rebuild_volume
from hybrisfs.api.maintenance import RemovedKit
from hybrisfs.clouds.checkup import CheckupLimits
from hybrisfs.errors import UsageError
from hybrisfs.home import Home
from hybrisfs.members.members import Member
from hybrisfs.recovery.record import KitRecord, kit_key
from hybrisfs.recovery.sealed_key import Cost, KitSecret, seal_key
from sync import DeviceKey
from tests.tree.unlocked import unlocked
from tests.volume.device import NAME
from tests.volume.recovery_rig import PASSPHRASE, First, Second, copies, has, kit_of, recover, waits


def states(device: First | Second) -> list[str]:
    return [one.state for one in kit_of(device).clouds]


def are_alike(device: First | Second, kit: str, *, but_not: bytes = b"") -> bool:
    """Whether all clouds were seen to hold the same copy, another one than *but_not*. It is one look that
    tells both: between two of them a renewal may have come to the first of the clouds."""
    found = {copy.data if copy is not None else b"" for copy in copies(device, kit)}
    return len(found) == 1 and found.isdisjoint((b"", but_not))


def test_a_kit_is_on_all_clouds_when_it_was_made(first: First) -> None:
    assert first.volume.recovery.all() == []
    made = first.volume.recovery.make(None)
    assert made.complete and len(made.clouds) == 3 and not made.used
    assert (made.passphrase or "").count(" ") == 7 and made.bits == 103
    kit = kit_of(first)
    assert (kit.kit, kit.created, kit.clouds) == (made.kit, made.created, made.clouds)
    assert are_alike(first, made.kit)
    assert set(made.pages or ()) == {"html", "text"}
    for page in (made.pages or {}).values():
        assert (made.passphrase or "") not in page and made.kit[:8] in page
        assert all(cloud.as_uri() in page for cloud in first.clouds)
    chosen = first.make_kit()
    assert not chosen.passphrase and len(first.volume.recovery.all()) == 2
    assert PASSPHRASE.encode() not in b"".join(p.read_bytes() for p in first.state.rglob("*") if p.is_file())
    assert first.fsck(clouds=True).problems == []


def test_nobody_waits_for_a_kit_and_it_is_no_device(first: First, second: Second) -> None:
    kit = first.make_kit().kit
    waits(second, lambda: len(second.volume.recovery.all()) == 1)
    for device in (first, second):
        assert len(device.volume.devices()) == 2
        assert kit not in [one.id for one in device.volume.devices()]
        assert bytes.fromhex(kit) not in device.volume.sharing.current_members()
        assert bytes.fromhex(kit) in device.volume.sharing.key_holders()
        with pytest.raises(UsageError, match="is not a machine"):
            device.volume.remove_device(kit)
    collected = first.volume.collector.collect(lambda stage, done, total: None, dry_run=True).as_dict()
    assert kit not in str(collected)


def test_a_removed_device_gets_no_kit_renewed_and_the_kit_has_the_new_keys(
    first: First, second: Second
) -> None:
    kit = first.make_kit().kit
    waits(second, lambda: len(second.volume.recovery.all()) == 1)
    before = (first.clouds[0] / "recovery" / kit).read_bytes()
    first.volume.remove_device("second")
    first.sync()
    waits(first, lambda: are_alike(first, kit, but_not=before))
    after = copies(first, kit)[0]
    assert after is not None and after.rank > decode_kit(before, kit_name(bytes.fromhex(kit))).rank
    assert kit_of(first).complete
    # What the removed device puts there is put right, however late it claims to be.
    forged = first.clouds[0] / "recovery" / kit
    forged.write_bytes(_forged(second))
    assert states(first)[0] == "damaged"
    first.volume.recovery._renewed.clear()
    assert first.volume.recovery.refresh() and are_alike(first, kit)


def _forged(device: Second) -> bytes:
    recovery = device.volume.recovery
    [kit] = recovery._kits()
    sources = replace(recovery._sources(kit), serial=1 << 50)
    return encode_kit(kit.record, kit.reserve.public, sources, device.volume.ring.keys.device)


def test_whichever_device_can_renews_it(first: First, second: Second, tmp_path: Path) -> None:
    kit = first.make_kit().kit
    waits(second, lambda: len(second.volume.recovery.all()) == 1)
    first.close()
    before = (second.clouds[0] / "recovery" / kit).read_bytes()
    second.volume.sharing.membership.admit(Member(bytes(range(32)), "third"))
    second.sync()
    waits(second, lambda: are_alike(second, kit, but_not=before))
    assert kit_of(second).complete
    renewed = copies(second, kit)[0]
    assert renewed is not None and renewed.writer == second.volume.sharing.device


def test_a_cloud_that_lost_or_damaged_it_gets_it_again(first: First) -> None:
    kit = first.make_kit().kit
    names = [cloud / "recovery" / kit for cloud in first.clouds]
    good = names[2].read_bytes()
    names[0].unlink()
    names[1].write_bytes(os.urandom(len(good)))
    assert states(first) == ["missing", "damaged", "complete"]
    assert not kit_of(first).complete
    first.volume.recovery._renewed.clear()  # as after half an hour
    assert first.volume.recovery.refresh()
    assert [name.read_bytes() for name in names] == [good] * 3
    assert states(first) == ["complete"] * 3


def test_an_old_copy_is_replaced_and_a_later_one_is_spread(first: First) -> None:
    kit = first.make_kit().kit
    name = first.clouds[0] / "recovery" / kit
    old = name.read_bytes()
    first.volume.sharing.membership.admit(Member(bytes(range(32)), "another"))
    first.sync()
    waits(first, lambda: are_alike(first, kit, but_not=old))
    name.write_bytes(old)
    assert states(first) == ["old", "complete", "complete"]
    first.volume.recovery._renewed.clear()
    assert first.volume.recovery.refresh() and are_alike(first, kit)
    assert name.read_bytes() != old


def test_made_while_no_cloud_is_there_it_gets_there_later(first: First) -> None:
    away = [cloud.rename(cloud.with_name(f"{cloud.name} away")) for cloud in first.clouds]
    first.volume.transfers.pause(None)  # so that nothing waits for the clouds
    made = first.make_kit()
    assert not made.complete
    first.reopen(CheckupLimits(interval=0.5))
    assert kit_of(first).kit == made.kit, "it was forgotten"
    for cloud, elsewhere in zip(first.clouds, away, strict=True):
        elsewhere.rename(cloud)
    first.volume.transfers.resume()
    waits(first, lambda: are_alike(first, made.kit))


def test_a_new_cloud_gets_the_kit_and_the_kit_names_it(first: First, tmp_path: Path) -> None:
    kit = first.make_kit().kit
    before = (first.clouds[0] / "recovery" / kit).read_bytes()
    first.clouds.append(tmp_path / "first" / "cloud-3")
    first.volume.clouds.add(first.clouds[3].as_uri(), None)
    waits(first, lambda: are_alike(first, kit, but_not=before))
    assert len(kit_of(first).clouds) == 4 and kit_of(first).complete


def test_a_removed_kit_is_gone_and_gets_no_keys_any_more(first: First) -> None:
    kit = first.make_kit().kit
    shutil.copytree(first.clouds[2], first.clouds[2].with_name("copy"))
    epoch = first.volume.ring.newest
    with pytest.raises(UsageError, match="is not a recovery kit"):
        first.volume.recovery.remove("ffff")
    assert first.volume.recovery.remove(kit[:8]) == RemovedKit(first.volume.name, kit, [])
    assert first.volume.recovery.all() == [] and copies(first, kit) == [None] * 3
    assert first.volume.ring.newest != epoch
    assert first.volume.ring.newest.excluded == {bytes.fromhex(kit)}
    first.volume.recovery.refresh()
    assert copies(first, kit) == [None] * 3
    first.write("after", b"not for the kit")
    first.sync()
    assert first.fsck(clouds=True).problems == []


def test_who_joins_through_the_clouds_after_a_removal_gets_the_whole_log(
    first: First, second: Second, tmp_path: Path
) -> None:
    second.write("answer", b"y")
    second.sync()
    waits(first, lambda: has(first, "answer"))
    first.close()
    second.volume.remove_device(first.volume.sharing.device.hex())
    second.write("afterwards", b"z")
    third = Second(tmp_path / "third", second, "third")
    second.sync()
    waits(third, lambda: has(third, "afterwards"))
    assert has(third, "known to both") and has(third, "answer")
    assert third.fsck(clouds=True).problems == []
    third.close()


def test_a_kit_of_an_earlier_version_works_and_is_to_be_replaced(first: First, tmp_path: Path) -> None:
    secret = KitSecret(DeviceKey.generate(), bytes(32), first.volume.config.id)
    record = KitRecord(NAME, 1_700_000_000, secret.voucher, seal_key(secret, PASSPHRASE, Cost(1, 8)))
    reserve = Member(secret.reserve.public, "recovery kit", reserve=True)
    first.volume.sharing.membership.admit(reserve, [(kit_key(secret.kit), record.encode())])
    waits(first, lambda: first.volume.recovery.refresh() and bool(kit_of(first).complete))
    assert kit_of(first).unsigned
    recover(Home.below(tmp_path / "new"), first.clouds)
    first.make_kit()
    assert [bool(one.unsigned) for one in first.volume.recovery.all()] == [True, False]
    first.volume.recovery.remove(secret.kit.hex())
    assert not kit_of(first).unsigned and not first.fsck().problems


def test_a_kit_survives_a_rebuild(first: First) -> None:
    kit = first.make_kit().kit
    first.sync()
    first.close()
    rebuild_volume(first.home, NAME, lambda stage, done, total: None)
    first.reopen()
    assert kit in {one.device.hex() for one in unlocked(first.volume.fs).members.reserves()}
    assert not unlocked(first.volume.fs).members.removed() and first.volume.ring.is_fit
    waits(first, lambda: [one.kit for one in first.volume.recovery.all()] == [kit])
