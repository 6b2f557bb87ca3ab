"""hybrisfs copies"""

from __future__ import annotations

import json
from pathlib import Path, PurePath

import pytest

from cli.copies import describe
from hybrisfs.api.copies import FolderCopies
from hybrisfs.daemon.service import Daemon
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolumes
from tests.daemon.fake_content import FakeCopies


@pytest.fixture
def mnt(served: Daemon, run: Run, tmp_path: Path) -> Path:
    run("mount", "photos", str(tmp_path / "mnt"))
    return tmp_path / "mnt"


@pytest.fixture
def copies(mnt: Path, volumes: FakeVolumes) -> FakeCopies:
    return volumes.opened["photos"].copies


def test_copies_are_set_and_removed(mnt: Path, copies: FakeCopies, run: Run) -> None:
    one = str(mnt / "one")
    assert run("copies", "set", one, "2").stdout == f"{one} is to be on at least 2 machines.\n"
    assert copies.by_path == {PurePath("one"): 2}
    done = run("copies", "set", "--json", one, "1")
    assert json.loads(done.stdout)["paths"] == [{"path": one, "volume": "photos"}]
    assert run("copies", "remove", one).stdout == f"{one} need not be on several machines any more.\n"
    assert copies.by_path == {PurePath("one"): 0}
    assert run("copies", "set", one, "0").exit_code == 2
    assert run("copies", "set", one, "33").exit_code == 2
    assert run("copies", "set", str(mnt / "missing"), "2").exit_code != 0


def test_copies_are_listed(mnt: Path, run: Run) -> None:
    assert run("copies", "list").stdout == "Nothing is to be on several machines.\n"
    run("copies", "set", str(mnt / "one"), "2")
    assert [line.split() for line in run("copies", "list").stdout.splitlines()] == [
        ["PATH", "SIZE", "COPIES", "ON", "FETCHING"],
        [str(mnt / "one"), "5", "bytes", "1", "of", "2", "laptop", "desktop"],
    ]
    [listed] = json.loads(run("copies", "list", "--json").stdout)["folders"]
    assert (listed["inside"], listed["copies"], listed["on"]) == ("one", 2, ["laptop"])
    run("umount", "photos")
    assert "one in photos" in run("copies", "list").stdout


def test_where_files_are(mnt: Path, run: Run) -> None:
    done = run("copies", "list", str(mnt / "old"), str(mnt / "new"))
    assert done.stdout.splitlines() == [
        f"{mnt}/old: 3 clouds, laptop, desktop",
        f"{mnt}/new: no cloud yet, laptop, desktop",
    ]


def test_status_tells_of_them() -> None:
    def folder(inside: str, on: list[str], fetching: list[str]) -> FolderCopies:
        return FolderCopies(
            inside=inside, copies=2, on=on, fetching=fetching, short=False, bytes=1, missing_bytes=0
        )

    found = describe([folder("photos", ["laptop", "desktop"], []), folder("", ["laptop"], ["desktop"])])
    assert [*found] == [
        "photos is on 2 of 2 machines: laptop, desktop",
        "everything is on 1 of 2 machines: laptop; desktop fetching it",
    ]


def test_evict_says_what_had_to_stay(mnt: Path, run: Run) -> None:
    found = run("evict", str(mnt / "precious")).stdout
    assert "Kept 3.0 kB that are to be on this machine (hybrisfs copies list)." in found
