"""A volume whose clouds come and go, over folders: nothing is lost by it, whatever happens meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

import pytest

from hybrisfs.clouds.drain import Drain
from hybrisfs.clouds.pack_repair import PackMender
from hybrisfs.clouds.redundancy import Recoder
from hybrisfs.clouds.segment_repair import SegmentMender
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.settings.config import VolumeConfig
from tests.adversary import WRITES, Fault, Kind
from tests.system.deadline import until
from tests.volume.device import NAME, PATIENCE, Device
from tests.volume.middlemen import faulty

_BIG = os.urandom(3 << 20)  # above the threshold of erasure coding


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path, clouds=5, f=1, k=2)
    fill(device, 3)
    yield device
    device.close()


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Device]:
    """A volume that keeps whole copies."""
    device = Device(tmp_path, clouds=4, f=1, k=1)
    fill(device, 3)
    yield device
    device.close()


def content(number: int) -> bytes:
    return bytes([number]) * 3000 if number else _BIG


def fill(device: Device, files: int) -> None:
    for number in range(files):
        device.write(f"file{number}", content(number))
        device.sync()


def shares(cloud: Path) -> list[Path]:
    return sorted(path for path in cloud.rglob("packs/*/*") if path.is_file())


def holder(device: Device, pattern: str = "packs/*/*") -> Path:
    """A cloud that holds such objects; which one is for the clouds' speed to decide."""
    return next(cloud for cloud in device.clouds if any(cloud.glob(pattern)))


def gone(device: Device, name: str, seconds: float = PATIENCE) -> tuple[bool, str]:
    return device.volume.clouds.wait(name, seconds, lambda done, total: None)


def assert_readable(device: Device, files: int = 3) -> None:
    device.sync()
    device.volume.drop_cache()
    for number in range(files):
        assert device.read(f"file{number}") == content(number)


def assert_sound(device: Device) -> None:
    assert device.fsck(clouds=True).problems == []
    assert {one.state for one in device.volume.engine.health()} == {"ok"}


def names(device: Device) -> list[object]:
    return [one.name for one in device.volume.clouds.all()]


def test_a_drained_cloud_is_empty_and_not_missed(device: Device) -> None:
    cloud = holder(device)
    device.volume.clouds.drain(cloud.name)
    assert gone(device, cloud.name) == (True, "")
    assert shares(cloud) == []
    assert cloud.name not in names(device)
    shutil.rmtree(cloud)
    assert_readable(device)
    assert_sound(device)
    device.reopen()
    assert_readable(device)
    assert cloud.name not in [one.name for one in VolumeConfig.load(device.home, NAME).clouds]


def test_a_removed_cloud_is_never_asked_and_not_missed(copies: Device) -> None:
    device, cloud = copies, holder(copies)
    before = sorted(cloud.rglob("*"))
    shutil.move(cloud, lost := cloud.with_name("lost"))
    device.volume.clouds.remove(cloud.name)
    assert gone(device, cloud.name) == (True, "")
    assert not cloud.exists()
    assert len(sorted(lost.rglob("*"))) == len(before)
    assert_readable(device)
    assert_sound(device)


def test_a_replaced_cloud_gives_all_to_others(device: Device, tmp_path: Path) -> None:
    new = tmp_path / "new"
    replaced = device.volume.clouds.replace("cloud-2", new.as_uri())
    assert (replaced.cloud, replaced.added) == ("cloud-2", "new")
    assert gone(device, "cloud-2") == (True, "")
    shutil.rmtree(device.clouds[2])
    assert_readable(device)
    device.write("later", os.urandom(2 << 20))
    device.sync()
    assert_sound(device)
    device.reopen()
    assert_readable(device)
    assert (new / "volume").exists() and (new / "signpost").exists()


