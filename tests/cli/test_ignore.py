"""hybrisfs ignore, and what status, sync and leaving say of files that stay on this machine."""

from __future__ import annotations

import json

from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolume


def test_rules_are_added_listed_and_removed(photos: FakeVolume, run: Run) -> None:
    assert run("ignore", "list").stdout == "There are no ignore rules.\n"
    done = run("ignore", "add", "node_modules/", "!keep.o")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "node_modules/: what matches stays on the machine that makes it.",
        "!keep.o: what matches is synced.",
        "photos has 2 ignore rules now; what is synced already stays synced.",
    ]
    photos.ignoring.files = 3
    assert run("ignore", "list", "--limit", "2").stdout.splitlines() == [
        "RULE           BY",
        "node_modules/  laptop",
        "!keep.o        laptop",
        "On this machine only: 3 files and folders (3.0 kB).",
        "  file 0/",
        "  file 1",
    ]
    facts = json.loads(run("ignore", "list", "--json").stdout)
    assert facts["rules"][0] == {"pattern": "node_modules/", "by": "laptop"}
    assert facts["paths"][0] == {"path": "file 0", "folder": True}
    assert run("ignore", "remove", "node_modules/").stdout == "node_modules/ is no longer an ignore rule.\n"
    assert photos.ignoring.patterns == ["!keep.o"]


def test_what_is_no_rule_is_refused(photos: FakeVolume, run: Run) -> None:
    refused = run("ignore", "add", "*")
    assert refused.exit_code == 2 and "it would match everything" in refused.stderr
    assert run("ignore", "add").exit_code == 2
    assert not photos.ignoring.patterns


def test_nobody_is_told_that_it_is_safe(photos: FakeVolume, run: Run) -> None:
    photos.ignoring.patterns, photos.ignoring.files = ["*.o"], 1
    lines = run("status").stdout.splitlines()
    assert "  Everything but what ignore rules keep here is safe on 2 of 3 clouds." in lines
    assert (
        "  ignore rules keep 1 file or folder (1.0 kB) on this machine only (hybrisfs ignore list)" in lines
    )
    assert run("sync", "--wait").stdout == (
        "photos: everything but what ignore rules keep here is safe on the clouds.\n"
    )


def test_leaving_would_lose_it(photos: FakeVolume, run: Run) -> None:
    photos.others = [{"id": "11" * 16, "name": "nas", "forked": False}]
    photos.ignoring.files = 2
    refused = run("volume", "leave", "photos")
    assert refused.exit_code == 1
    assert "2 files or folders with 2,000 bytes would be lost" in refused.stderr
    assert "hybrisfs ignore list" in refused.stderr
    assert run("volume", "leave", "photos", "--force").exit_code == 0
