"""hybrisfs pin, unpin, evict"""

from __future__ import annotations

import json
from pathlib import Path, PurePath

import pytest

from hybrisfs.daemon.service import Daemon
from tests.cli.conftest import Run
from tests.daemon.fake import FakeContent, FakeVolumes


@pytest.fixture
def mnt(served: Daemon, run: Run, tmp_path: Path) -> Path:
    run("mount", "photos", str(tmp_path / "mnt"))
    return tmp_path / "mnt"


@pytest.fixture
def content(mnt: Path, volumes: FakeVolumes) -> FakeContent:
    return volumes.opened["photos"].content


def test_pin_says_what_is_kept_and_what_still_comes(
    mnt: Path, content: FakeContent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mnt)
    done = run("pin", "folder/../one", str(mnt / "two"))
    assert done.exit_code == 0
    assert content.pinned == [PurePath("one"), PurePath("two")]
    assert done.stdout.splitlines() == [
        f"{mnt}/{name} is pinned: 1 file, 3.0 MB, of which 1.0 MB are being fetched."
        for name in ("one", "two")
    ]
    content.release.set()
    assert run("pin", "one").stdout == f"{mnt}/one is pinned: 1 file, 3.0 MB.\n"


def test_symbolic_links_are_followed(mnt: Path, content: FakeContent, run: Run, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(mnt)
    run("pin", str(tmp_path / "link" / "file"))
    assert content.pinned == [PurePath("file")]


def test_pin_waits(mnt: Path, content: FakeContent, run: Run) -> None:
    content.trouble = "the clouds\n are down"
    late = run("pin", "--wait", "--timeout", "0", str(mnt / "one"))
    assert late.exit_code == 3
    assert "still comes in the background" in late.stderr
    assert "the clouds" in late.stderr
    content.release.set()
    done = run("pin", "--wait", "--json", str(mnt / "one"))
    assert done.exit_code == 0
    facts = json.loads(done.stdout)
    assert facts["done"] is True
    assert facts["paths"][0]["path"] == str(mnt / "one")
    assert run("pin", "--timeout", "1", str(mnt / "one")).exit_code == 2


def test_pin_lists(mnt: Path, content: FakeContent, run: Run) -> None:
    assert run("pin").stdout == "Nothing is pinned.\n"
    run("pin", str(mnt / "one"))
    assert [line.split() for line in run("pin").stdout.splitlines()] == [
        ["PATH", "FILES", "SIZE", "MISSING"],
        [f"{mnt}/one", "1", "3.0", "MB", "0", "bytes"],
    ]
    assert json.loads(run("pin", "--json").stdout)["pins"][0]["inside"] == "one"
    run("umount", "photos")
    assert "one in photos" in run("pin").stdout


def test_unpin(mnt: Path, content: FakeContent, run: Run) -> None:
    run("pin", str(mnt / "one"))
    assert run("unpin", str(mnt / "one")).stdout == f"{mnt}/one is not pinned any more.\n"
    assert content.pinned == []
    again = run("unpin", str(mnt / "one"))
    assert again.exit_code == 2
    assert "is not pinned" in again.stderr
    run("pin", str(mnt / "one"))
    assert json.loads(run("unpin", "--json", str(mnt / "one")).stdout)["paths"][0]["volume"] == "photos"


def test_evict_says_what_had_to_stay_and_why(mnt: Path, content: FakeContent, run: Run) -> None:
    paths = [str(mnt / name) for name in ("old", "kept", "new")]
    assert run("evict", *paths).stdout.splitlines() == [
        f"{mnt}/old: freed 3.0 MB.",
        f"{mnt}/kept: freed 3.0 MB. Kept 2.0 kB that are pinned.",
        f"{mnt}/new: freed 3.0 MB. Kept 2.0 kB that are pinned and 1.0 kB that are not on the clouds yet.",
    ]
    assert content.evicted == [PurePath("old"), PurePath("kept"), PurePath("new")]
    assert json.loads(run("evict", "--json", paths[0]).stdout)["paths"][0]["freed_bytes"] == 3_000_000


@pytest.mark.parametrize("command", ["pin", "unpin", "evict"])
def test_paths_outside_of_any_volume(mnt: Path, run: Run, tmp_path: Path, command: str) -> None:
    result = run(command, str(tmp_path / "elsewhere"))
    assert result.exit_code == 1
    assert f"{tmp_path}/elsewhere is in no mounted volume" in result.stderr
    assert f"photos at {mnt}" in result.stderr
