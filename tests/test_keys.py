"""The file of a volume's keys."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError, NewerFormatError
from hybrisfs.keys import EpochKeys, VolumeKeys


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_keys_are_for_their_owner_only(path: Path) -> None:
    before = os.umask(0)
    try:
        VolumeKeys.generate().save(path, SYSTEM)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_round_trip(path: Path) -> None:
    keys = VolumeKeys.generate()
    keys.save(path, SYSTEM)
    loaded = VolumeKeys.load(path)
    assert (loaded.shared, loaded.device.device_id) == (keys.shared, keys.device.device_id)
    first = keys.first
    secrets = (first.data, first.metadata, first.table, first.segments, keys.dedup, keys.device.seed)
    assert len(set(secrets)) == 6


def test_keys_of_later_epochs_are_kept_in_the_place_of_what_was_there(path: Path) -> None:
    keys = VolumeKeys.generate()
    keys.save(path, SYSTEM)
    epoch = EpochKeys.after(0, [b"r" * 16])
    more = keys.with_epochs([epoch, keys.first])
    more.replace(path, SYSTEM)
    assert VolumeKeys.load(path).shared == more.shared
    assert more.shared.epochs == (keys.first, epoch)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "damage",
    [
        {"epochs": []},
        {"epochs": [{}]},
        {"epochs": 7},
    ],
)
def test_epochs_that_make_no_sense_are_refused(path: Path, damage: dict[str, object]) -> None:
    VolumeKeys.generate().save(path, SYSTEM)
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(DamagedError):
        VolumeKeys.load(path)


def test_keys_are_never_overwritten(path: Path) -> None:
    VolumeKeys.generate().save(path, SYSTEM)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        VolumeKeys.generate().save(path, SYSTEM)
    assert path.read_bytes() == before


def test_no_secret_is_shown(path: Path) -> None:
    keys = VolumeKeys.generate()
    for secret in (keys.first.data, keys.dedup, keys.first.metadata, keys.device.seed):
        assert secret.hex() not in repr(keys) and repr(secret) not in repr(keys)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80) | st.just(b"[" * 100_000))
def test_any_bytes_are_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(DamagedError):
        VolumeKeys.load(path)


@pytest.mark.parametrize(
    "entry, value", [("dedup", "00"), ("dedup", 7), ("device", None), ("device", "zz" * 32), ("format", 0)]
)
def test_damaged_keys_are_refused_without_being_told(path: Path, entry: str, value: object) -> None:
    VolumeKeys.generate().save(path, SYSTEM)
    secrets = json.loads(path.read_text())
    path.write_text(json.dumps(secrets | {entry: value}))
    with pytest.raises(DamagedError) as caught:
        VolumeKeys.load(path)
    assert not any(secrets[name] in str(caught.value) for name in ("dedup", "device"))


def test_missing_and_newer_keys(path: Path) -> None:
    with pytest.raises(DamagedError, match="cannot be read"):
        VolumeKeys.load(path)
    VolumeKeys.generate().save(path, SYSTEM)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 3}))
    with pytest.raises(NewerFormatError):
        VolumeKeys.load(path)


def test_any_flipped_bit_of_the_key_file_is_found_out(tmp_path: Path) -> None:
    """A key of which one digit is another is a key, too: nothing could be read with it any more."""
    path = tmp_path / "keys.json"
    VolumeKeys.generate().save(path, SYSTEM)
    good = path.read_bytes()
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        if b'"check"' in damaged:
            with pytest.raises((DamagedError, NewerFormatError)):
                VolumeKeys.load(path)
