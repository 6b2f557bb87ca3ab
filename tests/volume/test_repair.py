"""Scrub and repair of a real volume over folders that lose, damage and refuse things."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hybrisfs.api.maintenance import Repair, Scrub
from hybrisfs.errors import HybrisError
from hybrisfs.registers.tree import PackRecord, pack_key
from sync import decode_signed
from tests.adversary import WRITES, Fault
from tests.tree.unlocked import unlocked
from tests.volume.device import Device
from tests.volume.middlemen import faulty

CODES = [(1, 1, 4), (1, 2, 4)]  # f, k, clouds


@pytest.fixture(params=CODES, ids=lambda code: f"f{code[0]}k{code[1]}")
def device(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Device]:
    f, k, clouds = request.param
    device = Device(tmp_path, clouds=clouds, f=f, k=k)
    for number in range(3):
        device.write(f"file{number}", content(number))
        device.sync()
    yield device
    device.close()


def content(number: int) -> bytes:
    return bytes([number]) * 3000 if number else _BIG


_BIG = os.urandom(3 << 20)  # above the threshold of erasure coding


def quiet(stage: str, done: int, total: int) -> None:
    assert 0 <= done <= total


def scrub(device: Device, percent: float = 100.0) -> Scrub:
    return device.volume.maintenance.scrub(percent, quiet).facts()


def repair(device: Device) -> Repair:
    return device.volume.maintenance.repair(quiet).facts()


def objects(cloud: Path) -> list[Path]:
    return sorted(path for path in cloud.rglob("*") if path.is_file())


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def wipe(cloud: Path) -> None:
    for path in objects(cloud):
        path.unlink()


def damage(cloud: Path) -> None:
    for path in objects(cloud):
        flip(path)


def truncate(cloud: Path) -> None:
    for path in objects(cloud):
        os.truncate(path, path.stat().st_size // 2)


def assert_healthy(device: Device) -> None:
    facts = scrub(device)
    assert facts.problems == []
    assert device.fsck(clouds=True).problems == []
    assert {one.state for one in device.volume.engine.health()} == {"ok"}


def assert_survives_any_other(device: Device, *but: Path) -> None:
    """Everything is read back though one more cloud is gone."""
    for cloud in device.clouds:
        if cloud not in but:
            away = cloud.rename(cloud.with_suffix(".away"))
            device.volume.drop_cache()
            for number in range(3):
                assert device.read(f"file{number}") == content(number)
            away.rename(cloud)


def owed(device: Device, cloud: Path) -> int:
    """How many objects a cloud has acknowledged. It may have more: what came after another one stood in."""
    number = device.volume.config.clouds[device.clouds.index(cloud)].number
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        placements = tx.execute(
            "SELECT placement FROM pack UNION ALL SELECT placement FROM log_segment"
        ).fetchall()
    return 2 + sum(number in placement for (placement,) in placements)  # marker and head


def counts(facts: Scrub | Repair, kind: str) -> dict[str, int]:
    return {one.name: getattr(one, kind) for one in facts.clouds if getattr(one, kind)}


def test_a_cloud_that_has_just_come_back_is_asked(device: Device) -> None:
    away = device.clouds[0].rename(device.clouds[0].with_suffix(".away"))
    for _ in range(5):  # each time it fails, it would be longer until it is asked again
        assert counts(scrub(device), "unreadable") == {device.clouds[0].name: owed(device, device.clouds[0])}
    away.rename(device.clouds[0])
    assert scrub(device).problems == []
    away = device.clouds[0].rename(away)
    assert device.fsck(clouds=True).problems
    away.rename(device.clouds[0])
    assert device.fsck(clouds=True).problems == []


def test_healthy_clouds_are_left_alone(device: Device) -> None:
    facts = scrub(device)
    assert facts.wrong == 0
    assert all(one.checked >= 2 for one in facts.clouds)
    before = {path: path.stat().st_mtime_ns for cloud in device.clouds for path in objects(cloud)}
    assert repair(device).repaired == 0
    after = {path: path.stat().st_mtime_ns for cloud in device.clouds for path in objects(cloud)}
    assert after == before


@pytest.mark.parametrize(("harm", "kind"), [(wipe, "missing"), (damage, "corrupt"), (truncate, "corrupt")])
def test_a_cloud_that_lost_everything_is_named_and_healed(
    device: Device, harm: Callable[[Path], None], kind: str
) -> None:
    victim = max(device.clouds, key=lambda cloud: len(objects(cloud)))
    lost = owed(device, victim)
    harm(victim)
    facts = scrub(device)
    assert counts(facts, kind) == {victim.name: lost}
    assert facts.wrong == lost
    assert {problem.cloud for problem in facts.problems} == {victim.name}
    done = repair(device)
    assert done.failed == 0
    assert counts(done, "repaired") == {victim.name: lost}
    assert len(objects(victim)) >= lost
    assert_healthy(device)
    assert_survives_any_other(device)


def test_shares_of_a_dead_cloud_go_to_another_and_that_is_signed(device: Device) -> None:
    dead = max(device.clouds, key=lambda cloud: len(objects(cloud / "packs")))
    shutil.rmtree(dead)
    number = device.volume.config.clouds[device.clouds.index(dead)].number
    facts = scrub(device)
    assert set(counts(facts, "unreadable")) == {dead.name}
    done = repair(device)
    assert counts(done, "moved")[dead.name] > 0
    assert set(counts(done, "failed")) == {dead.name}  # its marker and head
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        packs = tx.execute("SELECT id, placement FROM pack").fetchall()
        segments = tx.execute("SELECT placement FROM log_segment").fetchall()
    assert all(number not in placement for _, placement in packs)
    assert all(number not in placement for (placement,) in segments)
    for identity, placement in packs:
        assert len(set(placement)) == len(placement)
        assert signed_placement(device, identity) == placement
    device.sync()
    assert device.fsck().problems == []
    device.reopen()
    assert_survives_any_other(device, dead)


def signed_placement(device: Device, pack: bytes) -> bytes:
    """The placement in the newest own update of a pack's register."""
    updates = unlocked(device.volume.fs).updates
    with device.volume.fs.state.transaction():
        tip = updates.own_tip()
        assert tip is not None
        found = b""
        for data in updates.own_between(0, tip.clock):
            found = _placements(data).get(pack_key(pack), found)
    return found


