"""hybrisfs share add, list, revoke"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hybrisfs.daemon.service import Daemon
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolumes


@pytest.fixture
def mnt(served: Daemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    run("mount", "photos", str(tmp_path / "mnt"))
    monkeypatch.chdir(tmp_path / "mnt")
    for name in ("film.mp4", "list"):
        (tmp_path / "mnt" / name).touch()
    return tmp_path / "mnt"


@pytest.mark.parametrize("words", [("share",), ("share", "add")])
def test_a_file_is_shared_with_or_without_the_word(mnt: Path, run: Run, words: tuple[str, ...]) -> None:
    done = run(*words, "--days", "2", "film.mp4")
    assert done.exit_code == 0
    link, blank, who, where = done.stdout.splitlines()
    assert link == "https://s3.example/parcel-0#key" and not blank
    assert "film.mp4 (1.0 kB) until" in who and "hybrisfs share revoke" in where
    assert run(*words, str(mnt / "film.mp4"), "--days=2", "--cloud", "b").exit_code == 0
    facts = json.loads(run("share", "list", "--json").stdout)
    assert [(one["path"], one["cloud"]) for one in facts["parcels"]] == [
        ("film.mp4", "s3"),
        ("film.mp4", "b"),
    ]
    assert all(one["expires"] - one["made"] == 2 * 86400 for one in facts["parcels"])


def test_a_file_with_the_name_of_a_command(mnt: Path, run: Run, volumes: FakeVolumes) -> None:
    assert run("share", "list").stdout == "Nothing is shared.\n"
    assert run("share", "./list").exit_code == 0
    assert [one.path for one in volumes.opened["photos"].parcels.made] == ["list"]


def test_what_is_shared_is_listed_and_revoked(mnt: Path, run: Run, volumes: FakeVolumes) -> None:
    run("share", "film.mp4")
    volumes.opened["photos"].parcels.silent = ["s3-2"]
    header, row, silent = run("share", "list", "photos").stdout.splitlines()
    assert header.split() == ["ID", "FILE", "SIZE", "UNTIL", "BY", "CLOUD"]
    assert row.split()[1] == "film.mp4" and row.split()[-2:] == ["laptop", "s3"]
    assert silent.endswith("does not answer: s3-2.")
    assert run("share", "revoke", str(mnt / "film.mp4")).stdout == "film.mp4 is shared no more.\n"
    assert run("share", "revoke", "film.mp4", "--volume", "photos").exit_code == 2


def test_what_is_wrong_is_said(mnt: Path, run: Run, tmp_path: Path) -> None:
    assert run("share").exit_code == 2
    assert run("share", "film.mp4", "--days", "8").exit_code == 2
    assert run("share", "film.mp4", "film.mp4").exit_code == 2
    assert run("share", "--help").exit_code == 0
    outside = run("share", str(tmp_path / "elsewhere"))
    assert outside.exit_code == 1 and "is in no mounted volume" in outside.stderr
