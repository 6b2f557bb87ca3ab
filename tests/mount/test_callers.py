"""What /proc tells of a thread."""

from __future__ import annotations

import os
from pathlib import Path

from hybrisfs.mount.programs import has_capability, is_in_group, status_of


def test_groups_of_a_thread(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name:\tGroups: 5\nTgid:\t6\nGroups:\t24 1000 \nGid:\t1 1 1 1\n")
    assert status_of(7, "Groups", tmp_path) == ["24", "1000"]
    assert status_of(7, "Nothing", tmp_path) == []
    assert [is_in_group(7, gid, tmp_path) for gid in (24, 1000, 5, 10)] == [True, True, False, False]


def test_capabilities_of_a_thread(tmp_path: Path) -> None:
    for thread, words in ((7, "CapEff:\t0000000000000010\n"), (8, "CapEff:\tnonsense\n"), (9, "")):
        (tmp_path / str(thread)).mkdir()
        (tmp_path / str(thread) / "status").write_text(f"CapPrm:\tffffffffffffffff\n{words}")
    assert [has_capability(7, number, tmp_path) for number in (3, 4, 5)] == [False, True, False]
    assert [has_capability(thread, 4, tmp_path) for thread in (8, 9, 10)] == [False, False, False]


def test_one_that_has_ended_is_in_no_group(tmp_path: Path) -> None:
    assert not is_in_group(8, 0, tmp_path)


def test_this_very_process() -> None:
    assert status_of(os.getpid(), "Tgid") == [str(os.getpid())]
