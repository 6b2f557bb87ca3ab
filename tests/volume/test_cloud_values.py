"""Values of the key-value store on clouds that come and go, lose, damage and lie."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hybrisfs.kv.mend import ValueMender
from hybrisfs.kv.rmds import DeviceStore
from tests.volume.device import PATIENCE, Device
from tests.volume.test_clouds import assert_readable, assert_sound, fill, gone, rewritten
from tests.volume.test_repair import counts, flip, repair, scrub

BOX = "box"
LARGE = os.urandom(9 << 17)  # above the threshold of erasure coding


@pytest.fixture(params=[(4, 1, 1), (5, 1, 2)], ids=["copies", "erasure-coded"])
def device(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path, *request.param)
    fill(device, 2)
    store(device).create_container(BOX)
    for number in range(8):
        store(device).put(BOX, f"key{number}", value(number))
    store(device).delete(BOX, "key7")
    yield device
    device.close()


def store(device: Device) -> DeviceStore:
    return device.volume.key_values.open()


def value(number: int) -> bytes:
    return b"value %d" % number if number else LARGE


def objects(cloud: Path) -> list[Path]:
    return sorted(path for path in cloud.rglob("kv/*/*") if path.is_file())


def holder(device: Device) -> Path:
    """A cloud with values of which one was acknowledged: others may have what came after another stood in."""
    held = {one.number: store(device).metadata.held(one.number) for one in device.volume.config.clouds}
    name = next(one.name for one in device.volume.config.clouds if held[one.number])
    return next(cloud for cloud in device.clouds if cloud.name == name)


def number_of(device: Device, cloud: Path) -> int:
    return next(one.number for one in device.volume.config.clouds if one.name == cloud.name)


def assert_values(device: Device, count: int = 7) -> None:
    kept = store(device)
    assert [one.key for one in kept.list(BOX)] == [f"key{number}" for number in range(count)]
    kept._cache._copies.clear()
    for number in range(count):
        assert kept.get(BOX, f"key{number}").value == value(number)


@pytest.mark.parametrize("leave", ["drain", "remove"])
def test_values_leave_with_their_cloud(device: Device, leave: str) -> None:
    cloud = holder(device)
    number = number_of(device, cloud)
    if leave == "remove":
        shutil.rmtree(cloud)
        device.volume.clouds.remove(cloud.name)
    else:
        device.volume.clouds.drain(cloud.name)
    assert gone(device, cloud.name) == (True, "")
    assert objects(cloud) == []
    assert store(device).metadata.held(number) == 0
    shutil.rmtree(cloud, ignore_errors=True)
    assert_values(device)
    assert_readable(device, 2)
    assert_sound(device)
    device.reopen()
    assert number not in device.volume.engine.numbers
    assert_values(device)


def test_work_goes_on_while_values_move(device: Device) -> None:
    cloud, over = holder(device), threading.Event()
    kept = store(device)

    def work() -> int:
        rounds = 0
        while not over.is_set() or rounds < 2:
            rounds += 1
            for number in range(1, 7):
                kept.put(BOX, f"key{number}", value(number))
            kept.put(BOX, "key7", b"short-lived")
            kept.delete(BOX, "key7")
        return rounds

    worker = threading.Thread(target=work)
    worker.start()
    try:
        device.volume.clouds.drain(cloud.name)
        assert gone(device, cloud.name) == (True, "")
    finally:
        over.set()
        worker.join(PATIENCE)
    shutil.rmtree(cloud)
    assert_values(device)
    assert_sound(device)


STOPS: list[tuple[type, str]] = [(ValueMender, "rewrite"), (ValueMender, "_read_back")]


@pytest.mark.parametrize(("owner", "method"), STOPS, ids=["nothing moved", "only uploaded"])
def test_a_drain_of_values_goes_on_after_a_restart(
    device: Device, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    cloud = holder(device)
    tried = threading.Event()

    def failing(*_: object, **__: object) -> object:
        tried.set()
        raise OSError(28, "injected failure")

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, failing)
        device.volume.clouds.drain(cloud.name)
        assert tried.wait(PATIENCE)
        assert_values(device)
        assert any(cloud.name in job for job in device.volume.clouds.jobs())
        device.close()
    device.reopen()
    assert gone(device, cloud.name) == (True, "")
    assert objects(cloud) == []
    assert_values(device)
    assert_sound(device)


@pytest.mark.parametrize("code", [(1, 1), (1, 2)], ids=str)
def test_values_are_stored_as_f_and_k_say(tmp_path: Path, code: tuple[int, int]) -> None:
    device = Device(tmp_path, 6, *code)
    try:
        fill(device, 1)
        store(device).create_container(BOX)
        for number in range(3):
            store(device).put(BOX, f"key{number}", value(number))
        for f, k in ((2, 2), (1, 3), (2, 1)):
            device.volume.clouds.change_redundancy(f, k)
            assert rewritten(device) == (True, "")
            codes = {
                (one.entry.k, len(one.entry.placement))
                for one in store(device).metadata.values()
                if one.entry is not None
            }
            assert codes == {(k, f + k), (1, f + 1)}
            assert_values(device, 3)
            store(device).collector.collect()
            assert_sound(device)
    finally:
        device.close()


@pytest.mark.parametrize("harm", [Path.unlink, flip], ids=["missing", "corrupt"])
def test_scrub_and_repair_know_values(device: Device, harm: Callable[[Path], object]) -> None:
    store(device).collector.collect()
    cloud = holder(device)
    kind = "missing" if harm is Path.unlink else "corrupt"
    held = store(device).metadata.held(number_of(device, cloud))
    for path in objects(cloud):
        harm(path)
    facts = scrub(device)
    assert counts(facts, kind) == {cloud.name: held}
    assert all("kv/" in problem.what for problem in facts.problems)
    assert {one.where for one in device.fsck(clouds=True).problems} == {f"cloud {cloud.name}"}
    assert repair(device).repaired == held
    assert scrub(device).problems == []
    assert_sound(device)


def test_what_reads_find_wrong_of_values_heals_by_itself(device: Device) -> None:
    for path in objects(holder(device)):
        flip(path)
    upkeep = device.volume.engine.upkeep
    scrub(device)
    wrong = set(upkeep.wrong_objects())
    assert wrong and all(one.name.startswith("kv/") for one in wrong)
    store(device).delete(BOX, "key1")
    assert device.volume.maintenance.heal(wrong) == set()
    assert upkeep.wrong_objects() == []
    store(device).collector.collect()
    assert scrub(device).problems == []


def test_values_of_a_dead_cloud_are_repaired_elsewhere(device: Device) -> None:
    cloud = holder(device)
    shutil.rmtree(cloud)
    assert counts(scrub(device), "unreadable").keys() == {cloud.name}
    repair(device)
    assert store(device).metadata.held(number_of(device, cloud)) == 0
    assert_values(device)


def break_file(device: Device) -> None:
    (device.state / "kv.db").write_bytes(os.urandom(8192))
    for more in ("kv.db-wal", "kv.db-shm"):
        (device.state / more).unlink(missing_ok=True)


def test_a_damaged_store_is_named_and_keeps_nothing_else_from_being_repaired(device: Device) -> None:
    device.close()
    break_file(device)
    device.reopen()
    cloud = next(cloud for cloud in device.clouds if any(cloud.glob("packs/*/*")))
    for path in cloud.glob("packs/*/*"):
        path.unlink()
    facts = scrub(device)
    assert [one.what for one in facts.problems if one.cloud == "this machine"] != []
    assert counts(facts, "missing").keys() == {cloud.name}
    assert "key-value store" in {one.where for one in device.fsck().problems}
    done = repair(device)
    assert [one.cloud for one in done.problems] == ["this machine"]
    assert "kv.db" in done.problems[0].what
    assert done.repaired > 0
    assert [one.cloud for one in scrub(device).problems] == ["this machine"]
    assert_readable(device, 2)


def test_a_damaged_store_keeps_its_clouds_and_says_so(device: Device) -> None:
    device.close()
    break_file(device)
    device.reopen()
    device.volume.clouds.drain("cloud-0")
    while "kv.db" not in gone(device, "cloud-0", seconds=0.2)[1]:
        pass
    (device.state / "kv.db").unlink()
    assert gone(device, "cloud-0") == (True, "")
    assert_readable(device, 2)


def test_a_cloud_that_is_drained_has_its_name_in_reports(device: Device) -> None:
    cloud = holder(device)
    device.volume.transfers.pause(None)  # so that nothing is moved meanwhile
    device.volume.clouds.drain(cloud.name)
    for path in objects(cloud):
        path.unlink()
    facts = scrub(device)
    assert counts(facts, "missing").keys() == {cloud.name}
    assert {one.cloud for one in facts.problems} == {cloud.name}
    assert {one.where for one in device.fsck(clouds=True).problems} == {f"cloud {cloud.name}"}
