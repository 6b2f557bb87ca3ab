"""`hybrisfs limit`, `pause` and `resume`: what they ask for, and what they print."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run
from tests.daemon.fake import EXPIRES, FakeVolume


def test_limits_are_shown_with_what_comes_next(photos: FakeVolume, run: Run) -> None:
    lines = run("limit").stdout.splitlines()
    assert lines[0] == "photos"
    assert lines[1].startswith("  up    512 KiB/s until ")
    assert lines[1].endswith(", then unlimited  (08:00,512k 19:00,off)")
    assert lines[2:] == ["  down  unlimited", "  metered networks pause transfers"]
    assert photos.transfers.told == []
    assert json.loads(run("limit", "--json").stdout)["up"]["changes_at"] == EXPIRES


def test_limits_are_set(photos: FakeVolume, run: Run) -> None:
    assert run("limit", "photos", "--up", "08:00,512k 19:00,off", "--on-metered", "ignore").exit_code == 0
    assert run("limit", "--down", "10M").exit_code == 0
    assert photos.transfers.told == [("08:00,512k 19:00,off", None, "ignore"), (None, "10M", None)]
    refused = run("limit", "--up", "nonsense")
    assert (refused.exit_code, refused.stderr) == (2, "hybrisfs: 'nonsense' is not a rate\n")
    assert run("limit", "--on-metered", "panic").exit_code == 2


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("2h", 7200), ("1d12h30s", 129630)])
def test_a_pause_for_a_while(photos: FakeVolume, run: Run, text: str, seconds: int) -> None:
    done = run("pause", "--for", text)
    assert done.stdout.startswith("photos: Transfers are paused until ")
    assert photos.transfers.told == [("pause", seconds)]


@pytest.mark.parametrize("text", ["", "2", "h", "-1h", "2 h", "1w"])
def test_what_is_no_duration(photos: FakeVolume, run: Run, text: str) -> None:
    assert run("pause", "--for", text).exit_code == 2
    assert photos.transfers.told == []


def test_status_tells_of_a_pause_until_it_ends(photos: FakeVolume, run: Run) -> None:
    photos.pending_files = 3
    said = "Transfers are paused: only what programs read is fetched. hybrisfs resume ends that."
    assert run("pause", "photos").stdout == f"photos: {said}\n"
    status = run("status").stdout
    assert f"  {said}\n" in status
    assert "3 changes wait on this machine." in status
    assert run("resume").stdout == "photos: Transfers go on.\n"
    assert "paused" not in run("status").stdout
    photos.transfers.held = "metered"
    assert run("resume").stdout.startswith("photos: The network is metered: ")
    assert json.loads(run("status", "--json").stdout)["volumes"][0]["transfers"]["held"] == "metered"
