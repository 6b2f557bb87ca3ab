"""`hybrisfs pending`: what it prints."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from cli.pending import describe
from hybrisfs.api.status import Pending, PendingFile
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolume


def waits(path: str, size: int = 0, seconds: float = 0, *, is_open: bool = False) -> PendingFile:
    return PendingFile(path, size, time.time() - seconds, is_open=is_open)


@pytest.fixture
def waiting(photos: FakeVolume) -> FakeVolume:
    photos.waiting = [
        waits("Videos/long.mp4", 2_000_000_000, 3 * 3600),
        waits("a\nb", 4096, 90, is_open=True),
        waits("letter", 0, 1),
    ]
    return photos


def test_nothing(photos: FakeVolume, run: Run) -> None:
    assert run("pending").stdout == "Nothing waits: the clouds have all of it.\n"


def test_which_files(waiting: FakeVolume, run: Run) -> None:
    assert run("pending").stdout.splitlines() == [
        "3 changes (2.0 GB) wait: they are about to go, limited to 524 kB/s.",
        "  2.0 GB              3 hours  Videos/long.mp4",
        "  4.1 kB              90 s     $'a\\nb'  open in a program",
        "  name or attributes  1 s      letter",
    ]


@pytest.mark.parametrize(("seconds", "span"), [(4000.0, "67 minutes"), (9.4, "9 s"), (400_000.0, "5 days")])
def test_how_long(seconds: float, span: str) -> None:
    facts = Pending("photos", "", [], 3, 2_000_000_000, rate=1e6, seconds=seconds)
    assert next(describe(facts, None)) == (
        f"3 changes (2.0 GB) wait: about {span} to go, at 1.0 MB/s to all clouds together."
    )


def test_one_is_about_to_go(waiting: FakeVolume, run: Run) -> None:
    del waiting.waiting[1:]
    assert "1 change (2.0 GB) waits: it is about to go, limited" in run("pending").stdout


def test_only_so_many(waiting: FakeVolume, run: Run) -> None:
    *_, last = run("pending", "--limit", "1").stdout.splitlines()
    assert last == "  and 2 more: --limit 3 lists them"
    assert len(json.loads(run("pending", "--json", "--limit", "2").stdout)["files"]) == 2
    assert run("pending", "--limit", "0").exit_code == 2


def test_below_a_folder(waiting: FakeVolume, run: Run, tmp_path: Path) -> None:
    waiting.mountpoint = tmp_path
    (tmp_path / "Videos").mkdir()
    facts = json.loads(run("pending", str(tmp_path / "Videos"), "--json").stdout)
    assert (facts["path"], facts["total"], facts["bytes"]) == ("Videos", 1, 2_000_000_000)
    assert run("pending", "/").exit_code == 2
    assert run("pending", str(tmp_path), "--volume", "other").exit_code == 2


@pytest.mark.parametrize(
    ("clouds", "held", "why"),
    [
        ("ok", None, "they are about to go, limited to 524 kB/s."),
        ("ok", "paused", "wait. Transfers are paused"),
        ("down", None, "2 clouds are needed, 1 of 3 work."),
    ],
)
def test_why(waiting: FakeVolume, run: Run, clouds: str, held: str | None, why: str) -> None:
    if held:
        run("pause")
    waiting.states = {one.name: (clouds, "") for one in waiting.config.clouds[1:]}
    assert why in run("pending").stdout.splitlines()[0]


def test_the_status_of_a_file_leads_to_what_keeps_it(
    waiting: FakeVolume, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine" / "Videos").mkdir(parents=True)
    (tmp_path / "mine" / "done").touch()
    waiting.mountpoint = tmp_path / "mine"
    monkeypatch.chdir(tmp_path / "mine")
    for path in ("Videos/long.mp4", f"{tmp_path}/mine/Videos/long.mp4", "Videos"):
        assert run("status", path).stdout == (
            f"{path} waits for the clouds: 1 change (2.0 GB). "
            f"hybrisfs pending {path} says why, and how long that may take.\n"
        )
    waiting.waiting.append(waits("Videos/my letter", 5))
    assert "hybrisfs pending 'Videos/my letter' says" in run("status", "Videos/my letter").stdout
    assert json.loads(run("status", "Videos", "--json").stdout)["total"] == 2
    assert run("status", "done").stdout == "done is safe: the clouds have all of it.\n"
    waiting.waiting.clear()
    assert run("status", "Videos").stdout == "Nothing in Videos waits for the clouds.\n"
    assert run("status", ".").stdout == run("status", "photos").stdout


def test_a_status_of_what_is_in_no_volume_is_refused(photos: FakeVolume, run: Run, tmp_path: Path) -> None:
    refused = run("status", str(tmp_path))
    assert refused.exit_code == 2 and "is in no mounted volume" in refused.stderr
    assert run("status", "nothing").exit_code == 4
    photos.mountpoint = tmp_path
    (tmp_path / "file").touch()
    assert "--watch goes with a volume" in run("status", str(tmp_path / "file"), "--watch").stderr


def test_a_relative_path_in_a_folder_that_has_gone(
    photos: FakeVolume, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    refused = run("pending", "letter")
    assert refused.exit_code == 1 and "the current folder cannot be read" in refused.stderr
    assert "cd" in refused.stderr
