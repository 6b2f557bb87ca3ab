"""`hybrisfs scrub` and `hybrisfs repair`: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.daemon.service import Daemon
from hybrisfs.errors import DamagedError, UsageError
from tests.cli.conftest import Run, typed
from tests.daemon.fake import FakeVolume, FakeVolumes
from tests.daemon.stored import Stored
from tests.kv.rig import Rig

CLEAN = {"name": "amber", "checked": 12, "missing": 0, "stale": 0, "corrupt": 0, "unreadable": 0}


def test_scrub_of_healthy_clouds(photos: FakeVolume, run: Run) -> None:
    photos.maintenance.facts = {"clouds": [CLEAN], "problems": [], "wrong": 0}
    done = run("scrub", "photos")
    assert done.exit_code == 0
    assert done.stdout == "photos: no problem found.\n  amber  12 objects read  all right\n"
    assert photos.maintenance.percent == 100
    assert run("scrub", "--sample", "2.5").stdout.startswith("photos: no problem found in a sample of 2.5 %.")
    assert photos.maintenance.percent == 2.5


def test_scrub_names_what_is_wrong(photos: FakeVolume, run: Run) -> None:
    problem: dict[str, object] = {
        "cloud": "birch",
        "kind": "corrupt",
        "what": "packs/ab/abcd.0 is wrong\nhaha",
    }
    problem |= {"key": None, "older": False}
    photos.maintenance.facts = {
        "clouds": [CLEAN, {**CLEAN, "name": "birch", "corrupt": 1, "missing": 1}],
        "problems": [problem],
        "wrong": 2,
    }
    done = run("scrub")
    assert done.exit_code == 1
    assert done.stdout == (
        "photos: 2 problems found:\n"
        "  amber  12 objects read  all right\n"
        "  birch  12 objects read  1 missing, 1 corrupt\n"
        "  corrupt  birch  $'packs/ab/abcd.0 is wrong\\nhaha'\n"
        "  and 1 more problem\n"
        "hybrisfs repair puts them right from what the other clouds hold.\n"
    )
    as_json = run("scrub", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["problems"] == [problem]


def _unread(cloud: str, number: int) -> dict[str, object]:
    what = f"packs/ab/abc{number}.0 cannot be read: Connection refused"
    return {"cloud": cloud, "kind": "unreadable", "what": what, "key": None, "older": False}


def test_what_scrub_cannot_read_is_told_once_a_cloud_and_not_called_wrong(
    photos: FakeVolume, run: Run
) -> None:
    photos.maintenance.facts = {
        "clouds": [CLEAN, {**CLEAN, "name": "birch", "unreadable": 12}],
        "problems": [_unread("birch", number) for number in range(12)],
        "wrong": 12,
    }
    done = run("scrub")
    assert done.exit_code == 1
    assert done.stdout == (
        "photos: 12 objects could not be read:\n"
        "  amber  12 objects read  all right\n"
        "  birch  0 objects read   12 unreadable\n"
        "  unreadable  birch  packs/ab/abc0.0 cannot be read: Connection refused  and 11 more\n"
        "Run it again when birch answers. If it does not come back, hybrisfs repair brings to other clouds "
        "what it should have.\n"
    )


def test_scrub_tells_what_is_wrong_from_what_it_cannot_read(photos: FakeVolume, run: Run) -> None:
    wrong = {"cloud": "amber", "kind": "missing", "what": "packs/ab/abcd.0 is missing", "key": None}
    photos.maintenance.facts = {
        "clouds": [{**CLEAN, "missing": 3}, {**CLEAN, "name": "birch", "unreadable": 1}],
        "problems": [{**wrong, "older": False}, _unread("birch", 1)],
        "wrong": 4,
    }
    assert run("scrub").stdout == (
        "photos: 3 problems found, and 1 object could not be read:\n"
        "  amber  12 objects read  3 missing\n"
        "  birch  11 objects read  1 unreadable\n"
        "  missing     amber  packs/ab/abcd.0 is missing\n"
        "  unreadable  birch  packs/ab/abc1.0 cannot be read: Connection refused\n"
        "  and 2 more problems\n"
        "hybrisfs repair puts them right from what the other clouds hold.\n"
        "Run it again when birch answers. If it does not come back, hybrisfs repair brings to other clouds "
        "what it should have.\n"
    )


def test_scrub_says_what_clouds_keep(photos: FakeVolume, run: Run) -> None:
    gone = {"cloud": "birch", "kind": "missing", "what": "packs/ab/abcd.0 is missing"}
    photos.maintenance.facts = {
        "clouds": [CLEAN],
        "problems": [{**gone, "older": True}, {**gone, "older": False}],
        "wrong": 2,
        "older": 1,
    }
    assert run("scrub").stdout.splitlines()[-3:] == [
        "  missing  birch  packs/ab/abcd.0 is missing  the cloud keeps it as it was",
        "  missing  birch  packs/ab/abcd.0 is missing",
        "hybrisfs repair puts them right from what the other clouds hold and what clouds keep of earlier "
        "versions.",
    ]


def test_scrub_tells_of_values_that_no_key_names(photos: FakeVolume, run: Run, tmp_path: Path) -> None:
    photos.maintenance.facts = {"clouds": [CLEAN], "problems": [], "wrong": 0}
    with Rig(tmp_path) as rig:
        photos.key_values = Stored(rig)
        rig.put("key", b"value")
        assert "named by no key" not in run("scrub").stdout
        write = rig.store.collector.draw(1)[0]
        for cloud in rig.cluster.stores[:2]:
            cloud.objects[rig.store.sealer.name(write, True)(0)] = b"left behind"
        rig.store.collector.end([write])
        done = run("scrub")
        assert done.exit_code == 0
        last = done.stdout.splitlines()[-1]
        assert last == (
            "2 objects of the key-value store on the clouds, named by no key: "
            "hybrisfs kv clean photos deletes them."
        )
        assert json.loads(run("scrub", "--json").stdout)["values"]["unnamed"] == 2
        assert "Deleted 2 objects." in run("kv", "clean", "photos").stdout
        assert "named by no key" not in run("scrub").stdout


@pytest.mark.parametrize("sample", ["0", "-1", "101", "many"])
def test_impossible_samples_are_refused(photos: FakeVolume, run: Run, sample: str) -> None:
    assert run("scrub", "--sample", sample).exit_code == 2
    assert photos.maintenance.percent is None


@pytest.mark.parametrize("sample", [0, 100.5, "5", True, None, float("nan")])
def test_the_daemon_refuses_impossible_samples_too(
    served: Daemon, photos: FakeVolume, sample: object
) -> None:
    with pytest.raises(UsageError, match="per cent"):
        served.handle("scrub", {"sample": sample}, lambda _: None)
    assert photos.maintenance.percent is None


def test_repair(photos: FakeVolume, run: Run) -> None:
    amber = {"name": "amber", "repaired": 0, "moved": 0, "failed": 0}
    photos.maintenance.facts = {"clouds": [amber], "problems": [], "repaired": 0, "failed": 0}
    assert run("repair").stdout == "photos: nothing was wrong.\n"
    birch = {"name": "birch", "repaired": 4, "moved": 2, "failed": 0}
    photos.maintenance.facts = {"clouds": [amber, birch], "problems": [], "repaired": 6, "failed": 0}
    done = run("repair", "photos")
    assert done.exit_code == 0
    assert done.stdout == (
        "photos: 6 objects repaired, 0 not:\n"
        "  amber  nothing was wrong\n"
        "  birch  4 repaired, 2 moved to other clouds\n"
    )
    problem = {"cloud": "birch", "what": "packs/ab/abcd.0 is missing", "why": "no cloud can take it now"}
    photos.maintenance.facts = {"clouds": [amber], "problems": [problem], "repaired": 0, "failed": 1}
    failed = run("repair")
    assert failed.exit_code == 1
    assert "  birch  packs/ab/abcd.0 is missing  no cloud can take it now\n" in failed.stdout
    as_json = run("repair", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["name"] == "photos"


def test_gc(photos: FakeVolume, run: Run) -> None:
    nothing: dict[str, object] = {
        "unnamed": {"orphans": 0, "strays": 0, "leftovers": 0, "young": 0},
        **{kind: {"packs": 0, "bytes": 0} for kind in ("empty", "sparse", "young", "deleted", "due")},
        "rewritten": 0,
        "proposed": 0,
        "waiting_for": [],
        "trouble": None,
    }
    photos.collector.facts = nothing
    done = run("gc")
    assert (done.exit_code, done.stdout) == (0, "photos: nothing was deleted.\n")
    photos.collector.facts = {
        **nothing,
        "empty": {"packs": 4, "bytes": 4_000_000},
        "sparse": {"packs": 2, "bytes": 1_000_000},
        "young": {"packs": 1, "bytes": 1_000_000},
        "deleted": {"packs": 3, "bytes": 3_000_000},
        "due": {"packs": 1, "bytes": 1_000_000},
        "unnamed": {"orphans": 1, "strays": 2, "leftovers": 1, "young": 4},
        "rewritten": 2,
        "waiting_for": [{"device": "lap\ntop", "last_seen": None}],
    }
    photos.log = {"dropped": 1000, "freed_bytes": 2_000_000, "kept": 1}
    done = run("gc", "photos")
    assert done.stdout == (
        "photos: 3 packs (3.0 MB) deleted.\n"
        "  not needed at all: 4 packs (4.0 MB)\n"
        "  hardly needed: 2 packs (1.0 MB); 2 packs packed again\n"
        "  kept for some time yet: 1 pack (1.0 MB)\n"
        "  named by nothing: 1 pack, 3 single shares\n"
        "  perhaps on the way still: 4 shares that nothing names\n"
        "  to be deleted when the clouds can be reached: 1 pack (1.0 MB)\n"
        "  the log: 1,000 changes summed up in a checkpoint "
        "(2.0 MB freed on this machine), 1 kept one by one\n"
        "  waiting for $'lap\\ntop' to agree\n"
    )
    assert json.loads(run("gc", "--dry-run", "--json").stdout)["dry_run"] is True
    assert photos.collector.dry == [False, False, True]
    photos.collector.facts = {**nothing, "due": {"packs": 2, "bytes": 1}, "undeletable": 3}
    assert run("gc").stdout == (
        "photos: nothing was deleted.\n"
        "  3 objects wait for a machine that may delete: the credentials of this one may not\n"
        "  the log: 1,000 changes summed up in a checkpoint "
        "(2.0 MB freed on this machine), 1 kept one by one\n"
    )
    photos.collector.facts = {**nothing, "trouble": "no cloud answers"}
    assert run("gc").exit_code == 1


def test_a_person_is_asked_before_a_database_is_rebuilt_that_can_be_read(
    photos: FakeVolume, volumes: FakeVolumes
) -> None:
    refused = typed("n\n", "volume", "rebuild", "photos")
    assert refused.exit_code == 130 and "hybrisfs fsck photos tells" in refused.stderr
    assert not photos.closed
    for words in ("y\n", ""):
        done = typed(words, "volume", "rebuild", "photos", *([] if words else ["--yes"]))
        assert done.exit_code == 0 and "Set aside" in done.stdout


def test_nobody_is_asked_about_a_database_that_cannot_be_read(served: Daemon, volumes: FakeVolumes) -> None:
    volumes.broken["photos"] = DamagedError("the database is damaged")
    done = typed("", "volume", "rebuild", "photos")
    assert done.exit_code == 0 and "Set aside" in done.stdout


def test_rebuild_tells_what_became_of_files_that_no_cloud_had(
    served: Daemon, volumes: FakeVolumes, run: Run
) -> None:
    served.start()
    done = run("volume", "rebuild", "photos")
    assert done.exit_code == 0
    assert done.stdout.startswith("Set aside: /state/damaged. Remove it when all is well.\n")
    volumes.rebuilt |= {"recovered": ["recovered/a\nb"], "lost": ["c"]}
    done = run("volume", "rebuild", "photos")
    assert done.exit_code == 1
    assert "recovered: $'recovered/a\\nb'\nlost: c\n" in done.stdout
    assert json.loads(run("volume", "rebuild", "photos", "--json").stdout)["lost"] == ["c"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "nothing is to be deleted: everything on the clouds is needed."),
        ({"young": {"packs": 2, "bytes": 5_000_000}}, "nothing can be deleted yet: 5.0 MB"),
        (
            {"empty": {"packs": 1, "bytes": 2_000_000}, "sparse": {"packs": 1, "bytes": 1_000_000}},
            "up to 3.0 MB on the clouds are not needed: hybrisfs gc photos frees them.",
        ),
    ],
)
def test_a_look_says_first_what_it_means(
    photos: FakeVolume, run: Run, facts: dict[str, Any], said: str
) -> None:
    photos.collector.facts = facts
    assert said in run("gc", "--dry-run").stdout.splitlines()[0]
