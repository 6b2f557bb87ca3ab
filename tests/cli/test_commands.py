"""Each command: what it asks the daemon, what it prints, how it exits."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.status import describe
from hybrisfs.api.clouds import Retention
from hybrisfs.api.status import Archive, StatusRequest
from hybrisfs.daemon.service import Daemon
from hybrisfs.daemon.wanted_mounts import WantedMount, WantedMounts
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home
from hybrisfs.settings.config import DEFAULT_NO_FETCH_PROGRAMS
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolume, FakeVolumes
from tests.system.deadline import until

REPOSITORY = Path(__file__).resolve().parents[2]


def test_quickstart_says_what_it_did_and_what_to_try(served: Daemon, run: Run, home: Home) -> None:
    first = run("quickstart")
    assert first.exit_code == 0
    assert "Created the volume home" in first.stdout
    assert f"Mounted it at {home.default_mountpoint}." in first.stdout
    assert "hybrisfs sync --wait" in first.stdout
    second = run("quickstart")
    assert second.exit_code == 0
    assert "There is the volume home" in second.stdout
    assert f"It is mounted at {home.default_mountpoint}." in second.stdout
    facts = json.loads(run("quickstart", "--json").stdout)
    assert facts["created"] is False
    assert len(facts["volume"]["clouds"]) == 3


def test_a_volume_over_one_cloud_says_what_that_means(served: Daemon, run: Run) -> None:
    made = run("volume", "create", "new", "--cloud", "file:///a", "-f", "0", "-k", "1")
    assert "over 1 cloud: everything is kept on 1 of them, none may fail, 1 is enough to read." in made.stdout


def test_quickstart_at_a_relative_folder(
    served: Daemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"at {tmp_path}/here." in run("quickstart", "here").stdout


def test_volume_create_and_list(served: Daemon, volumes: FakeVolumes, run: Run) -> None:
    words = ("--cloud", "file:///a", "--cloud", "file:///b", "--cloud", "file:///c", "-f", "1", "-k", "1")
    made = run("volume", "create", "new", *words)
    assert made.exit_code == 0
    assert (
        "over 3 clouds: everything is kept on 2 of them, any 1 may fail, 1 is enough to read." in made.stdout
    )
    assert "hybrisfs mount new DIR" in made.stdout
    assert [cloud.url for cloud in volumes.configs["new"].clouds] == ["file:///a", "file:///b", "file:///c"]
    assert [line.split() for line in run("volume", "list").stdout.splitlines()] == [
        ["NAME", "CLOUDS", "MAY", "FAIL", "MOUNTED", "AT"],
        ["new", "3", "1", "-"],
        ["photos", "3", "1", "-"],
    ]
    listed = json.loads(run("volume", "list", "--json").stdout)
    assert [volume["name"] for volume in listed["volumes"]] == ["new", "photos"]


def test_what_is_archived(photos: FakeVolume, run: Run) -> None:
    assert "--archive-after      off" in run("volume", "set", "photos").stdout
    assert "archive" not in run("status").stdout
    changed = run("volume", "set", "photos", "--archive-after", "30d", "--archive-code", "4+1").stdout
    assert changed == "photos:\n  --archive-after  30d\n  --archive-code   4+1\n"
    assert (photos.agreed.archive_after, photos.agreed.archive_code) == ("30d", "4+1")
    photos.archive = Archive("30d", "4+1", 9_000_000, 0, 0, 0)
    assert "archive: nothing yet; as 4+1, without a read for 30d" in run("status").stdout
    photos.archive = Archive("30d", "", 9_000_000, 0, 0, 0)
    assert "archive: nothing yet; there are too few clouds for it" in run("status").stdout
    photos.archive = Archive("off", "4+1", 1_000_000, 8_000_000, 10_000_000, 6_000_000)
    shown = "archive: 8.0 MB of 9.0 MB on the clouds, where it takes 10.0 MB, 6.0 MB less than before"
    assert shown in run("status").stdout


def test_how_often_machines_announce_themselves(photos: FakeVolume, run: Run) -> None:
    assert "--announce           900s" in run("volume", "set", "photos").stdout
    assert run("volume", "set", "photos", "--announce", "2m").stdout == "photos:\n  --announce  120s\n"
    assert photos.agreed.announce_seconds == 120
    assert run("volume", "set", "photos", "--announce", "often").exit_code == 2


def test_volume_set(photos: FakeVolume, run: Run) -> None:
    said = run("volume", "set", "photos", "--stale-reads", "block", "--notifications", "off").stdout
    assert said == "photos:\n  --stale-reads    block\n  --notifications  off\n"
    facts = json.loads(run("volume", "set", "photos", "--stale-reads", "warn", "--json").stdout)
    assert (facts["name"], facts["stale_reads"], facts["notifications"]) == ("photos", "warn", False)
    assert run("volume", "set", "nothing", "--stale-reads", "warn").exit_code == 4


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--cache", "40G"], "--cache  40.0 GB"),
        (["--cache", "1.5TB"], "--cache  1.5 TB"),
        (["--deletion-percent", "100"], "--deletion-percent  100"),
        (["--discard-hours", "0"], "--discard-hours  0"),
        (["--no-fetch-programs", "find, baloo_*"], "--no-fetch-programs  find, baloo_*"),
        (["--no-fetch-programs", "none"], "--no-fetch-programs  none"),
        (["--link-port", "2000"], "--link-port  2000"),
        (["--link-addresses", "nas.lan:1,[fd00::1]:2"], "--link-addresses  nas.lan:1, [fd00::1]:2"),
        (["--discover", "off"], "--discover  off"),
    ],
)
def test_every_setting_has_an_option(photos: FakeVolume, run: Run, options: list[str], shown: str) -> None:
    assert run("volume", "set", "photos", *options).stdout == f"photos:\n  {shown}\n"
    assert f"{options[0]} " in run("volume", "set", "photos").stdout


def test_the_usual_programs_come_back(photos: FakeVolume, run: Run) -> None:
    run("volume", "set", "photos", "--no-fetch-programs", "none")
    run("volume", "set", "photos", "--no-fetch-programs", "default")
    assert photos.settings.config.no_fetch_programs == DEFAULT_NO_FETCH_PROGRAMS


@pytest.mark.parametrize(
    "options",
    [
        ["--stale-reads", "maybe"],
        ["--cache", "much"],
        ["--cache", "-1G"],
        ["--cache", "1M"],
        ["--cache", "9999999999T"],
        ["--deletion-percent", "101"],
        ["--discard-hours", "999999999"],
        ["--veto-hours", "0"],
        ["--link-port", "65536"],
        ["--link-addresses", "nowhere"],
        ["--no-fetch-programs", "a,,b"],
    ],
)
def test_what_cannot_be_set_is_refused(photos: FakeVolume, run: Run, options: list[str]) -> None:
    before = photos.settings.config
    refused = run("volume", "set", "photos", *options)
    assert refused.exit_code == 2
    assert "Traceback" not in refused.stderr
    assert photos.settings.config == before


def test_a_volume_needs_clouds(served: Daemon, run: Run) -> None:
    result = run("volume", "create", "new")
    assert result.exit_code == 2
    assert "--cloud" in result.stderr


def test_mount_and_umount_by_relative_folder(
    photos: FakeVolume, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("mount", "photos", "mnt").stdout == f"Mounted photos at {tmp_path}/mnt.\n"
    assert run("mount", "photos", "mnt").stdout == f"Already mounted: photos at {tmp_path}/mnt.\n"
    assert run("umount", "mnt").stdout == f"Unmounted photos from {tmp_path}/mnt.\n"
    again = run("umount", "photos")
    assert again.exit_code == 1
    assert again.stderr == "hybrisfs: the volume photos is not mounted\n"


def test_umount_of_a_busy_mount(photos: FakeVolume, run: Run, tmp_path: Path) -> None:
    run("mount", "photos", str(tmp_path / "mnt"), "--allow-other")
    assert photos.allow_other is True
    photos.busy = True
    assert run("umount", "photos").exit_code == 1
    assert run("umount", "photos", "--lazy").exit_code == 0


def test_umount_starts_no_daemon(home: Home, run: Run, tmp_path: Path) -> None:
    result = run("umount", "photos")
    assert result.exit_code == 1
    assert "photos is not mounted: the daemon is not running" in result.stderr
    assert not home.socket.exists()
    WantedMounts(home.state, SYSTEM).add("photos", WantedMount(tmp_path))
    assert "will not be mounted again" in run("umount", "photos").stdout
    assert WantedMounts(home.state, SYSTEM).all() == {}


def mounted_in_the_foreground(home: Home, folder: Path) -> subprocess.Popen[str]:
    """A command that has mounted the volume there, and stays."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "cli.main", "mount", "photos", str(folder), "--foreground"],
        cwd=REPOSITORY,
        env=home.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"Mounted photos at {folder}.\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_mount_in_the_foreground_unmounts_when_interrupted(
    photos: FakeVolume, home: Home, tmp_path: Path, number: signal.Signals
) -> None:
    process = mounted_in_the_foreground(home, tmp_path / "mnt")
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    assert rest == "Unmounted photos.\n"
    assert process.returncode == 0
    assert photos.mountpoint is None