def test_most_clouds_can_be_replaced(device: Device, tmp_path: Path) -> None:
    for number, cloud in enumerate(device.clouds[:3]):
        device.volume.clouds.replace(cloud.name, (tmp_path / f"new-{number}").as_uri())
        assert gone(device, cloud.name) == (True, "")
        shutil.rmtree(cloud)
    assert_readable(device)
    assert_sound(device)


def test_work_goes_on_while_a_cloud_is_drained(copies: Device) -> None:
    device = copies
    device.volume.clouds.drain("cloud-0")
    for number in range(3, 6):
        device.write(f"file{number}", content(number))
    device.sync()
    assert gone(device, "cloud-0") == (True, "")
    shutil.rmtree(device.clouds[0])
    assert_readable(device, 6)
    assert_sound(device)


def test_a_new_cloud_takes_part(device: Device, tmp_path: Path) -> None:
    new, config = tmp_path / "new", device.volume.config
    assert device.volume.clouds.add(new.as_uri(), "fresh").cloud == "fresh"
    assert "fresh" in names(device)
    away = device.clouds[config.f + config.k - 1 :]  # so that what is written now needs the new one
    for cloud in away:
        cloud.rename(cloud.with_suffix(".away"))
    device.write("more", os.urandom(2 << 20))
    device.sync()
    for cloud in away:
        cloud.with_suffix(".away").rename(cloud)
    assert shares(new)
    assert "fresh" in [one.name for one in VolumeConfig.load(device.home, NAME).clouds]


def test_too_few_clouds_do_not_let_one_go(device: Device) -> None:
    config = device.volume.config
    for cloud in device.clouds[2 * config.f + config.k :]:
        device.volume.clouds.drain(cloud.name)
        assert gone(device, cloud.name) == (True, "")
    with pytest.raises(UsageError, match=r"only . clouds would be left"):
        device.volume.clouds.drain("cloud-0")


def test_places_that_are_not_free_are_refused(device: Device, tmp_path: Path) -> None:
    other = Device(tmp_path / "other", clouds=1, f=0)
    other.close()
    alias = tmp_path / "alias"
    alias.symlink_to(device.clouds[0])
    for url, why in [
        (other.clouds[0].as_uri(), "another volume"),
        (device.clouds[0].as_uri(), "already"),
        (alias.as_uri(), "same place as the cloud cloud-0"),
        ("file:relative", "cannot be used"),
        ("gopher://x", "cannot be used"),
    ]:
        with pytest.raises(HybrisError, match=why):
            device.volume.clouds.add(url, None)
    assert len(names(device)) == len(device.clouds)


# -- what goes wrong meanwhile --------------------------------------------------------------------


def fail(_: Callable[..., object]) -> Callable[..., object]:
    def failing(*arguments: object, **named: object) -> object:
        raise OSError(28, "injected failure")

    return failing


def then_fail(action: Callable[..., object]) -> Callable[..., object]:
    def failing(*arguments: object, **named: object) -> object:
        action(*arguments, **named)
        raise OSError(28, "injected failure")

    return failing


STOPS = [
    (PackMender, "move", "packs/*/*", fail),
    (SegmentMender, "move", "log/*/*", fail),
    (Drain, "clear", "packs/*/*", fail),
    (Drain, "clear", "packs/*/*", then_fail),
]


@pytest.mark.parametrize(
    "stop", STOPS, ids=["no pack moved", "no segment moved", "nothing removed", "all removed"]
)
def test_a_drain_goes_on_after_a_restart(
    device: Device, monkeypatch: pytest.MonkeyPatch, stop: tuple[type, str, str, Callable[..., object]]
) -> None:
    kind, name, pattern, wrap = stop
    cloud = holder(device, pattern)
    with monkeypatch.context() as patch:
        patch.setattr(kind, name, wrap(getattr(kind, name)))
        device.volume.clouds.drain(cloud.name)
        assert not gone(device, cloud.name, seconds=0.7)[0]
        assert_readable(device)
        device.close()
    device.reopen()
    assert gone(device, cloud.name) == (True, "")
    assert shares(cloud) == []
    shutil.rmtree(cloud)
    assert_readable(device)
    assert_sound(device)


