"""hybrisfs mirror, import"""

from __future__ import annotations

import json
from pathlib import Path, PurePath

import pytest

from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolumes
from tests.daemon.fake_mirrors import FakeMirrors


@pytest.fixture
def mirrors(served: Daemon, run: Run, volumes: FakeVolumes) -> FakeMirrors:
    run("status")
    return volumes.opened["photos"].mirrors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "disk" / "Projects").mkdir(parents=True)
    return tmp_path / "disk" / "Projects"


def test_a_folder_is_mirrored_until_it_is_removed(mirrors: FakeMirrors, run: Run, folder: Path) -> None:
    done = run("mirror", "add", str(folder), "--ignore", "*.o", "--ignore", "build/")
    assert done.stdout == f"{folder} is kept equal to Projects in photos.\n"
    assert mirrors.mirrored[folder].ignore == ["*.o", "build/"]
    listed = [line.split() for line in run("mirror", "list").stdout.splitlines()]
    assert listed[1] == [str(folder), "photos", "Projects", "1,234", "watching"]
    status = run("mirror", "status")
    assert status.exit_code == 0
    assert status.stdout.startswith(f"{folder} = Projects  watching\n  1,234 names, compared at 2027-")
    assert f"{folder} = Projects  watching" in run("status").stdout
    assert "nothing was deleted" in run("mirror", "remove", str(folder)).stdout
    assert run("mirror", "list").stdout == run("mirror", "status").stdout == "Nothing is mirrored.\n"
    again = run("mirror", "remove", str(folder))
    assert again.exit_code == 2
    assert "not mirrored" in again.stderr


def test_a_folder_of_the_volume_can_be_chosen(mirrors: FakeMirrors, run: Run, folder: Path) -> None:
    done = run("mirror", "add", str(folder), "--at", "/texts/projects/", "--json")
    assert json.loads(done.stdout)["at"] == "texts/projects"
    for wrong in ("..", "a/../b", "/"):
        assert run("mirror", "add", str(folder.parent), "--at", wrong).exit_code == 2


def test_what_waits_is_shown_and_decided(mirrors: FakeMirrors, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "emptied"
    folder.mkdir()
    run("mirror", "add", str(folder))
    status = run("mirror", "status")
    assert status.exit_code == 1
    assert "deleting 99 names from the volume waits for you" in status.stdout
    assert "$'pipe\\n': is a pipe\n  and 2 more" in status.stdout
    run("mirror", "accept", str(folder))
    run("mirror", "undo", str(folder))
    assert mirrors.decided == [(folder, True), (folder, False)]


def test_nothing_is_mirrored_into_itself(
    mirrors: FakeMirrors, run: Run, folder: Path, tmp_path: Path, home: Home
) -> None:
    mnt = tmp_path / "mnt"
    run("mount", "photos", str(mnt))
    (mnt / "inner").mkdir()
    run("mirror", "add", str(folder))
    (folder / "inner").mkdir()
    (tmp_path / "way").symlink_to(mnt)
    for wrong in (mnt, mnt / "inner", tmp_path, tmp_path / "way", folder / "inner", home.state):
        done = run("mirror", "add", str(wrong))
        assert (done.exit_code, "overlaps with" in done.stderr) == (2, True), wrong
    again = run("mirror", "add", str(folder))
    assert again.exit_code == 2
    assert again.stderr.endswith(
        "is mirrored already\nhybrisfs mirror list shows what it is kept equal to.\n"
    )
    assert run("mirror", "add", str(tmp_path / "nowhere")).exit_code == 2


def test_import_says_what_it_did(mirrors: FakeMirrors, run: Run, folder: Path) -> None:
    done = run("import", str(folder))
    assert done.exit_code == 0
    assert done.stdout == (
        "photos: 3 files (4.0 MB) and 2 folders copied into Projects.\n  1 name was there already\n"
    )
    dry = run("import", str(folder), "--into", "a/b", "--dry-run", "--replace")
    assert "would be copied into a/b" in dry.stdout
    assert mirrors.imported == [
        (folder, PurePath("Projects"), False, False),
        (folder, PurePath("a/b"), True, True),
    ]


def test_import_names_what_it_could_not_copy(mirrors: FakeMirrors, run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    done = run("import", str(tmp_path / "bad"))
    assert done.exit_code == 1
    assert done.stderr == "  $'pipe\\n': is a pipe\n  and 2 more\n"
    assert json.loads(run("import", str(tmp_path / "bad"), "--json").stdout)["problem_count"] == 3


def test_a_mounted_folder_is_not_imported_into_itself(mirrors: FakeMirrors, run: Run, tmp_path: Path) -> None:
    run("mount", "photos", str(tmp_path / "mnt"))
    assert run("import", str(tmp_path / "mnt")).exit_code == 2
    assert run("import", str(tmp_path / "nowhere")).exit_code == 2