def _placements(update: bytes) -> dict[bytes, bytes]:
    return {
        key: PackRecord.decode(value).placement
        for key, value in decode_signed(update).writes
        if key[:1] == b"k" and value is not None
    }


def test_a_place_that_another_volume_marked_is_not_written_to(device: Device, tmp_path: Path) -> None:
    other = Device(tmp_path / "other", clouds=1, f=0, k=1)
    other.close()
    victim = fullest(device)
    wipe(victim)
    shutil.copy(other.clouds[0] / "volume", victim / "volume")
    done = repair(device)
    assert objects(victim) == [victim / "volume"]
    assert any("another volume" in problem.why for problem in done.problems)


def test_what_nobody_can_rebuild_is_said(device: Device) -> None:
    device.volume.drop_cache()
    for cloud in device.clouds:
        for path in (cloud / "packs").rglob("*.0"):
            path.unlink()
        for path in (cloud / "packs").rglob("*.1"):
            path.unlink()
    done = repair(device)
    assert done.failed > 0
    assert all("too little of pack" in problem.why for problem in done.problems)
    assert scrub(device).wrong == done.failed
    assert device.fsck(clouds=True).problems


def fullest(device: Device) -> Path:
    """The cloud that holds most packs; some may hold none."""
    return max(device.clouds, key=lambda cloud: len(objects(cloud / "packs")))


def test_lost_log_segments_are_written_anew_from_the_log(device: Device) -> None:
    for cloud in device.clouds:
        shutil.rmtree(cloud / "log", ignore_errors=True)
    assert repair(device).failed == 0
    assert_healthy(device)


def test_an_old_head_is_stale_but_no_lie(device: Device) -> None:
    (head,) = (device.clouds[0] / "heads").iterdir()
    old = head.read_bytes()
    device.write("new", b"new")
    device.sync()
    head.write_bytes(old)
    facts = scrub(device)
    assert counts(facts, "stale") == {device.clouds[0].name: 1}
    assert {one.state for one in device.volume.engine.health()} == {"ok"}
    assert repair(device).failed == 0
    assert_healthy(device)


def test_what_reads_find_wrong_heals_by_itself(device: Device) -> None:
    victim = fullest(device)
    for path in objects(victim / "packs"):
        flip(path)
    assert scrub(device).wrong > 0  # as reads would, it tells the cloud's health
    wrong = device.volume.engine.upkeep.wrong_objects()
    assert device.volume.maintenance.heal(wrong) == set()
    assert_healthy(device)


def test_what_is_wrong_again_is_moved_to_another_cloud(device: Device) -> None:
    """A cloud that acknowledges what is put back and does not keep it."""

    def placements() -> list[bytes]:
        with device.volume.fs.state.transaction() as tx:
            rows = tx.execute("SELECT placement FROM pack").fetchall()
        return [placement for (placement,) in rows]

    def held() -> int:
        return sum(number in placement for placement in placements())

    number = placements()[0][0]
    name = next(one.name for one in device.volume.config.clouds if one.number == number)
    victim = next(path for path in device.clouds if path.name == name)
    before = held()
    faulty(device, victim).faults = [Fault("lose", operations=WRITES)]
    for path in objects(victim / "packs"):
        flip(path)
    scrub(device)
    wrong = device.volume.engine.upkeep.wrong_objects()
    assert device.volume.maintenance.heal(wrong) == set(wrong)
    assert held() == before
    assert device.volume.maintenance.heal(wrong) == set()
    assert held() == 0
    assert_healthy(device)


def test_a_cloud_without_its_marker_is_not_healed_unasked(device: Device) -> None:
    victim = fullest(device)
    wipe(victim)
    assert scrub(device).wrong > 0
    wrong = device.volume.engine.upkeep.wrong_objects()
    assert device.volume.maintenance.heal(wrong) == set(wrong)
    assert objects(victim) == []


def test_repair_can_be_interrupted_and_run_again(device: Device) -> None:
    victim = fullest(device)
    for path in objects(victim / "packs"):
        path.unlink()

    def hang_up(stage: str, done: int, total: int) -> None:
        if stage == "packs" and done == 1:
            raise ConnectionError("the client is gone")

    with pytest.raises(ConnectionError):
        device.volume.maintenance.repair(hang_up)
    device.reopen()
    assert repair(device).failed == 0
    assert_healthy(device)


def test_one_at_a_time(device: Device) -> None:
    def again(stage: str, done: int, total: int) -> None:
        with pytest.raises(HybrisError, match="under way already"):
            repair(device)

    device.volume.maintenance.scrub(100.0, again)


def test_a_sample_reads_less(device: Device) -> None:
    whole = sum(one.checked for one in scrub(device).clouds)
    least = sum(one.checked for one in scrub(device, 1e-9).clouds)
    packs, _ = device.volume.maintenance.objects.expected.counts()
    assert whole >= least + packs
