"""The versions of recovery kits on the clouds: kept, repaired, superseded, and what a machine that recovers
makes of them when clouds lie and a removed device helps them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from hybrisfs.admit.kit import Sources, decode_kit, encode_kit, kit_name, kit_versions, versions_prefix
from hybrisfs.home import Home
from hybrisfs.members.members import Member
from hybrisfs.pairing.messages import GrantedCloud
from hybrisfs.quorums.consensus import KEPT_SECONDS
from hybrisfs.recovery import sealed_key
from hybrisfs.recovery.sealed_key import RecoveryError
from tests.volume.device import Device
from tests.volume.recovery_rig import PASSPHRASE, First, Second, copies, kit_of, recover, waits


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.below(tmp_path / "new machine")


def versions(cloud: Path, kit: str) -> dict[str, bytes]:
    """The versions of a kit on a cloud, by the last parts of their names."""
    folder = cloud / versions_prefix(bytes.fromhex(kit))
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def former(cloud: Path, kit: str) -> Path:
    return cloud / kit_name(bytes.fromhex(kit))


def latest(device: Device, kit: str) -> bytes:
    """The latest version, which all clouds are to have under both names."""
    [data] = {former(cloud, kit).read_bytes() for cloud in device.clouds}
    return data


def look_again(device: First | Second) -> None:
    """As after half an hour."""
    device.volume.recovery._renewed.clear()
    assert device.volume.recovery.refresh()


def renew(device: First, kit: str) -> tuple[bytes, bytes]:
    """Have a later version; the one before, and it."""
    # Another device may be about to write its version.
    waits(device, lambda: len({former(cloud, kit).read_bytes() for cloud in device.clouds}) == 1)
    before = latest(device, kit)
    device.volume.sharing.membership.admit(Member(os.urandom(32), "another"))
    device.sync()

    def is_there() -> bool:
        found = {copy.data if copy is not None else b"" for copy in copies(device, kit)}
        return len(found) == 1 and found.isdisjoint((b"", before)) and bool(kit_of(device).complete)

    waits(device, is_there)
    return before, latest(device, kit)


def forge(by: Second, *, f: int = 1, folder: Path) -> tuple[str, bytes]:
    """What a removed device would have a machine believe: the name of the version, and the object."""
    recovery = by.volume.recovery
    [kit] = recovery._kits()
    true = recovery._sources(kit).grant
    clouds = tuple(GrantedCloud(n, f"evil-{n}", (folder / f"evil-{n}").as_uri()) for n in range(3))
    data = encode_kit(
        kit.record,
        kit.reserve.public,
        Sources(replace(true, f=f, clouds=clouds), 1 << 50),
        by.volume.ring.keys.device,
    )
    version = decode_kit(data, kit.name).version(kit.record.voucher)
    return kit_versions(kit.id, kit.record.voucher).of_version(version), data


def plant(cloud: Path, kit: str, name: str, data: bytes) -> None:
    (cloud / name).write_bytes(data)
    former(cloud, kit).write_bytes(data)


def states(device: First) -> list[str]:
    return [one.state for one in kit_of(device).clouds]


def test_each_cloud_has_one_version_and_the_same_under_the_former_name(first: First) -> None:
    kit = first.make_kit().kit
    expected = latest(first, kit)
    assert [list(versions(cloud, kit).values()) for cloud in first.clouds] == [[expected]] * 3
    assert len({name for cloud in first.clouds for name in versions(cloud, kit)}) == 1


def test_a_version_that_was_lost_or_damaged_is_put_back(first: First) -> None:
    kit = first.make_kit().kit
    expected = versions(first.clouds[0], kit)
    [name] = expected
    folders = [cloud / versions_prefix(bytes.fromhex(kit)) for cloud in first.clouds]
    (folders[0] / name).unlink()
    (folders[1] / name).write_bytes(os.urandom(100))
    assert states(first) == ["missing", "damaged", "complete"]
    look_again(first)
    assert [versions(cloud, kit) for cloud in first.clouds] == [expected] * 3
    assert states(first) == ["complete"] * 3


def test_an_earlier_version_goes_when_the_later_one_has_been_complete_for_long(first: First) -> None:
    kit = first.make_kit().kit
    before, after = renew(first, kit)
    look_again(first)
    assert [set(versions(cloud, kit).values()) for cloud in first.clouds] == [{before, after}] * 3

    def has_gone() -> bool:
        # A request that is under way then looks as if it hung. If the later version seems incomplete for
        # that, its time begins anew.
        first.around.passed += KEPT_SECONDS
        look_again(first)
        return all(before not in versions(cloud, kit).values() for cloud in first.clouds)

    waits(first, has_gone)
    assert [set(versions(cloud, kit).values()) for cloud in first.clouds] == [{after}] * 3


def test_while_a_cloud_is_away_the_earlier_version_stays(first: First) -> None:
    kit = first.make_kit().kit
    before = latest(first, kit)
    away = first.clouds[2].rename(first.clouds[2].with_suffix(".away"))
    first.volume.sharing.membership.admit(Member(os.urandom(32), "another"))
    first.sync()
    waits(first, lambda: len(versions(first.clouds[0], kit)) == 2 == len(versions(first.clouds[1], kit)))
    for _ in range(2):
        first.around.passed += KEPT_SECONDS
        look_again(first)
    assert all(before in versions(cloud, kit).values() for cloud in first.clouds[:2])
    away.rename(first.clouds[2])


def test_a_removed_kit_has_no_versions_any_more(first: First, home: Home) -> None:
    kit = first.make_kit().kit
    assert first.volume.recovery.remove(kit).left == []
    assert [versions(cloud, kit) for cloud in first.clouds] == [{}] * 3
    with pytest.raises(RecoveryError, match="no recovery kit was found"):
        recover(home, first.clouds)


def test_a_cloud_that_lies_hides_no_later_version(first: First, home: Home) -> None:
    kit = first.make_kit().kit
    folder = versions_prefix(bytes.fromhex(kit))
    shutil.copytree(first.clouds[0] / folder, home.state.parent / "was")
    before, _ = renew(first, kit)
    members = len(first.volume.sharing.key_holders().public_keys)
    first.close()
    shutil.rmtree(first.clouds[0] / folder)
    shutil.copytree(home.state.parent / "was", first.clouds[0] / folder)
    former(first.clouds[0], kit).write_bytes(before)
    done = recover(home, first.clouds)
    assert done.agreed and done.by_named
    assert len(_members(home)) == members, "it has the kit that knows the latest member"


def _members(home: Home) -> set[bytes]:
    new = Device.found(home.state.parent, [])
    try:
        return set(new.volume.sharing.key_holders().public_keys) - {new.volume.sharing.device}
    finally:
        new.close()


def test_what_overwrites_the_objects_of_former_programs_on_all_clouds_takes_nothing_back(
    first: First, home: Home
) -> None:
    """Which a removed device can do that has the secrets of all clouds, with versions of before."""
    kit = first.make_kit().kit
    before, _ = renew(first, kit)
    for cloud in first.clouds:
        former(cloud, kit).write_bytes(before)
    first.clouds.append(first.clouds[0].with_name("cloud-3"))
    first.volume.clouds.add(first.clouds[3].as_uri(), None)
    waits(first, lambda: len(kit_of(first).clouds) == 4 and bool(kit_of(first).complete))
    first.close()
    for cloud in first.clouds:
        former(cloud, kit).write_bytes(before)
    done = recover(home, first.clouds[:2])
    assert done.agreed and len(done.config.clouds) == 4


def test_versions_alone_bring_the_volume_back(first: First, home: Home) -> None:
    first.make_kit()
    first.close()
    for cloud in first.clouds:
        shutil.rmtree(cloud / "recovery")
    with pytest.raises(RecoveryError, match="the passphrase is wrong"):
        recover(home, first.clouds, "another passphrase")
    done = recover(home, first.clouds)
    assert done.agreed and done.by_named and not done.missing


def test_what_programs_before_this_one_have_put_is_enough_and_becomes_a_version(
    first: First, tmp_path: Path
) -> None:
    kit = first.make_kit().kit
    first.close()
    for cloud in first.clouds:
        shutil.rmtree(cloud / "kits")
    recovered = recover(Home.below(tmp_path / "one"), first.clouds)
    assert recovered.agreed and recovered.by_named
    first.reopen()
    waits(first, lambda: bool(kit_of(first).complete))
    assert all(versions(cloud, kit) for cloud in first.clouds)


def test_a_device_with_an_earlier_program_and_this_one_have_the_same(first: First, second: Second) -> None:
    kit = first.make_kit().kit
    waits(second, lambda: len(second.volume.recovery.all()) == 1)
    renew(first, kit)
    second.sync()
    waits(second, lambda: bool(kit_of(second).complete))
    [known] = second.volume.recovery._kits()
    later = replace(second.volume.recovery._sources(known), serial=1 << 40)
    data = encode_kit(known.record, known.reserve.public, later, second.volume.ring.keys.device)
    for cloud in first.clouds[:2]:  # as that program does, which knows no versions
        former(cloud, kit).write_bytes(data)
    look_again(first)
    assert latest(first, kit) == data
    assert all(data in versions(cloud, kit).values() for cloud in first.clouds)


def test_a_removed_device_and_a_cloud_plant_no_kit(
    first: First, second: Second, home: Home, tmp_path: Path
) -> None:
    kit = first.make_kit().kit
    waits(second, lambda: len(second.volume.recovery.all()) == 1)
    forged = [forge(second, f=f, folder=tmp_path) for f in (0, 1)]
    before = latest(first, kit)
    first.volume.remove_device("second")
    first.sync()
    waits(first, lambda: before not in {former(cloud, kit).read_bytes() for cloud in first.clouds})
    waits(first, lambda: bool(kit_of(first).complete))
    first.close()
    shutil.rmtree(first.clouds[1] / versions_prefix(bytes.fromhex(kit)))
    (first.clouds[1] / versions_prefix(bytes.fromhex(kit))).mkdir()
    for name, data in forged:
        plant(first.clouds[1], kit, name, data)
    done = recover(home, first.clouds)
    assert done.agreed and done.by_named
    assert [one.url for one in done.config.clouds] == [one.as_uri() for one in first.clouds]


def test_what_a_removed_device_has_put_on_all_clouds_goes(
    first: First, second: Second, home: Home, tmp_path: Path
) -> None:
    kit = first.make_kit().kit
    waits(second, lambda: len(second.volume.recovery.all()) == 1)
    name, data = forge(second, folder=tmp_path)
    first.volume.remove_device("second")
    first.sync()
    waits(first, lambda: bool(kit_of(first).complete))
    for cloud in first.clouds:
        plant(cloud, kit, name, data)
    assert states(first) == ["damaged"] * 3
    look_again(first)
    assert all(data not in versions(cloud, kit).values() for cloud in first.clouds)
    assert all(b"" not in versions(cloud, kit).values() for cloud in first.clouds)
    first.close()
    done = recover(home, first.clouds)
    assert done.agreed and len(done.config.clouds) == 3
    assert all("evil" not in one.url for one in done.config.clouds)


def test_made_up_kits_with_many_versions_on_a_cloud_do_not_hide_the_true_one(
    first: First, home: Home
) -> None:
    kit = first.make_kit().kit
    first.close()
    true = latest(first, kit)
    former(first.clouds[0], kit).unlink()
    shutil.rmtree(first.clouds[0] / versions_prefix(bytes.fromhex(kit)))
    for number in range(40):
        made_up = bytearray(true)
        made_up[6:22] = bytes([number]) * 16
        made_up[40] ^= 1
        folder = first.clouds[0] / versions_prefix(bytes(made_up[6:22]))
        folder.mkdir()
        for version in range(5):
            (folder / f"{version}").write_bytes(made_up)
        former(first.clouds[0], made_up[6:22].hex()).write_bytes(made_up)
    with mock.patch.object(sealed_key, "_stretch", wraps=sealed_key._stretch) as stretch:
        recover(home, first.clouds[:2])
    assert stretch.call_count <= 16


def test_who_names_too_few_clouds_is_told_so(first: First, home: Home) -> None:
    first.make_kit()
    first.close()
    done = recover(home, first.clouds[:1], PASSPHRASE)
    assert done.agreed and not done.by_named
