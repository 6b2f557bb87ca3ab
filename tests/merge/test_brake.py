"""Mass deletion by another device waits for a person here; everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.errors import UsageError
from tests.merge.fleet import Fleet

FILES = 200


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2)
    for number in range(FILES):
        fleet[0].write(f"file {number}", b"%d" % number)
    fleet.meet()
    yield fleet
    fleet.discard()


def _delete(fleet: Fleet, first: int, last: int) -> None:
    for number in range(first, last):
        fleet[0].remove(f"file {number}")
    fleet[0].sign()


def test_it_waits_and_is_accepted(fleet: Fleet) -> None:
    _delete(fleet, 0, 150)
    fleet[0].write("later", b"depends on it")
    fleet.send(0, 1)
    assert len(fleet[1].names()) == FILES
    sharing = fleet[1].rig.sharing
    [waiting] = sharing.deletions.all()
    assert (waiting["names"], waiting["of"]) == (150, FILES)
    with pytest.raises(UsageError):
        sharing.deletions.accept("beef")
    sharing.deletions.accept(str(waiting["id"]))
    assert sharing.deletions.all() == []
    assert len(fleet[1].names()) == FILES - 150 + 1
    fleet.meet()
    assert fleet[0].tree() == fleet[1].tree()


def test_it_is_undone_everywhere(fleet: Fleet) -> None:
    before = fleet[0].tree()
    _delete(fleet, 0, 40)  # in several updates: what counts is the sum
    fleet.send(0, 1)
    assert len(fleet[1].names()) == FILES - 40
    _delete(fleet, 40, 100)
    fleet.send(0, 1)
    assert len(fleet[1].names()) == FILES - 40
    [waiting] = fleet[1].rig.sharing.deletions.all()
    assert waiting["names"] == 100
    fleet[1].rig.sharing.deletions.undo(str(waiting["id"]))
    fleet.meet()
    assert fleet[0].tree() == fleet[1].tree() == before


def test_few_deletions_pass(fleet: Fleet) -> None:
    _delete(fleet, 0, 50)
    fleet.send(0, 1)
    assert len(fleet[1].names()) == FILES - 50
    assert fleet[1].rig.sharing.deletions.all() == []


def test_own_deletions_never_wait(fleet: Fleet) -> None:
    _delete(fleet, 0, FILES)
    fleet[0].receive(fleet[0].log())
    assert fleet[0].rig.sharing.deletions.all() == []
