"""The folder below a mount is locked while the mount is wanted, and what lands there is moved away."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.daemon import wanted_mounts
from hybrisfs.daemon.wanted_mounts import is_locked, locked_below, unlock

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder immutable")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With real mounts: test_supervisor.py."""
    monkeypatch.setattr(wanted_mounts, "mounted_device", lambda place: "0:99")
    folder = tmp_path / "folder"
    folder.mkdir()
    yield folder
    unlock(folder)


def test_it_is_locked_once_it_is_mounted_on(folder: Path) -> None:
    with locked_below(folder):
        assert not is_locked(folder)
    assert is_locked(folder)
    with locked_below(folder, again=True):
        assert is_locked(folder)
        if os.geteuid() != 0:
            folder.chmod(0o700)  # fusermount3 wants it
    assert is_locked(folder)
    assert unlock(folder)
    assert not unlock(folder)
    assert list(folder.iterdir()) == []


@only_root
def test_root_cannot_write_there_either(folder: Path) -> None:
    if subprocess.run(["chattr", "+i", folder], check=False).returncode:
        pytest.skip("no folder can be immutable here")
    subprocess.run(["chattr", "-i", folder], check=True)
    with locked_below(folder):
        pass
    with pytest.raises(PermissionError):
        (folder / "file").touch()
    with locked_below(folder), pytest.raises(PermissionError):  # nor while it is being mounted again
        (folder / "file").touch()
    unlock(folder)
    (folder / "file").touch()


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


def test_what_landed_there_is_moved_beside_it_and_named(folder: Path) -> None:
    (folder / "file").write_bytes(b"beside")
    (folder / "inner").mkdir()
    (folder / "inner" / "more").touch()
    with locked_below(folder) as beside:
        (folder / "while it is mounted").touch()
    assert is_locked(folder)
    [place] = beside.places
    assert place.parent == folder.parent
    assert place.name.startswith("folder.beside-")
    assert sorted(path.name for path in place.iterdir()) == ["file", "inner", "while it is mounted"]
    assert (place / "file").read_bytes() == b"beside"
    [said] = beside.warnings("photos", folder)
    assert f"hybrisfs import --volume photos {place}" in said
    unlock(folder)
    assert list(folder.iterdir()) == []
    with locked_below(folder) as later:
        pass
    assert later.warnings("photos", folder) == [said]  # a restart does not forget them
    shutil.rmtree(place)
    assert later.warnings("photos", folder) == []


def test_what_cannot_be_moved_is_said_and_keeps_nothing_from_being_mounted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def refuse(name: str, *others: Any, **where: Any) -> None:
        if name != "movable":
            raise PermissionError(13, "Permission denied")
        rename(name, *others, **where)

    monkeypatch.setattr(os, "rename", refuse)
    (folder / "file").touch()
    with locked_below(folder) as beside:
        pass
    assert is_locked(folder)
    assert beside.places == []
    [said] = beside.warnings("photos", folder)
    assert "Permission denied" in said
    assert "hybrisfs umount photos" in said
    unlock(folder)
    (folder / "movable").touch()
    with locked_below(folder) as beside:
        pass
    [place] = beside.places
    assert [path.name for path in place.iterdir()] == ["movable"]
    assert len(beside.warnings("photos", folder)) == 2


@only_root
def test_no_link_in_place_of_the_new_folder_is_followed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root mounts for a user, to whom the folder around it belongs."""
    private = tmp_path / "private"
    private.mkdir()
    os.chown(folder, 65534, 65534)
    (folder / "file").write_bytes(b"beside")
    make = Path.mkdir

    def replaced(place: Path, mode: int = 0o777) -> None:
        make(place, mode)
        place.rename(tmp_path / "aside")
        place.symlink_to(private)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", replaced)
        with locked_below(folder) as beside:
            pass
    assert (private.stat().st_uid, list(private.iterdir())) == (0, [])
    assert "cannot be moved away" in beside.trouble
    unlock(folder)
    assert (folder / "file").read_bytes() == b"beside"
