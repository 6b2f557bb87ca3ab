"""What the next daemon knows of the last one."""

from __future__ import annotations

import json

import pytest

from hybrisfs.daemon import supervisor
from hybrisfs.home import Home


def test_one_that_ended_in_good_order_is_not_remembered(home: Home) -> None:
    assert supervisor.begin(home, 1000.0) == (None, 0.0)
    supervisor.end(home)
    supervisor.note_death(home, 1005.0)
    assert supervisor.begin(home, 1010.0) == (None, 0.0)


def test_quick_deaths_make_the_next_one_wait_longer_and_longer_but_a_minute_at_most(home: Home) -> None:
    now, pauses = 1000.0, []
    for _ in range(10):
        _, pause = supervisor.begin(home, now)
        pauses.append(pause)
        now += pause + 5.0
        supervisor.note_death(home, now)
    assert pauses[:2] == [0.0, 0.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60.0
    _, pause = supervisor.begin(home, now)
    supervisor.note_death(home, now + pause + 600.0)
    last, pause = supervisor.begin(home, now + pause + 601.0)
    assert last is not None
    assert pause == 0.0


def test_when_it_died_is_known_from_the_first_who_saw_it(home: Home) -> None:
    supervisor.begin(home, 1000.0)
    supervisor.note_death(home, 1100.0)
    supervisor.note_death(home, 1200.0)
    last, _ = supervisor.begin(home, 1300.0)
    assert last is not None
    assert (last.started, last.died) == (1000.0, 1100.0)


@pytest.mark.parametrize("change", [{"boot": "another"}, {"started": "x"}, {"more": 1}, None])
def test_a_record_of_another_boot_or_a_damaged_one_counts_for_nothing(
    home: Home, change: dict[str, object] | None
) -> None:
    supervisor.begin(home, 1000.0)
    path = home.runtime / "life.json"
    record = json.loads(path.read_text())
    path.write_text("nonsense" if change is None else json.dumps({**record, **change}))
    assert supervisor.begin(home, 1010.0) == (None, 0.0)
