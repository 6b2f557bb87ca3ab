"""Two machines change a text in different places; nobody is asked."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.system.dashboard_page import Edited, conflicts_of, two_machines
from tests.system.deadline import until
from tests.system.device import Device

_TEXTS = {
    "list.txt": Edited("milk\n", "milk\nbread\n", "milk\napples\n"),
    "notes.txt": Edited("one\ntwo\nthree\nfour\n", "one\nTWO\nthree\nfour\n", "one\ntwo\nthree\nFOUR\n"),
    "word.txt": Edited("before\n", "here\n", "there\n"),
}


def _has_one_conflict(device: Device) -> bool:
    return len(conflicts_of(device)) == 1


def test_changes_in_different_places_become_one_text(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("here", "there")]
    for root in roots:
        root.mkdir()
    with ExitStack() as stack:
        here, there = two_machines(stack, *roots, texts=_TEXTS)
        for device in (here, there):
            until(partial(_has_one_conflict, device), "two texts to be merged", 150)
            [left] = conflicts_of(device)
            assert left["of"] == "word.txt"
            assert (device.mountpoint / "notes.txt").read_text() == "one\nTWO\nthree\nFOUR\n"
            lines = (device.mountpoint / "list.txt").read_text().splitlines()
            assert sorted(lines) == ["apples", "bread", "milk"]
        until(lambda: "were merged" in here.run("events") + there.run("events"), "the event")
        assert len(here.run("versions", "list", str(here.mountpoint / "notes.txt")).splitlines()) >= 4