def test_mount_in_the_foreground_ends_when_somebody_unmounts(
    photos: FakeVolume, home: Home, tmp_path: Path
) -> None:
    process = mounted_in_the_foreground(home, tmp_path / "mnt")
    photos.mountpoint = None
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "Unmounted photos.\n")


def test_status_when_all_is_well(photos: FakeVolume, run: Run, tmp_path: Path) -> None:
    run("mount", "photos", str(tmp_path / "mnt"))
    lines = run("status").stdout.splitlines()
    assert lines[0] == f"photos  mounted at {tmp_path}/mnt"
    assert lines[1] == "  Everything is safe on 2 of 3 clouds."
    assert lines[2].split() == ["cloud-0", "ok", "file:///clouds/photos-0"]
    assert "12 files, 3.0 MB; cache 1.0 MB of 20.0 GB" in lines[5]


@pytest.mark.parametrize(
    ("states", "pending", "sentence"),
    [
        ({}, 3, "3 changes (5.0 kB) on the way to the clouds."),
        ({"cloud-0": "slow"}, 0, "Everything is safe on 2 of 3 clouds."),
        ({"cloud-0": "full"}, 0, "Everything is safe on 2 of 3 clouds, though cloud-0 is full."),
        (
            {"cloud-0": "down"},
            0,
            "Everything is on the clouds, though cloud-0 is down. All of it can be read.",
        ),
        (
            {"cloud-0": "lying"},
            3,
            "3 changes (5.0 kB) on the way to the clouds, though cloud-0 is lying. All of it can be read.",
        ),
        (
            {"cloud-0": "full", "cloud-1": "full"},
            3,
            "3 changes (5.0 kB) wait on this machine: 2 clouds are needed, 1 of 3 work.",
        ),
        (
            {"cloud-0": "down", "cloud-2": "refusing"},
            0,
            "Everything is on the clouds, though cloud-0 is down and cloud-2 is refusing. "
            "What is not cached here may be unreadable until they are back.",
        ),
    ],
)
def test_the_sentence_on_top_of_status(
    photos: FakeVolume, run: Run, states: dict[str, str], pending: int, sentence: str
) -> None:
    photos.states = {cloud: (state, "for a reason") for cloud, state in states.items()}
    photos.pending_files, photos.pending_bytes = pending, pending and 5000
    result = run("status", "photos")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == f"  {sentence}"
    assert result.stdout.count("for a reason") == len(states)