LIES: list[Kind] = ["lose", "corrupt", "swap", "vanish", "mislist", "fail"]


@pytest.mark.parametrize("liar", [0, 1], ids=["drained", "another"])
def test_a_drain_beside_a_liar(tmp_path: Path, liar: int) -> None:
    """Whatever one cloud does, the one that is drained or one that gets its shares, nothing is lost."""
    for count, lie in enumerate(LIES):
        device = Device(tmp_path / str(count), clouds=4)
        try:
            fill(device, 3)
            faulty(device, device.clouds[liar]).faults = [Fault(lie, rate=0.7)]
            device.volume.clouds.drain("cloud-0")
            if lie != "fail" or liar:
                assert gone(device, "cloud-0") == (True, ""), lie
            else:
                assert not gone(device, "cloud-0", seconds=0.5)[0]
                device.volume.clouds.remove("cloud-0")
                assert gone(device, "cloud-0") == (True, "")
            device.clouds[liar].rename(device.clouds[liar].with_suffix(".away"))
            assert_readable(device)
        finally:
            device.close()


def test_a_drain_moves_what_only_a_pack_holds_that_was_lost_for_a_while(tmp_path: Path) -> None:
    """What was here of it was packed again, and the rest is read from it since it is back."""
    device = Device(tmp_path, clouds=4, f=1, k=1)
    try:
        for name in ("here", "elsewhere"):
            device.write(name, name.encode() * 2000)
        device.sync()
        [drained, other] = [path for cloud in device.clouds for path in shares(cloud)]
        device.volume.content.evict(PurePath("elsewhere"))
        for share in (drained, other):
            share.rename(share.with_suffix(".away"))
        device.volume.maintenance.repair(lambda stage, done, total: None)
        for share in (drained, other):
            share.with_suffix(".away").rename(share)
        device.volume.maintenance.repair(lambda stage, done, total: None)
        device.sync()
        cloud = drained.parents[2]
        full = [faulty(device, one) for one in device.clouds if one != cloud]
        for one in full:
            one.faults = [Fault("fail", operations=WRITES, prefix="packs/")]
        device.volume.clouds.drain(cloud.name)
        done, why = gone(device, cloud.name, seconds=0.7)
        assert drained.exists() and not done and "injected" in why
        for one in full:
            one.faults = []
        assert gone(device, cloud.name) == (True, "")
        shutil.rmtree(other.parents[2])
        device.volume.drop_cache()
        assert device.read("elsewhere") == b"elsewhere" * 2000
    finally:
        device.close()


def test_a_dead_cloud_cannot_be_drained_and_says_so(copies: Device) -> None:
    device = copies
    shutil.rmtree(device.clouds[0])
    device.volume.clouds.drain("cloud-0")
    while not (trouble := gone(device, "cloud-0", seconds=0.2)[1]):
        pass
    assert "hybrisfs cloud remove" in trouble
    assert any("hybrisfs cloud remove" in job for job in device.volume.clouds.jobs())
    device.volume.clouds.remove("cloud-0")
    assert gone(device, "cloud-0") == (True, "")
    assert_readable(device)
    assert_sound(device)


# -- f and k --------------------------------------------------------------------------------------


def codes(device: Device) -> set[tuple[int, int]]:
    """k and n of the packs that something is read from."""
    with device.volume.fs.state.transaction() as tx:
        rows = tx.execute("SELECT k, n FROM pack WHERE number IN (SELECT pack FROM chunk)")
        return set(rows.fetchall())


def rewritten(device: Device, seconds: float = PATIENCE) -> tuple[bool, str]:
    return device.volume.clouds.wait_rewritten(seconds, lambda done, total: None)


