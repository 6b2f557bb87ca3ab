"""The commands about devices, and the lines of status about other devices."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from tests.cli.conftest import Run, moment, typed
from tests.daemon.fake import CODE, COMPARISON, EXPIRES, FakePairing, FakeVolume, FakeVolumes

REPOSITORY = Path(__file__).resolve().parents[2]
LAST_SEEN = 1_790_000_000.0


def documents(text: str) -> list[Any]:
    """The JSON documents that follow each other; there may be nothing else."""
    decoder, found = json.JSONDecoder(), []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


# -- device invite, device join ------------------------------------------------------------------


def test_inviting_shows_code_and_comparison_and_who_came(photos: FakeVolume, run: Run) -> None:
    done = run("device", "invite", "photos", "--yes", "--valid", "60", "--with-credentials")
    assert done.exit_code == 0
    assert f"  hybrisfs device join {CODE}\n" in done.stdout
    assert f"before {moment(EXPIRES)[-5:]}" in done.stdout
    assert f"Comparison string: {COMPARISON}\n" in done.stdout
    assert done.stdout.endswith("laptop belongs to the volume now.\n")
    assert photos.invited == [(60, True)]
    assert photos.pairing.confirmed == [True]


def test_a_reader_is_invited(photos: FakeVolume, run: Run) -> None:
    done = run("device", "invite", "photos", "--yes", "--role", "reader")
    assert done.stdout.endswith("laptop belongs to the volume now, and only reads.\n")
    assert photos.readers == ["phone"]
    run("device", "invite", "photos", "--yes", "--role", "full")
    assert len(photos.invited) == 2 and photos.readers == ["phone"]


def test_what_a_device_may_do_is_told_and_changed(photos: FakeVolume, run: Run) -> None:
    photos.others = [{"id": "11" * 16, "name": "nas", "forked": False, "reader": True, "overstepped": True}]
    assert run("device", "role", "nas").stdout == "nas (11111111) is a full member.\n"
    assert run("device", "role", "nas", "reader").stdout == "nas (11111111) only reads now.\n"
    assert photos.readers == ["nas"]
    assert run("device", "role", "nas").stdout == "nas (11111111) only reads.\n"
    told = json.loads(run("device", "role", "nas", "full", "--json").stdout)
    assert told == {"name": "photos", "id": "11" * 16, "device": "nas", "reader": False, "folders": None}
    assert run("device", "role", "nas", "full").stdout == "nas (11111111) is a full member now.\n"
    assert "only reads, signed what it may not" in run("device", "list").stdout


def test_a_contributor_is_limited_to_folders(photos: FakeVolume, run: Run) -> None:
    photos.others = [{"id": "11" * 16, "name": "tab", "forked": False, "folders": ["Photos", "Notes"]}]
    folders = ["--folder", "Photos", "--folder", "Notes"]
    done = run("device", "invite", "photos", "--yes", "--role", "contributor", *folders)
    assert done.stdout.endswith("laptop belongs to the volume now, and changes only Photos, Notes.\n")
    assert photos.limits == {"phone": ["Photos", "Notes"]} and photos.readers == []
    done = run("device", "role", "tab", "contributor", "--folder", "Photos")
    assert done.stdout == "tab (11111111) changes only Photos now.\n"
    assert photos.limits["tab"] == ["Photos"]
    assert "changes only Photos, Notes" in run("device", "list").stdout
    run("device", "role", "tab", "full")
    assert photos.limits["tab"] == []


def test_folders_are_proposed_as_well(photos: FakeVolume, run: Run) -> None:
    proposed = [{"by": "desk", "role": "contributor", "folders": ["My Photos"]}]
    photos.others = [{"id": "11" * 16, "name": "tab", "forked": False, "proposed": proposed}]
    assert run("device", "role", "tab").stdout.splitlines() == [
        "tab (11111111) is a full member.",
        "desk wants it to change only My Photos, which has no effect until another machine agrees:",
        "  hybrisfs device role 11111111 contributor --folder 'My Photos'",
    ]


def test_what_is_only_proposed_is_told_and_how_to_agree(photos: FakeVolume, run: Run) -> None:
    proposed = [{"by": "desk", "role": "reader"}]
    photos.others = [{"id": "11" * 16, "name": "nas", "forked": False, "proposed": proposed}]
    assert run("device", "role", "nas", "reader").stdout.splitlines() == [
        "nas (11111111) is a full member.",
        "desk wants it to only read, which has no effect until another machine agrees:",
        "  hybrisfs device role 11111111 reader",
    ]
    assert "desk wants it to only read" in run("device", "list").stdout


def test_a_recovery_kit_says_what_a_device_may_do(photos: FakeVolume, run: Run, tmp_path: Path) -> None:
    photos.others = [{"id": "11" * 16, "name": "nas", "forked": False}]
    written = tmp_path / "passphrase"
    written.write_text("correct horse\n")
    words = ["device", "role", "nas", "reader", "--with-kit", "--passphrase-file", str(written)]
    assert run(*words).stdout == "nas (11111111) only reads now.\n"
    assert photos.decisions == [("nas", "role by correct horse")]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["role"], "DEVICE"),
        (["role", "nas", "contributor"], "--folder"),
        (["role", "nas", "reader", "--folder", "x"], "needs the role contributor"),
        (["role", "nas", "--folder", "x"], "needs the role contributor"),
        (["invite", "--role", "contributor"], "--folder"),
        (["role", "nas", "writer"], "full"),
        (["role", "nobody", "reader"], "not a machine of this volume"),
        (["role", "desk", "reader"], "its own role"),
        (["invite", "--role", "owner"], "full"),
    ],
)
@pytest.mark.usefixtures("photos")
def test_a_role_that_makes_no_sense(run: Run, words: list[str], complaint: str) -> None:
    done = run("device", *words)
    assert done.exit_code == 2
    assert complaint in done.stderr


@pytest.mark.parametrize(("text", "accepted"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_at_a_terminal_the_question_is_asked(photos: FakeVolume, text: str, accepted: bool) -> None:
    done = typed(text, "device", "invite")
    assert photos.pairing.confirmed == [accepted]
    assert "Does laptop show the same string? [y/N]" in done.stderr
    assert COMPARISON in done.stdout
    assert done.exit_code == (0 if accepted else 1)
    assert ("was not confirmed" in done.stderr) is not accepted


def test_yes_asks_nothing(photos: FakeVolume) -> None:
    done = typed("", "device", "invite", "--yes")
    assert done.exit_code == 0
    assert "same string" not in done.output
    assert photos.pairing.confirmed == [True]


def test_the_question_does_not_disturb_the_json(photos: FakeVolume) -> None:
    done = typed("y\n", "device", "invite", "--json")
    assert documents(done.stdout) == [
        {"code": CODE, "expires": EXPIRES},
        {"comparison": COMPARISON},
        {"name": "photos", "device": "laptop", "id": "00", "acknowledged": True},
    ]
    assert "same string" in done.stderr


def test_interrupting_the_question_ends_the_pairing(photos: FakeVolume, volumes: FakeVolumes) -> None:
    done = typed("", "device", "invite")  # the end of what is typed is an interruption, too
    assert done.exit_code == 130
    assert photos.pairing.ended.wait(30)
    assert photos.pairing.confirmed == [False]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_client_that_goes_away_ends_the_pairing(
    photos: FakeVolume, home: Home, number: signal.Signals
) -> None:
    photos.pairing = FakePairing(peer=None)
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "cli.main", "device", "invite", "--json"],
        cwd=REPOSITORY,
        env=home.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "{\n"  # it shows the code
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert photos.pairing.ended.wait(30)
    if number == signal.SIGINT:
        assert (process.returncode, errors) == (130, "\ninterrupted\n")


def test_the_picture_of_the_code_is_for_terminals(photos: FakeVolume, run: Run, home: Home) -> None:
    assert "##" not in run("device", "invite", "--yes").stdout
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", "device", "invite", "--yes"],
            cwd=REPOSITORY,
            env=home.environment(),
            stdout=theirs,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0
        assert b"##" in os.read(ours, 1 << 16)
    finally:
        os.close(ours)
        os.close(theirs)


def test_joining(served: Daemon, volumes: FakeVolumes, run: Run) -> None:
    done = run("device", "join", CODE, "--name", "den", "--as", "here", "--yes")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"Comparison string: {COMPARISON}",
        "This machine belongs to the volume here now.",
        "Next: hybrisfs mount here DIR",
    ]
    assert volumes.own_names == ["den"]
    listed = json.loads(run("volume", "list", "--json").stdout)
    assert "here" in [one["name"] for one in listed["volumes"]]


def test_joining_as_json(served: Daemon, run: Run) -> None:
    comparison, facts = documents(run("device", "join", CODE, "--yes", "--json").stdout)
    assert comparison == {"comparison": COMPARISON}
    assert facts["volume"]["name"] == "shared"


def test_a_join_that_is_not_confirmed(served: Daemon, volumes: FakeVolumes) -> None:
    done = typed("n\n", "device", "join", CODE)
    assert done.exit_code == 1
    assert "was not confirmed" in done.stderr
    assert "shared" not in volumes.configs


def test_names_of_devices_play_no_tricks_on_the_terminal(photos: FakeVolume) -> None:
    photos.pairing = FakePairing("\x1b[31mred")
    done = typed("y\n", "device", "invite")
    assert "\x1b[31m" not in done.output
    assert "\\e[31mred" in done.stderr and "\\e[31mred" in done.stdout


# -- device list, device rename, status ----------------------------------------------------------


@pytest.fixture
def others(photos: FakeVolume) -> list[dict[str, object]]:
    photos.others = [
        {"id": "ab" * 16, "name": "laptop", "linked": True, "lag": 0, "forked": False},
        {"id": "cd" * 16, "name": "den", "last_seen": LAST_SEEN, "lag": 7, "suspect": True},
        {"id": "ef" * 16, "name": "old", "last_seen": None, "forked": True},
        {"id": "12" * 16, "name": "\x1bodd", "last_seen": None},
    ]
    return photos.others


@pytest.mark.usefixtures("others")
def test_the_devices_are_listed(run: Run) -> None:
    done = run("device", "list", "photos")
    assert done.exit_code == 0
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["NAME", "ID", "LAST", "SEEN", "BEHIND"],
        ["desk", "00000000", "now", "-", "this", "machine"],
        ["laptop", "abababab", "now", "nothing", "linked"],
        ["den", "cdcdcdcd", *moment(LAST_SEEN).split(), "7", "updates", "changes", "may", "be", "missing"],
        ["old", "efefefef", "never", "-", "forked"],
        ["$'\\eodd'", "12121212", "never", "-"],
    ]


def test_the_devices_as_json(others: list[dict[str, object]], run: Run) -> None:
    facts = json.loads(run("device", "list", "--json").stdout)
    assert facts["name"] == "photos"
    assert [told | one for told, one in zip(facts["devices"][1:], others, strict=True)] == facts["devices"][
        1:
    ]


def test_status_tells_of_devices_and_warnings(
    photos: FakeVolume, others: list[dict[str, object]], run: Run
) -> None:
    photos.warnings = ["an update was refused: \x1b[31m"]
    photos.notices = ["laptop has forked"]
    lines = run("status").stdout.splitlines()
    assert "  5 machines, linked with laptop" in lines
    assert f"  may be missing changes of den since {moment(LAST_SEEN)}" in lines
    assert r"  $'an update was refused: \e[31m'" in lines
    assert "  laptop has forked" in lines
    assert [line for line in lines if "may be missing" in line and "den" not in line] == []


def test_status_of_a_volume_with_one_device_says_nothing_of_devices(photos: FakeVolume, run: Run) -> None:
    assert "device" not in run("status").stdout


def test_status_counts_conflicts(photos: FakeVolume, run: Run) -> None:
    photos.conflicting = [{"path": "a (conflict)", "of": "a", "modified": "", "size": 0}]
    assert "  1 conflict to settle" in run("status").stdout.splitlines()


def test_a_device_is_renamed(photos: FakeVolume, run: Run) -> None:
    done = run("device", "rename", "desk", "office", "--volume", "photos")
    assert (done.exit_code, done.stdout) == (0, "desk is called office now.\n")
    assert photos.decisions == [("desk", "office")]


# -- proofs --------------------------------------------------------------------------------------


CHARGE = {"kind": "offence", "what": "signed what it may not: \x1bx", "at": LAST_SEEN}


@pytest.fixture
def charge(photos: FakeVolume) -> None:
    photos.charges = [CHARGE]


@pytest.mark.usefixtures("charge")
def test_a_proof_is_shown_kept_and_checked(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "proof.hfev"
    done = run("device", "proof", "old", "--out", str(file))
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        r"old (11111111) $'signed what it may not: \ex'",
        f"It signed that on {moment(LAST_SEEN)}, by its own clock. The signatures are good.",
    ]
    assert run("device", "check-proof", str(file)).stdout == done.stdout
    assert json.loads(run("device", "check-proof", str(file), "--json").stdout)["kind"] == "offence"


@pytest.mark.usefixtures("photos")
def test_nothing_is_proven(run: Run, tmp_path: Path) -> None:
    done = run("device", "proof", "old")
    assert done.exit_code != 0
    assert "nothing is proven against old" in done.stderr
    file = tmp_path / "letter"
    file.write_bytes(b"x")
    assert "proves nothing" in run("device", "check-proof", str(file)).stderr
    file.write_bytes(bytes(1 << 19))
    assert "proves nothing" in run("device", "check-proof", str(file)).stderr, "as large as they may be"
    file.write_bytes(bytes(1 << 20))
    assert "too large" in run("device", "check-proof", str(file)).stderr
    assert run("device", "check-proof", str(tmp_path / "none")).exit_code == 2


@pytest.mark.usefixtures("charge")
def test_a_removal_names_what_was_proven(run: Run) -> None:
    assert "the proof is kept" in run("device", "remove", "old", "--yes").stdout


def test_a_device_that_broke_a_rule_is_marked(photos: FakeVolume, run: Run) -> None:
    photos.others = [{"id": "ab" * 16, "name": "odd", "forked": True, "rejoined": True, "charges": [CHARGE]}]
    line = run("device", "list").stdout.splitlines()[-1]
    assert "forked (restored from a backup), broke a rule: see hybrisfs device proof" in line


@pytest.fixture
def admitted(photos: FakeVolume) -> list[dict[str, object]]:
    photos.admitted = [
        {"id": "ab" * 16, "device": "tablet", "reserve": False},
        {"id": "cd" * 16, "device": "recovery kit", "reserve": True},
    ]
    return photos.admitted


THESE = "tablet (abababab), recovery kit (cdcdcdcd)"


@pytest.mark.usefixtures("admitted")
def test_who_was_let_in_by_a_device_that_is_removed_is_named(photos: FakeVolume, run: Run) -> None:
    done = run("device", "remove", "laptop")
    assert done.exit_code == 0 and f"remain: {THESE}." in done.stdout
    assert photos.decisions == [("laptop", "remove")]


@pytest.mark.usefixtures("admitted")
def test_they_are_removed_with_it_when_that_is_asked_for(photos: FakeVolume, run: Run) -> None:
    done = run("device", "remove", "laptop", "--with-admitted")
    assert done.exit_code == 0 and f"Nor do those that it had let in: {THESE}." in done.stdout
    assert photos.decisions == [("laptop", "remove with admitted")]


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("answer", ["y", "n"])
def test_at_a_terminal_the_person_is_asked_what_becomes_of_them(
    photos: FakeVolume,
    admitted: list[dict[str, object]],
    answer: str,
) -> None:
    done = typed(f"y\n{answer}\n", "device", "remove", "laptop")
    assert done.exit_code == 0 and f"It has let in {THESE}." in done.stderr
    assert photos.decisions == [("laptop", "remove with admitted" if answer == "y" else "remove")]
    photos.admitted = admitted[:0]
    done = typed("y\n", "device", "remove", "laptop")
    assert done.exit_code == 0 and "let in" not in done.stderr + done.stdout


def test_who_let_a_device_in_is_listed(photos: FakeVolume, run: Run) -> None:
    photos.others = [{"id": "ab" * 16, "name": "den", "linked": True, "lag": 0, "let_in_by": "desk"}]
    assert "let in by desk" in run("device", "list").stdout


def test_a_link_through_a_relay_is_shown_as_one(photos: FakeVolume, run: Run) -> None:
    photos.others = [{"id": "ab" * 16, "name": "den", "linked": True, "relay": "nas:8017"}]
    assert "linked through the relay nas:8017" in run("device", "list").stdout


def test_whom_garbage_collection_waits_for_is_listed(photos: FakeVolume, run: Run) -> None:
    photos.others = [{"id": "ab" * 16, "name": "den", "unanswered_since": LAST_SEEN}]
    day = moment(LAST_SEEN).split()[0]
    assert f"deleting from the clouds waits for it since {day}" in run("device", "list").stdout


@pytest.fixture
def accused(photos: FakeVolume) -> dict[str, object]:
    votes = [
        {"by": "den", "id": "ab" * 16, "stance": "remove", "counts": True},
        {"by": "desk", "id": "00" * 16, "stance": "keep", "counts": False},
    ]
    fact = {"id": "cd" * 16, "name": "lap", "this": False, "final": False, "suspended": True}
    fact |= {"until": 0.0, "votes": votes}
    photos.trials = [fact]
    return fact


def test_votes_about_devices_are_listed(accused: dict[str, object], run: Run) -> None:
    line = run("device", "list").stdout.splitlines()[-1]
    assert line.startswith("lap (cdcdcdcd) is suspended: den says remove, desk says keep. ")
    assert "hybrisfs device keep cdcdcdcd vetoes that until 19" in line
    accused["suspended"] = False
    assert "belongs to the volume, although it was accused" in run("device", "list").stdout
    accused["final"] = True
    assert "lap (cdcdcdcd) was removed for good" in run("device", "list").stdout
    assert json.loads(run("device", "list", "--json").stdout)["accused"] == [accused]


def test_a_removal_that_is_not_final_says_how_to_make_it_so(photos: FakeVolume, run: Run) -> None:
    assert "vetoed" not in run("device", "remove", "lap").stdout
    photos.removal = {"counts": True, "final": False}
    assert "can be vetoed on other machines" in run("device", "remove", "lap").stdout
    photos.removal = {"counts": False, "final": False}
    said = run("device", "remove", "lap").stdout
    assert "has no effect yet" in said and "no longer belongs" not in said


def test_a_kit_decides_with_its_passphrase(photos: FakeVolume, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    file.write_text("correct horse\n")
    kit = ("--with-kit", "--passphrase-file", str(file))
    assert run("device", "remove", "lap", *kit).exit_code == 0
    assert "lap belongs to the volume" in run("device", "keep", "lap", *kit).stdout
    photos.kept = False
    assert "does not belong to the volume yet" in run("device", "keep", "lap").stdout
    assert photos.decisions == [
        ("lap", "remove by correct horse"),
        ("lap", "keep by correct horse"),
        ("lap", "keep"),
    ]
    assert run("device", "keep", "lap", "--with-kit").exit_code == 2, "nobody can be asked"


def test_how_long_removals_can_be_vetoed_is_set(photos: FakeVolume, run: Run) -> None:
    said = run("volume", "set", "photos", "--veto-hours", "5", "--evict-liars", "on").stdout
    assert said == "photos:\n  --veto-hours   5\n  --evict-liars  on\n"
    assert (photos.settings.config.veto_hours, photos.settings.config.evict_liars) == (5, True)