@pytest.mark.parametrize(
    ("files", "devices", "pending", "states", "sentence"),
    [
        (
            2,
            ["alice"],
            0,
            {},
            "2 files (1.4 MB) are on your machines only: alice has yet to put them on the clouds.",
        ),
        (
            1,
            ["alice", "carol"],
            0,
            {"cloud-0": "down", "cloud-1": "full"},
            "1 file (1.4 MB) is on your machines only: alice and carol have yet to put it on the clouds. "
            "2 clouds are needed, 1 of 3 work.",
        ),
        (
            0,
            ["alice"],
            3,
            {},
            "3 changes (5.0 kB) on the way to the clouds. Changes of names or attributes are on your "
            "machines only: alice has yet to put them on the clouds.",
        ),
        (1, [], 0, {}, "1 file (1.4 MB) is on your machines only."),
    ],
)
def test_status_names_what_only_machines_hold(
    photos: FakeVolume,
    run: Run,
    files: int,
    devices: list[str],
    pending: int,
    states: dict[str, str],
    sentence: str,
) -> None:
    photos.states = {cloud: (state, "") for cloud, state in states.items()}
    photos.pending_files, photos.pending_bytes = pending, pending and 5000
    photos.machines_only = {"files": files, "bytes": 1_400_000, "devices": devices}
    assert run("status").stdout.splitlines()[1] == f"  {sentence}"


