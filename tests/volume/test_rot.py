"""Bits that flip on this disk: found out, mended from the clouds where they can be, never shown."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hybrisfs.dispersal.errors import DispersalError
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError, HybrisError
from hybrisfs.volume.volume import Volume
from tests.volume.device import NAME, Device

SEEDS = range(4)


@contextmanager
def _clouds_away(device: Device) -> Iterator[None]:
    away = [cloud.rename(cloud.with_name(f"{cloud.name} away")) for cloud in device.clouds]
    yield
    for cloud, folder in zip(device.clouds, away, strict=True):
        folder.rename(cloud)


def _contents(choose: random.Random, names: str) -> dict[str, bytes]:
    return {f"{names} {number}": choose.randbytes(choose.randint(1000, 9000)) for number in range(25)}


def _flip(path: Path, choose: random.Random, bits: int) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(bits):
        content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("seed", SEEDS)
def test_rotten_cache_is_fetched_anew(device: Device, seed: int) -> None:
    choose = random.Random(seed)
    contents = _contents(choose, "cached")
    for name, content in contents.items():
        device.write(name, content)
    device.sync()
    device.close()
    for segment in (device.state / "journal").iterdir():
        _flip(segment, choose, 12)
    device.reopen()
    assert {name: device.read(name) for name in contents} == contents
    problems = device.fsck().problems
    assert not problems, "what was read is whole again"


@pytest.mark.parametrize("seed", SEEDS)
def test_rot_of_what_no_cloud_has_costs_those_files_alone_and_is_told(device: Device, seed: int) -> None:
    choose = random.Random(seed)
    contents = _contents(choose, "pending")
    with _clouds_away(device):
        for name, content in contents.items():
            device.write(name, content)
        assert not device.volume.sync(2.0, lambda done, total: None)
        with device.volume.fs.state.transaction() as tx:
            staged = tx.execute("SELECT count(*) FROM extent").fetchone()[0]
        assert not staged, "all has been cut into chunks"
        device.close()
        [segment] = (device.state / "journal").iterdir()
        _flip(segment, choose, 3)
        device.reopen()
        bad = set()
        for name, content in contents.items():
            try:
                assert device.read(name) == content
            except OSError:
                bad.add(name)
        assert 1 <= len(bad) <= 3
    device.sync()  # the others are not held up
    lost = [problem.what for problem in device.fsck().problems if problem.severity == "error"]
    assert len(lost) == len(bad)
    assert all(any(f"data of {name} is lost" in what for what in lost) for name in bad)
    [warning] = [one for one in device.volume.status().warnings if "damaged" in one]
    assert warning.startswith(f"{len(bad)} pieces of files are damaged on this disk")
    for name in bad:  # a new version is as good as ever
        device.write(name, contents[name])
    device.sync()
    device.volume.drop_cache()
    assert {name: device.read(name) for name in contents} == contents


@pytest.mark.parametrize("seed", range(12))
def test_rotten_pages_of_the_database_never_show_wrong_bytes(device: Device, seed: int) -> None:
    """It opens or says what to do; a file is read right or not at all."""
    choose = random.Random(seed)
    contents = _contents(choose, "file")
    for name, content in contents.items():
        device.write(name, content)
    device.sync()
    device.close()
    _flip(device.state / "volume.db", choose, 2 ** (seed % 6))
    try:
        device.reopen()
    except HybrisError as error:
        assert isinstance(error, DamagedError)
        assert f"hybrisfs volume rebuild {NAME}" in str(error)
        return
    for name, content in contents.items():
        try:
            assert device.read(name) == content
        except (OSError, sqlite3.DatabaseError, DispersalError, AssertionError) as error:
            if isinstance(error, AssertionError) and "is not None" not in str(error):
                raise
    with contextlib.suppress(OSError, sqlite3.DatabaseError):
        device.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rotten_key_value_store_is_an_error_of_its_own(device: Device, seed: int) -> None:
    store = device.volume.key_values.open()
    store.create_container("box")
    device.write("file", b"content")
    device.sync()
    device.close()
    (device.state / "kv.db").write_bytes(os.urandom(1 << seed * 4))
    for log in device.state.glob("kv.db-*"):
        log.unlink()
    device.reopen()
    assert device.read("file") == b"content"
    with pytest.raises(DamagedError, match=r"kv\.db"):
        device.volume.key_values.open()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rotten_configuration_writes_nothing_to_a_strange_place(device: Device, seed: int) -> None:
    """It may be edited by hand, so it has no check; the marker on each cloud tells whether it is the right
    one."""
    device.write("file", b"content")
    device.sync()
    device.close()
    path = device.home.volume_config(NAME) / "volume.json"
    good = path.read_bytes()
    _flip(path, random.Random(seed), 1)
    try:
        volume = Volume.open(device.home, NAME, SYSTEM)
        volume.close()
    except HybrisError as error:
        assert isinstance(error, DamagedError) or "format" in str(error)
    path.write_bytes(good)
    device.reopen()
    assert device.read("file") == b"content"
    assert not device.fsck(clouds=True).problems
