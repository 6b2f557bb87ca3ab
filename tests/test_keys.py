"""The file of a volume's keys, and the keys of a device that joins."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrisfs.errors import DamagedError
from hybrisfs.keys import VolumeKeys
from sync import DeviceKey


def test_keys_are_kept(tmp_path: Path) -> None:
    keys = VolumeKeys.generate()
    keys.save(tmp_path / "keys.json")
    loaded = VolumeKeys.load(tmp_path / "keys.json")
    assert loaded.shared == keys.shared
    assert loaded.device.public == keys.device.public
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        keys.save(tmp_path / "keys.json")


def test_a_new_device_shares_the_volumes_keys_and_has_its_own(tmp_path: Path) -> None:
    first, device = VolumeKeys.generate(), DeviceKey.generate()
    second = VolumeKeys.for_new_device(first.shared, device)
    assert (second.data, second.dedup, second.metadata) == (first.data, first.dedup, first.metadata)
    assert (second.table, second.segments) == (first.table, first.segments)
    assert second.device is device
    assert first.device.public != device.public


def test_secrets_are_not_shown() -> None:
    keys = VolumeKeys.generate()
    for secret in (keys.data, keys.dedup, keys.metadata, keys.device.seed):
        for text in (repr(keys), repr(keys.shared)):
            assert repr(secret) not in text
            assert secret.hex() not in text


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', "[]", "\xff"])
def test_what_is_no_key_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DamagedError):
        VolumeKeys.load(path)