def test_status_of_a_removed_device_says_so_first(photos: FakeVolume, run: Run) -> None:
    photos.removed = True
    assert run("status").stdout.splitlines()[1] == (
        "  This machine was removed from the volume: what changes here reaches no other machine."
    )


def test_status_as_json(photos: FakeVolume, run: Run) -> None:
    [entry] = json.loads(run("status", "--json").stdout)["volumes"]
    assert {"name", "mountpoint", "files", "bytes", "pending_files", "pending_bytes", "conflicts"} <= set(
        entry
    )
    assert {"name", "url", "state", "reason", "since", "retention"} == set(entry["clouds"][0])


def test_status_of_a_volume_that_cannot_be_opened(served: Daemon, volumes: FakeVolumes, run: Run) -> None:
    volumes.broken["photos"] = HybrisError("the database is damaged")
    result = run("status")
    assert result.exit_code == 1
    assert result.stdout == "photos  cannot be used: the database is damaged\n"


def test_what_to_do_about_it_is_on_a_line_of_its_own(served: Daemon, volumes: FakeVolumes, run: Run) -> None:
    volumes.broken["photos"] = HybrisError("the volume is in use", "by process 7", "kill 7 ends it.")
    lines = run("status").stdout.splitlines()
    assert lines == ["photos  cannot be used: the volume is in use: by process 7", "  kill 7 ends it."]


def test_a_volume_that_should_be_mounted_and_is_not_comes_first(
    photos: FakeVolume, home: Home, run: Run
) -> None:
    WantedMounts(home.state, SYSTEM).add("photos", WantedMount(Path("/nowhere/at all")))
    result = run("status")
    first, remedy, sentence, *_ = result.stdout.splitlines()
    assert result.exit_code == 1
    assert first.startswith("photos  is not mounted at /nowhere/at all, as it should be: ")
    assert "hybrisfs mount photos '/nowhere/at all'" in remedy
    assert "safe" not in sentence


def test_status_cannot_be_used_to_play_tricks_on_the_terminal(photos: FakeVolume, run: Run) -> None:
    photos.states = {"cloud-0": ("down", "\x1b]0;owned\x07 [red]x[/red]")}
    output = run("status").stdout
    assert "\x1b" not in output
    assert r"\e]0;owned\x07 [red]x[/red]" in output


def test_status_says_what_clouds_were_proven_to_keep(photos: FakeVolume, run: Run) -> None:
    facts = StatusRequest.answer_from(json.loads(run("status", "--json").stdout))
    first, second, third = facts.volumes[0].clouds[:3]
    first.retention = Retention(True, 30, False, True, "", 0)
    second.retention = Retention(True, None, True, True, "", 0)
    third.retention = Retention(None, 30, None, True, "", 0)
    text = "\n".join(describe(facts))
    assert text.count("keeps deleted objects") == 2
    assert "(keeps deleted objects: for 30 days)" in text
    assert "(keeps deleted objects: yes, but this machine could destroy them)" in text


def test_status_without_any_volume(served: Daemon, volumes: FakeVolumes, run: Run) -> None:
    volumes.configs.clear()
    assert run("status").stdout == "There is no volume yet: hybrisfs quickstart makes one.\n"
    assert run("volume", "list").stdout == "There is no volume yet: hybrisfs quickstart makes one.\n"
    assert json.loads(run("status", "--json").stdout)["volumes"] == []


def test_watching_shows_what_moves(photos: FakeVolume, home: Home) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "status", "--watch"],
        cwd=REPOSITORY,
        env=home.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    seen = itertools.takewhile(lambda line: line != "\n", process.stdout)
    assert "  2.0 MB of 8.0 MB to amber, 1.3 MB/s\n" in list(seen)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_watching_the_status_until_interrupted(photos: FakeVolume, home: Home) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "status", "--json", "--watch"],
        cwd=REPOSITORY,
        env=home.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(2):
        assert json.loads(process.stdout.readline())["volumes"][0]["name"] == "photos"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "\ninterrupted\n"


def test_sync_starts_and_says_what_is_pending(photos: FakeVolume, run: Run) -> None:
    assert run("sync").stdout == "photos: everything is safe on the clouds.\n"
    photos.pending_files, photos.pending_bytes = 1, 1_500_000
    result = run("sync")
    assert result.exit_code == 0
    assert result.stdout == (
        "photos: 1 change (1.5 MB) on the way to the clouds; hybrisfs sync --wait waits for them.\n"
    )


