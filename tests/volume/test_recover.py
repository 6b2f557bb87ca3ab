"""All devices are lost: a volume is recovered from clouds and a passphrase."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Barrier
from unittest import mock

import pytest

from backends.folder import MARKER
from hybrisfs.admit.recover import Recovered
from hybrisfs.admit.reserve_log import ReserveLog
from hybrisfs.bounded import in_parallel
from hybrisfs.errors import UsageError
from hybrisfs.home import Home
from hybrisfs.recovery import sealed_key
from hybrisfs.recovery.sealed_key import Cost, RecoveryError
from tests.volume.device import Device
from tests.volume.recovery_rig import First, New, Second, has, kit_of, recover, waits

CONTENT = os.urandom(50_000)

Opens = Callable[[Home], New]


@pytest.fixture
def first(tmp_path: Path) -> Iterator[First]:
    """A device with a kit and a file that was written after it was made."""
    device = First(tmp_path / "first")
    device.make_kit()
    device.write("file", CONTENT)
    device.sync()
    yield device
    device.close()


@pytest.fixture
def opens(first: First) -> Iterator[Opens]:
    """Open what was recovered."""
    with ExitStack() as stack:

        def open_(home: Home) -> New:
            new = New(home, first.clouds)
            stack.callback(new.close)
            return new

        yield open_


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.below(tmp_path / "new machine")


def lose(device: Device) -> None:
    device.close()
    shutil.rmtree(device.home.state.parent)


def files(home: Home) -> set[Path]:
    return {path for folder in (home.state, home.config) for path in folder.rglob("*") if path.is_file()}


def kit_in(device: First) -> str:
    [path] = (device.clouds[0] / "recovery").iterdir()
    return path.name


def names(device: Device) -> set[str]:
    return {str(one.name) for one in device.volume.devices()}


def test_clouds_and_passphrase_bring_everything_back(first: First, home: Home, opens: Opens) -> None:
    old_name = first.volume.sharing.membership.own_name
    lose(first)
    done = recover(home, first.clouds)
    assert (done.missing, done.agreed) == ((), True)
    new = opens(home)
    waits(new, lambda: has(new, "file"))
    assert new.read("file") == CONTENT
    new.write("more", CONTENT[::-1])
    new.sync()
    assert names(new) == {"new", old_name}
    assert kit_of(new).used
    waits(new, lambda: kit_of(new).complete)  # it tells of the new device, too
    assert new.fsck(clouds=True).problems == []
    assert "suspect" not in str([one for one in new.volume.devices() if one.suspect])


def test_one_cloud_leads_to_the_others(first: First, home: Home, opens: Opens) -> None:
    lose(first)
    done = recover(home, first.clouds[1:2])
    assert done.missing == () and done.agreed
    assert [one.url for one in done.config.clouds] == [one.as_uri() for one in first.clouds]


def test_a_wrong_passphrase_changes_nothing(first: First, home: Home) -> None:
    lose(first)
    before = {
        path: path.read_bytes() for cloud in first.clouds for path in cloud.rglob("*") if path.is_file()
    }
    with pytest.raises(RecoveryError, match="the passphrase is wrong"):
        recover(home, first.clouds, "correct horse battery stable")
    assert files(home) == set()
    assert before == {
        path: path.read_bytes() for cloud in first.clouds for path in cloud.rglob("*") if path.is_file()
    }


def test_with_a_cloud_lost_it_goes_on_and_with_more_it_says_which(
    first: First, home: Home, opens: Opens
) -> None:
    lose(first)
    shutil.rmtree(first.clouds[0])
    shutil.move(first.clouds[1], first.clouds[1].with_name("elsewhere"))
    with pytest.raises(RecoveryError) as refused:
        recover(home, first.clouds)
    assert "2 of the 3 clouds" in str(refused.value)
    assert all(str(one) in str(refused.value) for one in first.clouds[:2])
    assert str(first.clouds[2]) not in str(refused.value)
    assert files(home) == set()
    shutil.move(first.clouds[1].with_name("elsewhere"), first.clouds[1])
    done = recover(home, first.clouds[1:])
    assert done.missing == (first.clouds[0].as_uri(),) and done.agreed
    new = opens(home)
    waits(new, lambda: has(new, "file"))
    assert new.read("file") == CONTENT


def test_when_more_is_lost_for_good_what_there_is_comes_back(first: First, home: Home, opens: Opens) -> None:
    lose(first)
    for cloud in first.clouds[:2]:
        shutil.rmtree(cloud)
    done = recover(home, first.clouds[2:], incomplete=True)
    assert len(done.missing) == 2 and not done.agreed
    shutil.rmtree(first.clouds[2])
    with pytest.raises(RecoveryError, match="no recovery kit was found"):
        recover(Home.below(home.state.parent.with_name("third")), first.clouds, incomplete=True)


def test_an_old_kit_on_some_clouds_is_good_enough(
    first: First, home: Home, opens: Opens, tmp_path: Path
) -> None:
    kit = kit_in(first)
    old = (first.clouds[0] / "recovery" / kit).read_bytes()
    second = Second(tmp_path / "second", first)
    waits(second, lambda: has(second, "file"))
    first.volume.remove_device("second")  # another epoch
    second.close()
    first.write("after", CONTENT[::-1])
    first.sync()
    waits(first, lambda: kit_of(first).complete)
    lose(first)
    for cloud in first.clouds:
        (cloud / "recovery" / kit).write_bytes(old)  # rolled back on all, which nobody can notice
    assert recover(home, first.clouds).agreed
    new = opens(home)
    waits(new, lambda: has(new, "after"))
    assert new.read("after") == CONTENT[::-1]
    waits(new, lambda: "second" not in names(new))
    assert new.volume.ring.is_fit and len(new.volume.ring.newest.excluded) == 1


def test_used_twice_each_machine_is_a_device_of_its_own(first: First, tmp_path: Path, opens: Opens) -> None:
    lose(first)
    homes = [Home.below(tmp_path / name) for name in ("one", "two")]
    for home, name in zip(homes, ("one", "two"), strict=True):
        recover(home, first.clouds, own_name=name)
    both_work(*(opens(home) for home in homes))


def test_two_machines_recover_at_the_same_moment(first: First, tmp_path: Path, opens: Opens) -> None:
    lose(first)
    homes = [Home.below(tmp_path / name) for name in ("one", "two")]
    barrier, admit = Barrier(2), ReserveLog.admit

    def admit_both(log: ReserveLog, member: object) -> tuple[str, bytes]:
        barrier.wait(60)  # neither has seen what the other does
        return admit(log, member)  # type: ignore[arg-type]

    def run(number: int) -> Recovered:
        return recover(homes[number], first.clouds, own_name=("one", "two")[number])

    with mock.patch.object(ReserveLog, "admit", admit_both):
        list(in_parallel((partial(run, number) for number in range(2)), 2, "machine"))
    both_work(*(opens(home) for home in homes))


def both_work(one: New, two: New) -> None:
    for device, other in ((one, two), (two, one)):
        waits(device, partial(knows_both, device))
        name = f"of {device.volume.sharing.device.hex()}"
        device.write(name, CONTENT)
        device.sync()
        waits(other, partial(has, other, name))
    assert one.volume.sharing.device != two.volume.sharing.device
    for device in (one, two):
        assert not [found for found in device.volume.devices() if found.forked]
        assert device.fsck(clouds=True).problems == []


def knows_both(device: Device) -> bool:
    return {"one", "two"} <= names(device)


def test_a_device_that_was_not_lost_after_all_goes_on_with_the_new_one(
    first: First, home: Home, opens: Opens
) -> None:
    first.write("not yet there", CONTENT)
    first.close()
    recover(home, first.clouds)
    new = opens(home)
    waits(new, lambda: has(new, "file"))
    new.write("of the new one", CONTENT)
    new.sync()
    first.reopen()
    waits(first, lambda: has(first, "of the new one"))
    waits(new, lambda: has(new, "not yet there"))
    assert names(first) == names(new)
    assert kit_of(first).used


def test_after_one_recovery_comes_the_next(first: First, tmp_path: Path, opens: Opens) -> None:
    kit, lost = kit_in(first), first.volume.sharing.device.hex()
    lose(first)
    homes = [Home.below(tmp_path / name) for name in ("one", "two")]
    recover(homes[0], first.clouds, own_name="one")
    one = opens(homes[0])
    waits(one, lambda: has(one, "file"))
    one.volume.recovery.cost = Cost(1, 8)
    assert one.volume.recovery.make("another passphrase").complete
    one.volume.recovery.remove(kit)
    one.volume.remove_device(lost)
    one.write("with new keys", CONTENT)
    one.sync()
    waits(one, lambda: kit_of(one).complete)
    lose(one)
    with pytest.raises(RecoveryError, match="the passphrase is wrong"):
        recover(homes[1], first.clouds)
    recover(homes[1], first.clouds, "another passphrase", own_name="two")
    two = opens(homes[1])
    waits(two, lambda: has(two, "with new keys"))
    assert two.read("file") == two.read("with new keys") == CONTENT
    waits(two, lambda: names(two) == {"one", "two"})
    assert two.fsck(clouds=True).problems == []


def test_a_removed_kit_recovers_nothing(first: First, home: Home) -> None:
    first.volume.recovery.remove(kit_in(first))
    with pytest.raises(RecoveryError, match="no recovery kit was found"):
        recover(home, first.clouds)


def test_hostile_kits_cost_a_bounded_number_of_tries_and_hide_nothing(first: First, home: Home) -> None:
    kit = kit_in(first)
    true = (first.clouds[0] / "recovery" / kit).read_bytes()
    for number in range(40):
        made_up = bytearray(true)
        made_up[6:22] = bytes([number]) * 16
        made_up[40] ^= 1
        (first.clouds[0] / "recovery" / made_up[6:22].hex()).write_bytes(made_up)
    (first.clouds[0] / "recovery" / "nonsense").write_bytes(b"x")
    (first.clouds[0] / "recovery" / ("f" * 32)).write_bytes(os.urandom(100))
    lose(first)
    with mock.patch.object(sealed_key, "_stretch", wraps=sealed_key._stretch) as stretch:
        recover(home, first.clouds)
    assert stretch.call_count <= 16


def test_what_is_here_already_is_not_recovered_over(first: First, home: Home) -> None:
    with pytest.raises(UsageError, match="has the volume already"):
        recover(first.home, first.clouds)
    recover(home, first.clouds)
    with pytest.raises(UsageError, match="has the volume already"):
        recover(home, first.clouds)


def test_when_the_clouds_take_nothing_nothing_stays_behind(first: First, home: Home) -> None:
    lose(first)
    for cloud in first.clouds:  # where what is put is written at first
        (cloud / MARKER).rmdir()
        (cloud / MARKER).touch()
    with pytest.raises(RecoveryError, match="take nothing"):
        recover(home, first.clouds)
    assert files(home) == set()
    for cloud in first.clouds:
        (cloud / MARKER).unlink()
        (cloud / MARKER).mkdir()
    recover(home, first.clouds)
