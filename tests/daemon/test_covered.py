"""The folder below a mount is locked while the mount is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrisfs.daemon.covered import is_locked, locked_below, unlock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def test_it_is_locked_once_it_is_mounted_on(folder: Path) -> None:
    with locked_below(folder):
        assert not is_locked(folder)
    assert is_locked(folder)
    with locked_below(folder):
        assert not is_locked(folder)
    assert unlock(folder)
    assert not unlock(folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("locked", [False, True])
def test_it_stays_as_it_was_when_nothing_could_be_mounted(folder: Path, locked: bool) -> None:
    if locked:
        folder.chmod(0)
    with pytest.raises(RuntimeError), locked_below(folder):
        raise RuntimeError
    assert is_locked(folder) is locked


def test_what_is_not_there_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "nothing")
    assert not unlock(tmp_path / "nothing")
