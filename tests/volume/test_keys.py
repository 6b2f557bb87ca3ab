"""The file of secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrisfs.errors import DamagedError, NewerFormatError
from hybrisfs.keys import VolumeKeys


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_keys_are_for_their_owner_only(path: Path) -> None:
    before = os.umask(0)
    try:
        VolumeKeys.generate().save(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_round_trip(path: Path) -> None:
    keys = VolumeKeys.generate()
    keys.save(path)
    loaded = VolumeKeys.load(path)
    assert (loaded.data, loaded.dedup, loaded.metadata) == (keys.data, keys.dedup, keys.metadata)
    assert loaded.device.device_id == keys.device.device_id
    assert len({keys.data, keys.dedup, keys.metadata, keys.table, keys.segments, keys.device.seed}) == 6


def test_keys_are_never_overwritten(path: Path) -> None:
    VolumeKeys.generate().save(path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        VolumeKeys.generate().save(path)
    assert path.read_bytes() == before


def test_no_secret_is_shown(path: Path) -> None:
    keys = VolumeKeys.generate()
    for secret in (keys.data, keys.dedup, keys.metadata, keys.device.seed):
        assert secret.hex() not in repr(keys) and repr(secret) not in repr(keys)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80) | st.just(b"[" * 100_000))
def test_any_bytes_are_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(DamagedError):
        VolumeKeys.load(path)


@pytest.mark.parametrize(
    "entry, value", [("data", "00"), ("dedup", 7), ("device", None), ("metadata", "zz" * 32), ("format", 0)]
)
def test_damaged_keys_are_refused_without_being_told(path: Path, entry: str, value: object) -> None:
    VolumeKeys.generate().save(path)
    secrets = json.loads(path.read_text())
    path.write_text(json.dumps(secrets | {entry: value}))
    with pytest.raises(DamagedError) as caught:
        VolumeKeys.load(path)
    assert not any(secrets[name] in str(caught.value) for name in ("data", "dedup", "metadata", "device"))


def test_missing_and_newer_keys(path: Path) -> None:
    with pytest.raises(DamagedError, match="cannot be read"):
        VolumeKeys.load(path)
    VolumeKeys.generate().save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(NewerFormatError):
        VolumeKeys.load(path)
