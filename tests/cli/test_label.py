"""hybrisfs label add, remove, list"""

from __future__ import annotations

import json
from pathlib import Path, PurePath

import pytest

from hybrisfs.daemon.service import Daemon
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolumes


@pytest.fixture
def mnt(served: Daemon, run: Run, tmp_path: Path) -> Path:
    run("mount", "photos", str(tmp_path / "mnt"))
    return tmp_path / "mnt"


def test_labels_are_added_and_removed(
    mnt: Path, volumes: FakeVolumes, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mnt)
    done = run("label", "add", "sea,2026", "one", str(mnt / "two"))
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [f"{mnt}/{name}: 2026, sea" for name in ("one", "two")]
    assert volumes.opened["photos"].labels.find("sea") == [PurePath("one"), PurePath("two")]
    assert run("label", "remove", "sea", "one").stdout == f"{mnt}/one: 2026\n"
    assert run("label", "remove", "2026", "one").stdout == f"{mnt}/one: no labels\n"
    facts = json.loads(run("label", "list", "--json", "two").stdout)
    assert facts == {"paths": [{"path": f"{mnt}/two", "volume": "photos", "labels": ["2026", "sea"]}]}


def test_all_labels_are_listed(mnt: Path, run: Run) -> None:
    assert run("label", "list").stdout == "There are no labels.\n"
    run("label", "add", "sea", str(mnt / "one"), str(mnt / "two"))
    run("label", "add", "2026", str(mnt / "two"))
    assert run("label", "list").stdout.splitlines() == [
        "LABEL  COUNT  VOLUME",
        "2026   1      photos",
        "sea    2      photos",
    ]
    assert json.loads(run("label", "list", "--json").stdout)["labels"][1]["count"] == 2


def test_what_has_a_label_is_found(mnt: Path, run: Run) -> None:
    assert run("label", "list", "--with", "sea").stdout == "Nothing has the label sea.\n"
    run("label", "add", "sea", str(mnt / "one"), str(mnt / "two"))
    assert run("label", "list", "--with", "sea").stdout.splitlines() == [f"{mnt}/one", f"{mnt}/two"]
    run("umount", "photos")
    assert run("label", "list", "--with", "sea").stdout.splitlines() == ["one in photos", "two in photos"]
    found = json.loads(run("label", "list", "--with", "sea", "--json").stdout)["found"]
    assert found[0] == {"path": None, "volume": "photos", "inside": "one"}


def test_what_is_wrong_is_said(mnt: Path, run: Run, tmp_path: Path) -> None:
    assert run("label", "list", "--with", "sea", str(mnt)).exit_code == 2
    assert run("label", "add", "sea").exit_code == 2
    outside = run("label", "add", "sea", str(tmp_path / "elsewhere"))
    assert (outside.exit_code, outside.stderr.partition(":")[0]) == (1, "hybrisfs")
    assert "is in no mounted volume" in outside.stderr
    assert "No such file" in run("label", "list", str(mnt / "missing")).stderr
