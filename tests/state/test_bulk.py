"""Queries about many keys at once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hybrisfs.state.bulk import select_with
from tests.tree.rig import Rig

_THERE = [bytes([1]) + number.to_bytes(15, "big") for number in range(1300)]
_ELSEWHERE = [bytes([2]) + number.to_bytes(15, "big") for number in range(700)]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 65, 512, 513, 1300])
def test_rows_with_values_are_found_however_many_are_asked_for(tmp_path: Path, count: int) -> None:
    rig = Rig(tmp_path)
    rows = [(number, one) for number, one in enumerate(_THERE, 1000)]
    rig.db.rows.executemany("INSERT INTO writer (number, branch) VALUES (?, ?)", rows)
    wanted = _THERE[:count] + _ELSEWHERE[: count // 2]
    random.Random(count).shuffle(wanted)
    found = list(select_with(rig.db.rows, "number, branch", "writer", "branch", wanted))
    assert sorted(found) == rows[:count]
    rig.abandon()
