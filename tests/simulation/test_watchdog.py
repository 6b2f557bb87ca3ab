"""The watchdog bites what takes longer than its bytes allow, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.merge.fleet import Fleet
from tests.simulation.watchdog import SlowError, Watchdog

LONG = 300_000


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(2)
    yield one
    one.discard()


def watchdog(fleet: Fleet) -> Watchdog:
    return Watchdog(lambda: [device.rig.db.rows._connection for device in fleet.devices], 100_000, 0)


def nothing() -> None:
    """What is called in vain."""


def test_work_that_its_bytes_allow(fleet: Fleet) -> None:
    with watchdog(fleet).watch("files"):
        for number in range(100):
            fleet[0].write(f"{number}", b"x")
        fleet.meet()


def test_calls_without_end(fleet: Fleet) -> None:
    with pytest.raises(SlowError, match="calls"), watchdog(fleet).watch("calls"):
        for _ in range(LONG):
            nothing()


def test_statements_without_end(fleet: Fleet) -> None:
    counting = (
        "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?) SELECT max(n) FROM c"
    )
    with pytest.raises(SlowError, match="statements"), watchdog(fleet).watch("statements"):
        fleet[1].rig.db.rows.execute(counting, (LONG,)).fetchone()


def test_a_step_counts_for_itself(fleet: Fleet) -> None:
    dog = watchdog(fleet)
    for _ in range(4):
        with dog.watch("some"):
            for _ in range(LONG // 8):
                nothing()
