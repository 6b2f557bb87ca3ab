"""With 2f+k clouds, f may vanish or lie and nobody notices; with more gone, nothing hangs or is lost."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.system.clouds import DAMAGES, away, objects
from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import CLOUD_NAMES, Device
from tests.system.trees import Entry, make_tree, snapshot

CONFIGURATIONS = [(1, 1, 3), (1, 2, 4), (2, 1, 5)]
"""f, k and the number of clouds, 2f+k."""

_READ_SECONDS = 60.0
"""Longer than any timeout of ours: who needs more hangs."""


def _filled(device: Device) -> dict[bytes, Entry]:
    """Write in several batches, so that there are several packs; returns what must be read back."""
    for batch in range(3):
        make_tree(device.mountpoint / f"batch {batch}", seed=batch, files=20)
        device.sync()
    return snapshot(device.mountpoint)


def _forget_cache(device: Device) -> None:
    """Like `Device.forget` when everything is on the clouds already."""
    device.cache_drop()
    device.remount()


def _accused(device: Device) -> set[str]:
    """The clouds that `fsck --clouds` names; it must fail when it names one."""
    done = device.fsck(clouds=True)
    named = {name for name in CLOUD_NAMES if name in done.stdout + done.stderr}
    assert (done.returncode != 0) == bool(named), done.stdout + done.stderr
    return named


def test_healthy_clouds_are_not_accused(device: Device) -> None:
    _filled(device)
    assert _accused(device) == set()
    assert device.bad_clouds() == set()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("f", "k", "count"), CONFIGURATIONS)
def test_f_bad_clouds_are_named_and_harm_nothing(
    make_device: MakeDevice, f: int, k: int, count: int, damage: str
) -> None:
    device = make_device().create(count, f=f, k=k).mount()
    before = _filled(device)
    # The quicker ones hold more; two packs at least, or there is nothing to swap.
    holders = [cloud for cloud in device.clouds if len(objects(cloud / "packs")) > 1]
    first = list(DAMAGES).index(damage)  # so that every cloud has its turn
    victims = [holders[(first + turn) % len(holders)] for turn in range(f)]
    for victim in victims:
        DAMAGES[damage](victim)
    _forget_cache(device)

    assert snapshot(device.mountpoint) == before
    make_tree(device.mountpoint / "new", seed=99, files=20)
    device.sync()
    guilty = {victim.name for victim in victims}
    assert _accused(device) == guilty
    assert device.bad_clouds() == guilty
    before = snapshot(device.mountpoint)
    _forget_cache(device)
    assert snapshot(device.mountpoint) == before


@pytest.mark.parametrize(("f", "k", "count"), CONFIGURATIONS)
def test_any_f_clouds_may_be_gone(make_device: MakeDevice, f: int, k: int, count: int) -> None:
    device = make_device().create(count, f=f, k=k).mount()
    before = _filled(device)
    for gone in itertools.combinations(device.clouds, f):
        with away(*gone):
            _forget_cache(device)
            assert snapshot(device.mountpoint) == before, f"without {[cloud.name for cloud in gone]}"
    until(lambda: not device.bad_clouds(), "all clouds to be well again", 120)


def _shares_of_another(cloud: Path, other: Path) -> dict[Path, bytes]:
    """For objects of a cloud what another one has of the same packs, if it is another share."""
    others = {path.stem: path.read_bytes() for path in objects(other / "packs")}
    mine = {path: others[path.stem] for path in objects(cloud / "packs") if path.stem in others}
    return {path: share for path, share in mine.items() if path.read_bytes() != share}


def test_another_clouds_shares_are_not_taken_for_its_own(make_device: MakeDevice) -> None:
    """With erasure coding, a true share in the wrong place must not be decoded as another."""
    device = make_device().create(4, f=1, k=2).mount()
    before = _filled(device)
    # Three of the four have a share of each; which ones is a matter of their speed.
    liar, wrong = next(
        (liar, wrong)
        for liar, other in itertools.permutations(device.clouds, 2)
        if (wrong := _shares_of_another(liar, other))
    )
    for path, share in wrong.items():
        path.write_bytes(share)
    _forget_cache(device)
    assert snapshot(device.mountpoint) == before
    assert _accused(device) == {liar.name}


def _read_elsewhere(path: Path) -> subprocess.CompletedProcess[bytes]:
    """Read in a process of its own, so that a read that hangs does not hang the test."""
    return subprocess.run(["cat", path], capture_output=True, timeout=_READ_SECONDS)


@pytest.mark.parametrize("gone", [2, 3])
def test_more_than_f_gone_gives_errors_and_all_comes_back(make_device: MakeDevice, gone: int) -> None:
    device = make_device().create(3, f=1, k=1).mount()
    contents = {f"file{number}": os.urandom(200_000) for number in range(6)}
    for name, content in contents.items():
        (device.mountpoint / name).write_bytes(content)
        device.sync()  # a pack each, on different clouds
    _forget_cache(device)
    cached = device.mountpoint / "file0"
    assert cached.read_bytes() == contents["file0"]

    with away(*device.clouds[:gone]):
        outcomes = {name: _read_elsewhere(device.mountpoint / name) for name in contents}
        for name, outcome in outcomes.items():
            if outcome.returncode == 0:
                assert outcome.stdout == contents[name]
            else:
                assert os.strerror(errno.EIO).encode() in outcome.stderr
        assert outcomes["file0"].returncode == 0, "what is cached needs no cloud"
        if gone == 3:
            assert all(outcome.returncode for name, outcome in outcomes.items() if name != "file0")
        assert sorted(path.name for path in device.mountpoint.iterdir()) == sorted(contents)
        assert os.statvfs(device.mountpoint).f_namemax == 255
        contents["new"] = b"written meanwhile" * 1000
        with (device.mountpoint / "new").open("wb") as file:
            file.write(contents["new"])
            os.fsync(file.fileno())
        assert (device.mountpoint / "new").read_bytes() == contents["new"]
        until(
            lambda: device.bad_clouds() == {cloud.name for cloud in device.clouds[:gone]}, "them to be named"
        )
        assert device.attempt("sync", device.volume, "--wait", "--timeout", "2").returncode != 0

    def all_back() -> bool:
        return all(_read_elsewhere(device.mountpoint / name).stdout == it for name, it in contents.items())

    until(all_back, "all files to be readable again", 120)
    until(lambda: not device.bad_clouds(), "all clouds to be well again", 120)
    device.forget()
    assert all_back()


def test_invariant_11_a_hung_cloud_hangs_nothing(make_device: MakeDevice) -> None:
    """`df`, `ls`, `stat` never touch the network (rclone 7442, s3ql 100). The cloud is a stopped mount."""
    harbour = make_device("harbour").create(1, f=0, k=1).mount()
    device = make_device("device")
    plain = [device.root / name for name in CLOUD_NAMES[1:3]]
    for cloud in plain:
        cloud.mkdir()
    hung = harbour.mountpoint / CLOUD_NAMES[0]
    hung.mkdir()
    device.create([hung, *plain], f=1, k=1).mount()
    before = _filled(device)
    stopped = harbour.daemon_pid()
    os.kill(stopped, signal.SIGSTOP)
    try:
        device.cache_drop()
        facts = subprocess.run(
            ["sh", "-c", f"df {device.mountpoint}; ls -lR {device.mountpoint}"],
            capture_output=True,
            timeout=_READ_SECONDS,
        )
        assert facts.returncode == 0
        (device.mountpoint / "new").write_bytes(b"new" * 50_000)
        device.sync()
        assert _read_elsewhere(device.mountpoint / "new").stdout == b"new" * 50_000
        for path in before:
            where = device.mountpoint / os.fsdecode(path)
            if where.is_file() and not where.is_symlink():
                assert _read_elsewhere(where).returncode == 0
        until(lambda: device.bad_clouds() == {hung.name}, "the hung cloud to be named")
    finally:
        os.kill(stopped, signal.SIGCONT)
    device.forget()
    after = snapshot(device.mountpoint)
    assert after.pop(b"new").size == 150_000
    assert after == before
