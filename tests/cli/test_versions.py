"""hybrisfs versions, against a daemon whose volumes are none."""

from __future__ import annotations

import datetime
import json
import time

from hybrisfs.api.versions import NotRestored
from hybrisfs.client import Client
from tests.cli.conftest import Run, typed
from tests.daemon.fake import FakeVolume


def test_versions_are_listed(photos: FakeVolume, run: Run) -> None:
    lines = run("versions", "list", "notes.txt", "--volume", "photos").stdout.splitlines()
    assert lines[0].split() == ["NO", "SINCE", "SIZE", "MACHINE", "KEPT", "UNTIL", "AS"]
    assert "it is there now" in lines[1]
    assert lines[1].endswith("cannot be read now")
    assert lines[2].split()[0] == "1"
    assert "cannot" not in lines[2]
    assert "desk" in lines[3]
    assert "this machine does not know" in lines[4]
    facts = json.loads(run("versions", "list", "notes.txt", "--volume", "photos", "--json").stdout)
    assert [one["version"] for one in facts["versions"]] == [0, 1]
    assert run("versions", "list", "nothing", "--volume", "photos").exit_code == 1


def test_who_changed_what_is_told(photos: FakeVolume, run: Run) -> None:
    lines = run("log", "notes.txt", "--volume", "photos", "--limit", "2").stdout.splitlines()
    assert "desk" in lines[0]
    assert "content: 5 bytes" in lines[0]
    assert len(lines) == 4
    assert "--limit" in lines[2]
    assert "does not know" in lines[3]
    facts = json.loads(run("log", "notes.txt", "--volume", "photos", "--limit", "1", "--json").stdout)
    assert facts["changes"][0]["what"] == ["made: a\nb", "content: 5 bytes"]


def test_what_was_removed_is_listed(photos: FakeVolume, run: Run) -> None:
    assert "old.txt" in run("versions", "list", "--removed", ".", "--volume", "photos").stdout
    assert run("versions", "list", "--removed", "d", "--volume", "photos").stdout == (
        "Nothing that was removed or emptied there is kept.\n"
    )


def test_a_version_is_shown(photos: FakeVolume, run: Run) -> None:
    shown = run("versions", "show", "notes.txt", "--volume", "photos", "--at", "2026-11-20")
    assert shown.stdout == "notes.txt 2026-11-20 None"
    assert run("versions", "show", "notes.txt", "--volume", "photos", "--version", "2").stdout == (
        "notes.txt None 2"
    )
    both = run("versions", "show", "notes.txt", "--volume", "photos", "--version", "2", "--at", "2026-11-20")
    assert both.exit_code == 2


def test_a_span_of_time_is_a_moment(photos: FakeVolume, run: Run) -> None:
    before = time.time()
    words = run("versions", "show", "notes.txt", "--volume", "photos", "--at", "2h").stdout.split()
    moment = datetime.datetime.fromisoformat(words[1]).timestamp()
    assert int(before) - 7200 <= moment <= time.time() - 7200
    assert run("versions", "show", "notes.txt", "--volume", "photos", "--at", "9" * 9 + "w").exit_code == 0


def test_a_version_is_restored(photos: FakeVolume, run: Run) -> None:
    done = run("versions", "restore", "notes.txt", "--volume", "photos", "--version", "1", "--as", "old")
    assert done.stdout == "Restored 1 file at old.\n"
    assert run("versions", "restore", "notes.txt", "--volume", "photos").exit_code == 0
    assert photos.versions.restored == [("notes.txt", None, 1, "old"), ("notes.txt", None, None, None)]


def test_what_restoring_would_change_is_shown(photos: FakeVolume, run: Run) -> None:
    words = ("versions", "restore", ".", "--volume", "photos", "--at", "2023-11-14", "--dry-run")
    done = run(*words)
    assert done.exit_code == 1, "one file cannot be restored"
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[:5] == [
        ["WHAT", "SIZE", "NAME"],
        ["change", "5", "bytes", "a.txt"],
        ["make", "folder", "b"],
        ["make", "7", "bytes", "b/c.txt"],
        ["cannot", "be", "restored", "7", "bytes", "d.txt"],
    ]
    assert "Restoring would make 1 file, change 1, and leave 12 as they are." in done.stdout
    assert done.stdout.endswith("no cloud has its bytes.\n")
    assert json.loads(run(*words, "--json").stdout)["same"] == 12
    assert run("versions", "restore", "a", "--volume", "photos", "--dry-run").exit_code == 2
    assert photos.versions.restored == []


def test_for_the_whole_volume_its_name_is_asked_for(photos: FakeVolume) -> None:
    words = ("versions", "restore", ".", "--volume", "photos", "--at", "2023-11-14")
    wrong = typed("music\n", *words)
    assert (wrong.exit_code, photos.versions.restored) == (2, [])
    assert "the volume is called photos: nothing was changed" in wrong.stderr
    right = typed("photos\n", *words)
    assert "Restoring would make 1 file" in right.stderr
    assert right.exit_code == 0
    assert photos.versions.restored == [(".", "2023-11-14", None, None)]
    # A folder, and who says so, is not asked for.
    assert typed("", "versions", "restore", "b", "--volume", "photos", "--at", "2023-11-14").exit_code == 0
    assert typed("", *words, "--yes").exit_code == 0
    assert len(photos.versions.restored) == 3


def test_what_could_not_be_restored_is_told(photos: FakeVolume, run: Run) -> None:
    photos.versions.left = [NotRestored("d.txt", "no cloud has its bytes")]
    done = run("versions", "restore", ".", "--volume", "photos", "--at", "2023-11-14")
    assert (done.exit_code, done.stdout) == (1, "Restored 1 file.\nno cloud has its bytes.\n")


def test_moments_are_told(photos: FakeVolume) -> None:
    with Client.connect() as client:
        facts = client.exchange("versions moments", {"name": "photos"})
    assert facts == {"name": "photos", "moments": ["2023-11-14T00:00Z"], "keep": "default"}


def test_which_versions_are_kept_is_set(photos: FakeVolume, run: Run) -> None:
    assert run("volume", "set", "photos", "--keep-versions", "daily:14d").stdout == (
        "photos:\n  --keep-versions  all:1d,daily:14d,weekly:31d,monthly:366d\n"
    )
    assert photos.settings.entries().keep_versions.startswith("all:1d,daily:14d")
    assert run("volume", "set", "photos", "--keep-versions", "some").exit_code == 2
    assert "  --keep-versions " in run("volume", "set", "photos").stdout
