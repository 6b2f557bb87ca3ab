"""Which statement counts, and which agreed checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from hybrisfs.state.checkpoints import CheckpointTable, Recorded, StoredSnapshot
from sync import VersionVector
from tests.tree.rig import Rig

ROOT, NAME = b"root", b"n" * 32


@pytest.fixture
def table() -> Iterator[CheckpointTable]:
    rig = Rig()
    yield CheckpointTable(rig.db.rows)
    rig.discard()


def statement(clock: int, through: int) -> Recorded:
    return Recorded(StoredSnapshot(b"%032d" % clock, (), ()), VersionVector({b"w" * 16: clock}), through)


@pytest.mark.parametrize("later", [7, 8])
def test_the_latest_counts_also_when_nothing_came_between(table: CheckpointTable, later: int) -> None:
    """What is looked back at has the number of an update that it does not cover."""
    for snapshot in (9, 5):  # in no order
        first, second = statement(snapshot, 7), statement(7, later)
        table.put(first)
        assert (table.stated(), table.agreed(), table.deposited()) == (first, None, None)
        first = replace(first, root=ROOT)
        table.put(first)
        assert (table.stated(), table.agreed(), table.deposited()) == (first, first, None)
        table.put(second)
        assert (table.stated(), table.agreed(), table.deposited()) == (second, first, None)
        first = replace(first, deposited=NAME)
        table.put(first)
        assert (table.stated(), table.agreed(), table.deposited()) == (second, first, first)
        second = replace(second, root=ROOT)
        table.put(second)
        assert (table.stated(), table.agreed(), table.deposited()) == (second, second, first)
        second = replace(second, deposited=NAME)
        table.put(second)
        assert table.all() == [second]
        table.put(replace(statement(1, 10), root=ROOT, deposited=NAME))
        assert len(table.all()) == 1
        table._db.execute("DELETE FROM checkpoint")


def test_a_statement_takes_the_place_of_one_before(table: CheckpointTable) -> None:
    for snapshot in (9, 5, 7):
        table.put(statement(snapshot, 7))
        assert table.all() == [statement(snapshot, 7)]
