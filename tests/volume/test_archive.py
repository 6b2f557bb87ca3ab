"""The archive over folders that play clouds: what rests takes less room, and survives as much as before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import structs

from hybrisfs.errors import UsageError
from hybrisfs.prices import keep_price
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.state.schema import ROOT_INO
from tests.system.deadline import until
from tests.volume.device import NAME, Device, two_devices
from tests.volume.test_garbage import collect, noise, packs, remove, sound

MIB = 1 << 20
DAY_NS = 86_400 * 10**9
SIZE = 6 * MIB


def at_once(device: Device, *limits: object) -> None:
    """Let nothing that is not needed be kept."""
    device.close()
    structs.replace(VolumeConfig.load(device.home, NAME), discard_hours=0).save(device.home)
    device.reopen(*limits)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    with ExitStack() as stack:
        found = Device(tmp_path, clouds=5)
        stack.callback(found.close)
        at_once(found)
        yield found


def archive(device: Device, days: int = 31) -> None:
    """Let what there is rest for so many days, and archive it."""
    collect(device)
    device.around.ahead_ns += days * DAY_NS
    assert not collect(device).trouble
    device.sync()
    collect(device)


def let_rest(device: Device, files: int, size: int) -> None:
    """Write so many files of this size, which have rested for a month and are archived next."""
    device.volume.agreed.archive("30d", "4+1")
    for number in range(files):
        device.write(f"file {number}", noise(number, size))
    device.sync()
    collect(device)
    device.around.ahead_ns += 31 * DAY_NS


def stored(device: Device) -> int:
    return sum(packs(device).values())


def facts(device: Device) -> tuple[int, int]:
    """How many bytes are hot, and archived."""
    found = device.volume.status().archive
    assert found is not None
    return found.hot, found.archived


def test_what_rests_takes_less_room_and_survives_the_loss_of_any_cloud(device: Device) -> None:
    device.volume.agreed.archive("30d", "4+1")
    device.write("file", noise(1, SIZE))
    device.sync()
    assert stored(device) > 2 * SIZE
    archive(device)
    assert 1.25 * SIZE < stored(device) <= 1.27 * SIZE
    found = device.volume.status().archive
    assert found is not None and found.code == "4+1" and found.hot < MIB // 4
    assert found.stored == found.archived * 5 // 4 and found.saved == 2 * found.archived - found.stored
    assert sum(found.clouds.values()) == pytest.approx(found.stored, abs=100) and len(found.clouds) == 5
    sound(device)
    for cloud in device.clouds:
        shutil.move(cloud, f"{cloud}.away")
        device.volume.drop_cache()
        assert device.read("file") == noise(1, SIZE)
        shutil.move(f"{cloud}.away", cloud)


def test_what_is_saved_counts_at_the_prices_of_the_clouds_that_are_paid(device: Device) -> None:
    paid, dear = (cloud.as_uri() for cloud in device.clouds[:2])
    keep_price(device.home.prices, paid, {"storage": 100.0})
    device.volume.agreed.archive("30d", "auto")
    device.write("file", noise(1, SIZE))
    device.sync()
    archive(device)
    found = device.volume.status().archive
    assert found is not None and len(found.clouds) == 5, "what is unknown counts as the mean"
    before, now = (found.stored + found.saved) / 5, found.stored / 5
    assert found.dollars == pytest.approx((before - now) / 1e9 * 100, rel=0.01)
    for cloud in device.clouds[2:]:
        keep_price(device.home.prices, cloud.as_uri(), {"storage": 1.0})
    keep_price(device.home.prices, dear, {"storage": 100.0})
    code = device.volume.status().archive
    assert code is not None and code.code == "2+1", "the dear ones are left out at once"


def test_what_is_new_or_in_use_is_not_archived(device: Device) -> None:
    device.volume.agreed.archive("30d", "auto")
    device.write("file", noise(1, SIZE))
    device.sync()
    archive(device, 20)
    device.volume.drop_cache()
    device.read("file")
    archive(device, 20)
    assert facts(device)[1] == 0
    archive(device, 31)
    assert facts(device)[1] > SIZE


def test_nothing_is_archived_unasked_and_nothing_more_when_it_is_off(device: Device) -> None:
    device.write("file", noise(1, SIZE))
    device.sync()
    archive(device, 400)
    assert device.volume.status().archive is None
    device.volume.agreed.archive("30d", None)
    archive(device)
    device.volume.agreed.archive("off", None)
    device.write("more", noise(2, SIZE))
    device.sync()
    archive(device, 400)
    hot, archived = facts(device)
    assert hot > SIZE and archived > SIZE
    device.volume.clouds.rename("cloud-0", "first")  # from then on devices agree on f and k
    assert device.volume.clouds.wait_rewritten(60, lambda done, total: None)[0]
    assert facts(device) == (hot, archived), "it stays as it is"


def test_many_small_packs_become_few_large_ones(device: Device) -> None:
    device.volume.agreed.archive("30d", "4+1")
    for number in range(20):
        device.write(f"file {number}", noise(number, MIB // 8))
        device.sync()
    before = len(packs(device)) // 2
    archive(device)
    assert before >= 20 and len(packs(device)) == 5
    device.volume.drop_cache()
    for number in range(20):
        assert device.read(f"file {number}") == noise(number, MIB // 8)


def test_what_is_read_on_two_days_is_hot_again(device: Device) -> None:
    device.volume.agreed.archive("30d", "4+1")
    device.write("file", noise(1, SIZE))
    device.sync()
    archive(device)
    for _ in range(2):
        assert facts(device)[1] > SIZE
        device.volume.drop_cache()
        assert device.read("file") == noise(1, SIZE)
        archive(device, 1)
    assert facts(device)[1] == 0
    device.volume.drop_cache()
    assert device.read("file") == noise(1, SIZE)
    sound(device)


def test_what_is_needed_of_an_archived_pack_stays_archived(device: Device) -> None:
    device.volume.settings.edit({"keep_versions": "off"})
    device.volume.agreed.archive("30d", "4+1")
    for number in range(6):
        device.write(f"file {number}", noise(number, MIB))
    device.sync()
    archive(device)
    for number in range(4):
        remove(device, f"file {number}")
    device.sync()
    archive(device, 1)
    hot, archived = facts(device)
    assert hot < MIB // 4 and 2 * MIB < archived < 3 * MIB
    device.volume.drop_cache()
    assert device.read("file 5") == noise(5, MIB)
    sound(device)


def test_a_cloud_is_drained_that_the_archive_has_no_other_for(device: Device) -> None:
    device.volume.agreed.archive("30d", "4+1")
    device.write("file", noise(1, SIZE))
    device.sync()
    archive(device)
    device.volume.clouds.drain("cloud-4")
    gone, trouble = device.volume.clouds.wait("cloud-4", 60, lambda done, total: None)
    assert gone, trouble
    device.sync()
    collect(device)
    assert facts(device)[1] > SIZE and 1.33 * SIZE < stored(device) < 1.36 * SIZE
    shutil.rmtree(device.clouds[0])
    device.volume.drop_cache()
    assert device.read("file") == noise(1, SIZE)


def test_a_lost_share_is_found_and_repaired(device: Device) -> None:
    device.volume.agreed.archive("30d", "4+1")
    device.write("file", noise(1, SIZE))
    device.sync()
    archive(device)
    before = packs(device)
    shutil.rmtree(device.clouds[2] / "packs")
    report = device.volume.maintenance.scrub(100.0, lambda stage, done, total: None)
    assert {cloud for cloud, _ in report.problems} == {2}
    device.volume.maintenance.repair(lambda stage, done, total: None)
    assert packs(device) == before
    sound(device)


@pytest.mark.parametrize(
    ("after", "code", "why"),
    [
        ("soon", None, "not a time"),
        ("0d", None, "not a time"),
        ("20y", None, "not a time"),
        (None, "4+2", "as many clouds as the rest"),
        (None, "1+1", "no less room"),
        (None, "5+1", "takes 6 clouds"),
        (None, "wide", "not a code"),
    ],
)
def test_what_cannot_be_is_refused(device: Device, after: str | None, code: str | None, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        device.volume.agreed.archive(after, code)
    assert device.volume.status().archive is None


def test_too_few_clouds_archive_nothing(tmp_path: Path) -> None:
    device = Device(tmp_path, clouds=2, f=0, k=2)
    try:
        device.volume.agreed.archive("1d", "auto")
        device.write("file", noise(1, SIZE))
        device.sync()
        archive(device)
        found = device.volume.status().archive
        assert found is not None and (found.code, found.archived) == ("", 0)
    finally:
        device.close()


def test_all_devices_archive_alike_and_read_what_another_has_archived(tmp_path: Path) -> None:
    with two_devices(tmp_path) as (first, second):
        for one in (first, second):
            at_once(one)
        second.volume.agreed.archive("30d", "auto")
        until(lambda: looked(first).volume.agreed.archive_after == "30d", "the other to hear of it")
        first.write("file", noise(1, SIZE))
        first.sync()
        until(lambda: has(looked(second), "file"), "the file to arrive")
        collect(first)
        first.around.ahead_ns += 31 * DAY_NS
        collect(first)
        first.sync()
        assert facts(first)[1] > SIZE

        def are_gone() -> bool:
            for one in (first, second):
                looked(one)
                collect(one)
                one.sync()
            return stored(first) < 1.36 * SIZE

        until(are_gone, "all to let the former packs go")
        second.volume.drop_cache()
        assert second.read("file") == noise(1, SIZE)
        for one in (first, second):
            sound(one)


def looked(device: Device) -> Device:
    device.volume.signals.look_around()
    return device


def has(device: Device, name: str) -> bool:
    with device.volume.fs.state.transaction() as tx:
        return device.volume.fs.lookup(tx, ROOT_INO, name.encode()) is not None


def test_with_a_cloud_away_it_waits_and_goes_on_when_it_is_back(device: Device) -> None:
    let_rest(device, 4, 3 * MIB)
    shutil.move(device.clouds[4], tmp := f"{device.clouds[4]}.away")
    collect(device)
    before = packs(device)
    collect(device)
    assert not wide(device) and packs(device) == before, "what would be in vain is not tried all the time"
    device.volume.drop_cache()
    assert device.read("file 3") == noise(3, 3 * MIB)
    shutil.move(tmp, device.clouds[4])
    device.reopen()
    archive(device, 31)
    assert facts(device)[1] > 9 * MIB


def test_what_was_archived_before_the_end_is_not_archived_again(device: Device) -> None:
    let_rest(device, 12, 9 * MIB)
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(collect, device)
        until(lambda: wide(device) or under_way.done(), "some to be archived")
        device.close()
    device.reopen()
    before = wide(device)
    assert before and facts(device)[0] > 9 * MIB
    archive(device, 0)
    # Less than 1 MiB is not worth a pack, and waits for more.
    assert wide(device) > before and 12 * 9 * MIB - MIB < facts(device)[1] < 12 * 9.1 * MIB
    device.volume.drop_cache()
    for number in range(12):
        assert device.read(f"file {number}") == noise(number, 9 * MIB)
    sound(device)
    assert stored(device) < 1.27 * 12 * 9 * MIB


def wide(device: Device) -> set[int]:
    """The archived packs."""
    with device.volume.fs.state.transaction() as tx:
        return {one.number for one in tx.packs.kept_after(0, 1000) if one.k > 1}