CHANGES = [(5, (1, 1), (2, 1)), (5, (2, 1), (1, 3)), (4, (1, 2), (1, 1))]


@pytest.mark.parametrize(("clouds", "before", "now"), CHANGES, ids=str)
def test_what_is_stored_is_written_anew(
    tmp_path: Path, clouds: int, before: tuple[int, int], now: tuple[int, int]
) -> None:
    device = Device(tmp_path, clouds, *before)
    try:
        fill(device, 3)
        device.volume.drop_cache()
        changed = device.volume.clouds.change_redundancy(*now)
        assert (changed.f, changed.k) == now
        assert rewritten(device) == (True, "")
        device.write("file3", content(3))
        device.sync()
        f, k = now
        assert codes(device) == {(k, f + k), (1, f + 1)}
        with device.volume.fs.state.transaction() as tx:
            segments = tx.execute("SELECT min(length(placement)) FROM log_segment")
            assert segments.fetchone()[0] >= f + k
        assert_sound(device)
        device.reopen()
        device.volume.drop_cache()
        for cloud in device.clouds[:f]:
            cloud.rename(cloud.with_suffix(".away"))
        for number in range(4):
            assert device.read(f"file{number}") == content(number)
    finally:
        device.close()


def test_a_segment_that_was_on_its_way_when_f_changed_gets_more_copies(tmp_path: Path) -> None:
    device = Device(tmp_path, 5, 1, 1)
    try:
        fill(device, 2)
        device.volume.clouds.change_redundancy(2, 1)
        assert rewritten(device) == (True, "")
        device.sync()
        with device.volume.fs.state.transaction() as tx:  # it is recorded later than all was looked at
            newest = tx.segments.newest()
            assert newest is not None
            tx.segments.move(newest.name, newest.placement[:2])
        device.volume.clouds.rename(device.clouds[0].name, "first")  # so that they are looked after

        def has_copies() -> bool:
            with device.volume.fs.state.transaction() as tx:
                return all(len(one.placement) >= 3 for one in tx.segments.after())

        until(has_copies, "the segment to have as many copies as the others")
        assert_sound(device)
    finally:
        device.close()


def test_rewriting_goes_on_after_a_restart(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Recoder, "_record", fail(Recoder._record))
        f, k = device.volume.config.f, device.volume.config.k
        device.volume.clouds.change_redundancy(f, k + 1)
        assert not rewritten(device, 0.7)[0]
        assert_readable(device)
        device.close()
    device.reopen()
    assert rewritten(device) == (True, "")
    assert codes(device) == {(k + 1, f + k + 1), (1, f + 1)}
    assert_readable(device)
    assert_sound(device)


def test_what_is_read_as_its_pack_ends_comes_from_the_one_that_has_it_now(tmp_path: Path) -> None:
    device = Device(tmp_path, 5, 1, 1)
    try:
        fill(device, 2)
        device.volume.drop_cache()
        with device.volume.fs.state.transaction() as tx:
            numbers = [number for (number,) in tx.execute("SELECT number FROM chunk").fetchall()]
            before = [tx.chunks.get(number) for number in numbers]
        device.volume.clouds.change_redundancy(2, 1)
        assert rewritten(device) == (True, "")
        with device.volume.fs.state.transaction() as tx:
            for pack in [tx.packs.of_chunk(ref) for ref in before]:
                tx.chunks.end_pack(pack.id, *pack.stamp)
        device.volume.fetcher.prove(numbers)
        assert all(device.volume.fetcher.peek([ref]) for ref in before)
        assert set(device.volume.fetcher.fetch(before)) == set(numbers)
    finally:
        device.close()


def test_codes_that_the_clouds_are_too_few_for_are_refused(device: Device) -> None:
    with pytest.raises(UsageError, match="too few for f=2"):
        device.volume.clouds.change_redundancy(2, 2)
    assert device.volume.config.f == 1