def test_sync_waits(photos: FakeVolume, run: Run) -> None:
    photos.pending_files = 1
    photos.release.set()
    result = run("sync", "photos", "--wait")
    assert (result.exit_code, result.stdout) == (0, "photos: everything is safe on the clouds.\n")


def test_sync_that_runs_out_of_time_says_why(photos: FakeVolume, run: Run) -> None:
    photos.pending_files, photos.pending_bytes = 2, 10
    photos.states = {"cloud-1": ("down", "no route to host")}
    result = run("sync", "--wait", "--timeout", "0.5")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr == (
        "photos: 2 changes (10 bytes) still pending after 0.5 s; the upload goes on.\n"
        "  cloud-1 is down: no route to host\n"
    )
    assert json.loads(run("sync", "--wait", "--timeout", "0", "--json").stdout)["done"] is False


def test_sync_does_not_call_safe_what_only_machines_hold(photos: FakeVolume, run: Run) -> None:
    photos.machines_only = {"files": 2, "bytes": 1_400_000, "devices": ["alice"]}
    sentence = "2 files (1.4 MB) are on your machines only: alice has yet to put them on the clouds."
    assert run("sync").stdout == f"photos: {sentence}\n"
    result = run("sync", "--wait", "--timeout", "0.5")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == f"photos: after 0.5 s {sentence}\n"


def test_a_timeout_without_wait_makes_no_sense(served: Daemon, run: Run) -> None:
    assert run("sync", "--timeout", "5").exit_code == 2
    assert run("sync", "--wait", "--timeout", "-5").exit_code == 2
    assert run("sync", "--wait", "--timeout", "inf").exit_code == 2


def test_cache_drop(photos: FakeVolume, run: Run) -> None:
    assert run("cache", "drop").stdout == (
        "photos: freed 900 kB. Kept 100 kB that are in use, pinned, or not on the clouds yet.\n"
    )
    assert json.loads(run("cache", "drop", "--json").stdout) == {
        "name": "photos",
        "freed_bytes": 900_000,
        "kept_bytes": 100_000,
    }


def test_fsck(photos: FakeVolume, run: Run) -> None:
    clean = run("fsck", "photos")
    assert clean.exit_code == 0
    assert clean.stdout == "photos: no problem found. hybrisfs scrub checks the clouds.\n"
    assert run("fsck", "photos", "--verbose").stdout.splitlines()[1].split() == ["files", "12"]
    photos.report.problems.append(
        {"where": "cloud-1: packs/ab", "what": "is missing\nfake line", "severity": "error"}
    )
    damaged = run("fsck", "--clouds")
    assert damaged.exit_code == 1
    assert damaged.stdout == (
        "photos: 1 problem found:\n  error  cloud-1: packs/ab  $'is missing\\nfake line'\n"
    )
    as_json = run("fsck", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["problems"][0]["where"] == "cloud-1: packs/ab"


@pytest.mark.parametrize("command", [["status"], ["sync"], ["cache", "drop"], ["fsck"]])
def test_unknown_and_ambiguous_volumes(
    served: Daemon, volumes: FakeVolumes, run: Run, command: list[str]
) -> None:
    unknown = run(*command, "typo")
    assert unknown.exit_code == 4
    assert unknown.stderr == "hybrisfs: there is no volume 'typo'\nThere are: photos.\n"
    volumes.create(Home.below(Path("/")), "zoo", ["file:///z"], 0, 1, make=False)
    if command != ["status"]:
        ambiguous = run(*command)
        assert ambiguous.exit_code == 2
        assert "Name one, as NAME or with --volume: photos, zoo." in ambiguous.stderr


def test_daemon_stop_without_a_daemon(home: Home, run: Run) -> None:
    assert run("daemon", "--stop").stdout == "The daemon was not running.\n"


def test_events_are_told_and_that_there_are_none(
    served: Daemon, home: Home, volumes: FakeVolumes, run: Run
) -> None:
    home.volume_state("photos").mkdir(parents=True)
    run("status")
    assert run("events").stdout == "No events.\n"
    assert run("events", "--json").stdout == ""
    volumes.opened["photos"].states["cloud-1"] = ("down", "no answer")
    served.start()
    told = until(lambda: run("events").stdout.replace("No events.\n", ""), "the event")
    assert told.endswith("photos: cloud-1 cannot be reached: no answer\n")
    assert run("events", "--since", "2000-01-01").stdout == told
    assert run("events", "--since", "2100-01-01").stdout == "No events.\n"
