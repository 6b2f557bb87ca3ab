"""The commands about conflicts and held deletions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hybrisfs.api.decisions import HeldFile
from hybrisfs.daemon.service import Daemon
from tests.cli.conftest import Run, moment
from tests.daemon.fake import FakeVolume

LAST_SEEN = 1_790_000_000.0


@pytest.fixture
def conflict(photos: FakeVolume) -> str:
    path = "docs/a (conflict, den, 2026-11-21).txt"
    modified = "2026-11-21 10:00:00"
    photos.conflicting = [{"path": path, "of": "docs/a.txt", "modified": modified, "size": 1500}]
    return path


def test_conflicts_are_listed(conflict: str, run: Run) -> None:
    first, head, row = run("conflicts", "list").stdout.splitlines()
    assert first == "1 conflict; hybrisfs conflicts merge PATH or keep PATH settles one."
    assert head.split() == ["VERSION", "OF", "MODIFIED", "SIZE"]
    assert row == f"{conflict}  docs/a.txt  2026-11-21 10:00:00  1.5 kB"
    facts = json.loads(run("conflicts", "list", "--json").stdout)
    assert [one["path"] for one in facts["conflicts"]] == [conflict]


def test_when_there_are_none(photos: FakeVolume, run: Run) -> None:
    assert run("conflicts", "list").stdout == "There are no conflicts.\n"
    assert run("deletions", "list").stdout == "No deletion waits.\n"
    assert json.loads(run("conflicts", "list", "--json").stdout)["conflicts"] == []
    assert json.loads(run("deletions", "list", "--json").stdout)["deletions"] == []


@pytest.mark.parametrize(("command", "everything"), [("keep", False), ("keep-all", True)])
def test_a_conflict_is_settled(
    photos: FakeVolume, conflict: str, run: Run, command: str, everything: bool
) -> None:
    done = run("conflicts", command, conflict)
    assert done.exit_code == 0
    assert conflict in done.stdout
    assert photos.decisions == [(conflict, everything)]


@pytest.mark.parametrize(("command", "everything"), [("keep", False), ("keep-all", True)])
def test_a_conflict_is_named_by_where_it_is(
    photos: FakeVolume,
    conflict: str,
    run: Run,
    command: str,
    everything: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("mount", "photos", str(tmp_path / "mnt"))
    version = tmp_path / "mnt" / conflict
    version.parent.mkdir()
    version.touch()
    monkeypatch.chdir(version.parent)
    for path in (str(version), version.name):
        assert run("conflicts", command, path).exit_code == 0
    assert run("conflicts", command, "--volume", "photos", conflict).exit_code == 0
    assert photos.decisions == [(conflict, everything)] * 3


@pytest.fixture
def deletion(photos: FakeVolume) -> str:
    photos.waiting_deletions = [
        {"id": "3fa85f64a1b2", "device": "den", "time": LAST_SEEN, "names": 900, "of": 1000}
    ]
    return "3fa85f64a1b2"


def test_deletions_that_wait_are_listed(deletion: str, run: Run) -> None:
    head, row, *advice = run("deletions", "list").stdout.splitlines()
    assert head.split() == ["ID", "MACHINE", "WHEN", "WHAT"]
    assert row == f"{deletion}  den      {moment(LAST_SEEN)}  deletes 900 of 1000 files and folders"
    assert all(f"{command} ID" in " ".join(advice) for command in ("show", "accept", "undo"))
    facts = json.loads(run("deletions", "list", "--json").stdout)
    assert [one["id"] for one in facts["deletions"]] == [deletion]


def test_what_is_overwritten_is_listed(photos: FakeVolume, deletion: str, run: Run) -> None:
    photos.waiting_deletions[0].update(overwrites=True, examined=False)
    assert "overwrites 900 of 1000 files; samples are looked at first" in run("deletions", "list").stdout


def test_the_files_of_a_deletion_are_shown(photos: FakeVolume, deletion: str, run: Run) -> None:
    photos.waiting_files = [
        HeldFile(path="a.jpg", change="overwritten", before=2048, now=2096),
        HeldFile(path="b.txt", change="deleted", before=5, now=None),
    ]
    assert run("deletions", "show", deletion).stdout.splitlines() == [
        "CHANGE       HERE     THERE   PATH",
        "overwritten  2.0 kB   2.1 kB  a.jpg",
        "deleted      5 bytes  -       b.txt",
    ]
    facts = json.loads(run("deletions", "show", deletion, "--json").stdout)
    assert (facts["count"], facts["files"][0]["path"]) == (2, "a.jpg")


@pytest.mark.parametrize(
    ("command", "undo", "said"),
    [("accept", False, "Done here, too.\n"), ("undo", True, "Brought back, on all machines.\n")],
)
def test_a_deletion_is_decided(
    photos: FakeVolume, deletion: str, run: Run, command: str, undo: bool, said: str
) -> None:
    done = run("deletions", command, deletion)
    assert (done.exit_code, done.stdout) == (0, said)
    assert photos.decisions == [(deletion, undo)]


# -- wrong usage ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["device", "join", "hfs1-typo"], "is not a code"),
        (["device", "rename", "nobody", "x"], "is not a machine of this volume"),
        (["conflicts", "keep", "plain.txt"], "there is no conflict at plain.txt"),
        (["conflicts", "keep-all", "plain.txt"], "there is no conflict at plain.txt"),
        (["conflicts", "merge", "plain.txt"], "there is no conflict at plain.txt"),
        (["deletions", "show", "ffff"], "no deletion 'ffff' waits"),
        (["deletions", "accept", "ffff"], "no deletion 'ffff' waits"),
        (["deletions", "undo", "ffff"], "no deletion 'ffff' waits"),
    ],
)
def test_what_is_not_there_is_one_clear_line_and_nothing_changes(
    photos: FakeVolume, run: Run, words: list[str], complaint: str
) -> None:
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    first, *advice = done.stderr.splitlines()
    assert first.startswith("hybrisfs: ") and complaint in first
    assert len(advice) <= 1
    assert photos.decisions == []


@pytest.mark.parametrize(
    "words",
    [
        ["device", "invite", "--valid", "5"],
        ["device", "invite", "--valid", "soon"],
        ["device", "join"],
        ["device", "rename", "desk"],
        ["conflicts", "keep"],
        ["conflicts", "keep-all"],
        ["deletions", "show"],
        ["deletions", "accept"],
        ["deletions", "undo"],
        ["device"],
        ["conflicts"],
        ["deletions"],
    ],
)
def test_wrong_words(photos: FakeVolume, run: Run, words: list[str]) -> None:
    assert run(*words).exit_code == 2
    assert photos.invited == [] and photos.decisions == []


@pytest.mark.parametrize(
    "words",
    [["device", "invite", "typo"], ["device", "list", "typo"], ["conflicts", "list", "--volume", "typo"]],
)
def test_unknown_volumes(served: Daemon, run: Run, words: list[str]) -> None:
    done = run(*words)
    assert (done.exit_code, done.stderr) == (4, "hybrisfs: there is no volume 'typo'\nThere are: photos.\n")
